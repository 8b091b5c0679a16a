"""Views of views: a part of a range, where it provably lies inside.

A part of a range is addressed from the start of the tensor, and the engine checks it against the tensor, not
against the range. So only parts that lie inside the range whatever the run's values are have a meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pto_wsp.ir.core import DimSelect, Full, Index, Range, Rows, TileRange
from pto_wsp.ir.scalar import Const, Element, Expr, LoopExtent, LoopStart, Slot, Var, add, walk
from pto_wsp.lang.workload.blocks import OpenLoop

Loops = Mapping[str, OpenLoop]
"""The loops of a workload by variable."""


def narrow(outer: DimSelect, inner: DimSelect, loops: Loops, offsets: Collection[str]) -> DimSelect | None:
    """Return what `inner` selects of the elements that `outer` selects, or None if it may lie outside.

    `offsets` are the tensors that hold offsets of axes.
    """
    if isinstance(outer, Full) or isinstance(inner, Full):
        return inner if isinstance(outer, Full) else outer
    bounds = range_of(outer)
    part = (inner.at, Const(1)) if isinstance(inner, Index) else range_of(inner)
    if bounds is None or part is None or not _is_inside(part, bounds[1], outer, loops, offsets):
        return None
    start = add(bounds[0], part[0])
    if isinstance(outer, Rows):
        return None if isinstance(inner, Index) else Rows(outer.indices, start, part[1])
    return Index(start) if isinstance(inner, Index) else Range(start, part[1])


def range_of(select: DimSelect) -> tuple[Expr, Expr] | None:
    """Return start and extent of a range, or None for anything else."""
    match select:
        case TileRange(loop=loop):
            return LoopStart(loop), LoopExtent(loop)
        case Range(start=start, extent=extent) | Rows(start=start, extent=extent):
            return start, extent
        case _:
            return None


def _is_inside(
    part: tuple[Expr, Expr], size: Expr, outer: DimSelect, loops: Loops, offsets: Collection[str]
) -> bool:
    """Whether [start, start + extent) is a part of [0, size) in every run."""
    start, extent = part
    end = _end(start, extent, loops)
    if not _is_natural(start, loops) or end is None:
        return False
    if isinstance(end, Const) and isinstance(outer, TileRange) and end.value == 1:
        return True  # a tile has an element
    if isinstance(end, Const) and isinstance(size, Const):
        return int(end.value) <= int(size.value)
    return end == size and is_fixed(size, offsets)


def _end(start: Expr, extent: Expr, loops: Loops) -> Expr | None:
    """Return a bound of start + extent."""
    match start, extent:
        case Const(value=value), _ if value == 0:
            return extent
        case Const(value=first), Const(value=count):
            return Const(int(first) + int(count))
        case Var(name=name), Const(value=1) if name in loops and loops[name].tile is None:
            return loops[name].extent
        case LoopStart(loop=loop), LoopExtent(loop=counted) if loop == counted and loop in loops:
            return loops[loop].extent
        case _:
            return None


def _is_natural(start: Expr, loops: Loops) -> bool:
    match start:
        case Const(value=value):
            return value >= 0
        case Var(name=loop) | LoopStart(loop=loop):
            return loop in loops
        case _:
            return False


def is_fixed(expr: Expr, offsets: Collection[str]) -> bool:
    """Whether an expression has one value wherever it is evaluated inside the loops of its variables.

    `offsets` are the tensors that hold offsets of axes.
    """
    for part in walk(expr):
        if isinstance(part, Slot) or (isinstance(part, Element) and part.name not in offsets):
            return False
    return True
