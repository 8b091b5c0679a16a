"""Ragged axes: rows of different lengths, packed one behind the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pto_wsp.errors import BadOperand, BadRagged
from pto_wsp.ir.scalar import Const as IrConst
from pto_wsp.ir.scalar import Element, Expr, add, binary
from pto_wsp.ir.workload import RaggedParam
from pto_wsp.lang.scalar import Number, Scalar, expression
from pto_wsp.lang.surface import RaggedAnnotation
from pto_wsp.lang.tensor import Span, Stretch
from pto_wsp.location import Location, caller_location
from pto_wsp.types.dtype import i64


class Ragged:
    """A ragged axis: one row of run-time length for each element of another size.

    `kv: Ragged["batch"]` annotates a workload parameter. In the workload `kv[b]` is row b as a range of the
    packed dimension (`K[kv[b]]`), and an axis that counts from 0 (`P(kv[b])`, `P.tiles(kv[b], 64)`);
    `kv[b][i]` is element i of row b, `kv[b][rows]` a part of it, and `kv.local(b)` the range [0, length) for
    tensors that give every row a place of its own.

    A call of the program takes `Ragged.lengths(array)` or `Ragged.indptr(array)`: by name, never guessed.
    The last offset may be smaller than the packed dimension of a tensor, which is then a pool.

    Attributes:
        offsets: [rows + 1] i64; row b covers the elements offsets[b] .. offsets[b + 1].
    """

    __slots__ = ("offsets",)

    def __init__(self, offsets: np.ndarray) -> None:
        self.offsets = offsets

    def __class_getitem__(cls, item: object) -> Any:
        return RaggedAnnotation(item)

    def __repr__(self) -> str:
        return f"<Ragged: {len(self.offsets) - 1} rows, {self.offsets[-1] - self.offsets[0]} elements>"

    @classmethod
    def lengths(cls, lengths: object) -> Ragged:
        """Make rows from their lengths: [rows] integers >= 0.

        Raises:
            BadRagged: not a flat sequence of integers, or a negative one.
        """
        array = _integers(lengths, "lengths")
        negative = np.flatnonzero(array < 0)
        if len(negative):
            raise _bad("lengths", ">= 0", array[negative[0]], int(negative[0]))
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(array, out=offsets[1:])
        if (offsets < 0).any():
            raise _bad("lengths", "a sum below 2^63", "more", int(np.flatnonzero(offsets < 0)[0]) - 1)
        return cls(offsets)

    @classmethod
    def indptr(cls, indptr: object) -> Ragged:
        """Make rows from an index pointer: [rows + 1] integers >= 0, each not below the one before.

        Raises:
            BadRagged: not a flat, non-empty sequence of integers, or one that falls.
        """
        array = _integers(indptr, "indptr")
        if not len(array):
            raise _bad("indptr", "at least one element", "none", 0)
        falls = np.flatnonzero(np.diff(array, prepend=0) < 0)
        if len(falls):
            before = array[falls[0] - 1] if falls[0] else 0
            raise _bad("indptr", f">= {before}", array[falls[0]], int(falls[0]))
        return cls(array)

    if TYPE_CHECKING:

        def __getitem__(self, b: Number) -> RaggedRow:
            """Row b."""
            ...

        def local(self, b: Number) -> Stretch:
            """The range [0, length of row b)."""
            ...


def _integers(values: object, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise _bad(what, "a flat sequence of integers", f"{array.dtype} of rank {array.ndim}", 0)
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise _bad(what, "64-bit signed integers", array.max(), int(array.argmax()))
    return array.astype(np.int64)


def _bad(what: str, expected: str, found: object, place: int) -> BadRagged:
    return BadRagged(what=what, expected=expected, found=found, place=place)


class RaggedRow(Stretch):
    """Row b of a ragged axis: a range of the packed dimension, and an axis that counts from 0."""

    def __getitem__(self, item: Number | Span) -> Any:
        """Element `item` of the row, or the part that a range made by `P.tiles` covers."""
        if isinstance(item, Span):
            return Stretch(add(self.start_expr, item.start.expr), item.extent.expr)
        at = expression(item)
        if at is None or at.dtype is not i64:
            raise _not_an_index("an integer or a range made by `P.tiles`", item)
        return Scalar(add(self.start_expr, at))


class RaggedAxis:
    """What a workload's function gets for a parameter `Ragged[...]`."""

    def __init__(self, param: RaggedParam) -> None:
        self.param = param

    def __repr__(self) -> str:
        return f"<ragged axis {self.param.name}>"

    def __getitem__(self, b: Number) -> RaggedRow:
        """Row b."""
        loc = caller_location()
        first, last = self._offset(b, 0, loc), self._offset(b, 1, loc)
        return RaggedRow(first, binary("sub", last, first, loc))

    def local(self, b: Number) -> Stretch:
        """The range [0, length of row b)."""
        return Stretch(IrConst(0), self[b].extent_expr)

    def _offset(self, b: Number, ahead: int, loc: Location | None) -> Expr:
        at = expression(b)
        if at is None or at.dtype is not i64:
            raise _not_an_index("an integer", b)
        return Element(self.param.offsets, (add(at, IrConst(ahead)),), loc)


def _not_an_index(expected: str, found: object) -> BadOperand:
    return BadOperand(
        op="a row of a ragged axis", expected=expected, found=type(found).__name__, loc=caller_location()
    )
