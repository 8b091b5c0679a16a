"""The reference walk over a workload's tasks."""

import numpy as np
import pytest

from pto_wsp.errors import BadExpression, RegionOutside, ViewShape
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.workload import expand, run_workload
from pto_wsp.ir.core import Full, Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Var, binary
from pto_wsp.ir.workload import Loop, Task, WorkloadFunction
from pto_wsp.support.record import replace
from pto_wsp.types import f32
from tests.python.samples import scale_kernel, scale_module

RNG = np.random.default_rng(2)


def run(module: Module, arrays: dict[str, np.ndarray], **sizes: float) -> int:
    kernels = {kernel.name: kernel for kernel in module.kernels}
    return run_workload(module, arrays, sizes, lambda name, args, _: run_kernel(kernels[name], args))


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
def test_tiles_are_clipped_to_their_axis(n: int) -> None:
    x = RNG.standard_normal((n, 128)).astype(np.float32)
    y = np.empty_like(x)
    assert run(scale_module(), {"X": x, "Y": y}, n=n, factor=2.0) == -(-n // 64)
    assert np.array_equal(y, x * 2)


def test_order_is_that_of_the_text() -> None:
    inner = Loop(
        "range", "j", Binary("add", Var("i"), Const(1)), None, (Task("b", (), (Var("i"), Var("j"))),)
    )
    body = (Loop("parallel", "i", Const(3), None, (Task("a", (), (Var("i"),)), inner)),)
    found = [
        (task.node.kernel, task.scope["i"], task.scope.get("j") if task.node.kernel == "b" else None)
        for task in expand(WorkloadFunction("w", (), body), {})
    ]
    pairs = [("a", 0, None), ("b", 0, 0), ("a", 1, None), ("b", 1, 0), ("b", 1, 1), ("a", 2, None)]
    assert found == [*pairs, ("b", 2, 0), ("b", 2, 1), ("b", 2, 2)]


def shifted(extent: int) -> Module:
    """A workload whose last task reads `extent` rows from row 64 * i + 1 on."""
    module = scale_module()
    rows = Range(binary("add", binary("mul", Var("i"), Const(64)), Const(1)), Const(extent))
    task = Task("scale", (Region("X", (rows, Full())), Region("Y", (rows, Full())), Var("factor", f32)))
    workload = replace(module.workloads[0], body=(Loop("parallel", "i", Const(2), None, (task,)),))
    return replace(module, workloads=(workload,))


def test_regions_outside_are_errors_before_the_first_task() -> None:
    x, y = np.ones((128, 128), np.float32), np.zeros((128, 128), np.float32)
    with pytest.raises(RegionOutside, match=r"\[65, 129\)"):
        run(shifted(64), {"X": x, "Y": y}, n=128, factor=2.0)
    assert not y.any()


def test_views_must_fit_their_parameter() -> None:
    x = np.ones((300, 128), np.float32)
    with pytest.raises(ViewShape, match="at most 64"):
        run(shifted(65), {"X": x, "Y": x}, n=300, factor=2.0)


def test_a_negative_extent_is_an_error() -> None:
    loop = Loop("range", "i", Const(-1), None, ())
    module = Module("m", (scale_kernel(),), (WorkloadFunction("w", (), (loop,)),), "w")
    with pytest.raises(BadExpression, match="extent -1"):
        run(module, {})
