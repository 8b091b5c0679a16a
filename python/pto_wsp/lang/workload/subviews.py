"""Parts of ranges: what a slice or index of a range selects of the dimension that the range is of.

A part of a range is addressed from the start of the tensor, and the engine checks a region against its
tensor. The expressions of a part therefore check it against the range, with `within`, unless it is proven to
lie inside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pto_wsp.analysis.affine import difference
from pto_wsp.errors import BadOperand
from pto_wsp.ir.core import DimSelect, Full, Index, Range, Rows, TileRange
from pto_wsp.ir.scalar import (
    Binary,
    Const,
    Element,
    Expr,
    LoopExtent,
    LoopStart,
    Slot,
    Var,
    add,
    binary,
    format_expr,
    walk,
)
from pto_wsp.lang.workload.blocks import OpenLoop
from pto_wsp.lang.workload.context import Recording
from pto_wsp.location import Location
from pto_wsp.support.record import record


@record
class SliceBounds:
    """The slice [start, stop)."""

    start: Expr
    stop: Expr

    def selection(self, loc: Location | None) -> Range:
        """Return the part of a whole dimension that it selects."""
        return Range(self.start, _length(self, loc))


def narrow(
    outer: DimSelect, inner: DimSelect | SliceBounds, trace: Recording, loc: Location | None
) -> DimSelect | None:
    """Return what `inner` selects of the elements that `outer` selects; None if that is not one selection."""
    if isinstance(outer, Full) or isinstance(inner, Full):
        whole = inner.selection(loc) if isinstance(inner, SliceBounds) else inner
        return whole if isinstance(outer, Full) else outer
    bounds = range_of(outer)
    if bounds is None:
        return None
    start, size = bounds
    if isinstance(inner, Index):
        at = add(start, index_in(size, inner.at, trace, loc), loc)
        return None if isinstance(outer, Rows) else Index(at)
    part = inner if isinstance(inner, SliceBounds) else range_of(inner)
    if part is None:
        return None
    first, extent = (
        slice_in(size, part, trace, loc)
        if isinstance(part, SliceBounds)
        else range_in(size, *part, trace, loc)
    )
    first = add(start, first, loc)
    return Rows(outer.indices, first, extent) if isinstance(outer, Rows) else Range(first, extent)


def range_of(select: DimSelect) -> tuple[Expr, Expr] | None:
    """Return start and extent of a range, or None for anything else."""
    match select:
        case TileRange(loop=loop):
            return LoopStart(loop), LoopExtent(loop)
        case Range(start=start, extent=extent) | Rows(start=start, extent=extent):
            return start, extent
        case _:
            return None


def index_in(size: Expr, at: Expr, trace: Recording, loc: Location | None) -> Expr:
    """Return `at`, an index of a range of `size` elements; a run checks it unless it is proven."""
    if _is_inside(at, Const(1), size, trace):
        return at
    return binary("within", at, binary("sub", size, Const(1), loc), loc)


def range_in(
    size: Expr, start: Expr, extent: Expr, trace: Recording, loc: Location | None
) -> tuple[Expr, Expr]:
    """Return start and extent of a part of a range of `size` elements, checked unless proven."""
    if _is_inside(start, extent, size, trace):
        return start, extent
    first, checked = slice_in(size, SliceBounds(start, add(start, extent, loc)), trace, loc)
    return first, checked if start == Const(0) else extent


def slice_in(size: Expr, part: SliceBounds, trace: Recording, loc: Location | None) -> tuple[Expr, Expr]:
    """Return start and extent of a slice of a range of `size` elements; a run checks it unless it is proven.

    Raises:
        BadOperand: constant bounds below 0, or a stop before the start.
    """
    start, stop, extent = part.start, part.stop, _length(part, loc)
    for bound in (start, extent):
        if isinstance(bound, Const) and int(bound.value) < 0:
            found = f"`{format_expr(start)}:{format_expr(stop)}`"
            raise BadOperand(op="a slice of a range", expected="0 <= start <= stop", found=found, loc=loc)
    if _is_inside(start, extent, size, trace):
        return start, extent
    stop = stop if stop == size else binary("within", stop, size, loc)
    if start != Const(0):
        start = binary("within", start, stop, loc)
    return start, extent if isinstance(extent, Const) else binary("sub", stop, start, loc)


def _length(part: SliceBounds, loc: Location | None) -> Expr:
    """Return `stop - start`; of `i` and `i + 2`, which a slice may say, the constant."""
    length = difference(part.stop, part.start)
    if length is not None:
        return Const(length, loc=loc)
    if isinstance(part.stop, Binary) and part.stop.op == "add" and part.stop.a == part.start:
        return part.stop.b
    return binary("sub", part.stop, part.start, loc)


def _is_inside(start: Expr, extent: Expr, size: Expr, trace: Recording) -> bool:
    """Whether [start, start + extent) is a part of [0, size) in every run."""
    end = _end(start, extent, trace.loops)
    if not _is_natural(start, trace.loops) or end is None:
        return False
    if isinstance(end, Const) and isinstance(size, LoopExtent) and end.value == 1:
        return True  # a tile has an element
    if isinstance(end, Const) and isinstance(size, Const):
        return int(end.value) <= int(size.value)
    return end == size and is_fixed(size, trace.offsets)


def _end(start: Expr, extent: Expr, loops: Mapping[str, OpenLoop]) -> Expr | None:
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


def _is_natural(start: Expr, loops: Mapping[str, OpenLoop]) -> bool:
    match start:
        case Const(value=value):
            return value >= 0
        case Var(name=loop) | LoopStart(loop=loop):
            return loop in loops
        case _:
            return False


def is_fixed(expr: Expr, offsets: Collection[str]) -> bool:
    """Whether an expression has the same value everywhere inside the loops of its variables.

    `offsets` are the tensors that hold offsets of axes.
    """
    for part in walk(expr):
        if isinstance(part, Slot) or (isinstance(part, Element) and part.name not in offsets):
            return False
    return True
