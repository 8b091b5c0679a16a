"""Sparse axes: rows of indices, in CSR form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pto_wsp.errors import BadOperand, BadSparse
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Const, Element, Expr, add
from pto_wsp.lang.annotations import SparseAnnotation
from pto_wsp.lang.operands import Number, Scalar, kind_of
from pto_wsp.lang.workload.ragged import (
    RaggedAxis,
    RaggedRow,
    by_name,
    checked_offsets,
    flat_integers,
    frozen,
    offsets_of_lengths,
)
from pto_wsp.lang.workload.ranges import Packed, Span, Stretch
from pto_wsp.lang.workload.tensor import RowSet, Tensor
from pto_wsp.location import Location, caller_location
from pto_wsp.types.dtype import DType, i32
from pto_wsp.types.tile import TensorType

I32_MAX = 2**31 - 1


class Sparse:
    """A sparse axis: for each element of another size, a row of indices.

    `routing: Sparse["experts"]` annotates a workload parameter; `group_by` makes one inside a workload. In
    the workload `P.sel(routing[e])` yields the indices of row e, `P.sel(routing)` those of all rows.
    `routing[e]` is a range of places among all indices, of `extent` elements: `P.tiles(routing[e], 64)` cuts
    it, `routing[e][:n]` are its first n, `Values[routing[e]]` is that part of a tensor with an element per
    index. `routing.rows(pick)`, with a range of `P.tiles`, a row or a part of one, is the set of rows that
    these indices name: `X[routing.rows(pick)]`.

    A call of the program takes `Sparse.csr(indptr, indices)` or `Sparse.lists(rows)`: by name, never guessed.
    The value is a copy: arrays that change later do not change it.

    Attributes:
        offsets: [rows + 1] i64; row b has the indices at the places offsets[b] .. offsets[b + 1].
        indices: [entries, 1] i32, each >= 0.
    """

    __slots__ = ("indices", "offsets")

    offsets: np.ndarray
    indices: np.ndarray

    def __init__(self, *_: object) -> None:
        raise by_name("Sparse", "`Sparse.csr(indptr, indices)` or `Sparse.lists(rows)`")

    def __class_getitem__(cls, item: object) -> Any:
        return SparseAnnotation(item)

    def __reduce__(self) -> tuple[object, ...]:
        return Sparse.csr, (self.offsets, self.indices[:, 0])

    def __repr__(self) -> str:
        return f"<Sparse: {len(self.offsets) - 1} rows, {self.offsets[-1] - self.offsets[0]} indices>"

    @classmethod
    def csr(cls, indptr: object, indices: object) -> Sparse:
        """Make rows from CSR arrays.

        Args:
            indptr: [rows + 1] integers >= 0, each not below the one before.
            indices: [indptr[-1] or more] integers in [0, 2^31). Only those in indptr[0] .. indptr[-1] are
                read.

        Raises:
            BadSparse: an array is not a flat sequence of integers, or has a bad element.
        """
        offsets = checked_offsets(indptr, BadSparse)
        return cls._of(offsets, _checked_indices(indices, int(offsets[0]), int(offsets[-1])))

    @classmethod
    def lists(cls, rows: Sequence[Iterable[int]]) -> Sparse:
        """Make rows from a sequence of indices for each: integers in [0, 2^31).

        Raises:
            BadSparse: a row is not a flat sequence of integers, or has a bad element.
        """
        if not isinstance(rows, (Sequence, np.ndarray)):
            expected = "a sequence with a list of integers for each row"
            raise BadSparse(what="lists", expected=expected, found=type(rows).__name__, place=0)
        arrays = [flat_integers(row, f"row {b}", BadSparse) for b, row in enumerate(rows)]
        for b, row in enumerate(arrays):
            _require_range(row, f"row {b}", 0)
        offsets = offsets_of_lengths(np.array([len(row) for row in arrays], np.int64), BadSparse)
        flat = np.concatenate([*arrays, np.empty(0, np.int64)])
        return cls._of(offsets, flat.astype(np.int32).reshape(-1, 1))

    @classmethod
    def _of(cls, offsets: np.ndarray, indices: np.ndarray) -> Sparse:
        made = cls.__new__(cls)
        made.offsets, made.indices = frozen(offsets), frozen(indices)
        return made

    if TYPE_CHECKING:

        def __getitem__(self, b: Number) -> SparseRow:
            """Row b."""
            ...

        def rows(self, pick: Span | SparseRow) -> RowSet:
            """The rows that the indices of a range of `P.tiles`, or of a whole row, name."""
            ...

        @property
        def extent(self) -> Scalar:
            """Number of indices of all rows."""
            ...


def _checked_indices(indices: object, first: int, last: int) -> np.ndarray:
    """Return indices as [last, 1] i32, those before `first`, which nothing reads, as 0."""
    array = indices if isinstance(indices, np.ndarray) else flat_integers(indices, "indices", BadSparse)
    if array.ndim == 1 and len(array) < last:
        expected = f"at least {last} elements (the last of `indptr`)"
        raise BadSparse(what="indices", expected=expected, found=f"{len(array)}", place=len(array))
    used = flat_integers(array[first:last] if array.ndim == 1 else array, "indices", BadSparse)
    _require_range(used, "indices", first)
    found = np.zeros((last, 1), np.int32)
    found[first:, 0] = used
    return found


def _require_range(array: np.ndarray, what: str, first: int) -> None:
    bad = np.flatnonzero((array < 0) | (array > I32_MAX))
    if len(bad):
        place = int(bad[0])
        raise BadSparse(what=what, expected="in [0, 2^31)", found=array[place], place=first + place)


class _Pick(Span):
    """A tile of a row, for `rows`: as an index it would select what the indices do not name."""

    __slots__ = ()

    def __getitem__(self, item: Any) -> Any:
        """The part `start:stop`, as a range of the places of indices."""
        assert self.axis is not None
        return self.axis[self][item]

    def selection(self) -> NoReturn:
        raise BadOperand(
            op="an index",
            expected="`routing.rows(pick)` for the rows that the indices name, `routing[b][pick]` for the "
            "places of the indices themselves, or a slice",
            found="a range of a row of a sparse axis",
            loc=caller_location(),
        )


class SparseRow(RaggedRow):
    """Row b of a sparse axis: a range of places among its indices."""

    __slots__ = ("owner",)

    called = "row of a sparse axis"

    def __init__(self, owner: SparseAxis, start: Expr, extent: Expr) -> None:
        super().__init__(start, extent)
        self.owner = owner

    def __getitem__(self, item: object) -> SparseRow:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The part `start:stop`, or that of a range made by `P.tiles`."""
        if not isinstance(item, (slice, Span)):
            raise BadOperand(
                op="a row of a sparse axis",
                expected="a slice or a range made by `P.tiles`; `P.sel` yields its indices",
                found=kind_of(item),
                loc=caller_location(),
            )
        part = super().__getitem__(item)
        assert isinstance(part, SparseRow)
        return part

    def _part(self, start: Expr, extent: Expr) -> SparseRow:
        return SparseRow(self.owner, add(self.start_expr, start, caller_location()), extent)

    def item(self, index: Expr) -> NoReturn:
        """Refused: whether places or indices are meant has to be said."""
        raise _indices_or_places("routing[b]")

    def part(self, loop: str) -> Span:
        """Return what a tiles loop over it yields."""
        return _Pick(loop, self)


