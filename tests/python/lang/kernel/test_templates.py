"""Kernels made several times: by a function, by constants in their sizes, and under declared names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    Constexpr,
    In,
    Out,
    P,
    Tensor,
    Tile,
    errors,
    f32,
    i32,
    kernel,
    lookup_kernel,
    parse,
    pto,
    workload,
)
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.types.dtype import DType
from tests.python.lang.programs import execute

TARGETS = ("cpu", "interp")


def make_fill(value: float, name: str | None = None) -> Kernel:
    @kernel(name=name)
    def fill(y: Out[Tile[4, 8, f32]]):
        pto.store(y, value)

    return fill


def filled(*kernels: Kernel) -> Any:
    @workload
    def run(Y: Tensor[f32, "n", 4, 8]):
        for number, fill in enumerate(kernels):
            fill[number](y=Y[number])

    return run


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_one_factory_have_names_of_their_own(target: str) -> None:
    made = filled(make_fill(1.0), make_fill(2.0), make_fill(1.0), make_fill(3.0))
    module = made.trace().module
    assert [k.name for k in module.kernels] == ["fill_1", "fill_2", "fill_3"]
    assert parse(str(module)) == module
    y = np.zeros((4, 4, 8), np.float32)
    made.compile(target)(Y=y)
    assert [float(block[0, 0]) for block in y] == [1, 2, 1, 3] and (y == y[:, :1, :1]).all()


def test_one_kernel_of_a_factory_keeps_its_name() -> None:
    module = filled(make_fill(1.0), make_fill(1.0)).trace().module
    assert [k.name for k in module.kernels] == ["fill"]


def test_new_names_are_not_those_of_other_kernels() -> None:
    @kernel
    def fill_1(y: Out[Tile[4, 8, f32]]):
        pto.store(y, 9.0)

    module = filled(make_fill(1.0), make_fill(2.0), fill_1).trace().module
    names = [k.name for k in module.kernels]
    assert len({*names}) == 3 and names[-1] == "fill_1"


@pytest.mark.parametrize("target", TARGETS)
def test_a_declared_name_is_the_kernels(target: str) -> None:
    zeros, ones = make_fill(0.0, f"fill zeros/{target}"), make_fill(1.0, f"fill ones/{target}")
    made = filled(zeros, ones)
    assert [k.name for k in made.trace().module.kernels] == [
        f"fill_zeros_{target}",
        f"fill_ones_{target}",
    ]
    assert lookup_kernel(f"fill ones/{target}") is ones
    y = np.full((2, 4, 8), 7, np.float32)
    made.compile(target)(Y=y)
    assert not y[0].any() and (y[1] == 1).all()


def ordered(chosen: Kernel, *kernels: Kernel) -> Any:
    return filled(*kernels).order_by(lambda t: t.kernel != chosen)


def test_a_key_that_names_one_of_several_kernels_is_an_error() -> None:
    zeros, ones, named = make_fill(0.0), make_fill(1.0), make_fill(1.0, "named_fill")
    with pytest.raises(errors.BadKey, match="no kernel is called `fill`"):
        ordered(ones, zeros, ones).compile()
    ordered(named, zeros, named).compile()


# --- constants in sizes ---------------------------------------------------------------------------------


@kernel
def scale(
    x: In[Tile[rows, cols, f32]],  # pyright: ignore
    y: Out[Tile[rows, cols, f32]],  # pyright: ignore
    rows: Constexpr[int],
    cols: Constexpr[int] = 8,
):
    pto.store(y, x * 2.0 + 1.0)


@kernel
def stretched(
    x: In[Tensor["element", DYN, "cols"]],  # pyright: ignore
    y: Out[Tile[1, 2 * cols, element]],  # pyright: ignore
    cols: Constexpr[int],
    element: Constexpr[DType],
):
    total = pto.zeros((1, cols), element)
    for r in pto.tiles(x.rows, 4):
        total = total + pto.colsum(x[r])
    pto.store(y[:, 0:cols], total)
    pto.store(y[:, cols : 2 * cols], total)


@pytest.mark.parametrize("target", TARGETS)
def test_constants_are_sizes(target: str) -> None:
    @workload
    def run(X: Tensor[f32, "n", 16], Y: Tensor[f32, "n", 16], Z: Tensor[i32, 6, 4], S: Tensor[i32, 1, 8]):
        for r in P.tiles("n", 4):
            scale(x=X[r, 0:8], y=Y[r, 0:8], rows=4)
        for r in P.tiles("n", 3):
            scale(x=X[r, 8:13], y=Y[r, 8:13], rows=3, cols=5)
        stretched(x=Z, y=S, cols=4, element=i32)

    module = run.trace().module
    assert [k.name for k in module.kernels] == ["scale_4_8", "scale_3_5", "stretched_4_i32"]
    x, y = np.random.default_rng(1).random((10, 16), np.float32), np.zeros((10, 16), np.float32)
    z, s = np.arange(24, dtype=np.int32).reshape(6, 4), np.zeros((1, 8), np.int32)
    run.compile(target)(X=x, Y=y, Z=z, S=s)
    np.testing.assert_array_equal(y[:, :13], x[:, :13] * 2 + 1)
    assert not y[:, 13:].any()
    np.testing.assert_array_equal(s[0], [*z.sum(0), *z.sum(0)])


@pytest.mark.parametrize(
    ("call", "error", "expected"),
    [
        ("scale(x=X, y=X, rows=0)", errors.BadAnnotation, "positive numbers, found Tile[0, 8, f32]"),
        ("scale(x=X, y=X, rows=2.5)", errors.UnknownArgument, "takes a constant int for `rows`"),
        ("scale(x=X, y=X)", errors.UnknownArgument, "needs an argument `rows`"),
        ("scale(x=X[0:5], y=X[0:5], rows=4)", errors.ArgumentShape, "at most 4, found 5 elements"),
        ("scale(x=I, y=X, rows=4)", errors.ArgumentDType, "expected f32, found i32"),
        ("stretched(x=X, y=X, cols=3, element=f32)", errors.ArgumentShape, "expected 3, found 8 elements"),
        ("stretched(x=X, y=X, cols=8, element=i32)", errors.ArgumentDType, "expected i32, found f32"),
    ],
)
def test_what_constants_do_not_fit(call: str, error: type[errors.PtoError], expected: str) -> None:
    @workload
    def run(X: Tensor[f32, "n", 8], I: Tensor[i32, "n", 8]):  # noqa: E741
        eval(call, {"X": X, "I": I, "scale": scale, "stretched": stretched, "f32": f32, "i32": i32})

    with pytest.raises(error) as caught:
        run.trace()
    assert expected in str(caught.value), str(caught.value)


def test_a_name_with_two_meanings_is_an_error() -> None:
    text = (
        "size = 4\n@kernel\ndef k(y: Out[Tile[size, 8, f32]], size: Constexpr[int]):\n    pto.store(y, 0.0)\n"
    )
    with pytest.raises(errors.BadAnnotation, match="as `'size'`"):
        execute(text)
    execute(text.replace("[size, 8", "['size', 8"))


def test_an_unknown_size_is_an_error_at_its_name() -> None:
    text = "@kernel\ndef k(y: Out[Tile[{}, 8, f32]], rows: Constexpr[int]):\n    pto.store(y, 0.0)\n"
    with pytest.raises(errors.BadAnnotation, match="positive numbers"):
        execute(text.format("'row'"))
    with pytest.raises(errors.UnknownName, match="`row`"):
        execute("from __future__ import annotations\n" + text.format("row"))
