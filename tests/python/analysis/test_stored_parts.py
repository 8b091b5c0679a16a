"""Elements of outputs that no statement of a kernel can store."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest
from hypothesis import given

from pto_wsp import In, Out, Tensor, Tile, f32, i32, i64, kernel, pto
from pto_wsp.analysis.stored_parts import missing_element
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.scalar import Const, Expr, Var, add, const, mul
from pto_wsp.types.tile import TileType, ViewType
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.lang.programs import error_of, execute, marked

SHAPE = (4, 6)

Loops = tuple[tuple[str, int, int, int], ...]
"""Variables of loops, each with its first value, its end and its step."""


def storing(regions: list[Region], loops: Loops) -> k.KernelFunction:
    """Return a kernel that stores ones to regions of `y` inside loops."""
    tiles: dict[str, TileType] = {}
    body: list[k.Stmt] = []
    for number, region in enumerate(regions):
        rows, cols = (extent_of(dim, size) for dim, size in zip(region.dims, SHAPE, strict=True))
        tiles[f"t{number}"] = TileType(rows, cols, f32)
        body += [k.Instr("expands", f"t{number}", (), (Const(1.0, f32),)), k.Store(region, f"t{number}")]
    for var, start, stop, step in reversed(loops):
        body = [k.For(var, const(start), const(stop), step, tuple(body))]
    param = k.Param("y", k.OUT, ViewType(f32, SHAPE))
    return k.KernelFunction("f", (param,), tuple(tiles.items()), (), tuple(body))


def extent_of(dim: DimSelect, size: int) -> int:
    if not isinstance(dim, Range):
        return size
    assert isinstance(dim.extent, Const)
    return int(dim.extent.value)


def drawn_dim(draw: Draw, size: int, loops: Loops) -> DimSelect:
    """Return all of a dimension, or a range of it that a constant or a loop places inside."""
    if draw.random() < 0.3:
        return Full()
    first = draw.randrange(size)
    start: Expr = const(first)
    if loops and draw.random() < 0.6:
        var, begin, stop, step = draw.choice(loops)
        last = max([*range(begin, stop, step), 0]) * draw.choice((1, 2))
        if last < size:
            factor = last // max([*range(begin, stop, step), 1])
            shift = draw.randrange(size - last)
            start, first = add(mul(Var(var, i64), const(factor)), const(shift)), last + shift
    return Range(start, const(draw.randint(1, size - first)))


@kernel
def put_row(at: In[Tensor[i32, 1, 4]], x: In[Tile[1, 6, f32]], y: Out[Tensor[f32, 4, 6]]):
    pto.store(y[at[0, 0] : at[0, 0] + 1, :], pto.load(x))


def test_elements_that_decide_may_be_any() -> None:
    """A row that an element with a constant index names may be each of them."""
    function = put_row.specialise({}, {})
    assert missing_element(function, function.param("y")) is None


@given(draw=DRAWS)
@tries(300)
def test_what_is_missing_is_what_the_kernel_leaves_alone(draw: Draw) -> None:
    loops = tuple((f"i{n}", draw.randrange(2), draw.randint(1, 3), draw.randint(1, 2)) for n in range(2))
    loops = loops[: draw.randrange(3)]
    dims = [[drawn_dim(draw, size, loops) for size in SHAPE] for _ in range(draw.randint(1, 4))]
    function = storing([Region("y", tuple(pair)) for pair in dims], loops)
    y = np.zeros(SHAPE, np.float32)
    run_kernel(function, [y])
    left = np.argwhere(y == 0)
    expected = tuple(int(i) for i in left[0]) if len(left) else None
    assert missing_element(function, function.params[0]) == expected


SIGNATURE = "x: In[Tile[16, 8, f32]], y: Out[Tensor[f32, {}]], n: Scalar[i64]"


def text_of(dims: str, body: str) -> str:
    return f"@kernel\ndef f({SIGNATURE.format(dims)}):\n{indent(body, '    ')}\n"


@pytest.mark.parametrize(
    ("dims", "body", "element"),
    [
        ("32, 8", "for i in range(8):\n    pto.store(y[i : i + 16], x)", "23, 0"),
        ("2, 16, 16", "for i in range(2):\n    pto.store(y[i, :, 8 * i : 8 * i + 8], x)", "0, 0, 8"),
        ("32, 8", "if n > 0:\n    pto.store(y[0:16], x)\nelse:\n    pto.store(y[1:17], x)", "17, 0"),
        ("32, 16", "for i in range(n):\n    pto.store(y[16 * i : 16 * i + 16, 0:8], x)", "0, 8"),
        ("32, 16", "pto.scatter(y[:, 8:16], pto.iota((1, 16), 16), x)", "0, 0"),
    ],
)
def test_a_part_that_is_never_stored_is_refused(dims: str, body: str, element: str) -> None:
    error = error_of(text_of(dims, body))
    assert (error.code, marked(error)) == ("out-partly-stored", "y")
    assert f"`y[{element}]`" in str(error)


@pytest.mark.parametrize(
    ("dims", "body"),
    [
        ("32, 8", "for i in range(2):\n    pto.store(y[16 * i : 16 * i + 16], x)"),
        ("DYN, 8", "pto.store(y[0:16], x)"),
        ("32, 8", "k = 0\nfor i in range(2):\n    pto.store(y[k : k + 16], x)\n    k = k + n"),
        ("32, 8", "for i in range(n):\n    pto.store(y[16 * i : 16 * i + 16], x)"),
        ("32, 8", "pto.scatter(y, pto.iota((1, 16), 16), x)"),
        ("90000, 8", "for i in range(90000 // 16):\n    pto.store(y[i : i + 16], x)"),
    ],
)
def test_what_the_compiler_cannot_tell_is_accepted(dims: str, body: str) -> None:
    execute(text_of(dims, body))
