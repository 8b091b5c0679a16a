"""Ragged axes: rows of different lengths, packed one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pto_wsp.errors import BadOperand, BadRagged, WrongValue
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Const, Element, Expr, Var, add, binary
from pto_wsp.lang.annotations import RaggedAnnotation
from pto_wsp.lang.operands import Number, Scalar, expression, kind_of
from pto_wsp.lang.workload.ranges import Packed, Stretch
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.location import Location, caller_location
from pto_wsp.support.arrays import is_masked
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import TensorType


class Ragged:
    """A ragged axis: one row of run-time length for each element of another size.

    `kv: Ragged["batch"]` annotates a workload parameter. In the workload `kv[b]` is row b as a range of the
    packed dimension (`K[kv[b]]`), and an axis that counts from 0 (`P(kv[b])`, `P.tiles(kv[b], 64)`);
    `kv[b][i]` is element i of row b, `kv[b][i:j]` and `kv[b][rows]` are parts of it, and `kv.local(b)` is the
    range [0, length) for tensors that give every row a place of its own. `P(kv)` and `P.tiles(kv, 64)` run
    over the elements of all rows, and yield places in the packed dimension.

    A call of the program takes `Ragged.lengths(array)` or `Ragged.indptr(array)`: by name, never guessed.
    The last offset may be smaller than the packed dimension of a tensor, which is then a pool. The value is
    a copy: arrays that change later do not change it.

    Attributes:
        offsets: [rows + 1] i64; row b covers the elements offsets[b] .. offsets[b + 1].
    """

    __slots__ = ("offsets",)

    offsets: np.ndarray

    def __init__(self, *_: object) -> None:
        raise by_name("Ragged", "`Ragged.lengths(array)` or `Ragged.indptr(array)`")

    def __class_getitem__(cls, item: object) -> Any:
        return RaggedAnnotation(item)

    def __reduce__(self) -> tuple[object, ...]:
        return Ragged.indptr, (self.offsets,)

    def __repr__(self) -> str:
        return f"<Ragged: {len(self.offsets) - 1} rows, {self.offsets[-1] - self.offsets[0]} elements>"

    @classmethod
    def lengths(cls, lengths: object) -> Ragged:
        """Make rows from their lengths: [rows] integers >= 0.

        Raises:
            BadRagged: not a flat sequence of integers, or a negative one.
        """
        return cls._of(offsets_of_lengths(lengths, BadRagged))

    @classmethod
    def indptr(cls, indptr: object) -> Ragged:
        """Make rows from an index pointer: [rows + 1] integers >= 0, each not below the one before.

        Raises:
            BadRagged: not a flat, non-empty sequence of integers, or one that falls.
        """
        return cls._of(checked_offsets(indptr, BadRagged))

    @classmethod
    def _of(cls, offsets: np.ndarray) -> Ragged:
        made = cls.__new__(cls)
        made.offsets = frozen(offsets)
        return made

    if TYPE_CHECKING:

        def __getitem__(self, b: Number) -> RaggedRow:
            """Row b."""
            ...

        def local(self, b: Number) -> Stretch:
            """The range [0, length of row b)."""
            ...

        @property
        def extent(self) -> Scalar:
            """Number of elements of all rows."""
            ...


def by_name(what: str, ways: str) -> WrongValue:
    """Return the error for an axis that is constructed without its arrays."""
    return WrongValue(name=what, expected=ways, found="values without a name", loc=caller_location())


def frozen(array: np.ndarray) -> np.ndarray:
    """Return a copy that is read-only from now on."""
    array.flags.writeable = False
    return array


def offsets_of_lengths(lengths: object, error: type[BadRagged]) -> np.ndarray:
    """Return [rows + 1] i64 offsets of rows of these lengths; the error names the first bad one."""
    array = flat_integers(lengths, "lengths", error)
    negative = np.flatnonzero(array < 0)
    if len(negative):
        place = int(negative[0])
        raise error(what="lengths", expected=">= 0", found=array[place], place=place)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(array, out=offsets[1:])
    if (offsets < 0).any():
        place = int(np.flatnonzero(offsets < 0)[0]) - 1
        raise error(what="lengths", expected="a sum below 2^63", found="more", place=place)
    return offsets


def checked_offsets(indptr: object, error: type[BadRagged]) -> np.ndarray:
    """Return an index pointer as [rows + 1] i64; the error names the first element that falls."""
    array = flat_integers(indptr, "indptr", error)
    if not len(array):
        raise error(what="indptr", expected="at least one element", found="none", place=0)
    falls = np.flatnonzero(array < np.concatenate(([0], array[:-1])))
    if len(falls):
        place = int(falls[0])
        before = array[place - 1] if place else 0
        raise error(what="indptr", expected=f">= {before}", found=array[place], place=place)
    return array


def flat_integers(values: object, what: str, error: type[BadRagged]) -> np.ndarray:
    """Return a copy of a flat sequence of integers as i64."""
    if is_masked(values):
        found = "a masked array, whose mask would be ignored"
        raise error(what=what, expected="a flat sequence of integers", found=found, place=0)
    try:
        array = np.asarray(values)
    except ValueError:  # nested sequences of different lengths
        array = np.empty((0, 0), object)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        found = f"{array.dtype} of rank {array.ndim}"
        raise error(what=what, expected="a flat sequence of integers", found=found, place=0)
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        place = int(array.argmax())
        raise error(what=what, expected="64-bit signed integers", found=array[place], place=place)
    return array.astype(np.int64)


class RaggedRow(Stretch):
    """Row b of a ragged axis: a range of the packed dimension, and an axis that counts from 0."""

    __slots__ = ()

    called = "row of a ragged axis"


class RaggedAxis:
    """What a workload's function gets for a parameter `Ragged[...]`."""

    tensors: tuple[Tensor, ...] = ()
    """The tensors it holds that tasks can take as arguments."""

    def __init__(self, param: w.RaggedParam | w.SparseParam) -> None:
        self.param = param

    def __repr__(self) -> str:
        return f"<ragged axis {self.param.name}>"

    def __getitem__(self, b: Number) -> RaggedRow:
        """Row b."""
        return RaggedRow(*self._row(b, caller_location()))

    @property
    def num_rows(self) -> Expr:
        """Number of rows."""
        return Var(self.param.outer)

    @property
    def packed(self) -> Packed:
        """All rows: the elements that loops over the axis itself run over."""
        loc = caller_location()
        first, last = self._offset(Const(0), loc), self._offset(self.num_rows, loc)
        return Packed(first, binary("sub", last, first, loc))

    @property
    def extent(self) -> Scalar:
        """Number of elements of all rows."""
        return self.packed.extent

    def local(self, b: Number) -> Stretch:
        """The range [0, length of row b)."""
        return Stretch(Const(0), self[b].extent_expr)

    def hidden(self) -> tuple[w.WorkloadParam, ...]:
        """Return the parameters that hold its rows."""
        name, loc = self.param.offsets, self.param.loc
        count = w.SizeParam(self.param.count, loc=loc)
        return count, w.TensorParam(name, TensorType(i64, (count.name,)), loc)

    def _row(self, b: Number, loc: Location | None) -> tuple[Expr, Expr]:
        at = expression(b)
        if at is None or at.dtype is not i64:
            raise _not_an_index(self.param.name, b)
        first, last = self._offset(at, loc), self._offset(add(at, Const(1), loc), loc)
        return first, binary("sub", last, first, loc)

    def _offset(self, at: Expr, loc: Location | None) -> Expr:
        return Element(self.param.offsets, (at,), loc)


def _not_an_index(axis: str, found: object) -> BadOperand:
    hint = f"take a row by its number: `for b in P(...): {axis}[b]`"
    loc = caller_location()
    return BadOperand(op=f"{axis}[...]", expected="an integer", found=kind_of(found), hint=hint, loc=loc)
