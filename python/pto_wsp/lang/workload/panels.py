"""Maps regions of tensors in panels to regions of the arrays that store them."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.errors import BadIndex
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.scalar import Const, Expr, LoopExtent, Var
from pto_wsp.lang.operands import integer_constant
from pto_wsp.lang.workload.tensor import Tensor, constant_bounds

TileLoop = tuple[Expr, int]
"""Extent and tile of a tiles loop."""


def in_panels(region: Region, tensor: Tensor, loops: Mapping[str, TileLoop]) -> Region:
    """Return the region of the stored array that a region of a tensor in panels is.

    Args:
        region: an entry per dimension of `tensor`; the last one selects columns.
        tensor: its layout has panels.
        loops: the tiles loops around the region, by variable.

    Raises:
        BadIndex: its columns are not those of one panel, or its rows are a row set.
    """
    *leading, rows, columns = region.dims
    if isinstance(rows, (Rows, Merged)):
        expected = "a row set only before its last two dimensions"
        raise BadIndex(tensor=region.tensor, expected=expected, found="one of its rows", loc=region.loc)
    size, cols = tensor.dims[-1], tensor.layout.cols
    assert isinstance(size, int) and cols is not None
    found = _panel(columns, size, cols, loops)
    if found is None:
        example = f"`{min(cols, size)}:{min(2 * cols, size)}`" if size > cols else f"`0:{size}`"
        raise BadIndex(
            tensor=region.tensor,
            expected=f"one of its panels of {cols} columns: a range of `P.tiles({size}, {cols})`, "
            f"a slice such as {example}, or all of them as `.panels`",
            found=_shown(columns, loops),
            loc=region.loc,
        )
    panel, width = found
    return Region(region.tensor, (*leading, Index(panel), rows, width), region.loc)


def _panel(
    columns: DimSelect, size: int, cols: int, loops: Mapping[str, TileLoop]
) -> tuple[Expr, DimSelect] | None:
    """Return the number of the panel `columns`, and its valid columns; None if they are not a panel."""
    if isinstance(columns, TileRange):
        extent, tile = loops[columns.loop]
        if integer_constant(extent) != size or tile != cols:
            return None
        whole = size % cols == 0
        return Var(columns.loop), Full() if whole else Range(Const(0), LoopExtent(columns.loop))
    bounds = (0, size) if isinstance(columns, Full) else constant_bounds(columns)
    if bounds is None or isinstance(columns, Index):
        return None
    start, stop = bounds
    if start % cols or start >= size or stop != min(start + cols, size):
        return None
    return Const(start // cols), Full() if stop - start == cols else Range(Const(0), Const(stop - start))


def _shown(columns: DimSelect, loops: Mapping[str, TileLoop]) -> str:
    match columns:
        case TileRange(loop=loop):
            extent, tile = loops[loop]
            axis = integer_constant(extent)
            return f"a range of `P.tiles({'...' if axis is None else axis}, {tile})`"
        case Full():
            return "all columns"
        case Index():
            return "one column"
        case _:
            bounds = constant_bounds(columns)
            return "a range known only at run time" if bounds is None else f"`{bounds[0]}:{bounds[1]}`"
