"""One kernel of a vector core as PTO tile calls."""

from __future__ import annotations

from pto_wsp.analysis.steps import Step, scalar_tile
from pto_wsp.ir import check_texts
from pto_wsp.ir.kernel import Instr
from pto_wsp.ir.scalar import Const
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.targets.ascend.generation import CONVERSIONS
from pto_wsp.targets.ascend.hazards import SCALAR, Touched
from pto_wsp.targets.ascend.memory import BLOCK, ROW_AT, SELECT_BYTES, physical_shape, transpose_scratch
from pto_wsp.targets.ascend.spelling import STORAGE
from pto_wsp.targets.ascend.templates import (
    FLOATS,
    INTEGERS,
    PLAIN,
    ROUND_MODES,
    TEMPLATES,
    ByElement,
    Calls,
    Method,
    Template,
)
from pto_wsp.targets.ascend.vector_tiles import Operand, Operands, VectorTiles
from pto_wsp.targets.c_style.spelling import FIELDS, tile_name
from pto_wsp.types.dtype import DType, f16, f32, i32, u8

_TMP = "{t}"

COMPARED = frozenset({f32, f16, i32})
"""Element types that a comparison accepts."""

COPIES = {"mov": ByElement("copy_elements"), "transpose": ByElement("turn")}
"""Rows that move elements of any type; calls move some."""

LANES = 8
"""Numbers that a block holds."""

LANE_BITS = ((1, 0xAAAAAAAA), (2, 0xCCCCCCCC), (4, 0xF0F0F0F0))
"""Packed bits of the lanes whose number has a bit, with the value of that bit."""


