"""What selects several elements of a dimension: ranges that loops make, ranges of a run, and row sets."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from pto_wsp.errors import BadOperand
from pto_wsp.ir.core import DimSelect, Range, TileRange
from pto_wsp.ir.scalar import Expr, LoopExtent, LoopStart, add
from pto_wsp.lang.operands import Scalar
from pto_wsp.location import caller_location


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

    As an axis it counts from 0: `P(range)` yields 0 .. extent - 1.
    """

    __slots__ = ("extent_expr", "start_expr")

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

    def selection(self) -> DimSelect:
        """Return what it selects of a dimension."""
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
        """Return what it selects of a dimension."""
        return TileRange(self.loop)


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
