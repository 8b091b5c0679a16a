"""Tensors of a workload and their views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, assert_never

import numpy as np

from pto_wsp.errors import BadIndex, BadOperand, ConstantIndexOutside, WrongTensor
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Rows, TileRange
from pto_wsp.ir.scalar import Const, Expr, LoopExtent, Var
from pto_wsp.lang.annotations import TensorAnnotation, as_tuple
from pto_wsp.lang.operands import Number, Operators, Scalar, expression, integer_constant, kind_of
from pto_wsp.lang.workload import context
from pto_wsp.lang.workload.broadcast import EVERY, All, has_every
from pto_wsp.lang.workload.ranges import Span, Stretch, slice_of, without_arithmetic
from pto_wsp.lang.workload.subviews import SliceBounds, narrow
from pto_wsp.location import Location, caller_location
from pto_wsp.types.dtype import DType, b1, dtype_of_numpy, i64
from pto_wsp.types.layout import ROW_MAJOR, MemLayout
from pto_wsp.types.tile import DYN


class Tensor(Operators):
    """A tensor of a workload, bound to an array when the program runs.

    `Tensor[f32, "n", 128]` annotates a parameter of a workload: names in quotes are sizes, shared by all
    that use them. `Tensor[f32, 384, 1536, MemLayout.panels(128)]` lies in panels: the program binds the
    packed array, indices stay those of the tensor. In kernels `In[Tensor[f32, DYN, 128]]` is a strided view,
    and a bare `In[Tensor]` takes any element type and rank.

    An instance outside a workload is a parameter of the workloads that use it. The parameter has the name
    `name`, or that of the variable of the module or of the enclosing function by which a workload uses it.

    Args:
        data: an array that programs use unless a call gives another one.
        shape: sizes, each an int or a name; by default those of `data`.
        dtype: element type; by default that of `data`.
        layout: how `data` lies in memory; one with panels needs `shape`, the sizes before packing.
        name: an identifier.

    Attributes:
        stored: the tensor as it lies in memory, in row-major order: itself unless `layout` has panels.
        logical: the tensor that this one stores: itself unless it is the `stored` of another.

    Raises:
        WrongTensor: neither data nor shape and dtype, or ones that disagree.
    """

    def __init__(
        self,
        data: np.ndarray | None = None,
        *,
        shape: Sequence[int | str] | None = None,
        dtype: DType | None = None,
        layout: MemLayout = ROW_MAJOR,
        name: str | None = None,
    ) -> None:
        if name is not None and not (isinstance(name, str) and name.isidentifier()):
            raise _wrong("an identifier as the name", repr(name))
        self.name = name
        if data is not None and not isinstance(data, np.ndarray):
            raise _wrong("a numpy array", type(data).__name__)
        if data is not None:
            own = dtype_of_numpy(data.dtype)
            if own is None or dtype not in (None, own):
                raise _wrong(f"an array of {dtype or 'a known element type'}", str(data.dtype))
            dtype = own
            shape = data.shape if shape is None and layout.cols is None else shape
        if shape is None and layout.cols is not None:
            raise _wrong(f"`shape`, the sizes before `{layout}.pack`", "no shape")
        if shape is None or not isinstance(dtype, DType):
            raise _wrong("`data`, or `shape` and `dtype`", "no shape" if shape is None else "no element type")
        self._dims = tuple(_checked_dim(d) for d in shape)
        if not layout.accepts(self._dims):
            raise _wrong(f"two or more sizes, the last a number, for {layout}", repr(self._dims))
        physical = layout.physical_dims(self._dims)
        if not physical or (data is not None and not _fits(physical, data.shape)):
            raise _wrong(f"an array of shape {physical}", str(() if data is None else data.shape))
        self._dtype = dtype
        self._data = data
        self.layout = layout
        self.label = "a tensor"
        self.logical = self.stored = self
        if layout.cols is not None:
            self.stored = Tensor(data, shape=physical, dtype=dtype)
            self.stored.logical = self

    def __class_getitem__(cls, item: object) -> Any:
        return TensorAnnotation(as_tuple(item))

    def called(self, label: str) -> Tensor:
        """Note the name that messages use, and return the tensor."""
        self.label = label
        return self

    def __repr__(self) -> str:
        return f"<tensor {'x'.join(map(str, self._dims))} {self._dtype}>"

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._dtype

    @property
    def dims(self) -> tuple[int | str, ...]:
        """Sizes: numbers, and names of sizes."""
        return self._dims

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self._dims)

    @property
    def data(self) -> np.ndarray | None:
        """The array that programs use by default."""
        return self._data

    @property
    def shape(self) -> tuple[Scalar, ...]:
        """Sizes as scalars of the workload or kernel."""
        return tuple(Scalar(dim_expr(d)) for d in self._dims)

    @property
    def panels(self) -> Tensor:
        """The stored array, [..., panels, K, cols], for kernels that loop over panels.

        Raises:
            BadIndex: it has no panels, or its last two dimensions are not whole.
        """
        return View(self, self.label).panels

    def __getitem__(self, index: Subscript | tuple[Subscript, ...]) -> Tensor:
        """A view: integers drop their dimension; ranges and slices keep it."""
        return View(self, self.label).narrowed(index)

    def __iter__(self) -> NoReturn:
        expected = "a loop over `P`, such as `for i in P(n):`"
        raise BadIndex(tensor=self.label, expected=expected, found="a loop over it", loc=caller_location())

    def __len__(self) -> NoReturn:
        expected = f"`{self.label}.shape[0]`"
        raise BadIndex(tensor=self.label, expected=expected, found="its length", loc=caller_location())

    def __bool__(self) -> NoReturn:
        expected = "a condition on its elements in `P.when`"
        raise BadIndex(tensor=self.label, expected=expected, found="its truth value", loc=caller_location())

    if TYPE_CHECKING:

        @property
        def T(self) -> Tensor:
            """The transposed view, in kernels; free of cost as an operand of `pto.matmul`."""
            ...


class View(Tensor):
    """A tensor with indices of its first dimensions; the others are whole.

    `base` is a Tensor, or a workload parameter whose rank is not known yet.
    """

    def __init__(
        self, base: object, label: str, entries: tuple[DimSelect, ...] = (), loc: Location | None = None
    ) -> None:
        self.base = base
        self.label = label
        self.entries = entries
        self.loc = loc

    def __repr__(self) -> str:
        return f"<view of {self.label}>"

    @property
    def dtype(self) -> DType:
        """Element type of its tensor."""
        return self._tensor.dtype

    @property
    def rank(self) -> int:
        """Number of dimensions that are left."""
        return len(self.extents)

    @property
    def shape(self) -> tuple[Scalar, ...]:
        """Sizes of the dimensions that are left."""
        return tuple(Scalar(extent) for extent in self.extents)

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Sizes of the dimensions that are left, as expressions."""
        dims = self._tensor.dims
        entries = self.entries + (Full(),) * (len(dims) - len(self.entries))
        found = (_extent_of(entry, dim) for entry, dim in zip(entries, dims, strict=True))
        return tuple(extent for extent in found if extent is not None)

    @property
    def every(self) -> Expr | None:
        """Size of the dimension under ALL, or None if there is none."""
        pairs = zip(self.entries, self._tensor.dims, strict=False) if has_every(self.entries) else ()
        return next((dim_expr(dim) for entry, dim in pairs if entry == EVERY), None)

    def at_every(self, index: Expr) -> View:
        """Return the view with `index` in place of ALL."""
        entries = tuple(Index(index) if entry == EVERY else entry for entry in self.entries)
        return type(self)(self.base, self.label, entries, self.loc)

    @property
    def _tensor(self) -> Tensor:
        if isinstance(self.base, Tensor):
            return self.base
        raise self._refused("a tensor of known rank", "a parameter without annotation", self.loc)

    @property
    def panels(self) -> Tensor:
        """The view of the stored array."""
        context.current(f"`.panels` of {self.label}")
        loc = caller_location()
        if not isinstance(self.base, Tensor) or self.base.layout.cols is None:
            raise self._refused("a tensor with `MemLayout.panels`", "one in row-major order", loc)
        whole = len(self.base.dims) - 2
        if not all(isinstance(entry, Full) for entry in self.entries[whole:]):
            raise self._refused("`.panels` of its last two dimensions whole", "a part of them", loc)
        return View(self.base.stored, self.label, self.entries[:whole], loc)

    def __getitem__(self, index: Subscript | tuple[Subscript, ...]) -> Tensor:
        return self.narrowed(index)

    def narrowed(self, index: object) -> View:
        """Return the view with further indices.

        Raises:
            BadIndex, ConstantIndexOutside: indices that the tensor cannot take.
            OutsideWorkload: no workload is being built.
        """
        context.current(f"indexing {self.label}")
        loc = caller_location()
        items = list(as_tuple(index))
        entries: list[DimSelect] = []
        for dim, entry in enumerate(self.entries):
            keeps = not isinstance(entry, (Index, Merged))
            entries.append(self._narrow(entry, items.pop(0), dim, loc) if keeps and items else entry)
        for item in items:
            if isinstance(item, RowSet) and not entries:
                entries += self._rows(item, loc)
            else:
                found = self._select(item, len(entries), loc)
                entries.append(found.selection(loc) if isinstance(found, SliceBounds) else found)
        if isinstance(self.base, Tensor) and len(entries) > len(self.base.dims):
            raise self._refused(f"at most {len(self.base.dims)} indices", str(len(entries)), loc)
        if entries.count(EVERY) > 1:
            raise self._refused("one ALL at most", "two", loc)
        kind = Entry if self._is_entry(entries) else View
        return kind(self.base, self.label, tuple(entries), loc)

    def _is_entry(self, entries: Sequence[DimSelect]) -> bool:
        whole = len(self.base.dims) if isinstance(self.base, Tensor) else len(entries)
        return len(entries) == whole and all(isinstance(entry, Index) for entry in entries)

    def _rows(self, rows: RowSet, loc: Location | None) -> list[DimSelect]:
        """Return what a row set selects: the leading dimensions that its rows count over."""
        if rows.inner:
            dims = self.base.dims if isinstance(self.base, Tensor) else ()
            found = dims[1 : 1 + len(rows.inner)]
            if found != rows.inner:
                wanted = ", ".join(map(str, ("...", *rows.inner)))
                raise self._refused(
                    f"a tensor [{wanted}, ...], as its rows count",
                    f"[{', '.join(map(str, ('...', *found)))}]" if dims else "one of unknown sizes",
                    loc,
                    "pass the row set as a tile of i32 to the kernel, and read rows there by `pto.gather`",
                )
        return [rows.selection(), *[Merged() for _ in rows.inner]]

    def _narrow(self, outer: DimSelect, item: object, dim: int, loc: Location | None) -> DimSelect:
        """Return what `item` selects of a dimension that `outer` narrows already."""
        size = None if isinstance(outer, Full) else _extent_of(outer, "")
        inner = self._select(item, dim, loc, size)
        whole = inner.selection(loc) if isinstance(inner, SliceBounds) else inner
        inner_bounds, bounds = constant_bounds(whole), constant_bounds(outer)
        if inner_bounds is not None and bounds is not None:
            count = bounds[1] - bounds[0]
            if inner_bounds[0] < 0 or inner_bounds[1] > count:
                found = _outside(inner_bounds)
                raise ConstantIndexOutside(tensor=self.label, dim=dim, size=count, found=found, loc=loc)
        recording = context.current(f"indexing {self.label}")
        found = narrow(outer, inner, recording, loc)
        if found is None:
            raise self._refused("a slice of a row set", "one row of it", loc)
        return found

    def _select(
        self, item: object, dim: int, loc: Location | None, size: Expr | None = None
    ) -> DimSelect | SliceBounds:
        if isinstance(item, Stretch):
            return item.selection()
        if isinstance(item, All):
            return self._every(loc)
        if isinstance(item, slice):
            return self._slice(item, dim, loc, size)
        if isinstance(item, RowSet):
            raise self._refused_rows(loc)
        at = expression(item)
        if at is None and isinstance(item, Tensor):
            raise self._refused_table(item, loc)
        if at is None or at.dtype is not i64:
            raise self._refused("integers, slices and ranges of `P.tiles`", _kind(item, at), loc)
        return Index(at)

    def _every(self, loc: Location | None) -> DimSelect:
        if not isinstance(self.base, Tensor):
            raise self._refused("ALL in a tensor of known rank", "a parameter without annotation", loc)
        return EVERY

    def _slice(
        self, item: slice, dim: int, loc: Location | None, size: Expr | None
    ) -> DimSelect | SliceBounds:
        if item.start is None and item.stop is None and item.step is None:
            return Full()
        stop = (size or self._extent(dim, loc)) if item.stop is None else None
        found = slice_of(item, stop)
        if isinstance(found, str):
            raise self._refused("a slice of integers without a step", found, loc)
        return found

    def _extent(self, dim: int, loc: Location | None) -> Expr:
        if isinstance(self.base, Tensor) and dim < len(self.base.dims):
            return dim_expr(self.base.dims[dim])
        raise self._refused("a slice with an end", "none", loc)

    def _refused_rows(self, loc: Location | None) -> BadIndex:
        """Return the error for a row set that is not the first index, or an index of a part of a tensor."""
        hint = f"declare the dimension that the rows select from first: `{self.label}[rows, i]`"
        expected = "a row set as the first index of a whole tensor"
        found = "one after other indices"
        return BadIndex(tensor=self.label, expected=expected, found=found, loc=loc, hint=hint)

    def _refused_table(self, table: Tensor, loc: Location | None) -> BadIndex:
        """Return the error for an index that is a tensor, or a part of one: a table of rows."""
        hint = f'declare the table as `rows: Sparse["n"]` and write `{self.label}[rows.rows(rows[i])]`'
        found = f"a part of the tensor `{table.label}`"
        return BadIndex(tensor=self.label, expected="a row set", found=found, loc=loc, hint=hint)

    def _refused(self, expected: str, found: str, loc: Location | None, hint: str | None = None) -> BadIndex:
        return BadIndex(tensor=self.label, expected=expected, found=found, loc=loc, hint=hint)


