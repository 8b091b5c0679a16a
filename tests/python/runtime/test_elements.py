"""Elements of integer tensors decide bounds and offsets; what is read may change between runs."""

import numpy as np
import pytest

from pto_wsp import errors
from pto_wsp.ir.core import Full, Range, Region
from pto_wsp.ir.kernel import KernelFunction, Load, Param, Store
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Element, Select, Var, add
from pto_wsp.ir.workload import Loop, SizeParam, Task, TensorParam, WorkloadFunction
from pto_wsp.location import Location
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from pto_wsp.types import DType, TensorType, TileType, f32, i8, i16, i32, i64, u8, u16, u32, u64
from tests.generators.workloads import KERNELS
from tests.python.samples import WHOLE, scale_module

PLACE = Location("w.py", 3, 5, 9)
RNG = np.random.default_rng(5)


def gather(dtype: DType) -> Module:
    """For every b, blend `lengths[b]` single rows picked by `index` into rows of Y, one after another."""
    b, i = Var("b"), Var("i")
    at = add(Element("first", (b,), PLACE), i)
    source = Region("X", (Range(Element("index", (at, Const(0)), PLACE), Const(1)), Full()), PLACE)
    target = Region("Y", (Range(b, Const(1)), Full()), PLACE)
    inner = Loop(
        "range", "i", Element("lengths", (b,), PLACE), None, (Task("blend_inout", (source, target, i)),)
    )
    params = (
        SizeParam("n"),
        TensorParam("X", TensorType(f32, (20, 9))),
        TensorParam("Y", TensorType(f32, ("n", 9))),
        TensorParam("first", TensorType(dtype, ("n",))),
        TensorParam("lengths", TensorType(dtype, ("n",))),
        SizeParam("m"),
        TensorParam("index", TensorType(dtype, ("m", 2))),
    )
    body = (Loop("parallel", "b", Var("n"), None, (inner,)),)
    return Module("m", KERNELS, (WorkloadFunction("w", params, body),), "w")


def arguments(dtype: DType, lengths: list[int]) -> dict[str, np.ndarray]:
    own = dtype.to_numpy()
    ends = np.cumsum(lengths)
    index = RNG.integers(0, 20, (max(int(ends[-1]), 1) if lengths else 1, 2))
    return {
        "X": RNG.uniform(-1, 1, (20, 9)).astype(np.float32),
        "Y": RNG.uniform(-1, 1, (len(lengths), 9)).astype(np.float32),
        "first": (ends - lengths).astype(own),
        "lengths": np.array(lengths, own),
        "index": index.astype(own),
    }


@pytest.mark.parametrize("dtype", [i8, i16, i32, i64, u8, u16, u32, u64], ids=str)
def test_every_integer_type_decides(dtype: DType) -> None:
    module = gather(dtype)
    engine, reference = Program(module, {}, "cpu"), Program(module, {}, "interp")
    for lengths in ([3, 0, 2, 7], [], [0, 0], [1] * 30):
        given = arguments(dtype, lengths)
        expected = given["Y"].copy()
        reference(**{**given, "Y": expected})
        engine.run(**given, workers=2)
        assert engine.stats is not None and engine.stats.tasks == sum(lengths)
        np.testing.assert_allclose(given["Y"], expected, atol=1e-5)


def test_elements_may_change_between_runs_of_one_program() -> None:
    program = Program(gather(i32), {}, "cpu")
    given = arguments(i32, [2, 2])
    counts = []
    for lengths in ([2, 2], [0, 1], [2, 0]):
        given["lengths"][:] = lengths
        program(**given)
        assert program.stats is not None
        counts.append(program.stats.tasks)
    assert counts == [4, 1, 2]


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_bad_elements_are_errors_before_the_first_task(target: str) -> None:
    program = Program(gather(i32), {}, target)

    def error(**changes: object) -> errors.PtoError:
        given = arguments(i32, [3, 1]) | changes
        before = given["Y"].copy()
        with pytest.raises(errors.PtoError) as caught:
            program(**given)
        assert np.array_equal(before, given["Y"])
        return caught.value

    assert isinstance(error(lengths=np.array([3, -1], np.int32)), errors.BadExpression)
    outside = error(first=np.array([0, 4], np.int32))
    assert isinstance(outside, errors.BadExpression) and "index" in str(outside)
    wrong_row = error(index=np.full((4, 2), 20, np.int32))
    assert isinstance(wrong_row, errors.RegionOutside) and wrong_row.loc == PLACE
    assert isinstance(error(index=np.full((4, 2), -1, np.int32)), errors.RegionOutside)
    huge = Program(gather(u64), {}, target)
    with pytest.raises(errors.BadExpression, match="overflows 64 bits"):
        huge(**arguments(u64, [3, 1]) | {"lengths": np.array([2**63, 1], np.uint64)})
    strided = np.zeros((8, 4), np.int32)[::2, :2]
    program(**arguments(i32, [3, 1]) | {"index": strided})


def copying(target_tensor: str) -> Module:
    """Copy `lengths[0]` rows of A to B, or back."""
    tile = TileType(4, 4, i32)
    body = (Load("t", Region("x", WHOLE)), Store(Region("y", WHOLE), "t"))
    kernel = KernelFunction(
        "copy", (Param("x", "in", tile), Param("y", "out", tile)), (("t", tile),), (), body
    )
    rows = (Range(Const(0), Element("A", (Const(0), Const(0)), PLACE)), Full())
    source = "B" if target_tensor == "A" else "A"
    task = Task("copy", (Region(source, rows), Region(target_tensor, rows)))
    tensors = tuple(TensorParam(name, TensorType(i32, (4, 4))) for name in "AB")
    return Module("m", (kernel,), (WorkloadFunction("w", tensors, (task,)),), "w")


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_arrays_that_decide_may_not_be_written(target: str) -> None:
    a, b = np.full((4, 4), 2, np.int32), np.zeros((4, 4), np.int32)
    program = Program(copying("B"), {}, target)
    program(A=a, B=b)
    assert b.sum() == 16
    with pytest.raises(errors.OverlappingArrays, match="decides what runs"):
        program(A=a, B=a)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_what_a_task_writes_decides(target: str) -> None:
    a, b = np.full((4, 4), 2, np.int32), np.zeros((4, 4), np.int32)
    a[0, 0], b[:2] = 3, 2
    Program(copying("A"), {}, target)(A=a, B=b)
    assert (a == [[2] * 4, [2] * 4, [0] * 4, [2] * 4]).all()


def test_the_arm_that_is_not_chosen_may_have_no_value() -> None:
    module = scale_module()
    guarded = Select(
        Binary("gt", Var("n"), Const(0)), Binary("floordiv", Const(64), Var("n")), Const(0), PLACE
    )
    dims = (Range(Const(0), guarded), Full())
    task = Task("scale", (Region("X", dims), Region("Y", dims), Var("factor", f32)))
    workload = replace(module.workloads[0], body=(task,))
    for target in ("cpu", "interp"):
        program = Program(replace(module, workloads=(workload,)), {}, target)
        for n in (0, 8):
            x, y = np.ones((n, 128), np.float32), np.zeros((n, 128), np.float32)
            program(X=x, Y=y, factor=2.0)
            assert (y == 2).all()
