"""A check that fails in a kernel says the same on `cpu` and `interp`: what was found, and where."""

from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import DYN, In, InOut, Out, P, Scalar, Tensor, Tile, f32, i8, i32, i64, kernel, pto, workload
from pto_wsp.errors import KernelFailed


@kernel
def outside(x: In[Tensor[f32, DYN, 8]], y: Out[Tile[4, 8, f32]], n: Scalar[i64]):
    t = pto.zeros((4, 8))
    for r in range(0, n, 4):
        t = t + pto.load(x[r : r + 4])
    pto.store(y, t)


@kernel
def page(x: In[Tensor[f32, DYN, 2, 8]], table: In[Tensor[i32, DYN]], y: Out[Tile[2, 8, f32]]):
    t = pto.zeros((2, 8))
    for i in range(table.rows):
        t = t + pto.load(x[table[i]])
    pto.store(y, t)


@kernel
def row(x: In[Tensor[f32, DYN, 8]], rows: In[Tile[1, 4, i32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, pto.gather(x, rows))


@kernel
def element(x: In[Tensor[i32, DYN, 8]], y: InOut[Tile[1, 8, f32]], n: Scalar[i64]):
    i = 0
    while i < n:
        pto.store(y, pto.load(y) + x[i, 0])
        i = i + 1


@kernel
def operands(a: In[Tile[4, 8, f32]], b: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, a + b)


@kernel
def stored(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x)


@kernel
def scalar(x: In[Tile[1, 8, i8]], y: Out[Tile[1, 8, i8]], n: Scalar[i64]):
    for step in range(2):
        pto.store(y, x + (n + step))


@kernel
def divided(y: Out[Tile[1, 8, f32]], n: Scalar[i64]):
    for step in range(2):
        pto.store(y, pto.full((1, 8), 8 // (n - step)))


@workload
def fail_outside(X: Tensor[f32, "m", 8], Y: Tensor[f32, 2, 4, 8], n: Scalar[i64]):
    for b in P(2):
        outside[b](x=X, y=Y[b], n=n)


@workload
def fail_page(X: Tensor[f32, "m", 2, 8], T: Tensor[i32, "n"], Y: Tensor[f32, 2, 8]):
    page(x=X, table=T, y=Y)


@workload
def fail_row(X: Tensor[f32, "m", 8], R: Tensor[i32, 1, 4], Y: Tensor[f32, 4, 8]):
    row(x=X, rows=R, y=Y)


@workload
def fail_element(X: Tensor[i32, "m", 8], Y: Tensor[f32, 1, 8], n: Scalar[i64]):
    element(x=X, y=Y, n=n)


@workload
def fail_operands(A: Tensor[f32, "m", 8], B: Tensor[f32, "n", 8], Y: Tensor[f32, 4, 8]):
    operands(a=A, b=B, y=Y)


@workload
def fail_stored(X: Tensor[f32, "m", 8], Y: Tensor[f32, "n", 8]):
    stored(x=X, y=Y)


@workload
def fail_scalar(X: Tensor[i8, 1, 8], Y: Tensor[i8, 1, 8], n: Scalar[i64]):
    scalar(x=X, y=Y, n=n)


@workload
def fail_divided(Y: Tensor[f32, 1, 8], n: Scalar[i64]):
    divided(y=Y, n=n)


def f(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def integers(*shape: int, dtype: type = np.int32) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


CASES: list[tuple[object, Callable[[], dict[str, object]], str, str]] = [
    (fail_outside, lambda: {"X": f(10, 8), "Y": f(2, 4, 8), "n": 12},
     "`x` is indexed outside dimension 0: [8, 12) of 10", "in task 0 in iteration b = 0, where r = 8"),
    (fail_page, lambda: {"X": f(3, 2, 8), "T": integers(5), "Y": f(2, 8)},
     "`x` is indexed outside dimension 0: [3, 4) of 3", "in task 0, where i = 3"),
    (fail_row, lambda: {"X": f(3, 8), "R": integers(1, 4), "Y": f(4, 8)},
     "a row outside `x` is named: row 3 of 3", "in task 0"),
    (fail_operands, lambda: {"A": f(4, 8), "B": f(3, 8), "Y": f(4, 8)},
     "the valid shapes of the operands of `add` do not fit: found 4 x 8 and 3 x 8", "in task 0"),
    (fail_stored, lambda: {"X": f(4, 8), "Y": f(3, 8)},
     "is not that of this part of `y`: the tile has 4 x 8, the part 3 x 8", "in task 0"),
    (fail_scalar, lambda: {"X": integers(1, 8, dtype=np.int8), "Y": integers(1, 8, dtype=np.int8), "n": 127},
     "a scalar is beyond the range of i8: found 128", "in task 0, where step = 1"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "values", "reason", "where"), CASES)
@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_both_targets_say_what_was_found(target, program, values, reason, where) -> None:
    with pytest.raises(KernelFailed) as caught:
        program.compile(target).run(**values(), workers=1)
    assert str(caught.value.fields["reason"]).endswith(reason)
    assert caught.value.caret_text == where
    assert "the task was made here" in str(caught.value)


def test_expressions_name_the_scalars_that_they_read() -> None:
    for program, values, where in (
        (fail_element, {"X": integers(3, 8), "Y": f(1, 8), "n": 9}, "in task 0, where i = 3, n = 9"),
        (fail_divided, {"Y": f(1, 8), "n": 1}, "in task 0, where step = 1, n = 1"),
    ):
        for target in ("cpu", "interp"):
            with pytest.raises(KernelFailed) as caught:
                program.compile(target).run(**values, workers=1)
            assert caught.value.caret_text.startswith(where), target
