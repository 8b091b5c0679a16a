"""Tasks that run alone, and `check="values"`, which finds the first task with wrong values."""

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import (
    ElementNotStored,
    KernelFailed,
    NanWritten,
    NoReference,
    NoSuchTask,
    UnsupportedByTarget,
    ValuesDiffer,
    WrongValue,
)
from pto_wsp.types import DTYPES, DType

TARGETS = ("cpu", "interp")


@kernel
def ratio(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, x / pto.rowsum(x))


@kernel
def add(y: InOut[Tile[1, 8, f32]]):
    pto.print("adding")
    pto.store(y, pto.load(y) + 1)


@workload
def ratios(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], k: DenseDyn):
    for i in P("n"):
        ratio[i](x=X[i : i + 1], y=Y[i : i + 1])
    for j in P.range(k):
        for i in P("n"):
            add[j, i](y=Y[i : i + 1])


def arrays(n: int = 4) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((n, 8), np.float32), np.zeros((n, 8), np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_one_task_runs_alone(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = ratios.compile(target)
    x, y = arrays()
    program.task(2).run(X=x, Y=y, k=2)
    assert (y[2] == 0.125).all()
    assert not y[[0, 1, 3]].any()
    program.task("add", j=1, i=2).run(X=x, Y=y, k=2)
    assert capsys.readouterr().out == "task 10, add: adding\n"
    assert (y[2] == 1.125).all()
    assert not y[[0, 1, 3]].any()
    assert repr(program.task("add", j=1, i=2)) == "<OneTask add[j=1, i=2]>"
    assert program.stats is None


@pytest.mark.parametrize("target", TARGETS)
def test_a_choice_that_fits_no_single_task_is_refused(target: str) -> None:
    program = ratios.compile(target)
    x, y = arrays()
    for choice, indices, reason in (
        (12, {}, "no such task"),
        ("add", {"i": 1}, "tasks 5 and 9 fit"),
        ("add", {"b": 1}, "no such task"),
        ("other", {}, "no such task"),
    ):
        with pytest.raises(NoSuchTask, match=reason):
            program.task(choice, **indices).run(X=x, Y=y, k=2)
    for wrong in (-1, True, 1.5):
        with pytest.raises(WrongValue):
            program.task(wrong)  # pyright: ignore[reportArgumentType]
    assert not y.any()


def test_values_are_compared_task_by_task(capsys: pytest.CaptureFixture[str]) -> None:
    program = ratios.compile("cpu")
    x, y = arrays()
    program.run(X=x, Y=y, k=1, check="values")
    assert (y == 1.125).all()
    assert program.stats is not None
    assert program.stats.tasks == 8
    assert capsys.readouterr().out.count("adding") == 4, "the interpreter prints nothing"


def test_the_first_task_that_makes_a_nan_is_named() -> None:
    program = ratios.compile("cpu")
    x, y = arrays()
    x[2] = 0
    with pytest.raises(NanWritten, match=r"kernel `ratio` writes a NaN to `y\[0, 0\]`") as caught:
        program.run(X=x, Y=y, k=1, check="values")
    assert caught.value.caret_text == "in task 2 in iteration i = 2"
    assert caught.value.fields["task"] == 2
    assert np.isnan(y[2]).all()
    with pytest.raises(NanWritten):  # what an output held before is not given to the task
        program.run(X=x, Y=y, k=1, check="values")
    x[2] = np.nan  # then it was given one
    program.run(X=x, Y=y, k=1, check="values")


def store_most(y: np.ndarray) -> None:
    y[:3] = 1


@kernel
def store_rows(y: Out[Tensor[f32, DYN, 8]], rows: Scalar[i64]):
    for r in pto.tiles(rows, 2):
        pto.store(y[r], 1.0)


@kernel(cpp_src="for (int i = 0; i < 3; ++i) for (int j = 0; j < 8; ++j) y(i, j) = 1;", reference=store_most)
def store_three(y: Out[Tensor[f32, DYN, 8]]): ...


@workload
def parts(Y: Tensor[f32, "n", 5, 8], rows: DenseDyn, in_cpp: DenseDyn):
    for i in P("n"):
        with P.when(in_cpp != 0):
            store_three[i](y=Y[i])
        with P.otherwise():
            store_rows[i](y=Y[i], rows=rows)


def test_other_options_are_refused_next_to_a_check_of_values() -> None:
    program, y = parts.compile("cpu"), np.zeros((2, 5, 8), np.float32)
    with pytest.raises(
        WrongValue, match=r"no other option with `check=\"values\"`, found `workers`, `time_limit`"
    ):
        program.run(Y=y, rows=5, in_cpp=0, check="values", workers=1, time_limit=2)


@pytest.mark.parametrize("old", [0.0, 1.0, np.nan])
def test_an_element_that_keeps_its_old_value_is_named(old: float) -> None:
    """Whatever the value, that which the kernel stores elsewhere too."""
    program = parts.compile("cpu")
    for rows, in_cpp, row in ((3, 0, 3), (0, 1, 3), (0, 0, 0)):
        y = np.full((2, 5, 8), old, np.float32)
        with pytest.raises(ElementNotStored, match=rf"does not store `y\[{row}, 0\]`") as caught:
            program.run(Y=y, rows=rows, in_cpp=in_cpp, check="values")
        assert caught.value.caret_text == "in task 0 in iteration i = 0"
    program.run(Y=y, rows=5, in_cpp=0, check="values")
    assert (y == 1).all()


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.name not in ("f64", "u64")], ids=str)
def test_an_element_of_each_type_that_is_not_stored_is_found(dtype: DType) -> None:
    @kernel
    def copy(x: In[Tensor[dtype, DYN, 8]], y: Out[Tensor[dtype, DYN, 8]], rows: Scalar[i64]):  # pyright: ignore
        for r in pto.tiles(rows, 1):
            pto.store(y[r], pto.load(x[r]))

    @workload
    def copies(X: Tensor[dtype, 3, 8], Y: Tensor[dtype, 3, 8], rows: DenseDyn):  # pyright: ignore
        copy(x=X, y=Y, rows=rows)

    x, y = np.zeros((3, 8), dtype.to_numpy()), np.zeros((3, 8), dtype.to_numpy())
    program = copies.compile("cpu")
    with pytest.raises(ElementNotStored, match=r"`y\[2, 0\]`"):
        program.run(X=x, Y=y, rows=2, check="values")
    program.run(X=x, Y=y, rows=3, check="values")


