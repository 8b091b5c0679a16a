"""Loops over axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

import numpy as np

from pto_wsp.errors import BadIndex, BadOperand, UnknownMember, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.source import loop_statement, loop_targets
from pto_wsp.lang.workload import conditions as control
from pto_wsp.lang.workload.blocks import OpenBlock, OpenLoop
from pto_wsp.lang.workload.expansion import NOT_EXPANDED, Expansion, read_expansion
from pto_wsp.lang.workload.python_variables import require_one_value
from pto_wsp.lang.workload.ragged import Ragged, RaggedAxis
from pto_wsp.lang.workload.ranges import Span, Stretch
from pto_wsp.lang.workload.sparse import Sparse, SparseRow, selection
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.trace import current_trace
from pto_wsp.location import Location, caller_location
from pto_wsp.types.axis import Dense, DenseDyn

Axis = int | str | Scalar | Tensor | Dense | DenseDyn | Stretch | Ragged | Sparse
"""What a loop runs over: an extent (an element of a tensor is one), the name of a size, an axis, or a row."""

Item = TypeVar("Item")


class AxisLoop(Generic[Item]):
    """What `for` takes in a workload; each iteration of the body is described once."""

    def __init__(
        self,
        kind: str,
        axes: tuple[Axis, ...],
        tile: int | None = None,
        expansion: Expansion = NOT_EXPANDED,
    ) -> None:
        self._kind = kind
        self._axes = axes
        self._tile = tile
        self._expansion = expansion

    def __iter__(self) -> Iterator[Item]:
        loc = caller_location()
        names, loc = loop_targets(loc) if loc is not None else ((), None)
        statement = None if loc is None else loop_statement(loc)
        if loc is not None and statement is not None:
            require_one_value(loc.file, statement)
        if len(names) != len(self._axes):
            names = tuple("ijklmnop"[n % 8] for n in range(len(self._axes)))
        axes = tuple(zip(names, self._axes, strict=True))
        return _Iteration(self._kind, axes, self._tile, loc, self._expansion)


class _Iteration(Iterator[Any]):
    """Opens the loops at the first `next`, closes them at the second, which ends the `for`."""

    def __init__(
        self,
        kind: str,
        axes: tuple[tuple[str, Axis], ...],
        tile: int | None,
        loc: Location | None,
        expansion: Expansion,
    ) -> None:
        self._expansion = expansion
        self._kind = kind
        self._axes = axes
        self._tile = tile
        self._loc = loc
        self._open: list[OpenBlock] = []
        self._done = False

    def __next__(self) -> Any:
        current = current_trace("a loop over `P`")
        if self._done:
            raise StopIteration
        if self._open:
            for block in reversed(self._open):
                current.blocks.leave(block)
            self._done = True
            raise StopIteration
        values: list[Scalar | Span] = []
        for name, given in self._axes:
            axis = given.packed if isinstance(given, RaggedAxis) else given
            extent = current.extent_of(axis, self._loc)
            loop, block = current.open_loop(self._kind, name, extent, self._tile, self._loc, self._expansion)
            self._open.append(block)
            values.append(_yielded(axis, loop))
        return values[0] if len(values) == 1 else tuple(values)


def _yielded(axis: object, loop: OpenLoop) -> Scalar | Span:
    """Return what an iteration of `loop` over `axis` gives to the program."""
    if isinstance(axis, Stretch):
        return axis.item(loop.index) if loop.tile is None else axis.part(loop.var)
    return Scalar(loop.index) if loop.tile is None else Span(loop.var)


class Loops:
    """Loops over axes, which `P` provides."""

    @overload
    def __call__(self, a: Axis, /) -> AxisLoop[Scalar]: ...
    @overload
    def __call__(self, a: Axis, b: Axis, /) -> AxisLoop[tuple[Scalar, Scalar]]: ...
    @overload
    def __call__(self, a: Axis, b: Axis, c: Axis, /) -> AxisLoop[tuple[Scalar, Scalar, Scalar]]: ...
    @overload
    def __call__(
        self, a: Axis, b: Axis, c: Axis, d: Axis, /, *more: Axis
    ) -> AxisLoop[tuple[Scalar, ...]]: ...
    def __call__(self, *axes: Axis) -> AxisLoop[Any]:
        """Iterate over every combination of coordinates of the axes; the last one varies fastest."""
        return _loop(w.PARALLEL, axes)

    grid = __call__

    def tiles(
        self, axis: Axis, tile: int, order: Literal["parallel", "range", "seq"] = w.PARALLEL
    ) -> AxisLoop[Span]:
        """Iterate over ceil(extent / tile) ranges; the last one is clipped to the axis.

        Args:
            axis: what is cut.
            tile: elements per range.
            order: `"parallel"`: iterations are independent, as those of `P(n)`. `"range"`: they are in
                program order, ordered by data alone, as those of `P.range(n)`. `"seq"`: each is complete
                before the next begins, as those of `P.seq(n)`.

        Raises:
            BadOperand: another order, or a tile that is not a positive number.
        """
        current_trace("`P.tiles`")
        if order not in (w.PARALLEL, w.RANGE, w.SEQUENTIAL):
            expected = '`order=` "parallel", "range" or "seq"'
            raise BadOperand(op="P.tiles", expected=expected, found=repr(order), loc=caller_location())
        if not isinstance(tile, (int, np.integer)) or isinstance(tile, bool) or tile <= 0:
            raise BadOperand(
                op="P.tiles",
                expected="a positive number of elements per tile",
                found=repr(tile),
                loc=caller_location(),
            )
        return AxisLoop(order, (axis,), int(tile))

    def sel(self, axis: Sparse | SparseRow) -> AxisLoop[Scalar]:
        """Iterate over the indices of a sparse axis, or of a row of one; iterations are independent."""
        return _loop(w.PARALLEL, (selection(axis),))

    def range(
        self,
        n: Axis,
        *,
        max_range: int | None = None,
        min_range: int | None = None,
        tile_levels: Mapping[int, int] | None = None,
    ) -> AxisLoop[Scalar]:
        """Iterate over [0, n) in program order, ordered by data alone.

        Args:
            n: the extent.
            max_range: the largest block that binary expansion makes of the loop, rounded up to a power of
                two; without it the loop stays as it is.
            min_range: the smallest block; what is left is one loop.
            tile_levels: rows of the tiles that blocks of some sizes work on, where they are more than those
                of the kernels; 0 is the rest.

        Raises:
            BadOperand: no such ranges or levels.
        """
        loc = caller_location()
        return _loop(w.RANGE, (n,), read_expansion("P.range", max_range, min_range, tile_levels, loc))

    def seq(self, axis: Axis) -> AxisLoop[Scalar]:
        """Iterate so that iteration i is complete before iteration i + 1 begins."""
        return _loop(w.SEQUENTIAL, (axis,))

    when = staticmethod(control.when)
    otherwise = staticmethod(control.otherwise)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        known = [n for n in dir(type(self)) if not n.startswith("_")]
        raise UnknownMember(
            name=f"P.{name}", where="workloads", advice=did_you_mean(name, known), loc=caller_location()
        )


def _loop(kind: str, axes: tuple[Axis, ...], expansion: Expansion = NOT_EXPANDED) -> AxisLoop[Any]:
    current_trace("a loop over `P`")
    if not axes:
        raise BadIndex(tensor="P", expected="at least one axis", found="none", loc=caller_location())
    return AxisLoop(kind, axes, None, expansion)