class _SparsePacked(Packed):
    """The places of the indices of all rows."""

    __slots__ = ("owner",)

    def __init__(self, owner: SparseAxis, start: Expr, extent: Expr) -> None:
        super().__init__(start, extent)
        self.owner = owner

    def item(self, index: Expr) -> NoReturn:
        raise _indices_or_places("routing")


def _indices_or_places(text: str) -> BadOperand:
    return BadOperand(
        op="P",
        expected=f"`P.sel({text})` for the indices, or `P({text}.extent)` to count them",
        found="a sparse axis",
        loc=caller_location(),
    )


class Held(Tensor):
    """A tensor that an axis holds, and that no variable of the user's names."""

    def __init__(self, name: str, dtype: DType, dims: tuple[int | str, ...]) -> None:
        super().__init__(shape=(1,) * len(dims), dtype=dtype)
        self._dims = dims
        self.label = name


class SparseAxis(RaggedAxis):
    """What a workload's function gets for a parameter `Sparse[...]`.

    Attributes:
        indices: the tensor [entries, 1] i32 that holds the indices of all rows.
        inner: sizes after the first one that its indices count over.
    """

    def __init__(self, param: w.SparseParam, inner: tuple[int | str, ...] = ()) -> None:
        super().__init__(param)
        self.indices = Held(param.indices, i32, (param.entries, 1))
        self.tensors: tuple[Tensor, ...] = (self.indices,)
        self.inner = inner

    def __repr__(self) -> str:
        return f"<sparse axis {self.param.name}>"

    def __getitem__(self, b: Number) -> SparseRow:
        """Row b."""
        return SparseRow(self, *self._row(b, caller_location()))

    @property
    def packed(self) -> Packed:
        """All rows: the places that `P.tiles` over the axis itself cuts."""
        everything = super().packed
        return _SparsePacked(self, everything.start_expr, everything.extent_expr)

    def rows(self, pick: Span | SparseRow) -> RowSet:
        """The rows that the indices of a range of `P.tiles`, or of a whole row, name."""
        axis = pick.axis if isinstance(pick, Span) else pick
        if not isinstance(axis, (SparseRow, _SparsePacked)) or axis.owner is not self:
            raise BadOperand(
                op=f"{self.param.name}.rows",
                expected="a range of `P.tiles` over this axis or a row of it, or such a row",
                found=repr(pick) if isinstance(pick, Stretch) else type(pick).__name__,
                loc=caller_location(),
            )
        if isinstance(pick, Span) and isinstance(axis, SparseRow):
            return RowSet(self.indices, axis[pick], self.inner)
        return RowSet(self.indices, pick, self.inner)

    def hidden(self) -> tuple[w.WorkloadParam, ...]:
        """Return the parameters that hold its rows and indices."""
        assert isinstance(self.param, w.SparseParam)
        entries = w.SizeParam(self.param.entries, loc=self.param.loc)
        indices = w.TensorParam(self.param.indices, TensorType(i32, (entries.name, 1)), self.param.loc)
        return *super().hidden(), entries, indices


class Selection(Stretch):
    """The indices of a range of places: what `P.sel` loops over."""

    __slots__ = ("indices", "loc")

    def __init__(self, of: SparseRow | Packed, indices: str, loc: Location | None) -> None:
        super().__init__(of.start_expr, of.extent_expr)
        self.indices = indices
        self.loc = loc

    def item(self, index: Expr) -> Scalar:
        """Return the index that iteration `index` is at."""
        return Scalar(Element(self.indices, (add(self.start_expr, index, self.loc), Const(0)), self.loc))


def selection(axis: object) -> Selection:
    """Return what `P.sel(axis)` loops over.

    Raises:
        BadOperand: neither a sparse axis nor a row of one.
    """
    loc = caller_location()
    if isinstance(axis, SparseAxis):
        return Selection(axis.packed, axis.indices.label, loc)
    if isinstance(axis, SparseRow):
        return Selection(axis, axis.owner.indices.label, loc)
    raise BadOperand(op="P.sel", expected="a sparse axis or a row of one", found=type(axis).__name__, loc=loc)
