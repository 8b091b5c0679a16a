"""Growing the body of a kernel: names, statements, and instructions with their checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pto_wsp.errors import BadIndex, DTypeMismatch, FrontendError, ShapeMismatch
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Region
from pto_wsp.ir.scalar import Const, Expr, Extent, Var, walk
from pto_wsp.isa import (
    ADDS_ONTO,
    IN_PLACE,
    TABLE,
    Form,
    FormError,
    data_operands,
    result_type,
    result_valid,
    valid_pairs_that_agree,
)
from pto_wsp.lang.kernel.values import TileValue, Valid, ViewValue, known
from pto_wsp.lang.source import FunctionSource
from pto_wsp.location import Location
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import DType, i32
from pto_wsp.types.tile import ScalarType, TileType

_TWO_DIMENSIONS = (
    "declare two dimensions, for example `Tensor[f32, 1, DYN]`; only integers are read from vectors"
)


@record
class Site:
    """Where an operation is written, what messages call it, and the name that its result should have."""

    loc: Location
    label: str
    hint: str = ""

    def called(self, label: str) -> Site:
        """Return the same place under another label."""
        return replace(self, label=label)

    @property
    def inner(self) -> Site:
        """The same place for an intermediate result."""
        return replace(self, hint="")


class Builder:
    """Appends statements to the innermost open block; every name it gives is new.

    Attributes:
        block_dim: calls that make one task.
        inlined: the functions that the kernel calls.
        tiles: types of the tiles that are declared.
        scalars: types of the scalar variables that are declared.
        body: the statements.
    """

    def __init__(self, params: Sequence[k.Param], block_dim: int = 1) -> None:
        self.block_dim = block_dim
        self.inlined: list[FunctionSource] = []
        self.tiles: dict[str, TileType] = {}
        self.scalars: dict[str, ScalarType] = {}
        self.body: list[k.Stmt] = []
        self._block = self.body
        self._views = {p.name for p in params}
        self._fresh = Fresh(self._views)
        self._param_tiles: dict[str, TileValue] = {}
        self._prologue: list[k.Stmt] = []
        self._slots: set[str] = set()

    def statements(self) -> tuple[k.Stmt, ...]:
        """Return the body: the loads that parameters imply, then what was appended."""
        return (*self._prologue, *self.body)

    def fresh(self, hint: str) -> str:
        """Return an unused name like `hint`."""
        return self._fresh.name(hint or "t")

    def emit(self, stmt: k.Stmt) -> None:
        """Append a statement."""
        self._block.append(stmt)

    @contextmanager
    def nested(self) -> Iterator[list[k.Stmt]]:
        """Append to a new block, which the caller puts into a statement."""
        outer, self._block = self._block, []
        yield self._block
        self._block = outer

    @contextmanager
    def inside(self, block: list[k.Stmt]) -> Iterator[None]:
        """Append to a block that was read before."""
        outer, self._block = self._block, block
        yield
        self._block = outer

    def tile(self, hint: str, type: TileType) -> TileValue:
        """Declare a tile without facts about its valid shape."""
        name = self.fresh(hint)
        self.tiles[name] = type
        return TileValue(name, type, (Extent(name, 0), Extent(name, 1)))

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for `place`."""
        self._fresh.taken |= {*names}

    def place(self, name: str, type: TileType) -> TileValue:
        """Declare a tile under a reserved name; it may be written more than once."""
        self.tiles[name] = type
        self.slot(name)
        return TileValue(name, type, (Extent(name, 0), Extent(name, 1)))

    def scalar(self, hint: str, type: ScalarType) -> Var:
        """Declare a scalar variable."""
        name = self.fresh(hint)
        self.scalars[name] = type
        return Var(name, type.dtype)

    def assign(self, expr: Expr, hint: str, loc: Location) -> Var:
        """Store a scalar in a new variable and return it."""
        variable = self.scalar(hint, ScalarType(expr.dtype))
        self.emit(k.Assign(variable.name, expr, loc))
        return variable

    def slot(self, name: str) -> None:
        """Note that a tile or scalar is written more than once."""
        self._slots.add(name)

    def frozen(self, expr: Expr, hint: str, loc: Location) -> Expr:
        """Return an expression with the current value of `expr`, which later writes do not change."""
        return expr if self._is_lasting(expr) else self.assign(expr, hint, loc)

    def _is_lasting(self, expr: Expr) -> bool:
        leaves = [e for e in walk(expr) if isinstance(e, (Var, Extent))]
        return not any(leaf.name in self._slots for leaf in leaves)

    def param_tile(self, view: ViewValue) -> TileValue:
        """Return the tile that an `In[Tile[...]]` parameter is loaded into at the start of the kernel."""
        param = view.param
        assert isinstance(param.type, TileType) and param.loc is not None
        if param.name not in self._param_tiles:
            name = self.fresh(param.name)
            self.tiles[name] = param.type
            self._prologue.append(k.Load(name, Region(param.name, view.dims, param.loc), param.loc))
            self._param_tiles[param.name] = TileValue(name, param.type, (view.extents[0], view.extents[1]))
        return self._param_tiles[param.name]

    def load(self, view: ViewValue, site: Site, into: TileValue | None = None) -> TileValue:
        """Append the load of a view, which must have two dimensions: of bounded extent without a tile given.

        Raises:
            BadIndex, ShapeMismatch, DTypeMismatch: no tile can hold the view, or not the one given.
        """
        if into is not None:
            self._require_holds(into, view, site)
            self.emit(k.Load(into.name, Region(view.param.name, view.dims, site.loc), site.loc))
            return into
        rows, cols = self.capacity(view, site.loc)
        tile = self.tile(site.hint or view.param.name, TileType(rows, cols, view.dtype))
        self.emit(k.Load(tile.name, Region(view.param.name, view.dims, site.loc), site.loc))
        return replace(tile, valid=self._lasting(tile, (view.extents[0], view.extents[1])))

    def gather(
        self, view: ViewValue, rows: TileValue, site: Site, into: TileValue | None = None
    ) -> TileValue:
        """Append the load of the rows of a view that an i32 row or column names, into a given tile if any.

        Raises:
            BadIndex, ShapeMismatch, DTypeMismatch: the operands do not fit.
        """
        count, extent = self._row_numbers(rows, site)
        if into is not None:
            self._require_holds(into, view, site, count)
            self.emit(k.Load(into.name, Region(view.param.name, view.dims, site.loc), site.loc, rows.name))
            return into
        _, cols = self._sizes(view, site.loc)
        if cols is None:
            raise _unbounded(view, 1, site.loc)
        tile = self.tile(site.hint or view.param.name, TileType(count, cols, view.dtype))
        region = Region(view.param.name, view.dims, site.loc)
        self.emit(k.Load(tile.name, region, site.loc, rows.name))
        return replace(tile, valid=self._lasting(tile, (extent, view.extents[1])))

    def prefetch(self, view: ViewValue, rows: TileValue | None, site: Site) -> None:
        """Append that a view, or the rows of it that an i32 row or column names, is read soon.

        Raises:
            BadIndex, ShapeMismatch, DTypeMismatch: the operands do not fit.
        """
        self._sizes(view, site.loc)
        if rows is not None:
            self._row_numbers(rows, site)
        region = Region(view.param.name, view.dims, site.loc)
        self.emit(k.Prefetch(region, site.loc, None if rows is None else rows.name))

    def _row_numbers(self, rows: TileValue, site: Site) -> tuple[int, Expr]:
        """Return how many rows a tile of row numbers can name, and how many it does."""
        if rows.type.dtype is not i32:
            raise DTypeMismatch(op=site.label, expected="i32", found=str(rows.type.dtype), loc=site.loc)
        if 1 not in rows.type.shape:
            found = f"[{rows.type.rows}, {rows.type.cols}]"
            raise ShapeMismatch(
                op=site.label, expected="row numbers [1, R] or [R, 1]", found=found, loc=site.loc
            )
        dim = 1 if rows.type.rows == 1 else 0
        return rows.type.shape[dim], rows.valid[dim]

    def _require_holds(
        self, tile: TileValue, view: ViewValue, site: Site, num_rows: int | None = None
    ) -> None:
        if tile.type.dtype is not view.dtype:
            raise DTypeMismatch(
                op=site.label, expected=str(tile.type.dtype), found=str(view.dtype), loc=site.loc
            )
        sizes = view.capacities if num_rows is None else (num_rows, *view.capacities[1:])
        if len(sizes) != 2 or any(
            c is not None and c > s for c, s in zip(sizes, tile.type.shape, strict=True)
        ):
            expected = f"at most [{tile.type.rows}, {tile.type.cols}]"
            found = "[" + ", ".join("?" if c is None else str(c) for c in sizes) + "]"
            raise ShapeMismatch(op=site.label, expected=expected, found=found, loc=site.loc)

    def capacity(self, view: ViewValue, loc: Location) -> tuple[int, int]:
        """Return the static shape of the tile that holds a view.

        Raises:
            BadIndex: it has another rank than 2, or a dimension without a bound.
        """
        rows, cols = self._sizes(view, loc)
        if rows is None or cols is None:
            raise _unbounded(view, 0 if rows is None else 1, loc)
        return rows, cols

    def _sizes(self, view: ViewValue, loc: Location) -> tuple[int | None, ...]:
        if len(view.capacities) != 2:
            raise BadIndex(
                tensor=view.param.name,
                expected="two dimensions that make a tile",
                found=str(len(view.capacities)),
                hint=_TWO_DIMENSIONS if len(view.capacities) < 2 else None,
                loc=loc,
            )
        return view.capacities

    def instruction(
        self,
        op: str,
        tiles: Sequence[TileValue],
        scalars: Sequence[Expr],
        site: Site,
        *,
        flags: Sequence[tuple[str, k.AttrValue]] = (),
        shape: tuple[int, int] | None = None,
        valid: Valid | None = None,
        dtype: DType | None = None,
        into: TileValue | None = None,
    ) -> TileValue:
        """Append an instruction and return its result.

        Args:
            op: its row.
            tiles: tile operands.
            scalars: scalar operands, of the type that the tiles ask for.
            site: where it is written.
            flags: attributes other than extents.
            shape: static shape of what fill and expand instructions make.
            valid: its valid extents.
            dtype: element type of what fill and convert instructions make.
            into: the tile to write; a new one without it.

        Raises:
            ShapeMismatch, DTypeMismatch: the operands do not fit.
        """
        row = TABLE[op]
        attrs: dict[str, object] = {**dict(flags), "shape": shape, "dtype": dtype, "valid": valid}
        operands = data_operands(row.form, [t.type for t in tiles])
        for found in [t.dtype for t in operands] + ([dtype] if dtype is not None else []):
            if found not in row.dtypes:
                expected = "one of " + ", ".join(sorted(str(d) for d in row.dtypes))
                raise DTypeMismatch(op=site.label, expected=expected, found=str(found), loc=site.loc)
        try:
            result = result_type(row.form, [t.type for t in tiles], attrs)
        except FormError as error:
            raise mismatch(error, site) from None
        valids = [t.valid for t in tiles]
        _require_equal(valid_pairs_that_agree(row.form, valids, attrs), site)
        if into is not None and result != into.type:
            kind = ShapeMismatch if result.shape != into.type.shape else DTypeMismatch
            raise kind(op=site.label, expected=str(result), found=str(into.type), loc=site.loc)
        dst = into if into is not None else self.tile(site.hint, result)
        extents = () if shape is None or valid is None else _extent_attrs(row.form, shape, valid)
        names = tuple(t.name for t in tiles)
        self.emit(k.Instr(op, dst.name, names, tuple(scalars), (*flags, *extents), site.loc))
        return into or replace(dst, valid=self._lasting(dst, result_valid(row.form, valids, attrs)))

    def write(
        self,
        op: str,
        dst: TileValue,
        tiles: Sequence[TileValue],
        scalars: Sequence[Expr],
        site: Site,
        *,
        flags: Sequence[tuple[str, k.AttrValue]] = (),
        valid: Valid | None = None,
    ) -> None:
        """Append an instruction on tiles that are places; one that it reads may be the one that it writes.

        Args:
            op: its row.
            dst: the tile to write.
            tiles: tile operands.
            scalars: scalar operands, of the type that the tiles ask for.
            site: where it is written.
            flags: attributes other than extents.
            valid: valid extents of what fill and expand instructions make.

        Raises:
            ShapeMismatch, DTypeMismatch: the operands do not fit.
        """
        form = TABLE[op].form
        is_read = dst in tiles[1:] if form in ADDS_ONTO else dst in tiles
        through = is_read and form not in IN_PLACE
        target = self.tile(dst.name, dst.type) if through else dst
        self.instruction(
            op,
            tiles,
            scalars,
            site,
            flags=flags,
            shape=dst.type.shape,
            valid=valid,
            dtype=dst.type.dtype if form in (Form.FILL, Form.IOTA, Form.CONVERT) else None,
            into=target,
        )
        if through:
            self.instruction("mov", [target], (), site, into=dst)

    def store(self, view: ViewValue, tile: TileValue, site: Site, rows: TileValue | None = None) -> None:
        """Append the store of a tile, whose type must be the view's; of its rows to those that `rows` names.

        Raises:
            BadIndex, ShapeMismatch, DTypeMismatch: the tile does not fit.
        """
        if tile.type.dtype is not view.dtype:
            raise DTypeMismatch(
                op=site.label, expected=str(view.dtype), found=str(tile.type.dtype), loc=site.loc
            )
        sizes = view.capacities
        if rows is not None:
            sizes = (self._row_numbers(rows, site)[0], *self._sizes(view, site.loc)[1:])
        if len(sizes) != 2 or any(c not in (None, s) for c, s in zip(sizes, tile.type.shape, strict=True)):
            expected = "[" + ", ".join("?" if c is None else str(c) for c in sizes) + "]"
            found = f"[{tile.type.rows}, {tile.type.cols}]"
            is_other_axis = 1 in sizes and 1 in tile.type.shape and len(sizes) == 2
            hint = ShapeMismatch.hint_of_axis if is_other_axis else None
            raise ShapeMismatch(op=site.label, expected=expected, found=found, hint=hint, loc=site.loc)
        region = Region(view.param.name, view.dims, site.loc)
        self.emit(k.Store(region, tile.name, site.loc, None if rows is None else rows.name))

    def _lasting(self, tile: TileValue, valid: tuple[object, object]) -> Valid:
        """Keep the extents that no later statement can change; the others are read from the tile."""
        rows, cols = (
            e if isinstance(e, Const) or (isinstance(e, Extent) and e.name in self._views) else own
            for e, own in zip(valid, tile.valid, strict=True)
        )
        return rows, cols


