"""One kernel of a vector core as PTO tile calls."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pto_wsp.analysis.steps import Step, rows_dim, scalar_tile
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Prefetch, Store
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.targets.ascend.core import CoreCode
from pto_wsp.targets.ascend.generation import CONVERSIONS, Generation
from pto_wsp.targets.ascend.hazards import LOAD, STORE, VECTOR, Touched
from pto_wsp.targets.ascend.memory import (
    BLOCK,
    ROW_AT,
    SELECT_BYTES,
    assign_memory,
    broadcast_scratch,
    physical_bytes,
    physical_shape,
)
from pto_wsp.targets.ascend.repeated_rows import periods
from pto_wsp.targets.ascend.spelling import STORAGE
from pto_wsp.targets.ascend.templates import FLOATS, PLAIN, ROUND_MODES, TEMPLATES, Calls, Method
from pto_wsp.targets.c_style.spelling import FIELDS, tile_name
from pto_wsp.types.dtype import DType, b1, f16, f32, i32, u8
from pto_wsp.types.tile import TileType

Operand = tuple[str, str | Touched]
Operands = dict[str, Operand]
_OPERAND = re.compile(r"\{(\w+)\}")
_TMP = "{t}"

COMPARED = frozenset({f32, f16, i32})
"""Element types that a comparison accepts."""

LANES = 8
"""Numbers that a block holds."""

LANE_BITS = ((1, 0xAAAAAAAA), (2, 0xCCCCCCCC), (4, 0xF0F0F0F0))
"""Packed bits of the lanes whose number has a bit, with the value of that bit."""


class VectorCode(CoreCode):
    """The calls of one kernel while they are written.

    A tile is a variable of the library that has the memory of the tile. A tile of one column has two: `c_`
    is a column, for broadcasts and sums of rows, and `r_` is the same bytes as a row, for arithmetic.

    Args:
        kernel: with a body.
        generation: what it is written for.
        draft: the kernel as it was written before, which knows the flags and the variables; or None.
    """

    def __init__(
        self, kernel: KernelFunction, generation: Generation, draft: VectorCode | None = None
    ) -> None:
        super().__init__(kernel, generation, draft)
        self.memory = assign_memory(kernel, generation)
        self._periods = periods(kernel)

    # --- instructions on the vector pipe ----------------------------------------------------------------

    def access(self, name: str) -> Touched:
        """Return the bytes of a tile."""
        start = self.memory.offsets[name]
        return Touched("ub", start, start + physical_bytes(self.types[name]), self._shift(name))

    def _shift(self, name: str) -> int:
        return self.memory.shifts.get(name, 0)

    def vector(self, template: str, guard: str, tiles: Mapping[str, Operand], **texts: str) -> None:
        """Write a vector instruction.

        Args:
            template: a call whose first tile is written, with the keys of `tiles` and `texts` in braces.
            guard: the tile without whose elements there is nothing to do.
            tiles: per key, the variable of a tile, and its name or bytes; the temporary tile has the name "".
            texts: other operands.
        """
        keys = [key for key in _OPERAND.findall(template) if key in tiles]
        accesses = [self._access_of(tiles[key][1]) for key in keys]
        written = {0, *(i for i, key in enumerate(keys) if key == "t")}
        reads = tuple(access for i, access in enumerate(accesses) if i not in written)
        writes = tuple(accesses[i] for i in sorted(written))
        if template.startswith("TROWEXPAND"):
            writes += broadcast_scratch(self.generation)
        known = texts | {key: variable for key, (variable, _) in tiles.items()}
        call = _OPERAND.sub(lambda found: known[found[1]], template)
        self.issue(VECTOR, call, f"{tile_name(guard)}.has_elements()", reads, writes)

    def _access_of(self, name: str | Touched) -> Touched:
        if isinstance(name, Touched):
            return name
        if name:
            return self.access(name)
        return Touched("ub", self.memory.scratch, self.memory.total_bytes)

    # --- variables --------------------------------------------------------------------------------------

    def row_variable(self, name: str) -> str:
        """Return the variable of a tile for arithmetic."""
        tile = self.types[name]
        variable = f"{'r' if tile.cols == 1 else 'v'}_{tile_name(name)}"
        return self._row(variable, tile, self.memory.offsets[name], self._shift(name))

    def column_variable(self, name: str) -> str:
        """Return the variable of a tile of one column as a column."""
        tile, variable = self.types[name], f"c_{tile_name(name)}"
        kind = f"Column<{STORAGE[tile.dtype.name]}, {physical_shape(tile)[1]}>"
        line = f"{kind} {variable}({tile.rows});"
        self.declare(variable, line, self.memory.offsets[name], self._shift(name))
        return variable

    def scratch_variable(self, like: str) -> str:
        """Return the temporary tile, of the shape of another tile, with its valid shape."""
        tile = self.types[like]
        variable = f"tmp_{tile.dtype}_{tile.rows}_{tile.cols}"
        self._row(variable, tile, self.memory.scratch)
        self._resize(variable, like)
        return variable

    def _row(self, variable: str, tile: TileType, address: int, shift: int = 0) -> str:
        rows, cols = physical_shape(tile)
        kind = f"Matrix<{STORAGE[tile.dtype.name]}, {rows}, {cols}>"
        self.declare(variable, f"{kind} {variable}({rows}, {cols});", address, shift)
        return variable

    def _resize(self, variable: str, like: str) -> None:
        extents = tile_name(like)
        if self.types[like].dtype is b1:
            rows, cols = physical_shape(self.types[like])
            sizes = f"{rows if self.types[like].cols == 1 else f'{extents}.rows'}, {cols}"
            self.out.line(f"if ({extents}.has_elements()) {variable}.SetValidShape({sizes});")
            return
        sizes = f"1, {extents}.rows" if self.types[like].cols == 1 else f"{extents}.rows, {extents}.cols"
        self.out.line(f"if ({extents}.has_elements()) {variable}.SetValidShape({sizes});")

    def set_tile(self, name: str, extents: str) -> None:
        """Write that a tile has these valid extents."""
        super().set_tile(name, extents)
        known = self._draft.variables if self._draft else self.variables
        row = f"{'r' if self.types[name].cols == 1 else 'v'}_{tile_name(name)}"
        if row in known:
            self._resize(row, name)
        if f"c_{tile_name(name)}" in known:
            guard = f"if ({tile_name(name)}.has_elements()) "
            self.out.line(f"{guard}c_{tile_name(name)}.SetValidRow({tile_name(name)}.rows);")

    def _part(self, stem: str, dtype: DType, cols: int, address: int) -> Operand:
        """Return the variable and the bytes of a row at an address, all of it valid."""
        variable = f"{stem}{cols}_{address:x}"
        line = f"Matrix<{STORAGE[dtype.name]}, 1, {cols}> {variable}(1, {cols});"
        self.declare(variable, line, address)
        return variable, Touched("ub", address, address + cols * dtype.itemsize)

    def _select_scratch(self) -> Operand:
        """Return the temporary tile of a select."""
        variable, address = "tmp_select", self.memory.scratch
        self.declare(variable, f"Matrix<uint32_t, 1, 16> {variable}(1, 16);", address)
        return variable, Touched("ub", address, address + SELECT_BYTES)

    # --- moves ------------------------------------------------------------------------------------------

    def pick(self, stmt: Load | Store | Prefetch, window: str) -> str:
        """Write the window of rows that repeat; other rows that a tile names are refused."""
        if stmt.rows not in self._periods or not isinstance(stmt, Load):
            return super().pick(stmt, window)
        picked, rows = self.name("w"), f"{tile_name(stmt.rows)}.{FIELDS[rows_dim(self.types[stmt.rows])]}"
        self.out.line(f"const auto {picked} = repeated({window}, {self._periods[stmt.rows]}, {rows});")
        return picked

    def load(self, stmt: Load, window: str) -> None:
        """Write a load of a window that is known to fit the tile."""
        self.require_rows(stmt)
        self.require_column(stmt, window)
        self.set_tile(stmt.tile, f"{window}.rows, {window}.cols")
        call, guard = self._move("Load", stmt.tile, window), f"{tile_name(stmt.tile)}.has_elements()"
        self.issue(LOAD, call, guard, self.in_tensor(stmt.region), (self.access(stmt.tile),))

    def store(self, stmt: Store, window: str) -> None:
        """Write a store to a window of the tile's valid shape."""
        self.require_rows(stmt)
        self.require_column(stmt, window)
        call, guard = self._move("Store", stmt.tile, window), f"{tile_name(stmt.tile)}.has_elements()"
        self.issue(STORE, call, guard, (self.access(stmt.tile),), self.in_tensor(stmt.region))

    def _move(self, verb: str, tile: str, window: str) -> str:
        if self.types[tile].cols == 1:
            return f"move_column<{verb}>({self.row_variable(tile)}, {window})"
        address = self.address(self.memory.offsets[tile], self._shift(tile))
        return f"move<{verb}>({self.row_variable(tile)}, {address}, {window})"

    # --- instructions -----------------------------------------------------------------------------------

    def instruction(self, step: Step, instr: Instr) -> None:
        """Write an instruction whose operands are known to have valid shapes that fit."""
        template = TEMPLATES[instr.op]
        assert isinstance(template, Calls | Method)
        if instr.dst in self._periods:
            self.result(step, instr)
            return
        scalars = [self._scalar(instr)] if instr.scalars else []
        if isinstance(template, Method):
            getattr(self, f"_{template.name}")(step, instr)
            return
        self._require_types(instr, self._types_of(template))
        self.result(step, instr)
        tiles: Operands = {str(i): (self.row_variable(name), name) for i, name in enumerate(instr.tiles)}
        tiles["d"] = (self.row_variable(instr.dst), instr.dst)
        if any(_TMP in line for line in template.lines):
            tiles["t"] = (self.scratch_variable(instr.tiles[0]), "")
        for line in template.lines:
            self.vector(line, instr.dst, tiles, s=scalars[0] if scalars else "")

    def _types_of(self, template: Calls) -> frozenset[DType]:
        wide = self.generation.wide_arithmetic if template.is_arithmetic else frozenset[DType]()
        return template.dtypes | wide

    def _require_types(self, instr: Instr, known: frozenset[DType]) -> None:
        for name in (instr.dst, *instr.tiles):
            dtype = self.types[name].dtype
            if dtype not in known:
                names = ", ".join(sorted(map(str, known)))
                advice = "cast to f32 first" if dtype.is_float else "cast to another type first"
                reason = f"the vector cores accept {names} here: {advice}"
                raise self.refused(f"`{instr.op}` of {dtype}", reason, instr.loc)

    def _require(self, dtype: DType, known: frozenset[DType], instr: Instr) -> None:
        if dtype not in known:
            names = ", ".join(sorted(map(str, known)))
            raise self.refused(f"`{instr.op}` of {dtype}", f"the vector cores accept {names} here", instr.loc)

    def _scalar(self, instr: Instr) -> str:
        storage = STORAGE[self.types[scalar_tile(instr)].dtype.name]
        return f"({storage})({self.scalar(instr.scalars[0], instr)})"

    def _convert(self, step: Step, instr: Instr) -> None:
        source, result = self.types[instr.tiles[0]].dtype, self.types[instr.dst].dtype
        if (source, result) not in CONVERSIONS | self.generation.conversions:
            via = sorted(str(b) for a, b in CONVERSIONS if a is source)
            reason = f"one instruction converts {source} to {', '.join(via) or 'no type'}: convert in steps"
            raise self.refused(f"`cvt` from {source} to {result}", reason, instr.loc)
        if instr.attr("rmode") and result.is_float:
            raise self.refused("`cvt` to a float in a mode of rounding", "cast without a mode", instr.loc)
        default = "trunc" if source.is_float and result.is_integer else "rint"
        mode = ROUND_MODES[str(instr.attr("rmode") or default)]
        self.result(step, instr)
        self.vector(f"TCVT({{d}}, {{0}}, {mode})", instr.dst, self._rows(instr))

    def _rows(self, instr: Instr) -> Operands:
        """Return result and operands as they take part in arithmetic."""
        tiles: Operands = {str(i): (self.row_variable(name), name) for i, name in enumerate(instr.tiles)}
        return tiles | {"d": (self.row_variable(instr.dst), instr.dst)}

    def _compare(self, step: Step, instr: Instr) -> None:
        self._require(self.types[instr.tiles[0]].dtype, COMPARED, instr)
        self.result(step, instr)
        mode = f"CmpMode::{str(instr.attr('mode')).upper()}"
        self.vector(
            f"TCMPS({{d}}, {{0}}, {{s}}, {mode})", instr.dst, self._rows(instr), s=self._scalar(instr)
        )

    def _choose(self, step: Step, instr: Instr) -> None:
        self._require(self.types[instr.dst].dtype, PLAIN | self.generation.wide_arithmetic, instr)
        self.result(step, instr)
        tiles = self._rows(instr) | {"t": self._select_scratch()}
        self.vector("TSEL({d}, {0}, {1}, {2}, {t})", instr.dst, tiles)

    def _transpose(self, step: Step, instr: Instr) -> None:
        """A column is held as a row, so it is its transpose."""
        if 1 not in self.types[instr.dst].shape:
            raise self.refused("`transpose` of a matrix", "load the tensor in the other order", instr.loc)
        self._require(self.types[instr.dst].dtype, PLAIN, instr)
        self.result(step, instr)
        self.vector("TMOV({d}, {0})", instr.dst, self._rows(instr))

    def _numbers(self, step: Step, instr: Instr) -> None:
        """Write the numbers of a row: bits choose what is added to 8 lanes, then parts double the row."""
        self._require(self.types[instr.dst].dtype, frozenset({i32}), instr)
        start = self._scalar(instr)
        self.result(step, instr)
        tile, tiles = self.types[instr.dst], self._rows(instr)
        if tile.cols == 1:
            self.vector("TEXPANDS({d}, {s})", instr.dst, tiles, s=start)
            return
        cols, is_own = physical_shape(tile)[1], tile.rows == 1 and not self._shift(instr.dst)
        address = self.memory.offsets[instr.dst] if is_own else self.memory.scratch + ROW_AT
        self._number_row(instr.dst, start, cols, address)
        if not is_own:
            variable, row = self._part("line", i32, cols, address)
            extents = tile_name(instr.dst)
            self.out.line(f"if ({extents}.has_elements()) {variable}.SetValidShape(1, {extents}.cols);")
            self.vector("TCOLEXPAND({d}, {0})", instr.dst, tiles | {"0": (variable, row)})

    def _number_row(self, guard: str, start: str, cols: int, address: int) -> None:
        at = self.memory.scratch + SELECT_BYTES
        lanes, more = self._part("n", i32, LANES, address), self._part("n", i32, LANES, at + BLOCK)
        word, bits = self._part("n", i32, LANES, at), self._part("bits", u8, BLOCK, at)
        chosen = {"d": lanes, "0": bits, "1": more, "2": lanes, "t": self._select_scratch()}
        self.vector("TEXPANDS({d}, {s})", guard, {"d": lanes}, s=start)
        for lane, pattern in LANE_BITS:
            self.vector(f"TEXPANDS({{d}}, (int32_t)({pattern:#x}))", guard, {"d": word})
            self.vector(f"TADDS({{d}}, {{0}}, (int32_t)({lane}))", guard, {"d": more, "0": lanes})
            self.vector("TSEL({d}, {0}, {1}, {2}, {t})", guard, chosen)
        width = LANES
        while width < cols:
            count = min(width, cols - width)
            parts = {
                "d": self._part("n", i32, count, address + 4 * width),
                "0": self._part("n", i32, count, address),
            }
            self.vector(f"TADDS({{d}}, {{0}}, (int32_t)({width}))", guard, parts)
            width += count

    def _expand(self, step: Step, instr: Instr) -> None:
        known = PLAIN | self.generation.wide_arithmetic
        self._require_types(instr, known)
        self.result(step, instr)
        is_column = self.types[instr.dst].cols == 1
        tiles = self._rows(instr)
        if (TABLE[instr.op].form is Form.ROW_EXPAND) == is_column:
            call = "TMOV" if is_column else "TCOLEXPAND"
        else:
            call, tiles["0"] = "TROWEXPAND", (self.column_variable(instr.tiles[0]), instr.tiles[0])
        if call == "TCOLEXPAND" and self.types[instr.tiles[0]].cols == 1:
            call = "TMOV"
        self.vector(f"{call}({{d}}, {{0}})", instr.dst, tiles)

    def _broadcast(self, step: Step, instr: Instr) -> None:
        is_row = TABLE[instr.op].form is Form.ROW_BROADCAST
        self._require_types(instr, FLOATS)
        self.result(step, instr)
        op = instr.op.removeprefix("rowexpand").removeprefix("colexpand").upper()
        line, tiles = instr.tiles[1], self._rows(instr)
        if self.types[instr.dst].cols != 1:
            call = f"T{'ROW' if is_row else 'COL'}EXPAND{op}"
        else:
            call, is_row = (f"T{op}", False) if is_row else (f"TROWEXPAND{op}", True)
        if is_row:
            tiles["1"] = (self.column_variable(line), line)
        self.vector(f"{call}({{d}}, {{0}}, {{1}})", instr.dst, tiles)

    def _reduce(self, step: Step, instr: Instr) -> None:
        self._require_types(instr, PLAIN)
        source, is_row = instr.tiles[0], TABLE[instr.op].form is Form.ROW_REDUCE
        if is_row and self.types[source].dtype.is_integer:
            raise self.refused(f"`{instr.op}` of {self.types[source].dtype}", "cast to f32 first", instr.loc)
        self.result(step, instr)
        what, tiles = instr.op[3:].upper(), self._rows(instr)
        identity = {"SUM": "0.0f", "MAX": "-__builtin_inff()", "MIN": "__builtin_inff()"}[what]
        if self.types[source].cols == 1 and is_row:
            self._reduced("TMOV({d}, {0})", identity, instr, tiles)
        elif is_row or self.types[source].cols == 1:
            tiles["d"] = (self.column_variable(instr.dst), instr.dst)
            tiles["t"] = (self.scratch_variable(source), "")
            self._reduced(f"TROW{what}({{d}}, {{0}}, {{t}})", identity, instr, tiles)
        else:
            self._reduced(f"TCOL{what}({{d}}, {{0}})", identity, instr, tiles)

    def _reduced(self, call: str, identity: str, instr: Instr, tiles: Operands) -> None:
        """Write a reduction; lines without elements have its identity."""
        dtype = self.types[instr.dst].dtype
        if dtype.is_integer:
            low, high = dtype.integer_range
            identity = {"sum": "0", "max": str(low), "min": str(high)}[instr.op[3:]]
        row = self.row_variable(instr.dst)
        empty = f"TEXPANDS({row}, ({STORAGE[dtype.name]})({identity}))"
        source = f"{tile_name(instr.tiles[0])}.has_elements()"
        self.vector(f"{{ if ({source}) {call}; else {empty}; }}", instr.dst, tiles)
