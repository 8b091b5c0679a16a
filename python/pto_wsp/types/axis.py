"""Axes: what loops of a workload run over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pto_wsp.errors import BadRagged


class _DenseMeta(type):
    def __getitem__(cls, extent: int) -> Dense:
        return Dense(extent)


@dataclass(frozen=True, slots=True)
class Dense(metaclass=_DenseMeta):
    """An axis whose extent is known when the workload is built: `Dense[8]`."""

    extent: int


@dataclass(frozen=True, slots=True)
class DenseDyn:
    """An axis whose extent is bound when the program runs.

    As an annotation of a workload parameter the class itself stands for an extent taken from the arrays or
    given by name in the call; an instance fixes a value for every call that gives no other.
    """

    extent: int | None = None


@dataclass(frozen=True, slots=True)
class RaggedOver:
    """The annotation `Ragged["batch"]`: one row of run-time length per element of the size `outer`."""

    outer: str


class _RaggedMeta(type):
    def __getitem__(cls, outer: str) -> RaggedOver:
        return RaggedOver(outer)


class Ragged(metaclass=_RaggedMeta):
    """Rows of different lengths, packed one behind the other.

    As an annotation of a workload parameter, `Ragged["batch"]`. As a value it is made by name from lengths
    or from an index pointer, never guessed.

    Attributes:
        offsets: [rows + 1] i64; row b covers the elements offsets[b] .. offsets[b + 1].
    """

    __slots__ = ("offsets",)

    def __init__(self, offsets: np.ndarray) -> None:
        self.offsets = offsets

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
            raise BadRagged(what="lengths", expected=">= 0", found=array[negative[0]], place=negative[0])
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(array, out=offsets[1:])
        return cls(offsets)

    @classmethod
    def indptr(cls, indptr: object) -> Ragged:
        """Make rows from an index pointer: [rows + 1] integers >= 0, each not below the one before.

        Raises:
            BadRagged: not a flat, non-empty sequence of integers, or one that falls.
        """
        array = _integers(indptr, "indptr").copy()
        if not len(array):
            raise BadRagged(what="indptr", expected="at least one element", found="none", place=0)
        falls = np.flatnonzero(np.diff(array, prepend=0) < 0)
        if len(falls):
            before = array[falls[0] - 1] if falls[0] else 0
            raise BadRagged(what="indptr", expected=f">= {before}", found=array[falls[0]], place=falls[0])
        return cls(array)


def _integers(values: object, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise BadRagged(
            what=what,
            expected="a flat sequence of integers",
            found=f"{array.dtype} of rank {array.ndim}",
            place=0,
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise BadRagged(
            what=what, expected="64-bit signed integers", found=array.max(), place=int(array.argmax())
        )
    return array.astype(np.int64)
