"""What selects several elements of a dimension: ranges that loops make and ranges of a run."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, TypeVar, overload

from pto_wsp.errors import BadOperand
from pto_wsp.ir.core import DimSelect, Range, TileRange
from pto_wsp.ir.scalar import Const, Expr, LoopExtent, LoopStart, add
from pto_wsp.lang.operands import Number, Scalar, expression, kind_of
from pto_wsp.lang.workload import context
from pto_wsp.lang.workload.subviews import SliceBounds, index_in, range_in, slice_in
from pto_wsp.location import caller_location
from pto_wsp.types.dtype import i64


def _no_arithmetic(self: object, *_: object) -> NoReturn:
    expected = "arithmetic with its `.start`, `.stop` or `.extent`"
    raise BadOperand(op="a range", expected=expected, found="the range itself", loc=caller_location())


T = TypeVar("T", bound=type)


def without_arithmetic(cls: T) -> T:
    """Make a class refuse arithmetic and comparisons; type checkers see none."""
    for name in "add radd sub rsub mul rmul floordiv mod lt le gt ge eq ne".split():
        setattr(cls, f"__{name}__", _no_arithmetic)
    return cls


@without_arithmetic
class Stretch:
    """A range [start, start + extent) of a dimension that only a run knows.

    As an axis it counts from 0: `P(range)` yields 0 .. extent - 1. `range[i:j]` is a part of it, `range[t]`
    the part that a range of `P.tiles` covers, and `range[i]` the place of element i in the dimension. What
    is not proven to lie inside the range is checked by the run. Nothing is clipped: clip a bound with
    `.min(range.extent)`.
    """

    __slots__ = ("extent_expr", "start_expr")

    called: ClassVar[str] = "range"
    """What messages call it."""

    def __init__(self, start: Expr, extent: Expr) -> None:
        self.start_expr = start
        self.extent_expr = extent

    @property
    def start(self) -> Scalar:
        """First element."""
        return Scalar(self.start_expr)

    @property
    def extent(self) -> Scalar:
        """Number of elements."""
        return Scalar(self.extent_expr)

    @property
    def stop(self) -> Scalar:
        """One past the last element."""
        return self.start + self.extent

    def __repr__(self) -> str:
        return f"<{self.called}>"

    @overload
    def __getitem__(self, item: slice | Span) -> Stretch: ...
    @overload
    def __getitem__(self, item: Number) -> Scalar: ...
    def __getitem__(self, item: slice | Span | Number) -> Any:
        """Return the part `start:stop` or that of a range of `P.tiles`, or the place of an element.

        Raises:
            BadOperand: not a slice of integers, a range of `P.tiles` or an integer.
            OutsideWorkload: no workload is being built.
        """
        trace, loc = context.current("a part of a range"), caller_location()
        if isinstance(item, slice):
            part = slice_of(item, self.extent_expr)
            if isinstance(part, str):
                raise _not_a_part("a slice of integers without a step", part)
            return self._part(*slice_in(self.extent_expr, part, trace, loc))
        if isinstance(item, Span):
            return self._part(*range_in(self.extent_expr, item.start_expr, item.extent_expr, trace, loc))
        at = expression(item)
        if at is None or at.dtype is not i64:
            raise _not_a_part("an integer, a slice or a range made by `P.tiles`", kind_of(item))
        return Scalar(add(self.start_expr, index_in(self.extent_expr, at, trace, loc), loc))

    def __iter__(self) -> NoReturn:
        expected = "a loop over `P`, such as `for i in P(range):`"
        raise BadOperand(op="a range", expected=expected, found="a loop over it", loc=caller_location())

    def _part(self, start: Expr, extent: Expr) -> Stretch:
        """Return the part that begins at element `start`."""
        return Stretch(add(self.start_expr, start, caller_location()), extent)

    def selection(self) -> DimSelect:
        """Return the part of a dimension that it selects."""
        return Range(self.start_expr, self.extent_expr)

    def item(self, index: Expr) -> Scalar:
        """Return what a loop over it yields in iteration `index`."""
        return Scalar(index)

    def part(self, loop: str) -> Span:
        """Return what a tiles loop over it yields."""
        return Span(loop, self)


class Span(Stretch):
    """A range made by `P.tiles` (in a kernel: `pto.tiles`), clipped to its axis.

    It indexes a dimension of a tensor or view; `start`, `stop` and `extent` are its scalars. In the last
    range of an axis that the tile does not divide, `extent` is less than the tile.

    Attributes:
        loop: variable of the tiles loop.
        axis: the range that the loop runs over, or None where it runs over a plain extent.
    """

    __slots__ = ("axis", "loop")

    def __init__(self, loop: str, axis: Stretch | None = None) -> None:
        super().__init__(LoopStart(loop), LoopExtent(loop))
        self.loop = loop
        self.axis = axis

    def __repr__(self) -> str:
        return f"<range {self.loop}>"

    def selection(self) -> DimSelect:
        """Return the part of a dimension that it selects."""
        return TileRange(self.loop)


def slice_of(item: slice, size: Expr | None) -> SliceBounds | str:
    """Return the bounds of a slice, whose stop is `size` by default, or the reason why it is wrong."""
    start = Const(0) if item.start is None else expression(item.start)
    stop = size if item.stop is None else expression(item.stop)
    if item.step is not None:
        return "a step"
    if start is None or stop is None or start.dtype is not i64 or stop.dtype is not i64:
        return "other bounds"
    return SliceBounds(start, stop)


def _not_a_part(expected: str, found: str) -> BadOperand:
    return BadOperand(op="a part of a range", expected=expected, found=found, loc=caller_location())


class Packed(Stretch):
    """Every element of a packed dimension: loops over it yield places in that dimension."""

    __slots__ = ()

    def item(self, index: Expr) -> Scalar:
        """Return the place that iteration `index` is at."""
        return Scalar(add(self.start_expr, index))

    def part(self, loop: str) -> Span:
        """Return what a tiles loop over it yields."""
        return _PackedSpan(loop, self)


class _PackedSpan(Span):
    """A tile of a packed dimension, which need not begin at 0."""

    __slots__ = ()

    def __init__(self, loop: str, axis: Packed) -> None:
        super().__init__(loop, axis)
        self.start_expr = add(axis.start_expr, self.start_expr)

    def selection(self) -> DimSelect:
        return Range(self.start_expr, self.extent_expr)
