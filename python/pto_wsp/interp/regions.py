"""What a task's regions are in arrays: views of boxes, copies of row sets, and what must hold for them.

The checks, their order and their figures are those of the engine (include/pto/wsp/bytecode/regions.hpp).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pto_wsp.errors import RegionOutside, RowOutside, RowRepeated, StridedRows, StridedView, ViewShape
from pto_wsp.ir.core import Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.evaluate import ExtentReader, evaluate
from pto_wsp.ir.kernel import IN, KernelFunction, Param
from pto_wsp.ir.scalar import LoopExtent, LoopStart, Name, Value
from pto_wsp.ir.workload import Loop
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.tile import TileType, ViewType


@record
class RegionPlace:
    """Where a region is evaluated: its kernel and parameter, the variables there, the loops around it."""

    kernel: KernelFunction
    param: Param
    scope: Mapping[Name, Value]
    loops: tuple[Loop, ...]
    loc: Location | None

    @property
    def where(self) -> str:
        """The loop variables, for errors."""
        return scope_text(self.scope, self.loops)


@record
class ArrayView:
    """What a kernel gets for a region: a view of its tensor, or a copy of the rows of a row set.

    Attributes:
        array: the view or the copy.
        source: the tensor without the dimensions that the region drops.
        rows: where in `source` the copied rows lie, an index array per dimension; None for a view.
    """

    array: np.ndarray
    source: np.ndarray
    rows: tuple[np.ndarray, ...] | None = None

    def write_back(self) -> None:
        """Store the rows of a copy where they came from."""
        if self.rows is not None:
            self.source[self.rows] = self.array


@record
class RegionReader:
    """Makes views of the arrays of a run.

    Attributes:
        arrays: the arrays, by name.
        reader: answers for the elements that expressions mention.
        distinct: names of the index tensors whose elements differ by construction.
        rings: names of the tensors whose first dimension numbers the buffers of a channel.
    """

    arrays: Mapping[str, np.ndarray]
    reader: ExtentReader
    distinct: frozenset[str] = frozenset()
    rings: frozenset[str] = frozenset()

    def view(self, region: Region, place: RegionPlace, knows_rows: bool = True) -> ArrayView:
        """Return what `region` means at `place`.

        Args:
            region: a region of a verified workload.
            place: its source line.
            knows_rows: whether the indices of its row set may be looked at; without, a view of all rows.

        Raises:
            RegionOutside, ViewShape, StridedView, StridedRows, RowOutside, RowRepeated, BadExpression.
        """
        array = self.arrays[region.tensor]
        bounds = _bounds(place.param)
        index: list[int | slice] = []
        rows: np.ndarray | None = None
        for dim, entry in enumerate(region.dims):
            if isinstance(entry, Merged):
                index.append(slice(None))
                continue
            owner = entry.indices if isinstance(entry, Rows) else region.tensor
            start, extent = self._range(entry, array.shape[dim], place)
            declared = dim - (owner in self.rings)
            _check_inside(owner, declared, self.arrays[owner].shape[dim], start, extent, place)
            if isinstance(entry, Index):
                index.append(start)
                continue
            _check_view(region, dim, extent, next(bounds), array, place)
            if isinstance(entry, Rows):
                rows = self._rows(region, entry, start, extent, place, knows_rows)
            index.append(slice(None) if isinstance(entry, Rows) else slice(start, start + extent))
        box = array[tuple(index)]
        if rows is None or not knows_rows:
            return ArrayView(box, box)
        at = _unravel(rows, array.shape[: 1 + _num_merged(region)])
        return ArrayView(box[at], box, at)

    def describe(self, region: Region, place: RegionPlace) -> str:
        """Return the elements of `region` at `place`: `X[0:32, 3]`; of a row set `X[indices[0:9]]`."""
        dims = []
        for dim, entry in enumerate(region.dims):
            if isinstance(entry, Merged):
                continue
            start, extent = self._range(entry, self.arrays[region.tensor].shape[dim], place)
            span = f"{start}" if isinstance(entry, Index) else f"{start}:{start + extent}"
            dims.append(f"{entry.indices}[{span}]" if isinstance(entry, Rows) else span)
        return f"{region.tensor}[{', '.join(dims)}]"

    def _range(
        self, entry: Full | Index | Range | Rows | TileRange, size: int, place: RegionPlace
    ) -> tuple[int, int]:
        scope = place.scope
        match entry:
            case Full():
                return 0, size
            case Index(at=at):
                return int(evaluate(at, scope, self.reader)), 1
            case TileRange(loop=loop):
                return int(scope[LoopStart(loop)]), int(scope[LoopExtent(loop)])
            case Range(start=start, extent=extent) | Rows(start=start, extent=extent):
                first = int(evaluate(start, scope, self.reader))
                return first, int(evaluate(extent, scope, self.reader))

    def _rows(
        self, region: Region, entry: Rows, start: int, extent: int, place: RegionPlace, knows_rows: bool
    ) -> np.ndarray:
        """Return the indices of a row set, which are checked if they are known."""
        array, column = self.arrays[region.tensor], self.arrays[entry.indices]
        if extent == 0:
            return np.empty(0, np.int64)
        leading = 1 + _num_merged(region)
        apart = _unmerged(array, leading)
        if apart is not None:
            raise StridedRows(tensor=region.tensor, dim=apart, loc=place.loc)
        if extent > 1 and column.strides[0] != column.itemsize:
            raise StridedRows(tensor=entry.indices, dim=0, loc=place.loc)
        rows = column[start : start + extent, 0].astype(np.int64)
        if knows_rows:
            size = int(np.prod(array.shape[:leading], dtype=np.int64))
            self._check_rows(region, entry, rows, start, size, place)
        return rows

    def _check_rows(
        self, region: Region, entry: Rows, rows: np.ndarray, start: int, size: int, place: RegionPlace
    ) -> None:
        outside = np.flatnonzero((rows < 0) | (rows >= size))
        if outside.size:
            at = int(outside[0])
            raise RowOutside(
                tensor=region.tensor,
                indices=entry.indices,
                position=start + at,
                row=int(rows[at]),
                size=size,
                where=place.where,
                loc=place.loc,
            )
        if place.param.role == IN or entry.indices in self.distinct:
            return
        values, counts = np.unique(rows, return_counts=True)
        if (counts > 1).any():
            row = int(values[counts > 1][0])
            first, second = np.flatnonzero(rows == row)[:2]
            raise RowRepeated(
                tensor=region.tensor,
                indices=entry.indices,
                row=row,
                first=start + int(first),
                second=start + int(second),
                where=place.where,
                loc=place.loc,
            )


def scope_text(scope: Mapping[Name, Value], loops: Sequence[Loop]) -> str:
    """Return ` in iteration b = 3, i = 0` of the loops around a task, or nothing without loops."""
    values = ", ".join(loop.iteration_text(scope[loop.var]) for loop in loops if loop.var in scope)
    return f" in iteration {values}" if values else ""


def _num_merged(region: Region) -> int:
    return sum(isinstance(dim, Merged) for dim in region.dims)


def _unmerged(array: np.ndarray, leading: int) -> int | None:
    """Return the outermost of the leading dimensions that does not step over the ones after it, or None.

    The strides of dimensions of one element say nothing.
    """
    found, span = None, None
    for dim in reversed(range(leading)):
        size, stride = array.shape[dim], array.strides[dim]
        if size == 0:
            return None
        if size == 1:
            continue
        if span is not None and stride != span:
            found = dim
        span = size * stride
    return found


def _unravel(rows: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Return `rows`, which count over dimensions of these sizes together, as an index per dimension."""
    if not rows.size:
        return (rows,) * len(sizes)
    return tuple(np.unravel_index(rows, sizes))


