"""The target `cuda` on a GPU, not emulated. Skipped where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import DispatchPolicy, Ragged, Schedule
from pto_wsp.errors import KernelFailed, NoGpu
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.targets.cuda.driver import find_gpu
from tests.cuda import test_examples as examples
from tests.cuda import test_programs as programs
from tests.cuda import test_sums as sums


def missing() -> str:
    """Return why there is no GPU; an empty text if there is one."""
    try:
        find_gpu()
    except NoGpu as error:
        return str(error.caret_text)
    return ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"there is no GPU: {missing()}")

MANY = 2000
"""Tasks of a loop: every block runs some."""


def test_a_chain_has_the_bits_of_the_interpreter() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((MANY, 4, 32)).astype(np.float32)
    found, wanted = ({"X": x.copy(), "Y": np.zeros_like(x), "Z": np.zeros_like(x)} for _ in range(2))
    program = programs.chain.compile("cuda")
    program(**found)
    programs.chain.compile("interp")(**wanted)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    for blocks in (1, 3, 33):
        again = {"X": x.copy(), "Y": np.zeros_like(x), "Z": np.zeros_like(x)}
        program(workers=blocks, **again)
        np.testing.assert_array_equal(again["Z"], wanted["Z"])


def test_ragged_decode() -> None:
    rng, lengths = np.random.default_rng(2), [5, 3300, 0, 16, 900]
    q = rng.standard_normal((5, 2, 4, 32)).astype(np.float32)
    k, v = rng.standard_normal((2, sum(lengths), 2, 32)).astype(np.float32)
    results = []
    for target in ("cuda", "cpu"):
        o = np.zeros_like(q)
        programs.decode.compile(target)(kv=Ragged.lengths(lengths), Q=q, K=k, V=v, Y=o)
        results.append(o)
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("of", sums.k.SUMS, ids=lambda of: of.name)
def test_products_in_loops(of: Kernel) -> None:
    workload = sums.k.workload_of(of)
    (function,) = workload.compile("interp").module.kernels
    program = workload.compile("cuda")
    for seed, size in enumerate((*sums.SIZES[:-2], (200, 300, 256))):
        found, wanted = (sums.arrays(function, size, seed) for _ in range(2))
        program(A=found[0], B=found[1], Y=found[2])
        run_kernel(function, wanted)
        bound = sums.bound_of(of)
        np.testing.assert_allclose(found[2], wanted[2], rtol=bound, atol=bound, err_msg=str(size))


def test_a_failure_has_its_place() -> None:
    x, first = np.ones((9, 4, 32), np.float32), np.array([0, 0, 0, 0, 0, 1, 0, -1, 0], np.int32)
    with pytest.raises(KernelFailed, match="in task 5 in iteration i = 5"):
        programs.checked.compile("cuda")(X=x, Y=x.copy(), L=first)


def test_blocks_take_turns_in_a_trace() -> None:
    program = programs.chain.compile("cuda")
    program.reschedule(Schedule().dispatch(DispatchPolicy.round_robin(4)))
    x = np.ones((10, 4, 32), np.float32)
    program(X=x, Y=np.zeros_like(x), Z=np.zeros_like(x), trace=True)
    trace = program.trace
    assert trace is not None
    assert trace.worker.tolist() == [k % 4 for k in range(len(trace))]
    assert (trace.end_ns >= trace.start_ns).all()


@pytest.mark.parametrize("name", [*examples.QUICK, *examples.EMULATED])
def test_example(name: str) -> None:
    run = examples.CASES[name]()
    found, wanted = ({k: examples.copied(v) for k, v in run.arguments.items()} for _ in range(2))
    found.pop("workers", None)
    compile_module(run.module, "cuda").run(**found)
    compile_module(run.module).run(**wanted)
    examples.compare(run, found, wanted)