def _unbounded(view: ViewValue, dim: int, loc: Location) -> BadIndex:
    return BadIndex(
        tensor=view.param.name,
        expected=f"a range of `pto.tiles` in dimension {view.kept[dim]}",
        found="an extent that only a run knows",
        hint=f"loop over parts of it: `for r in pto.tiles({view.param.name}.shape[{view.kept[dim]}], 64):`",
        loc=loc,
    )


def _extent_attrs(form: Form, shape: tuple[int, int], valid: Valid) -> list[tuple[str, k.AttrValue]]:
    """Return the attributes of extents that an instruction makes and that are not its tile's own."""
    made = {"rows": (shape[0], valid[0]), "cols": (shape[1], valid[1])}
    if form not in (Form.FILL, Form.IOTA, Form.RESHAPE, Form.EXTRACT, Form.COL_EXPAND):
        del made["rows"]
    if form is Form.COL_EXPAND:
        del made["cols"]
    return [(key, extent) for key, (size, extent) in made.items() if known(extent) != size]


def _require_equal(pairs: Sequence[tuple[object, object]], site: Site) -> None:
    for a, b in pairs:
        if isinstance(a, Const) and isinstance(b, Const) and a.value != b.value:
            raise ShapeMismatch(
                op=site.label,
                expected=f"valid extents of {a.value}",
                found=str(b.value),
                loc=site.loc,
            )


def mismatch(error: FormError, site: Site) -> FrontendError:
    """Return the error of operands that do not fit."""
    kind = ShapeMismatch if error.kind == "shape" else DTypeMismatch
    return kind(op=site.label, expected=error.expected, found=error.found, loc=site.loc)