class VectorCode(VectorTiles):
    """The calls of one kernel of a vector core while they are written."""

    # --- instructions -----------------------------------------------------------------------------------

    def instruction(self, step: Step, instr: Instr) -> None:
        """Write an instruction whose operands are known to have valid shapes that fit."""
        template = self._template(instr)
        if instr.dst in self._periods:
            self.result(step, instr)
            return
        if isinstance(template, ByElement):
            self._by_element(step, instr, template)
            return
        assert isinstance(template, Calls | Method)
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

    def _template(self, instr: Instr) -> Template:
        """Return how a row is written; no call has all of the element types."""
        dtype, template = self.types[instr.dst].dtype, TEMPLATES[instr.op]
        if instr.op in INTEGERS and dtype.is_integer:
            return INTEGERS[instr.op]
        if instr.op in COPIES and dtype not in PLAIN | self.generation.wide_arithmetic:
            return COPIES[instr.op]
        if instr.op == "iota" and dtype is not i32:
            return ByElement("number_columns")
        return template

    def _by_element(self, step: Step, instr: Instr, template: ByElement) -> None:
        """Write a call of a function that reads and writes elements, and the check of what it returns."""
        scalars = [self._scalar(instr)] if instr.scalars else []
        attributes = [self.attribute(instr, name) for name in template.arguments]
        self.result(step, instr)
        operands = [*dict.fromkeys((instr.dst, *instr.tiles))]
        reads = tuple(self.access(name) for name in instr.tiles)
        call = f"{template.function}({', '.join([*map(self.elements, operands), *attributes, *scalars])})"
        ok = self.name("ok")
        if template.failure:
            call = f"const bool {ok} = {call}"
        self.issue(SCALAR, call, "", reads, (self.access(instr.dst),))
        if template.failure:
            text = check_texts.undefined(instr.op, template.failure)
            tiles = [*instr.tiles, *([instr.dst] if instr.op in check_texts.RESHAPED else [])]
            found = [f"{tile_name(tile)}.{extent}" for tile in tiles for extent in FIELDS]
            self.check(f"!{ok}", text, instr.loc, found if text.found else [])

    # --- parts ------------------------------------------------------------------------------------------

    def _part(self, step: Step, instr: Instr) -> None:
        """Write a part of a tile, or what replaces one: a call if it is known to begin at a block."""
        place = self.place_of(instr)
        value = self._scalar(instr) if instr.scalars else ""
        self.result(step, instr)
        self.require_part(instr, *place)
        at = ", ".join(place)
        if value:
            access = (self.access(instr.dst),)
            self.issue(SCALAR, f"{self.elements(instr.dst)}.set({at}, {value})", "", access, access)
            return
        is_extract = instr.op == "extract"
        whole, part = (instr.tiles[0], instr.dst) if is_extract else (instr.dst, instr.tiles[1])
        window = self._window_of(whole, part, *map(instr.attr, ("row", "col")))
        if window is not None:
            extents = tile_name(part)
            sizes = f"{extents}.rows, {extents}.cols"
            self.out.line(f"if ({extents}.has_elements()) {window[0]}.SetValidShape({sizes});")
            ends = (self.row_variable(part), part), window
            self.vector("TMOV({d}, {0})", part, dict(zip("d0" if is_extract else "0d", ends, strict=True)))
            return
        ends = (part, whole) if is_extract else (whole, part)
        call = f"{instr.op}({self.elements(ends[0])}, {self.elements(ends[1])}, {at})"
        self.issue(SCALAR, call, "", (self.access(ends[1]),), (self.access(instr.dst),))

    def _window_of(self, whole: str, part: str, row: object, col: object) -> Operand | None:
        """Return the variable and the bytes of a part of a tile; None if no call reads or writes it."""
        first = [0 if at is None else at.value for at in (row, col) if at is None or isinstance(at, Const)]
        tile, shape = self.types[whole], self.types[part].shape
        known = PLAIN | self.generation.wide_arithmetic
        if len(first) < 2 or 1 in (tile.cols, shape[1]) or tile.dtype not in known:
            return None
        width, itemsize = physical_shape(tile)[1], tile.dtype.itemsize
        start = self.memory.offsets[whole] + int(first[0] * width + first[1]) * itemsize
        if first[1] * itemsize % BLOCK or start + shape[0] * width * itemsize > self.generation.ub_bytes:
            return None
        variable = f"p{first[0]}_{first[1]}_{shape[0]}_{tile_name(whole)}"
        kind = f"Matrix<{STORAGE[tile.dtype.name]}, {shape[0]}, {width}>"
        shift = self._shift(whole)
        self.declare(variable, f"{kind} {variable}({shape[0]}, {width});", start, shift)
        rows = [start + i * width * itemsize for i in range(shape[0])]
        return variable, tuple(Touched("ub", at, at + shape[1] * itemsize, shift) for at in rows)

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
        """Write a transpose; a column is held as a row, so it is its own."""
        self.result(step, instr)
        source, tiles = self.types[instr.tiles[0]], self._rows(instr)
        if 1 in self.types[instr.dst].shape:
            self.vector("TMOV({d}, {0})", instr.dst, tiles)
            return
        rows, cols = physical_shape(transpose_scratch(source))
        variable = f"turned_{source.dtype}_{rows}_{cols}"
        self._row(variable, transpose_scratch(source), self.memory.scratch)
        self.vector("TTRANS({d}, {0}, {t})", instr.dst, tiles | {"t": (variable, "")})

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
            variable, row = self._fixed_row("line", i32, cols, address)
            extents = tile_name(instr.dst)
            self.out.line(f"if ({extents}.has_elements()) {variable}.SetValidShape(1, {extents}.cols);")
            self.vector("TCOLEXPAND({d}, {0})", instr.dst, tiles | {"0": (variable, row)})

    def _number_row(self, guard: str, start: str, cols: int, address: int) -> None:
        at = self.memory.scratch + SELECT_BYTES
        lanes, more = self._fixed_row("n", i32, LANES, address), self._fixed_row("n", i32, LANES, at + BLOCK)
        word, bits = self._fixed_row("n", i32, LANES, at), self._fixed_row("bits", u8, BLOCK, at)
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
                "d": self._fixed_row("n", i32, count, address + 4 * width),
                "0": self._fixed_row("n", i32, count, address),
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
