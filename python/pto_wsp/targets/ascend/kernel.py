"""One kernel of a vector core as PTO tile calls."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pto_wsp.analysis.steps import Step, scalar_tile
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Store, statement_expressions, walk_statements
from pto_wsp.ir.scalar import Element, walk
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.ascend.generation import CONVERSIONS, Generation
from pto_wsp.targets.ascend.hazards import LOAD, STORE, VECTOR, Flag, FlagPlanner, Sync, Touched
from pto_wsp.targets.ascend.memory import assign_memory, broadcast_scratch, physical_bytes, physical_shape
from pto_wsp.targets.ascend.spelling import STORAGE, AscendSpelling
from pto_wsp.targets.ascend.templates import FLOATS, PLAIN, ROUND_MODES, TEMPLATES, Calls, Method, Unsupported
from pto_wsp.targets.c_style.kernel import KernelWriter
from pto_wsp.targets.c_style.plan import Node, PlannedBranch, PlannedLoop, is_row_major, walk_nodes
from pto_wsp.targets.c_style.spelling import tile_name
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TileType

_OPERAND = re.compile(r"\{(\w+)\}")
_TMP = "{t}"


def write_kernel(kernel: KernelFunction, generation: Generation) -> AscendCode:
    """Return a kernel that was written twice: the second time, its flags are known.

    Raises:
        NoneKernelBody: it is only declared.
        TilesTooLarge: its tiles do not fit the unified buffer.
        UnsupportedByTarget: it holds what the generation refuses.
    """
    _require_templates(kernel, generation)
    draft = AscendCode(kernel, generation)
    draft.write()
    code = AscendCode(kernel, generation, draft)
    code.write()
    return code


def _require_templates(kernel: KernelFunction, generation: Generation) -> None:
    """Raise UnsupportedByTarget for the first instruction that has no calls."""
    for stmt in walk_statements(kernel.body or ()):
        template = TEMPLATES[stmt.op] if isinstance(stmt, Instr) else None
        if isinstance(stmt, Instr) and isinstance(template, Unsupported):
            what, reason = f"`{stmt.op}`", template.reason
            raise UnsupportedByTarget(target=generation.name, what=what, reason=reason, loc=stmt.loc)


class AscendCode(KernelWriter):
    """The calls of one kernel while they are written.

    A tile is a variable of the library that has the memory of the tile. A tile of one column has two: `c_`
    is a column, for broadcasts and sums of rows, and `r_` is the same bytes as a row, for arithmetic.

    Args:
        kernel: with a body.
        generation: what it is written for.
        draft: the kernel as it was written before, which knows the flags and the variables; or None.
    """

    parameters = "const GLOBAL View* views, const GLOBAL Scalar* scalars, const TaskContext* context"

    def __init__(
        self, kernel: KernelFunction, generation: Generation, draft: AscendCode | None = None
    ) -> None:
        super().__init__(kernel, AscendSpelling(generation), TextWriter())
        self.generation = generation
        self.memory = assign_memory(kernel, generation)
        self.planner = FlagPlanner(generation.orders_vectors)
        self.variables: dict[str, str] = {}
        self._draft = draft
        self._outstanding: list[Flag] = []
        self._loops = {id(node.body) for node in walk_nodes(self.nodes) if isinstance(node, PlannedLoop)}
        self._stored = {s.region.tensor for s in walk_statements(kernel.body or ()) if isinstance(s, Store)}
        self._check_elements()

    # --- the function -----------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the function."""
        self.out.line("AICORE inline")
        super().write()

    def tile(self, name: str) -> str:
        """Return the type of the valid shape of a tile."""
        return "Extents"

    def begin(self) -> None:
        """Write the variables of tiles that the code uses, with their addresses."""
        for line in self._draft.variables.values() if self._draft else ():
            self.out.line(line)

    def body(self, nodes: Sequence[Node]) -> None:
        """Write planned nodes; all pipes end together around loops and choices."""
        if id(nodes) in self._loops:
            self.fence()
        for node in nodes:
            if isinstance(node, PlannedBranch) and not self.planner.is_clean:
                self.fence()
            super().body([node])
            if isinstance(node, PlannedLoop | PlannedBranch):
                self.fence()
        if nodes is self.nodes:
            self.fence()

    def fence(self) -> None:
        """Write a barrier of all pipes."""
        self.planner.fence()
        self.out.line("pipe_barrier(PIPE_ALL);")

    def leave(self, bad: str, result: str) -> None:
        """Write that the kernel ends where `bad` holds: flags that are set are waited for."""
        waits = "".join(f"{flag.text('wait')} " for flag in self._outstanding)
        self.out.line(f"if ({bad}) {{ {waits}pipe_barrier(PIPE_ALL); return {result}; }}")

    def _check_elements(self) -> None:
        """Refuse reads of elements of a tensor that the kernel stores to: nothing orders them."""
        for stmt in walk_statements(self.kernel.body or ()):
            for expr in statement_expressions(stmt):
                for part in walk(expr):
                    if isinstance(part, Element) and part.name in self._stored:
                        what = f"the element of `{part.name}`, which the kernel also stores to"
                        raise self.refused(what, "read it in another kernel", part.loc or stmt.loc)

    def refused(self, what: str, reason: str, loc: Location | None) -> UnsupportedByTarget:
        """Return the error that the target does not support `what`, with what to do."""
        return UnsupportedByTarget(target=self.generation.name, what=what, reason=reason, loc=loc)

    # --- instructions on pipes --------------------------------------------------------------------------

    def issue(
        self, pipe: str, call: str, guard: str, reads: tuple[Touched, ...], writes: tuple[Touched, ...]
    ) -> None:
        """Write a call with the flags around it. It is left out where the tile `guard` has no elements."""
        number = self.planner.add(pipe, reads, writes)
        sync = self._draft.planner.syncs[number] if self._draft else Sync()
        for flag in sync.waits:
            self.out.line(flag.text("wait"))
            self._outstanding.remove(flag)
        for barrier in sync.barriers:
            self.out.line(f"pipe_barrier({barrier});")
        self.out.line(f"if ({guard}.has_elements()) {call};" if guard else f"{call};")
        for flag in sync.sets:
            self.out.line(flag.text("set"))
            self._outstanding.append(flag)

    def access(self, name: str) -> Touched:
        """Return the bytes of a tile."""
        start = self.memory.offsets[name]
        return Touched("ub", start, start + physical_bytes(self.types[name]))

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
        self.issue(VECTOR, call, tile_name(guard), reads, writes)

    def _access_of(self, name: str) -> Touched:
        if name:
            return self.access(name)
        return Touched("ub", self.memory.scratch, self.memory.total_bytes)

    # --- variables --------------------------------------------------------------------------------------

    def row_variable(self, name: str) -> str:
        """Return the variable of a tile for arithmetic."""
        tile = self.types[name]
        return self._row(
            f"{'r' if tile.cols == 1 else 'v'}_{tile_name(name)}", tile, self.memory.offsets[name]
        )

    def column_variable(self, name: str) -> str:
        """Return the variable of a tile of one column as a column."""
        tile, variable = self.types[name], f"c_{tile_name(name)}"
        kind = f"Column<{STORAGE[tile.dtype.name]}, {physical_shape(tile)[1]}>"
        self._declare(variable, f"{kind} {variable}({tile.rows});", self.memory.offsets[name])
        return variable

    def scratch_variable(self, like: str) -> str:
        """Return the temporary tile, of the shape of another tile, with its valid shape."""
        tile = self.types[like]
        variable = f"tmp_{tile.dtype}_{tile.rows}_{tile.cols}"
        self._row(variable, tile, self.memory.scratch)
        self._resize(variable, like)
        return variable

    def _row(self, variable: str, tile: TileType, address: int) -> str:
        rows, cols = physical_shape(tile)
        kind = f"Matrix<{STORAGE[tile.dtype.name]}, {rows}, {cols}>"
        self._declare(variable, f"{kind} {variable}({rows}, {cols});", address)
        return variable

    def _declare(self, variable: str, line: str, address: int) -> None:
        self.variables[variable] = f"{line} TASSIGN({variable}, {address:#x});"

    def _resize(self, variable: str, like: str) -> None:
        extents = tile_name(like)
        sizes = f"1, {extents}.rows" if self.types[like].cols == 1 else f"{extents}.rows, {extents}.cols"
        self.out.line(f"if ({extents}.has_elements()) {variable}.SetValidShape({sizes});")

    def set_tile(self, name: str, extents: str) -> None:
        """Write that a tile has these valid extents."""
        self.out.line(f"{tile_name(name)} = {{{extents}}};")
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
        self._require_rows(stmt.region, stmt.tile, stmt.loc, "load")
        self._require_column(stmt.tile, window, stmt)
        self.set_tile(stmt.tile, f"{window}.rows, {window}.cols")
        reads, writes = (Touched(stmt.region.tensor),), (self.access(stmt.tile),)
        self.issue(LOAD, self._move("load", stmt.tile, window), tile_name(stmt.tile), reads, writes)

    def store(self, stmt: Store, window: str) -> None:
        """Write a store to a window of the tile's valid shape."""
        self._require_rows(stmt.region, stmt.tile, stmt.loc, "store")
        self._require_column(stmt.tile, window, stmt)
        reads, writes = (self.access(stmt.tile),), (Touched(stmt.region.tensor),)
        self.issue(STORE, self._move("store", stmt.tile, window), tile_name(stmt.tile), reads, writes)

    def _move(self, verb: str, tile: str, window: str) -> str:
        if self.types[tile].cols == 1:
            return f"{verb}_column({self.row_variable(tile)}, {window})"
        return f"{verb}({self.row_variable(tile)}, {self.memory.offsets[tile]:#x}, {window})"

    def _require_rows(self, region: Region, tile: str, loc: Location | None, verb: str) -> None:
        if not is_row_major(region):
            what = f"a {verb} of `{tile}` whose columns are not contiguous in `{region.tensor}`"
            raise self.refused(what, "make the last dimension of the region its columns", loc)

    def _require_column(self, tile: str, window: str, stmt: Load | Store) -> None:
        """Write the check that a tile of one column is contiguous in memory."""
        if self.types[tile].cols == 1:
            text = CheckText(f"a column of `{stmt.region.tensor}` is not contiguous in memory", "stride {0}")
            bad = f"{window}.rows > 1 && ({window}.stride != 1 || {window}.index)"
            self.check(bad, text, stmt.loc, [f"{window}.stride"])

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
