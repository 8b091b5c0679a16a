"""Programs: binding, checks, statistics; the same on the engine and the interpreter."""

import copy
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import errors
from pto_wsp.ir.core import Full, Index, Range, Region, TileRange
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Var, binary, mul
from pto_wsp.ir.workload import Loop, ScalarParam, SizeParam, Task, TensorParam, WorkloadFunction
from pto_wsp.location import Location
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from pto_wsp.types import ScalarType, TensorType, f32, i32
from tests.python.samples import scale_kernel, scale_module

TARGETS = ("cpu", "interp")
PLACE = Location("w.py", 12, 9, 20)


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def scale(target: str) -> Program:
    return Program(scale_module(), {}, target)


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 128)).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 7, 63, 64, 65, 1000])
def test_runs_any_size_with_one_compilation(scale: Program, n: int) -> None:
    for factor in (2.0, -0.5):
        x, y = rows(n), np.full((n, 128), np.nan, np.float32)
        scale(X=x, Y=y, factor=factor)
        assert np.array_equal(y, x * np.float32(factor))
        assert scale.stats is not None and scale.stats.tasks == -(-n // 64)
    assert scale.stats.compiles == 0


def test_works_in_place_on_views_without_copies(scale: Program) -> None:
    big = np.arange(300 * 256, dtype=np.float32).reshape(300, 256)
    before = big.copy()
    scale(X=big[::3, :128], Y=big[::3, 128:], factor=2.0)
    assert np.array_equal(big[::3, 128:], before[::3, :128] * 2)
    big[::3, 128:] = before[::3, 128:]
    assert np.array_equal(big, before)
    scale(X=big[:, :128], Y=big[:, :128], factor=0.5)
    assert np.array_equal(big[:, :128], before[:, :128] / 2)


def bad_call(scale: Program, **changes: object) -> errors.PtoError:
    """Return the error of a call with `changes`, and check that nothing was written."""
    y = np.zeros((100, 128), np.float32)
    values: dict[str, object] = {"X": rows(100), "Y": y, "factor": 2.0} | changes
    with pytest.raises(errors.PtoError) as caught:
        scale(**values)
    assert not y.any()
    return caught.value


def test_values_that_do_not_fit_are_named(scale: Program) -> None:
    assert isinstance(bad_call(scale, Z=1), errors.UnknownParameter)
    assert isinstance(bad_call(scale, X=None), errors.UnboundTensor)
    assert isinstance(bad_call(scale, factor=None), errors.UnboundTensor)
    assert isinstance(bad_call(scale, X=[1, 2]), errors.WrongValue)
    assert isinstance(bad_call(scale, factor="2"), errors.WrongValue)
    assert isinstance(bad_call(scale, workers=0), errors.WrongValue)
    assert isinstance(bad_call(scale, check="races"), errors.WrongValue)
    error = bad_call(scale, X=rows(100).astype(np.float64))
    assert isinstance(error, errors.WrongDType) and "`X`" in str(error)
    error = bad_call(scale, X=np.zeros(100, np.float32))
    assert isinstance(error, errors.WrongRank) and "expected 2, found 1" in str(error)
    error = bad_call(scale, X=rows(99))
    assert isinstance(error, errors.WrongShape) and "n = 99" in str(error)
    error = bad_call(scale, X=np.zeros((100, 127), np.float32))
    assert isinstance(error, errors.WrongShape) and "expected 128, found 127" in str(error)
    error = bad_call(scale, n=7)
    assert isinstance(error, errors.WrongShape)
    assert isinstance(bad_call(scale, n=-1), errors.WrongValue)


def test_arrays_that_cannot_be_used_are_named(scale: Program) -> None:
    def reason(**changes: object) -> str:
        error = bad_call(scale, **changes)
        assert isinstance(error, errors.UnusableArray), error
        return str(error)

    frozen = np.zeros((100, 128), np.float32)
    frozen.flags.writeable = False
    assert isinstance(bad_call(scale, Y=frozen), errors.ReadOnlyArray)
    assert "negative stride" in reason(X=rows(100)[::-1])
    assert "innermost stride" in reason(X=np.zeros((100, 256), np.float32)[:, ::2])
    assert "byte order" in reason(X=rows(100).astype(">f4"))
    assert "aligned" in reason(
        X=np.frombuffer(bytearray(100 * 512 + 1), np.uint8)[1:].view(np.float32).reshape(100, 128)
    )
    base = np.zeros((1, 128), np.float32)
    spread = np.lib.stride_tricks.as_strided(base, (100, 128), (0, 4), writeable=True)
    assert "zero stride" in reason(Y=spread)
    scale(X=spread, Y=np.zeros((100, 128), np.float32), factor=1.0)


def test_arguments_that_share_memory(scale: Program) -> None:
    big = np.zeros((200, 128), np.float32)
    error = bad_call(scale, X=big[:100], Y=big[50:150])
    assert isinstance(error, errors.OverlappingArrays) and "`X` and `Y`" in str(error)
    scale(X=big[:100], Y=big[100:], factor=1.0)
    scale(X=big[::2], Y=big[1::2], factor=1.0)


def with_body(*body: object, target: str) -> Program:
    module = scale_module()
    workload = replace(module.workloads[0], body=body)
    return Program(replace(module, workloads=(workload,)), {}, target)


def scale_rows(start: object, extent: object) -> Task:
    dims = (Range(start, extent), Full())
    return Task("scale", (Region("X", dims, PLACE), Region("Y", dims, PLACE), Var("factor", f32)), (), PLACE)


def test_regions_outside_are_errors_before_the_first_task(target: str) -> None:
    late = scale_rows(binary("add", mul(Var("i"), Const(32)), Const(4)), Const(32))
    program = with_body(Loop("parallel", "i", Const(3), None, (late,)), target=target)
    program(X=rows(100), Y=rows(100), factor=1.0)
    x, y = rows(99), np.zeros((99, 128), np.float32)
    with pytest.raises(errors.RegionOutside) as caught:
        program(X=x, Y=y, factor=1.0)
    assert not y.any()
    assert caught.value.loc == PLACE
    assert "expected a range inside [0, 99), found [68, 100) in iteration i = 2" in str(caught.value)


def test_triangular_loops_are_checked_exactly(target: str) -> None:
    task = scale_rows(binary("sub", Var("i"), Var("j")), Const(1))
    inner = Loop("range", "j", binary("add", Var("i"), Const(1)), None, (task,))
    program = with_body(Loop("range", "i", Var("n"), None, (inner,)), target=target)
    x, y = rows(20), np.zeros((20, 128), np.float32)
    program(X=x, Y=y, factor=1.0)
    assert np.array_equal(x, y)


def test_views_must_fit_their_parameter(target: str) -> None:
    program = with_body(scale_rows(Const(0), Var("n")), target=target)
    program(X=rows(64), Y=rows(64), factor=1.0)
    x, y = rows(65), np.zeros((65, 128), np.float32)
    with pytest.raises(errors.ViewShape, match="at most 64 in dimension 0, found 65"):
        program(X=x, Y=y, factor=1.0)
    assert not y.any()


def test_expressions_without_a_value(target: str) -> None:
    program = with_body(scale_rows(Binary("floordiv", Const(8), Var("n"), PLACE), Const(0)), target=target)
    program(X=rows(8), Y=rows(8), factor=1.0)
    with pytest.raises(errors.BadExpression, match="division by zero") as caught:
        program(X=rows(0), Y=rows(0), factor=1.0)
    assert caught.value.loc == PLACE
    loop = Loop("range", "i", binary("sub", Var("n"), Const(10)), None, (), PLACE)
    program = with_body(loop, target=target)
    program(X=rows(10), Y=rows(10), factor=1.0)
    with pytest.raises(errors.BadExpression, match="extent -1"):
        program(X=rows(9), Y=rows(9), factor=1.0)


def test_a_failing_kernel_is_named_and_the_engine_stays_usable(target: str) -> None:
    left = (TileRange("rows"), Range(Const(0), Const(8)))
    right = (TileRange("rows"), Range(Const(0), Const(9)))
    task = Task("scale", (Region("X", left), Region("Y", right), Var("factor", f32)), (), PLACE)
    program = with_body(Loop("parallel", "rows", Var("n"), 64, (task,)), target=target)
    with pytest.raises(errors.KernelFailed, match="kernel `scale`"):
        program(X=rows(100), Y=rows(100), factor=1.0)
    good, y = Program(scale_module(), {}, target), rows(100)
    good(X=rows(100), Y=y, factor=2.0)
    assert np.array_equal(y, rows(100) * 2)


def test_views_without_the_last_dimension_are_refused(target: str) -> None:
    module = scale_module()
    tensors = tuple(TensorParam(name, TensorType(f32, (4, "n", 3))) for name in "XY")
    params = (SizeParam("n"), *tensors, ScalarParam("factor", ScalarType(f32)))
    dims = (Full(), Full(), Index(Const(1)))
    task = Task("scale", (Region("X", dims, PLACE), Region("Y", dims, PLACE), Var("factor", f32)), (), PLACE)
    program = Program(
        replace(module, workloads=(WorkloadFunction("scale_rows", params, (task,)),)), {}, target
    )
    x = np.zeros((4, 9, 3), np.float32)
    with pytest.raises(errors.StridedView):
        program(X=x, Y=x.copy(), factor=1.0)


def test_integer_scalars_are_checked(target: str) -> None:
    workload = WorkloadFunction("w", (ScalarParam("s", ScalarType(i32)),), ())
    program = Program(Module("m", (scale_kernel(),), (workload,), "w"), {}, target)
    program(s=-5)
    for bad in (2**31, 1.5, True):
        with pytest.raises(errors.WrongValue):
            program(s=bad)


def test_trace_of_a_run() -> None:
    program = Program(scale_module(), {}, "cpu")
    program(X=rows(1000), Y=rows(1000), factor=1.0)
    assert program.trace is None
    program.run(X=rows(1000), Y=rows(1000), factor=1.0, trace=True)
    assert program.trace is not None
    events = list(program.trace)
    assert [e.label for e in events] == [f"scale[{i}]" for i in range(16)]
    assert all(0 <= e.start_ns <= e.end_ns for e in events)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_programs_are_saved_and_not_pickled(scale: Program, duplicate: Callable[[object], object]) -> None:
    with pytest.raises(errors.NotYetSupported, match=r"program\.save"):
        duplicate(scale)


def test_two_threads_share_a_program() -> None:
    program = Program(scale_module(), {}, "cpu")
    results = [np.zeros((5000, 128), np.float32) for _ in range(4)]

    def work(i: int) -> None:
        for _ in range(10):
            program(X=rows(5000), Y=results[i], factor=float(i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, result in enumerate(results):
        assert np.array_equal(result, rows(5000) * np.float32(i))


@pytest.mark.parametrize("trace", [True, "tasks", "full"])
def test_the_interpreter_says_that_it_records_nothing(trace: bool | str) -> None:
    program = Program(scale_module(), {}, "interp")
    x, y = rows(3), np.zeros((3, 128), np.float32)
    with pytest.raises(errors.UnsupportedByTarget, match="trace"):
        program.run(X=x, Y=y, factor=2.0, trace=trace)
    assert not y.any()
    program.run(X=x, Y=y, factor=2.0, trace="off")
    assert y.any() and program.trace is None


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_is_what_its_entry_comes_to(target: str) -> None:
    """Of functions beside it nothing is expanded, compiled, or asked for."""
    module = scale_module()
    large = replace(scale_kernel(), name="large", unit="cube", block_dim=3)
    loop = Loop("seq", "i", Const(9), None, (), PLACE, max_range=4)  # cannot be expanded
    beside = WorkloadFunction("beside", (), (loop,))
    program = Program(
        replace(module, kernels=(large, *module.kernels), workloads=(beside, *module.workloads)), {}, target
    )
    assert program.module == Program(module, {}, target).module
    assert [f.name for f in (*program.module.kernels, *program.module.workloads)] == ["scale", "scale_rows"]
