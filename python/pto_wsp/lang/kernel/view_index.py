"""Views of a kernel's parameters: what an index selects, and how large it can be."""

from __future__ import annotations

import ast

from pto_wsp.analysis.affine import difference
from pto_wsp.errors import BadIndex, ConstantIndexOutside
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.core import DimSelect, Full, Index, Range
from pto_wsp.ir.kernel import Param
from pto_wsp.ir.scalar import Const, Expr, Extent
from pto_wsp.lang.kernel.reader import KernelReader
from pto_wsp.lang.kernel.values import ScalarValue, SpanValue, ViewValue, constant_of, known
from pto_wsp.location import Location
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import TileType, ViewType

Selection = tuple[DimSelect, int | None, Expr]
"""What is selected of a dimension, the largest extent it can have, and its extent."""


def whole_view(param: Param) -> ViewValue:
    """Return the view that a parameter is."""
    match param.type:
        case TileType(rows=rows, cols=cols, dtype=dtype):
            capacities: tuple[int | None, ...] = (rows, cols)
            extents: list[Expr] = [Extent(param.name, 0), Extent(param.name, 1)]
        case ViewType(dtype=dtype, dims=dims) if dtype is not None and dims is not None:
            capacities = dims
            extents = [Extent(param.name, i) if d is None else Const(d) for i, d in enumerate(dims)]
        case _:
            raise AssertionError("only specialised views have values")
    full = tuple(Full() for _ in capacities)
    return ViewValue(param, dtype, full, capacities, tuple(extents), True)


def index_view(reader: KernelReader, view: ViewValue, items: list[ast.expr], loc: Location) -> ViewValue:
    """Return the part of `view` that the indices select.

    Raises:
        BadIndex, ConstantIndexOutside: an index that the view cannot take.
    """
    if len(items) > len(view.capacities):
        raise _bad(view, f"at most {len(view.capacities)} indices", str(len(items)), loc)
    parts = list(zip(view.kept, view.capacities, view.extents, strict=True))
    dims = list(view.dims)
    capacities: list[int | None] = []
    extents: list[Expr] = []
    for number, (dim, capacity, extent) in enumerate(parts):
        if number < len(items):
            indexer = _Indexer(reader, view, dim, capacity)
            dims[dim], capacity, extent = indexer.narrow(dims[dim], extent, items[number])
        if not isinstance(dims[dim], Index):
            capacities.append(capacity)
            extents.append(extent)
    return ViewValue(view.param, view.dtype, tuple(dims), tuple(capacities), tuple(extents), False)


class _Indexer:
    """Indexes one dimension of a view."""

    def __init__(self, reader: KernelReader, view: ViewValue, dim: int, capacity: int | None) -> None:
        self.reader = reader
        self.view = view
        self.dim = dim
        self.capacity = capacity

    def narrow(self, outer: DimSelect, extent: Expr, node: ast.expr) -> Selection:
        inner, capacity, inner_extent = self.select(node)
        loc = self.reader.at(node)
        if isinstance(inner, Full):
            return outer, self.capacity, extent
        self.require_inside(inner, inner_extent, extent, loc)
        if isinstance(outer, Full):
            return inner, capacity, inner_extent
        assert isinstance(outer, Range)
        if known(extent) is None or not isinstance(inner, (Index, Range)):
            raise _bad(self.view, "an index into a constant range", "an index into a range of a run", loc)
        start = inner.at if isinstance(inner, Index) else inner.start
        if known(start) is None:
            raise _bad(self.view, "a constant index into a range", ast.unparse(node), loc)
        moved = ir.add(outer.start, start, loc)
        return (
            (Index(moved) if isinstance(inner, Index) else Range(moved, inner_extent)),
            capacity,
            inner_extent,
        )

    def select(self, node: ast.expr) -> Selection:
        loc = self.reader.at(node)
        if isinstance(node, ast.Slice):
            return self.slice(node, loc)
        value = self.reader.read(node)
        if isinstance(value, SpanValue):
            return Range(value.start, value.extent), value.capacity, value.extent
        constant = constant_of(value)
        if isinstance(constant, int) and not isinstance(constant, bool):
            return Index(Const(constant)), 1, Const(1)
        if isinstance(value, ScalarValue) and value.expr.dtype is i64:
            return Index(self.reader.builder.frozen(value.expr, "i", loc)), 1, Const(1)
        raise _bad(self.view, "an integer, a range of `pto.tiles` or a constant slice", str(value), loc)

    def slice(self, node: ast.Slice, loc: Location) -> Selection:
        if node.lower is None and node.upper is None and node.step is None:
            return Full(), self.capacity, Const(0)
        if node.step is not None:
            raise _bad(self.view, "a slice without a step", ast.unparse(node), loc)
        moving = self.moving_slice(node, loc)
        if moving is not None:
            return moving
        start = 0 if node.lower is None else self.bound(node.lower)
        stop = self.end(loc) if node.upper is None else self.bound(node.upper)
        if stop <= start:
            raise _bad(self.view, "a slice with elements", ast.unparse(node), loc)
        return Range(Const(start), Const(stop - start)), stop - start, Const(stop - start)

    def moving_slice(self, node: ast.Slice, loc: Location) -> Selection | None:
        """Return `[i : i + n]` for an `i` that only a run knows and a constant `n`; None for other slices."""
        if node.lower is None or node.upper is None:
            return None
        start, stop = (self.reader.ops.scalar(self.reader.read(n), loc) for n in (node.lower, node.upper))
        if start is None or stop is None or known(start) is not None:
            return None
        is_integer = start.dtype is i64 and stop.dtype is i64
        length = difference(stop, start) if is_integer else None
        if length is None or length <= 0:
            raise _bad(self.view, "a slice of constant length, such as `[i : i + 4]`", ast.unparse(node), loc)
        return Range(self.reader.builder.frozen(start, "i", loc), Const(length)), length, Const(length)

    def bound(self, node: ast.expr) -> int:
        value = constant_of(self.reader.read(node))
        if not isinstance(value, int) or isinstance(value, bool):
            raise _bad(
                self.view,
                "constant bounds, or a range of `pto.tiles`",
                ast.unparse(node),
                self.reader.at(node),
            )
        return value

    def end(self, loc: Location) -> int:
        is_static = isinstance(self.view.param.type, ViewType) and self.capacity is not None
        if not is_static or self.capacity is None:
            raise _bad(self.view, "a slice with an end", "a dimension that only a run knows", loc)
        return self.capacity

    def require_inside(self, inner: DimSelect, count: Expr, extent: Expr, loc: Location) -> None:
        """Refuse constant indices that are outside for all run-time extents."""
        start = known(inner.at) if isinstance(inner, Index) else None
        if isinstance(inner, Range):
            start = known(inner.start)
        size, length = self.capacity, known(count)
        if start is None or length is None:
            return
        if start < 0 or (size is not None and start + length > size):
            found = start if start < 0 else start + length - 1
            raise ConstantIndexOutside(
                tensor=self.view.param.name,
                dim=self.dim,
                size="n" if size is None else size,
                found=found,
                loc=loc,
            )


def _bad(view: ViewValue, expected: str, found: str, loc: Location) -> BadIndex:
    return BadIndex(tensor=view.param.name, expected=expected, found=found, loc=loc)
