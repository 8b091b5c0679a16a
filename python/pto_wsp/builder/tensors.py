"""The tensors of an Orchestration function: where calls find their tiles in them.

A row offset counts tiles of the callee's parameter as it is written, a column offset elements. A memref
without a shape is as wide as the tiles of its calls, and as high as its array or as its regions reach.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from pto_wsp.analysis.bounding import extent_needed
from pto_wsp.builder.scalars import ScalarReader
from pto_wsp.builder.steps import Argument, Memref
from pto_wsp.errors import (
    ArgumentDType,
    ArgumentShape,
    BadOperand,
    MemrefShape,
    NotYetSupported,
    UnknownName,
    did_you_mean,
)
from pto_wsp.ir import scalar as ir
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.kernel import OUT, Param
from pto_wsp.ir.rules import view_rank_and_dtype
from pto_wsp.ir.scalar import Const, Expr
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TensorType, TileType, ViewType

ZERO = Const(0)


@record
class Place:
    """What a call gives for a view: a tensor, where the tile begins, and its extents where they are given."""

    tensor: str
    row: Expr
    col: Expr
    rows: Expr | None
    cols: Expr | None


def read_place(reader: ScalarReader, param: str, value: Argument, loc: Location) -> Place:
    """Return the place of `"tensor"`, `("tensor", row, col)` or `("tensor", row, col, rows, cols)`.

    Raises:
        BadOperand: something else.
    """
    items = value if isinstance(value, tuple) else (value,)
    tensor, *offsets = items
    if not isinstance(tensor, str) or len(offsets) not in (0, 2, 4):
        expected = f'for `{param}`, `"tensor"`, `("tensor", row, col)` or with `rows, cols` after it'
        raise BadOperand(op="call", expected=expected, found=repr(value), loc=loc)
    found = [reader.integer(offset, "call", loc) for offset in offsets]
    row, col = found[:2] or (ZERO, ZERO)
    rows, cols = found[2:] or (None, None)
    return Place(tensor, row, col, rows, cols)


class Tensors:
    """The tensors of one function.

    Args:
        function: its name.
        declared: its memrefs.
        taken: every name that it declares.

    Attributes:
        intermediates: tensors that calls make and nothing declares.
    """

    def __init__(self, function: str, declared: Mapping[str, Memref], taken: Collection[str]) -> None:
        self.taken = taken
        self.function = function
        self.declared = {**declared}
        self.intermediates: dict[str, Memref] = {}
        self.widths: dict[str, tuple[int, Location]] = {}

    @property
    def local(self) -> dict[str, Memref]:
        """The tensors that the run makes."""
        return {n: m for n, m in {**self.declared, **self.intermediates}.items() if m.is_local}

    def memref(self, name: str) -> Memref:
        """Return a tensor by its name."""
        return self.declared.get(name) or self.intermediates[name]

    def given(self, name: str, op: str, loc: Location | None) -> Memref:
        """Return a tensor that the call gives: of others, elements cannot be read.

        Raises:
            UnknownName, BadOperand: it is none.
        """
        if name not in self.declared and name not in self.intermediates:
            raise self._unknown(name, loc)
        memref = self.memref(name)
        if memref.is_local:
            expected, found = "a memref of global memory", f"`{name}`, which the run makes"
            raise BadOperand(op=op, expected=expected, found=found, loc=loc)
        return memref

    @contextmanager
    def knowing(self, token: str, memref: Memref) -> Iterator[None]:
        """Know the buffer of a token in a block."""
        self.declared[token] = memref
        yield
        del self.declared[token]

    # --- regions ---

    def region(self, kernel: str, param: Param, place: Place, loc: Location) -> Region:
        """Return the region of a tensor that a task gets for a view.

        Raises:
            UnknownName: a tensor that is read, and that nothing declares or makes.
            MemrefShape: offsets or sizes that a memref without a shape does not have.
            ArgumentDType, ArgumentShape: the view takes other elements, or fewer.
        """
        _, dtype = view_rank_and_dtype(param)
        memref = self._known(place.tensor, param.role == OUT, dtype, loc)
        if memref.dtype is not dtype:
            raise ArgumentDType(
                kernel=kernel, param=param.name, expected=str(dtype), found=str(memref.dtype), loc=loc
            )
        rows, cols = self._extents(kernel, param, place, loc)
        unit = _capacity(param)[0]
        start = place.row
        if place.row != ZERO:
            size = rows if unit is None else Const(unit)
            if size is None:
                expected = (
                    f"`(tensor, row, col, rows, cols)` for `{param.name}`, which has any number of rows"
                )
                raise BadOperand(op="call", expected=expected, found="no `rows`", loc=loc)
            start = ir.mul(place.row, size, loc)
        height, width = self._shape(place, cols, loc)
        dims = (_box(start, rows, height), _box(place.col, cols, width))
        return Region(place.tensor, dims, loc)

    def whole(self, workload: str, param: w.TensorParam, place: Place, loc: Location) -> Region:
        """Return the whole tensor that a called workload gets.

        Raises:
            UnknownName, NotYetSupported, ArgumentDType, MemrefShape: see `region`.
        """
        memref = self.declared.get(place.tensor)
        if memref is None:
            raise self._unknown(place.tensor, loc)
        if memref.is_local or place != Place(place.tensor, ZERO, ZERO, None, None):
            feature = f"a part of a tensor, or one that the run makes, for `{param.name}` of `{workload}`"
            advice = "give it a whole memref of global memory"
            raise NotYetSupported(feature=feature, detail="", advice=advice, loc=loc)
        wanted = param.type
        if memref.dtype is not wanted.dtype:
            raise ArgumentDType(
                kernel=workload, param=param.name, expected=wanted.dtype, found=memref.dtype, loc=loc
            )
        if memref.shape is None and isinstance(wanted.dims[-1], int):
            self._require_width(place.tensor, wanted.dims[-1], loc)
        return Region(place.tensor, (Full(),) * len(wanted.dims), loc)

    def _known(self, name: str, is_made: bool, dtype: DType, loc: Location) -> Memref:
        if name in self.declared or name in self.intermediates:
            return self.memref(name)
        if not is_made or not name.isidentifier():
            raise self._unknown(name, loc)
        memref = self.intermediates[name] = Memref(dtype, None, True, loc)
        return memref

    def _unknown(self, name: str, loc: Location | None) -> UnknownName:
        known = {**self.declared, **self.intermediates}
        advice = did_you_mean(name, known) or "declare it with `.memref(...)`, or call what makes it before"
        return UnknownName(name=name, where=f"`{self.function}` as a tensor", advice=advice, loc=loc)

    def _extents(
        self, kernel: str, param: Param, place: Place, loc: Location
    ) -> tuple[Expr | None, Expr | None]:
        """Return the rows and columns of a region: those given, else those of the view; None if any."""
        found: list[Expr | None] = []
        is_tile = isinstance(param.type, TileType)
        for given, capacity in zip((place.rows, place.cols), _capacity(param), strict=True):
            if isinstance(given, Const) and capacity is not None:
                fits = given.value <= capacity if is_tile else given.value == capacity
                if not fits:
                    expected = f"at most {capacity}" if is_tile else str(capacity)
                    raise ArgumentShape(
                        kernel=kernel, param=param.name, expected=expected, found=given.value, loc=loc
                    )
            found.append(Const(capacity) if given is None and capacity is not None else given)
        return found[0], found[1]

    def _shape(self, place: Place, cols: Expr | None, loc: Location) -> tuple[int | None, int | None]:
        """Return the extents of a tensor, None where only a run knows; its calls decide its width."""
        memref = self.memref(place.tensor)
        if memref.shape is not None:
            if len(memref.shape) != 2:
                feature = f"the memref `{place.tensor}` of {len(memref.shape)} dimensions in a call"
                raise NotYetSupported(feature=feature, detail="", advice="give it two", loc=loc)
            return memref.shape[0], memref.shape[1]
        match cols:
            case Const(value=int() as width) if place.col == ZERO:
                self._require_width(place.tensor, int(width), loc)
                return None, int(width)
            case None if place.col == ZERO:
                return None, None
            case _:
                expected = "a shape, which says where the next row begins"
                raise MemrefShape(name=place.tensor, expected=expected, found="none", loc=loc)

    def _require_width(self, name: str, width: int, loc: Location) -> None:
        known, first = self.widths.setdefault(name, (width, loc))
        if known != width:
            notes = [("the other call is here", first)]
            expected, found = f"tiles of {known} columns, or a shape", f"{width} columns"
            raise MemrefShape(name=name, expected=expected, found=found, loc=loc, notes=notes)

    # --- parameters ---

    def param(self, name: str) -> w.TensorParam:
        """Return the parameter that a tensor is."""
        memref = self.memref(name)
        type = TensorType(memref.dtype, self._dims(name), memref.space)
        return w.TensorParam(name, type, memref.loc, memref.is_local)

    def _dims(self, name: str) -> tuple[int | str, ...]:
        memref = self.memref(name)
        rows, cols = self._size(name, "rows"), self._size(name, "cols")
        width = self.widths[name][0] if name in self.widths else None
        if memref.shape is not None:
            names = (rows, cols) if len(memref.shape) == 2 else ("",) * len(memref.shape)
            return tuple(n if size is None else size for size, n in zip(memref.shape, names, strict=True))
        if memref.elements is not None:
            if width is None or memref.elements % width:
                expected, found = "whole rows of tiles", f"{memref.elements} elements"
                raise MemrefShape(name=name, expected=expected, found=found, loc=memref.loc)
            return memref.elements // width, width
        if memref.is_local and width is None:
            raise MemrefShape(name=name, expected="a shape", found="none", loc=memref.loc)
        return rows, cols if width is None else width

    def _size(self, name: str, dim: str) -> str:
        """Return a name for the extent of a dimension that only a run knows."""
        found = f"{name}_{dim}"
        while found in self.taken or found in self.intermediates:
            found += "_"
        return found

    def sizes(self) -> list[w.SizeParam]:
        """Return the sizes of the dimensions that only a run knows."""
        known = {**self.declared, **self.intermediates}
        return [
            w.SizeParam(dim, loc=memref.loc)
            for name, memref in known.items()
            for dim in self._dims(name)
            if isinstance(dim, str)
        ]

    def resolved(self, workload: w.WorkloadFunction) -> w.WorkloadFunction:
        """Give the sizes of what the run makes their values: the extents that its regions need.

        Raises:
            MemrefShape: data or variables decide them.
        """
        values: dict[str, Expr] = {}
        for name, memref in self.local.items():
            for number, dim in enumerate(self._dims(name)):
                if isinstance(dim, str):
                    value = extent_needed(workload, name, number)
                    if value is None:
                        expected = "offsets made of sizes, scalars and loop variables"
                        found = "others"
                        raise MemrefShape(name=name, expected=expected, found=found, loc=memref.loc)
                    values[dim] = value
        params = tuple(
            replace(p, value=values[p.name]) if isinstance(p, w.SizeParam) and p.name in values else p
            for p in workload.params
        )
        return replace(workload, params=params)


def _capacity(param: Param) -> tuple[int | None, int | None]:
    """Return the rows and columns of a view, None where it takes any."""
    match param.type:
        case TileType(rows=rows, cols=cols):
            return rows, cols
        case ViewType(dims=(rows, cols)):
            return rows, cols
        case _:
            expected, found = "a kernel on tensors of two dimensions", f"`{param.name}`: {param.type}"
            raise BadOperand(op="call", expected=expected, found=found, loc=param.loc)


def _box(start: Expr, extent: Expr | None, size: int | None) -> DimSelect:
    """Return a part of a dimension of a known size, or None; without an extent it is the whole."""
    if start == ZERO and (extent is None or (size is not None and extent == Const(size))):
        return Full()
    assert extent is not None
    return Range(start, extent)