class Entry(Scalar, View):
    """A view that all dimensions of a tensor are indexed in: of an integer or bool tensor it is a scalar.

    Where the rank of its tensor is not known yet, its use as a scalar decides it.
    """

    def __init__(
        self, base: object, label: str, entries: tuple[DimSelect, ...], loc: Location | None
    ) -> None:
        View.__init__(self, base, label, entries, loc)

    def __repr__(self) -> str:
        return f"<element of {self.label}>"

    @property
    def is_number(self) -> bool:
        """Whether it certainly is a scalar: its tensor is known to hold integers or truth values."""
        return isinstance(self.base, Tensor) and (self.base.dtype.is_integer or self.base.dtype is b1)

    @property
    def expr(self) -> Expr:
        """The element as an expression.

        Raises:
            BadOperand: the tensor has no integers or truth values.
        """
        return context.current(f"an element of {self.label}").element(self)


def _kind(item: object, at: Expr | None) -> str:
    return f"{at.dtype}" if at is not None else type(item).__name__


def _extent_of(entry: DimSelect, dim: int | str) -> Expr | None:
    """Return the extent of a dimension of a view, or None if the view does not have it."""
    match entry:
        case Full():
            return dim_expr(dim)
        case TileRange(loop=loop):
            return LoopExtent(loop)
        case Range(extent=extent) | Rows(extent=extent):
            return extent
        case Index() | Merged():
            return None
        case _:
            assert_never(entry)