def _bounds(param: Param) -> Iterator[tuple[int, int | None]]:
    """Yield the least and the largest extent of each dimension of a view that `param` takes."""
    match param.type:
        case TileType(rows=rows, cols=cols):
            yield from ((0, rows), (0, cols))
        case ViewType(dims=dims) if dims is not None:
            yield from ((0, None) if d is None else (d, d) for d in dims)
        case _:
            raise AssertionError("verified modules have specialised kernels")


def _check_inside(tensor: str, dim: int, size: int, start: int, extent: int, place: RegionPlace) -> None:
    if start < 0 or extent < 0 or start + extent > size:
        stop = start + extent
        raise RegionOutside(
            tensor=tensor, dim=dim, size=size, start=start, stop=stop, where=place.where, loc=place.loc
        )


def _check_view(
    region: Region,
    dim: int,
    extent: int,
    bounds: tuple[int, int | None],
    array: np.ndarray,
    place: RegionPlace,
) -> None:
    low, high = bounds
    param, kernel = place.param, place.kernel
    if extent < low or (high is not None and extent > high):
        expected = f"{low}" if low == high else f"at most {high}"
        raise ViewShape(
            param=param.name,
            kernel=kernel.name,
            dim=dim,
            expected=expected,
            found=extent,
            where=place.where,
            loc=place.loc,
        )
    if array.size and dim == region.kept[-1] and extent > 1 and array.strides[dim] != array.itemsize:
        raise StridedView(param=param.name, kernel=kernel.name, tensor=region.tensor, dim=dim, loc=place.loc)
