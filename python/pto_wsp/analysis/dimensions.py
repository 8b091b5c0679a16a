"""Finds the dimensions of views and tiles of a kernel that have the same extent for any size of a tile.

`texp` of a tile has the rows and columns of its operand, a product the rows of its left operand: dimensions
that are bound together this way are one class, and grow together when a kernel is made for larger tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.scalar import (
    ArgExtent,
    Binary,
    Const,
    Element,
    Extent,
    FlushValue,
    KernelNumber,
    LoopExtent,
    LoopStart,
    Select,
    Slot,
    TaskIndex,
    TaskKernel,
    TileElement,
    Unary,
    Var,
    walk,
)
from pto_wsp.isa.forms import PRODUCTS, Form, factors
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.tile import ScalarType, TileType

_SAME = frozenset(
    {
        Form.UNARY,
        Form.BINARY,
        Form.TILE_SCALAR,
        Form.TERNARY,
        Form.BINARY_SCALAR,
        Form.COMPARE,
        Form.COMPARE_SCALAR,
        Form.SELECT,
        Form.SELECT_SCALAR,
        Form.CONVERT,
    }
)

_Side = tuple[int, int]
"""An operand, -1 for the result, and one of its dimensions."""

_RULES: dict[Form, tuple[tuple[tuple[_Side, _Side], ...], tuple[_Side, ...]]] = {
    Form.FILL: ((), ()),
    Form.IOTA: ((), ((-1, 1),)),
    Form.ROW_REDUCE: ((((0, 0), (-1, 0)),), ((-1, 1),)),
    Form.COL_REDUCE: ((((0, 1), (-1, 1)),), ((-1, 0),)),
    Form.ROW_BROADCAST: ((((0, 0), (-1, 0)), ((0, 0), (1, 0)), ((0, 1), (-1, 1))), ((1, 1),)),
    Form.COL_BROADCAST: ((((0, 0), (-1, 0)), ((0, 1), (-1, 1)), ((0, 1), (1, 1))), ((1, 0),)),
    Form.ROW_EXPAND: ((((0, 0), (-1, 0)),), ((0, 1),)),
    Form.COL_EXPAND: ((((0, 1), (-1, 1)),), ((0, 0),)),
    Form.TRANSPOSE: ((((0, 0), (-1, 1)), ((0, 1), (-1, 0))), ()),
    Form.ROW_ARG: ((((0, 0), (-1, 0)),), ((0, 1), (-1, 1))),
}
"""For forms that are neither elementwise nor products: the dimensions that are bound, and those fixed.

