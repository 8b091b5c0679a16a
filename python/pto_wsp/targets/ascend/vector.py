"""One kernel of a vector core as PTO tile calls."""

from __future__ import annotations

import re

from pto_wsp.analysis.steps import Step, scalar_tile
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Store
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.targets.ascend.core import CoreCode
from pto_wsp.targets.ascend.generation import CONVERSIONS, Generation
from pto_wsp.targets.ascend.hazards import LOAD, STORE, VECTOR, Touched
from pto_wsp.targets.ascend.memory import assign_memory, broadcast_scratch, physical_bytes, physical_shape
from pto_wsp.targets.ascend.spelling import STORAGE
from pto_wsp.targets.ascend.templates import FLOATS, PLAIN, ROUND_MODES, TEMPLATES, Calls, Method, Unsupported
from pto_wsp.targets.c_style.spelling import tile_name
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TileType

_OPERAND = re.compile(r"\{(\w+)\}")
_TMP = "{t}"


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

    # --- instructions on the vector pipe ----------------------------------------------------------------

    def access(self, name: str) -> Touched:
        """Return the bytes of a tile."""
        start = self.memory.offsets[name]
        return Touched("ub", start, start + physical_bytes(self.types[name]), self._shift(name))

    def _shift(self, name: str) -> int:
        return self.memory.shifts.get(name, 0)

    def vector(self, template: str, guard: str, tiles: dict[str, tuple[str, str]], **texts: str) -> None:
        """Write a vector instruction.

        Args:
            template: a call whose first tile is written, with the keys of `tiles` and `texts` in braces.
            guard: the tile without whose elements there is nothing to do.
            tiles: per key, the variable and the name of a tile; the temporary tile has the name "".
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

    def _access_of(self, name: str) -> Touched:
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

    # --- moves ------------------------------------------------------------------------------------------

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
        assert not isinstance(template, Unsupported)
        scalars = [self._scalar(instr)] if instr.scalars else []
        if isinstance(template, Method):
            getattr(self, f"_{template.name}")(step, instr)
            return
        self._require_types(instr, self._types_of(template))
        self.result(step, instr)
        tiles = {str(i): (self.row_variable(name), name) for i, name in enumerate(instr.tiles)}
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

    def _rows(self, instr: Instr) -> dict[str, tuple[str, str]]:
        """Return result and operands as they take part in arithmetic."""
        tiles = {str(i): (self.row_variable(name), name) for i, name in enumerate(instr.tiles)}
        return tiles | {"d": (self.row_variable(instr.dst), instr.dst)}

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

    def _reduced(self, call: str, identity: str, instr: Instr, tiles: dict[str, tuple[str, str]]) -> None:
        """Write a reduction; lines without elements have its identity."""
        dtype = self.types[instr.dst].dtype
        if dtype.is_integer:
            low, high = dtype.integer_range
            identity = {"sum": "0", "max": str(low), "min": str(high)}[instr.op[3:]]
        row = self.row_variable(instr.dst)
        empty = f"TEXPANDS({row}, ({STORAGE[dtype.name]})({identity}))"
        source = f"{tile_name(instr.tiles[0])}.has_elements()"
        self.vector(f"{{ if ({source}) {call}; else {empty}; }}", instr.dst, tiles)