def _outside(bounds: tuple[int, int]) -> int:
    return bounds[0] if bounds[0] < 0 else bounds[1] - 1


def dim_expr(dim: int | str) -> Expr:
    """Return a size as an expression."""
    return Const(dim) if isinstance(dim, int) else Var(dim)


def constant_bounds(select: DimSelect) -> tuple[int, int] | None:
    """Return [start, stop) of an index or range that is known when the workload is built, else None."""
    match select:
        case Index(at=at):
            start, extent = integer_constant(at), 1
        case Range(start=first, extent=count):
            start, extent = integer_constant(first), integer_constant(count)
        case _:
            return None
    return None if start is None or extent is None else (start, start + extent)


def require_inside(
    dims: Sequence[int | str], entries: Sequence[DimSelect], tensor: str, loc: Location | None
) -> None:
    """Refuse constant indices that are outside of a tensor for all sizes.

    Raises:
        ConstantIndexOutside: one that does.
    """
    for dim, (entry, size) in enumerate(zip(entries, dims, strict=True)):
        bounds = constant_bounds(entry)
        if bounds is None:
            continue
        if bounds[0] < 0 or bounds[1] < bounds[0] or (isinstance(size, int) and bounds[1] > size):
            found = bounds[0] if bounds[0] < 0 else bounds[1] - 1
            raise ConstantIndexOutside(tensor=tensor, dim=dim, size=size, found=found, loc=loc)


