"""Examples on the target `cuda`, emulated: the results of the cpu, or a refusal by name."""

from __future__ import annotations

import numpy as np
import pytest

from examples.cases import Run, cases, copied
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.runtime.compiling import compile_module
from tests.cuda.launched import launched

CASES = dict(cases())

QUICK = ("01_scale_rows/scale_rows.py", "cookbook/decode_loop.py", "cookbook/ragged_attention.py")

ONE_ORDER = "it runs workloads of one program order: compile for `cpu` or `interp`"

REFUSED = {
    "07_pipeline/pipeline.py": ("a network of processes", "def load(", ONE_ORDER),
    "08_expert_network/expert_network.py": ("a network of processes", "def deal(", ONE_ORDER),
    "09_streaming_attention/streaming_attention.py": ("a network of processes", "def load_keys(", ONE_ORDER),
    "10_decode_server/decode_server.py": ("a network of processes", "def source(", ONE_ORDER),
}
"""Examples that the target refuses: what it refuses, the line where, and the reason."""

EMULATED = (
    *("02_paged_decode/paged_decode.py", "03_moe/moe.py", "06_tuned_decode/tuned_decode.py"),
    *("cookbook/batched_lora.py", "cookbook/capped_moe.py", "cookbook/gated_linear_attention.py"),
    *("cookbook/mixture_of_experts.py", "cookbook/quantised_linear.py", "cookbook/tree_attention.py"),
    *("cookbook/top_p_sampling.py", "cookbook/windowed_alibi.py", "deepseek_v32/graphs.py"),
    *("llama/workload.py", "pto_programs/softmax.py"),
)
"""The others whose emulation takes less than minutes."""

LONG = (
    *("04_sparse_attention/sparse_attention.py", "05_decode_loop/decode_loop.py"),
    *("pto_programs/bgemm.py", "pto_programs/llama.py"),
)
"""Examples that are compiled alone."""


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in EMULATED)])
def test_example(name: str) -> None:
    """Compare every array with that of a run on the cpu."""
    run = CASES[name]()
    found, wanted = ({key: copied(value) for key, value in run.arguments.items()} for _ in range(2))
    launched(run.module).run(**{**found, "workers": 3})
    compile_module(run.module).run(**wanted)
    compare(run, found, wanted)


def compare(run: Run, found: dict[str, object], wanted: dict[str, object]) -> None:
    """Compare the arrays that tasks write."""
    for name in run.module.written & wanted.keys():
        a, b = found[name], wanted[name]
        assert isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        wide = [x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in (a, b)]
        np.testing.assert_allclose(*wide, rtol=1e-2, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_example(name: str) -> None:
    what, line, reason = REFUSED[name]
    with pytest.raises(UnsupportedByTarget) as caught:
        compile_module(CASES[name]().module, "cuda")
    text, place = str(caught.value), f"{name}:"
    assert f"target `cuda` does not support {what}\n" in text
    assert place in text and line in text and reason in text


def test_every_example_is_run_compiled_or_refused() -> None:
    assert sorted((*QUICK, *EMULATED, *LONG, *REFUSED)) == sorted(CASES)