All dimensions of a form without a rule are fixed.
"""


@record
class Dim:
    """One dimension of a view (`is_view`) or tile."""

    name: str
    dim: int
    is_view: bool = False


@record
class Fixed:
    """Why the extent of a class cannot change."""

    reason: str
    loc: Location | None = None


MAX_RANK = 4
"""Most dimensions of a view."""


class DimensionClasses:
    """Classes of the dimensions of one kernel."""

    def __init__(self, kernel: k.KernelFunction) -> None:
        self._types = dict(kernel.tiles)
        self._views = {p.name: p.type for p in kernel.views}
        self._parent: dict[Dim, Dim] = {}
        self._fixed: dict[Dim, Fixed] = {}
        for stmt in k.walk_statements(kernel.body or ()):
            match stmt:
                case k.Load() | k.Store():
                    self._transfer(stmt)
                case k.Prefetch(region=region) if any(isinstance(dim, Range) for dim in region.dims):
                    self._fix(_views(region), f"it prefetches a part of `{region.tensor}`", stmt.loc)
                case k.Instr():
                    self._instruction(stmt)
                case k.Print():
                    tiles = [Dim(name, dim) for name in self._types for dim in (0, 1)]
                    views = [Dim(name, dim, True) for name in self._views for dim in range(MAX_RANK)]
                    self._fix(tiles + views, "it prints, once per task", stmt.loc)
                case k.Prefetch() | k.Assign() | k.Assert():
                    pass
                case k.For() | k.If() | k.While() | k.KernelCall():
                    pass
                case _:
                    assert_never(stmt)
            self._mentions(stmt)

    def of(self, dim: Dim) -> Dim:
        """Return the representative of the class of a dimension."""
        while dim in self._parent:
            dim = self._parent[dim]
        return dim

    def fixed(self, dim: Dim) -> Fixed | None:
        """Return why the class of a dimension cannot grow, or None."""
        return self._fixed.get(self.of(dim))

    def _bind(self, a: Dim, b: Dim) -> None:
        first, second = self.of(a), self.of(b)
        if first != second:
            self._parent[second] = first
            reason = self._fixed.get(first) or self._fixed.pop(second, None)
            if reason is not None:
                self._fixed[first] = reason

    def _fix(self, dims: Iterable[Dim], reason: str, loc: Location | None) -> None:
        for dim in dims:
            self._fixed.setdefault(self.of(dim), Fixed(reason, loc))

    def _transfer(self, stmt: k.Load | k.Store) -> None:
        if stmt.rows is not None:
            dims = [Dim(t, d) for t in (stmt.tile, stmt.rows) for d in (0, 1)]
            self._fix(dims, "it moves rows by their numbers", stmt.loc)
            return
        region = stmt.region
        for number, at in enumerate(region.kept):
            view, tile = Dim(region.tensor, at, True), Dim(stmt.tile, number)
            if self._is_whole(region.tensor, at, region.dims[at]):
                self._bind(view, tile)
            else:
                self._fix((view, tile), f"it moves a part of `{region.tensor}`", stmt.loc)

    def _mentions(self, stmt: k.Stmt) -> None:
        """Fix what a scalar follows from: how large something is, or a certain element of it.

        The size of a new tile is not such a scalar.
        """
        exprs = k.statement_expressions(stmt)
        if isinstance(stmt, k.Instr):
            places = (v for key, v in stmt.attrs if key not in ("rows", "cols"))
            exprs = (*stmt.scalars, *(v for v in places if not isinstance(v, (str, int))))
        for part in (part for expr in exprs for part in walk(expr)):
            match part:
                case Extent(name=name, dim=dim):
                    self._fix(
                        [Dim(name, dim, name in self._views)], f"it asks how large `{name}` is", stmt.loc
                    )
                case Element(name=name, indices=indices) | TileElement(name=name, indices=indices):
                    dims = [Dim(name, dim, name in self._views) for dim in range(len(indices))]
                    self._fix(dims, f"it reads an element of `{name}`", stmt.loc)
                case Const() | Var() | LoopStart() | LoopExtent() | Slot() | FlushValue():
                    pass
                case TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
                    pass
                case Unary() | Binary() | Select():
                    pass
                case _:
                    assert_never(part)

    def _is_whole(self, view: str, dim: int, select: DimSelect) -> bool:
        kind = self._views[view]
        size = None
        if isinstance(kind, TileType):
            size = kind.shape[dim]
        elif not isinstance(kind, ScalarType) and kind.dims is not None:
            size = kind.dims[dim]
        return select == Full() or (size is not None and select == Range(Const(0), Const(size)))

    def _instruction(self, instr: k.Instr) -> None:
        form = TABLE[instr.op].form
        rows, cols = [Dim(t, 0) for t in instr.tiles], [Dim(t, 1) for t in instr.tiles]
        dst = (Dim(instr.dst, 0), Dim(instr.dst, 1))
        for dim, key in enumerate(("rows", "cols")):
            if isinstance(instr.attr(key), Const):
                self._fix(dst[dim : dim + 1], f"it asks for {key}", instr.loc)
        if form in _SAME:
            self._bind_all([*rows, dst[0]])
            self._bind_all([*cols, dst[1]])
        elif form in PRODUCTS:
            self._product(form, instr, (*zip(rows, cols, strict=True), dst))
        else:
            self._by_rule(form, instr, (*zip(rows, cols, strict=True), dst))

    def _product(self, form: Form, instr: k.Instr, dims: Sequence[tuple[Dim, Dim]]) -> None:
        """Bind the dimensions of matrices, of their product and of the accumulator."""
        operands, (rows, cols) = dims[:-1], dims[-1]
        a, b = factors(form, operands)
        a_rows, a_cols = reversed(a) if instr.attr("trans_a") else a
        b_rows, b_cols = reversed(b) if instr.attr("trans_b") else b
        self._bind(a_cols, b_rows)
        self._bind(rows, a_rows)
        self._bind(cols, b_cols)
        if form is Form.MATMUL_ACC:
            self._bind(rows, operands[0][0])
            self._bind(cols, operands[0][1])
        elif form is Form.MATMUL_BIAS:
            self._bind(cols, operands[2][1])
            self._fix([operands[2][0]], "a bias is one row", instr.loc)

    def _by_rule(self, form: Form, instr: k.Instr, dims: Sequence[Sequence[Dim]]) -> None:
        """Bind and fix what a form does, given the dimensions of its operands and of its result."""
        every = tuple((operand, dim) for operand in range(len(dims)) for dim in (0, 1))
        bound, fixed = _RULES.get(form, ((), every))
        for a, b in bound:
            self._bind(dims[a[0]][a[1]], dims[b[0]][b[1]])
        fixed_dims = [dims[operand][dim] for operand, dim in fixed]
        self._fix(fixed_dims, f"`{instr.op}` does not take another extent there", instr.loc)

    def _bind_all(self, dims: Sequence[Dim]) -> None:
        for other in dims[1:]:
            self._bind(dims[0], other)


def _views(region: Region) -> list[Dim]:
    """Return the dimensions of the view that a region keeps."""
    return [Dim(region.tensor, at, True) for at in region.kept]
