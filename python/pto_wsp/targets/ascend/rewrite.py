"""Rows of the instruction table that vector cores lack, written with rows that they have.

A mask is a tile of f32, 1 where it is true and 0 elsewhere, so phases can share it and broadcasts can read
it. `sel` reads packed bits, which `cmps` writes. In a rewritten kernel, tiles of b1 hold packed bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.core import Range
from pto_wsp.ir.kernel import AttrValue, Instr, KernelFunction, Load, Stmt, Store, rebuild
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, Extent, const
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.passes.eliminate_dead_code import eliminate_dead_code
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace
from pto_wsp.targets.ascend.generation import CONVERSIONS, Generation
from pto_wsp.types.dtype import DType, b1, bf16, f16, f32, i8, i16, i32, u8
from pto_wsp.types.tile import TileType, ViewType

Steps = Iterator[Instr]

_BROADCASTS = (Form.ROW_BROADCAST, Form.COL_BROADCAST)

CHAINS: dict[tuple[DType, DType], tuple[DType, ...]] = {
    (i8, f32): (f16,),
    (u8, f32): (f16,),
    (i8, i32): (f16,),
    (u8, i32): (f16,),
    (i8, bf16): (f16, f32),
    (u8, bf16): (f16, f32),
    (i16, i32): (f32,),
    (i16, bf16): (f32,),
    (i32, f16): (f32,),
    (bf16, f16): (f32,),
    (f16, bf16): (f32,),
}
"""Types between two that no instruction converts. All steps but the last are exact, or end in infinity."""


def rewrite(kernel: KernelFunction, generation: Generation) -> KernelFunction:
    """Return a kernel with the same results, without the rows that vector cores lack.

    Raises:
        UnsupportedByTarget: it loads or stores a mask.
    """
    return _Rewriter(kernel, generation).kernel()


class _Rewriter:
    """Writes the statements of one kernel again. A rule yields the instructions that replace one."""

    def __init__(self, kernel: KernelFunction, generation: Generation) -> None:
        self._kernel, self._generation = kernel, generation
        self._given: dict[str, TileType] = dict(kernel.tiles)
        self._tiles = {
            name: replace(tile, dtype=f32) if tile.dtype is b1 else tile for name, tile in kernel.tiles
        }
        self._fresh = Fresh(self._given)
        self._instr = Instr("", "")

    def kernel(self) -> KernelFunction:
        """Return the kernel."""
        body = tuple(self._block(self._kernel.body or ()))
        written = replace(self._kernel, body=body, tiles=tuple(self._tiles.items()))
        (needed,) = eliminate_dead_code(Module("rewritten", (written,), ())).kernels
        return needed

    def _block(self, body: Iterable[Stmt]) -> Iterator[Stmt]:
        for stmt in body:
            match stmt:
                case Instr():
                    self._instr = stmt
                    rule = self._rule(stmt)
                    yield from rule(stmt) if rule else (stmt,)
                case Load(tile=tile) | Store(tile=tile) if self._is_mask(tile):
                    raise self._refused(
                        "a move of a mask", "select numbers with `where`, and move those", stmt
                    )
                case Load() if self._is_strided(stmt):
                    yield from self._load_column(stmt)
                case Store() if self._is_strided(stmt):
                    yield from self._store_column(stmt)
                case _:
                    yield rebuild(stmt, self._block)

    def _rule(self, instr: Instr) -> Callable[[Instr], Steps] | None:
        if instr.op.startswith("bitwise_") and self._is_mask(instr.dst):
            return self._logic
        if TABLE[instr.op].form in _BROADCASTS and not self._tiles[instr.dst].dtype.is_float:
            return self._broadcast
        return _RULES[instr.op].__get__(self) if instr.op in _RULES else None

    # --- columns of matrices in memory --------------------------------------------------------------------

    def _is_strided(self, stmt: Load | Store) -> bool:
        """Return whether a move of one column takes it out of a tensor with more columns."""
        dim = stmt.region.kept[-1]
        entry = stmt.region.dims[dim]
        if self._tiles[stmt.tile].cols != 1 or stmt.rows is not None or not isinstance(entry, Range):
            return False
        kind = self._kernel.param(stmt.region.tensor).type
        dims = kind.shape if isinstance(kind, TileType) else kind.dims if isinstance(kind, ViewType) else ()
        is_last = dim == len(stmt.region.dims) - 1
        return entry.extent == Const(1) and is_last and bool(dims) and dims[dim] != 1

    def _wide(self, column: str) -> str:
        """Return a new tile with a block per element of a column."""
        dtype = self._tiles[column].dtype
        return self._new(column, dtype, 32 // dtype.itemsize)

    def _load_column(self, stmt: Load) -> Iterator[Stmt]:
        """Each element has a block: the largest of one is itself."""
        self._instr = Instr("mov", stmt.tile, loc=stmt.loc)
        wide = self._wide(stmt.tile)
        yield replace(stmt, tile=wide)
        if self._tiles[wide].dtype.is_float:
            yield self._do("rowmax", stmt.tile, wide)
        else:
            yield self._do("extract", stmt.tile, wide, rows=Extent(wide, 0), cols=const(1))

    def _store_column(self, stmt: Store) -> Iterator[Stmt]:
        self._instr = Instr("mov", stmt.tile, loc=stmt.loc)
        wide = self._wide(stmt.tile)
        yield self._do("rowexpand", wide, stmt.tile, cols=const(1))
        yield replace(stmt, tile=wide)

    # --- helpers ----------------------------------------------------------------------------------------

    def _refused(self, what: str, reason: str, stmt: Stmt) -> UnsupportedByTarget:
        return UnsupportedByTarget(target=self._generation.name, what=what, reason=reason, loc=stmt.loc)

    def _is_mask(self, name: str) -> bool:
        return name in self._given and self._given[name].dtype is b1

    def _new(self, like: str, dtype: DType, cols: int | None = None) -> str:
        """Return a new tile with the shape of another one."""
        tile = self._tiles[like]
        name = self._fresh.name(f"{self._instr.dst}_part")
        self._tiles[name] = TileType(tile.rows, tile.cols if cols is None else cols, dtype)
        return name

    def _do(
        self, op: str, dst: str, *tiles: str, scalar: Expr | float | None = None, **attrs: AttrValue
    ) -> Instr:
        value = const(scalar) if isinstance(scalar, int | float) else scalar
        return Instr(op, dst, tiles, () if value is None else (value,), tuple(attrs.items()), self._instr.loc)

    def _fill(self, dst: str, like: str, value: Expr | float) -> Instr:
        """Return a fill of the valid shape of another tile."""
        return self._do("expands", dst, scalar=value, rows=Extent(like, 0), cols=Extent(like, 1))

    def _bits(self, source: str, mode: str, value: Expr | float) -> tuple[str, Instr]:
        """Return packed bits and the comparison that writes them."""
        bits = self._new(source, b1)
        return bits, self._do("cmps", bits, source, scalar=value, mode=mode)

    def _mask(self, dst: str, source: str, mode: str, value: Expr | float) -> Steps:
        """Write a mask: a comparison of a tile and a scalar."""
        one, zero = self._new(source, f32), self._new(source, f32)
        yield self._fill(one, source, 1.0)
        yield self._fill(zero, source, 0.0)
        bits, compared = self._bits(source, mode, value)
        yield compared
        yield self._do("sel", dst, bits, one, zero)

    # --- rules ------------------------------------------------------------------------------------------

    def _compare_scalar(self, instr: Instr) -> Steps:
        yield from self._mask(instr.dst, instr.tiles[0], str(instr.attr("mode")), instr.scalars[0])

    def _compare(self, instr: Instr) -> Steps:
        a, b = instr.tiles
        is_float = self._tiles[a].dtype.is_float
        yield from (self._compare_floats if is_float else self._compare_integers)(instr, a, b)

    def _compare_integers(self, instr: Instr, a: str, b: str) -> Steps:
        """The larger of two numbers is not `a` where `a` is less: no difference is used that may wrap."""
        mode, dtype = str(instr.attr("mode")), self._tiles[a].dtype
        larger, apart = self._new(a, dtype), self._new(a, dtype)
        yield self._do("max", larger, a, b)
        other = {"lt": a, "ge": a, "gt": b, "le": b}.get(mode)
        if other is None:
            other = self._new(a, dtype)
            yield self._do("min", other, a, b)
        yield self._do("sub", apart, larger, other)
        yield from self._mask(instr.dst, apart, "ne" if mode in ("lt", "gt", "ne") else "eq", 0)

    def _compare_floats(self, instr: Instr, a: str, b: str) -> Steps:
        """A difference has the sign of the comparison. It is NaN of equal infinities, which are not less."""
        mode, apart = str(instr.attr("mode")), self._new(a, self._tiles[a].dtype)
        yield self._do("sub", apart, a, b)
        if mode in ("lt", "gt"):
            yield from self._mask(instr.dst, apart, mode, 0.0)
            return
        parts = [self._new(a, f32)]
        yield from self._mask(parts[0], a, "le", inf)
        for source, how, value in [(b, "le", inf), *((apart, how, 0.0) for how in _BEYOND[mode])]:
            mask = self._new(a, f32)
            yield from self._mask(mask, source, how, value)
            if source == apart:
                yield from self._not(mask, mask)
            parts.append(self._new(a, f32))
            yield self._do("min", parts[-1], parts[-2], mask)
        yield from (
            self._not(instr.dst, parts[-1]) if mode == "ne" else (self._do("mov", instr.dst, parts[-1]),)
        )

    def _not(self, dst: str, mask: str) -> Steps:
        opposite = self._new(mask, f32)
        yield self._do("muls", opposite, mask, scalar=-1.0)
        yield self._do("adds", dst, opposite, scalar=1.0)

    def _logic(self, instr: Instr) -> Steps:
        match instr.op:
            case "bitwise_not":
                yield from self._not(instr.dst, instr.tiles[0])
            case "bitwise_and" | "bitwise_or":
                yield replace(instr, op="min" if instr.op == "bitwise_and" else "max")
            case "bitwise_xor":
                apart = self._new(instr.dst, f32)
                yield replace(instr, op="sub", dst=apart)
                yield self._do("abs", instr.dst, apart)
            case _:
                yield instr

    def _differing_bits(self, instr: Instr) -> Steps:
        """Bits that either has, and not both."""
        either, both, others = (self._new(instr.dst, self._tiles[instr.dst].dtype) for _ in range(3))
        yield replace(instr, op="bitwise_or", dst=either)
        yield replace(instr, op="bitwise_and", dst=both)
        yield self._do("bitwise_not", others, both)
        yield self._do("bitwise_and", instr.dst, either, others)

    def _select(self, instr: Instr) -> Steps:
        mask, a, *other = instr.tiles
        if not other:
            other = [self._new(a, self._tiles[a].dtype)]
            yield self._fill(other[0], a, instr.scalars[0])
        bits, compared = self._bits(mask, "ne", 0.0)
        yield compared
        yield self._do("sel", instr.dst, bits, a, other[0])

    def _broadcast(self, instr: Instr) -> Steps:
        """Vector cores broadcast integers only by themselves."""
        line, (source, short) = instr.op[:3], instr.tiles
        full = self._new(source, self._tiles[source].dtype)
        extents = {"cols": Extent(source, 1)} if line == "row" else {"rows": Extent(source, 0)}
        yield self._do(f"{line}expand", full, short, **extents)
        yield replace(instr, op=instr.op.removeprefix(f"{line}expand"), tiles=(source, full))

    def _convert(self, instr: Instr) -> Steps:
        source = instr.tiles[0]
        if self._is_mask(instr.dst):
            yield from self._mask(instr.dst, source, "ne", 0)
            return
        start, end = self._tiles[source].dtype, self._tiles[instr.dst].dtype
        if start is end and not instr.attr("rmode"):
            yield self._do("mov", instr.dst, source)
            return
        is_known = (start, end) in CONVERSIONS | self._generation.conversions
        for between in () if is_known else CHAINS.get((start, end), ()):
            made = self._new(source, between)
            yield self._do("cvt", made, source)
            source = made
        yield replace(instr, tiles=(source,))

    def _multiply(self, instr: Instr) -> Steps:
        """Operands of two float types are multiplied in f32."""
        at = instr.op == "matmul_acc"
        operands = [*instr.tiles]
        types = [self._tiles[name].dtype for name in operands[at : at + 2]]
        if types[0] is not types[1] and all(dtype.is_float for dtype in types):
            for i, dtype in enumerate(types):
                if dtype is not f32:
                    wide = self._new(operands[at + i], f32)
                    yield self._do("cvt", wide, operands[at + i])
                    operands[at + i] = wide
        yield replace(instr, tiles=tuple(operands))

    def _place(self, instr: Instr) -> Steps:
        """The least number of a column whose element is the largest of its row.

        NaN comes first: numbers of other columns are larger by a power of 2. A row without elements has -1.
        """
        source = instr.tiles[0]
        if self._tiles[source].dtype not in _EXACT:
            what = f"`{instr.op}` of {self._tiles[source].dtype}"
            raise self._refused(what, "numbers are compared as f32: cast to f32 first", instr)
        if self._tiles[source].dtype is not f32:
            wide = self._new(source, f32)
            yield from self._convert(self._do("cvt", wide, source))
            source = wide
        if instr.op == "rowargmin":
            negative = self._new(source, f32)
            yield self._do("neg", negative, source)
            source = negative
        numbers, clean, low, most = (self._new(source, f32) for _ in range(4))
        far = float(1 << self._tiles[source].cols.bit_length())
        yield from self._numbers(numbers, source)
        yield self._fill(low, source, -inf)
        is_number, compared = self._bits(source, "le", inf)
        yield compared
        yield self._do("sel", clean, is_number, source, low)
        largest, apart, moved, least = (self._new(source, f32, cols) for cols in (1, None, None, 1))
        yield self._do("rowmax", largest, clean)
        yield self._do("rowexpandsub", apart, clean, largest)
        yield self._do("adds", moved, numbers, scalar=far)
        yield self._fill(most, source, 2 * far)
        is_less, compared = self._bits(apart, "lt", 0.0)
        yield compared
        kept = self._new(source, f32)
        yield self._do("sel", kept, is_less, most, moved)
        first = self._new(source, f32)
        yield self._do("sel", first, is_number, kept, numbers)
        yield self._do("rowmin", least, first)
        yield from self._column(instr, least, far)

    def _numbers(self, dst: str, like: str) -> Steps:
        numbers = self._new(like, i32)
        yield self._do("iota", numbers, scalar=0, rows=Extent(like, 0), cols=Extent(like, 1))
        yield self._do("cvt", dst, numbers)

    def _column(self, instr: Instr, least: str, far: float) -> Steps:
        """Write the number of a column, from one that may be larger by `far`; -1 if it is infinite."""
        inside, none, found = (self._new(least, f32) for _ in range(3))
        yield self._do("rems", inside, least, scalar=far)
        yield self._fill(none, least, -1.0)
        is_inside, compared = self._bits(least, "lt", inf)
        yield compared
        yield self._do("sel", found, is_inside, inside, none)
        yield self._do("cvt", instr.dst, found)

    def _in_copy(self, instr: Instr) -> Steps:
        """Elements are written in a copy of the tile, unless it is the tile itself."""
        source, *others = instr.tiles
        if instr.dst in others:
            made = self._new(source, self._tiles[source].dtype)
            yield from self._in_copy(replace(instr, dst=made))
            yield self._do("mov", instr.dst, made)
            return
        if instr.dst != source:
            yield self._do("mov", instr.dst, source)
        yield replace(instr, tiles=(instr.dst, *others))

    def _elsewhere(self, instr: Instr) -> Steps:
        """The scalar unit reads operands again and again, so the result is another tile."""
        if instr.dst not in instr.tiles:
            yield instr
            return
        made = self._new(instr.dst, self._tiles[instr.dst].dtype)
        yield replace(instr, dst=made)
        yield self._do("mov", instr.dst, made)

    def _sort(self, instr: Instr) -> Steps:
        """Values of pairs are f32."""
        values, numbers = instr.tiles
        if self._tiles[values].dtype is not f32:
            wide = self._new(values, f32)
            yield from self._convert(self._do("cvt", wide, values))
            values = wide
        yield from self._elsewhere(replace(instr, tiles=(values, numbers)))


_EXACT = frozenset({f32, f16, bf16, i16, i8, u8})
"""Types whose numbers are all numbers of f32."""

_BEYOND = {"le": ("gt",), "ge": ("lt",), "eq": ("lt", "gt"), "ne": ("lt", "gt")}
"""Signs of a difference that a comparison of floats excludes, or the opposite of one."""

_RULES: dict[str, Callable[[_Rewriter, Instr], Steps]] = {
    "cmps": _Rewriter._compare_scalar,
    "cmp": _Rewriter._compare,
    "sel": _Rewriter._select,
    "sels": _Rewriter._select,
    "cvt": _Rewriter._convert,
    "bitwise_xor": _Rewriter._differing_bits,
    "rowargmax": _Rewriter._place,
    "rowargmin": _Rewriter._place,
    **dict.fromkeys(("matmul", "matmul_acc", "matmul_bias"), _Rewriter._multiply),
    **dict.fromkeys(("insert", "put", "setval"), _Rewriter._in_copy),
    **dict.fromkeys(("sort", "sort32"), _Rewriter._sort),
    **dict.fromkeys(("take", "reshape", "extract", "mrgsort", "merge", "transpose"), _Rewriter._elsewhere),
}
"""Rules by rows."""
