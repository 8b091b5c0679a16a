"""Examples on the target `cuda`, emulated: the results of the cpu, or a refusal by name."""

from __future__ import annotations

import numpy as np
import pytest

from examples.cases import Run, cases, copied
from pto_wsp.errors import CompileError, UnsupportedByTarget
from pto_wsp.runtime.compiling import compile_module
from tests.cuda.launched import launched

CASES = dict(cases())

QUICK = ("01_scale_rows/scale_rows.py", "cookbook/decode_loop.py", "cookbook/ragged_attention.py")

REFUSED: dict[str, type[CompileError]] = {
    "07_pipeline/pipeline.py": UnsupportedByTarget,  # networks of processes
    "08_expert_network/expert_network.py": UnsupportedByTarget,
}
"""Examples that the target refuses."""

EMULATED = (
    *("02_paged_decode/paged_decode.py", "03_moe/moe.py", "06_tuned_decode/tuned_decode.py"),
    *("cookbook/batched_lora.py", "cookbook/capped_moe.py", "cookbook/gated_linear_attention.py"),
    *("cookbook/mixture_of_experts.py", "cookbook/quantised_linear.py", "cookbook/tree_attention.py"),
    *("cookbook/top_p_sampling.py", "cookbook/windowed_alibi.py", "deepseek_v32/graphs.py"),
    *("llama/workload.py", "pto_programs/softmax.py"),
)
"""The others whose emulation takes less than minutes."""


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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "deepseek" in name else ()) for name in REFUSED]
)
def test_refused_example(name: str) -> None:
    with pytest.raises(REFUSED[name]):
        compile_module(CASES[name]().module, "cuda")