def parse_dim(dim: object) -> int | str | None:
    """Return a size of a workload's tensor, or None if `dim` is not one; `DYN` gives an unnamed size `""`."""
    if dim is DYN:
        return ""
    if isinstance(dim, str):
        return dim if dim.isidentifier() else None
    if not isinstance(dim, (int, np.integer)) or isinstance(dim, bool) or dim < 0:
        return None
    return int(dim)


def _checked_dim(dim: object) -> int | str:
    parsed = parse_dim(dim)
    if parsed is None or parsed == "":
        raise _wrong("sizes that are numbers or names", repr(dim))
    return parsed


def _fits(dims: tuple[int | str, ...], shape: tuple[int, ...]) -> bool:
    return len(dims) == len(shape) and all(
        isinstance(d, str) or d == s for d, s in zip(dims, shape, strict=True)
    )


def _wrong(expected: str, found: str) -> WrongTensor:
    return WrongTensor(expected=expected, found=found, loc=caller_location())


@without_arithmetic
class RowSet:
    """The rows that a range of a sparse axis's indices name.

    As an index it comes first and gives one dimension: `Part[rows]`. As an argument of a task it is its
    indices, a view [n, 1] of i32. `rows[:n]` is the set of its first n rows: `rows[: rows.extent.min(64)]`
    has at most 64.

    Attributes:
        indices: the tensor [entries, 1] that holds the indices.
        inner: sizes of the dimensions after the first one that a row counts over too, the last one
            fastest.
    """

    __slots__ = ("indices", "inner", "range")

    def __init__(self, indices: Tensor, places: Stretch, inner: tuple[int | str, ...]) -> None:
        self.indices = indices
        self.range = places
        self.inner = inner

    def __repr__(self) -> str:
        return f"<row set of {self.indices.label}>"

    @property
    def extent(self) -> Scalar:
        """Number of rows."""
        return self.range.extent

    def __getitem__(self, item: slice | Span) -> RowSet:
        """The rows `start:stop` of the set, or of a range of `P.tiles`; the run checks that it has them.

        Raises:
            BadOperand: neither a slice of integers nor a range of `P.tiles`.
        """
        if not isinstance(item, slice | Span):
            expected, loc = "a slice or a range made by `P.tiles`", caller_location()
            raise BadOperand(op="rows[...]", expected=expected, found=kind_of(item), loc=loc)
        return RowSet(self.indices, self.range[item], self.inner)

    def selection(self) -> DimSelect:
        """Return the part of the leading dimensions that it selects."""
        return Rows(self.indices.label, self.range.start_expr, self.range.extent_expr)


Subscript = Number | Stretch | RowSet | slice | All
"""One index of a tensor."""