def double(x: np.ndarray) -> None:
    x *= 2


@kernel(cpp_src="for (int i = 0; i < x.cols(); ++i) x(0, i) *= i == 5 ? 3 : 2;", reference=double)
def wrong(x: InOut[Tile[1, 8, f32]]): ...


@kernel(cpp_src="for (int i = 0; i < x.cols(); ++i) x(0, i) += 1;")
def unknown(x: InOut[Tile[1, 8, i32]]): ...


@workload
def all_unknown(X: Tensor[i32, "n", 8]):
    for i in P("n"):
        unknown[i](x=X[i : i + 1])


def test_a_kernel_that_differs_from_its_reference_is_named() -> None:
    with pytest.raises(ValuesDiffer, match=r"`wrong` writes 3 to `x\[0, 5\]`, and the interpreter writes 2"):
        doubled.compile("cpu").run(X=np.ones((4, 8), np.float32), check="values")
    with pytest.raises(NoReference):
        all_unknown.compile("cpu").run(X=np.ones((4, 8), np.int32), check="values")


@workload
def doubled(X: Tensor[f32, "n", 8]):
    for i in P("n"):
        wrong[i](x=X[i : i + 1])


def test_a_task_that_fails_alone_says_where() -> None:
    program = failing.compile("cpu")
    x = np.ones((4, 8), np.float32)
    with pytest.raises(KernelFailed, match="too large") as caught:
        program.task(3).run(X=x)
    assert caught.value.caret_text == "in task 3 in iteration i = 3, where r = 0"


@kernel
def fail(x: InOut[Tile[1, 8, f32]]):
    for r in range(2):
        pto.check(x.rows > 5 + r, "too large")
    pto.store(x, pto.load(x))


@workload
def failing(X: Tensor[f32, "n", 8]):
    for i in P("n"):
        fail[i](x=X[i : i + 1])


def test_options_that_do_not_go_with_it_are_refused() -> None:
    x, y = arrays()
    program = ratios.compile("cpu")
    for options in ({"workers": 2}, {"trace": True}, {"progress": print}, {"time_limit": 1.0}):
        with pytest.raises(WrongValue, match="check"):
            program.run(X=x, Y=y, k=1, check="values", **options)
    with pytest.raises(WrongValue, match="check"):
        program.submit(X=x, Y=y, k=1, check="values")
    with pytest.raises(UnsupportedByTarget, match="check"):
        ratios.compile("interp").run(X=x, Y=y, k=1, check="values")
