"""The loop nest of a group: every element goes through all its steps in vector registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from pto_wsp.analysis.steps import Step
from pto_wsp.ir.effects import tile_written, tiles_read
from pto_wsp.ir.kernel import Assert, Assign, Instr, Load, Prefetch, Print, Store
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.plan import COLUMN, ELEMENT, ROW, Group, operand_places
from pto_wsp.targets.c_style.spelling import literal, mangle, tile_name
from pto_wsp.targets.cpu.memory import Memory, is_inner_fold
from pto_wsp.targets.cpu.parts import Instances, folds
from pto_wsp.targets.cpu.templates import (
    HEADERS,
    NARROW,
    NARROW_TYPES,
    ROUNDING,
    STORAGE,
    TEMPLATES,
    Fold,
    Vector,
    lane_type,
    vector_type,
)
from pto_wsp.types.dtype import DType, i64
from pto_wsp.types.tile import TileType

LIGHT = 8
"""Most loads, instructions and stores of a loop that does two vectors per step."""

LINE_LANES = 16
"""Lanes of vectors as long as a line. Such a loop does one per step: a processor foresees best what a single
instruction loads."""

MANY_ROWS = 8
"""From this number of rows, folding their lanes together pays: all take as long as three one by one."""


@dataclass(slots=True)
class GroupScope:
    """What the loop of a group needs to know.

    Attributes:
        scalars: per step number, the C++ vectors of its scalar operands.
        windows: per step number, the C++ window that a store writes.
        folds: per step number, the C++ pointer to the partial results of a reduction over rows.
        narrow: the C++ type of the elements where the loop computes in lanes of their width, or "".
        parts: what the kernel calls that is compiled apart from it.
        only_written: the kernel's output parameters, whose elements may be stored past the caches.
        has_extents: whether the extents `rows` and `cols` of the loop are declared.
    """

    group: Group
    types: dict[str, TileType]
    memory: Memory
    lanes: int
    scalars: dict[int, list[str]] = field(default_factory=dict)
    windows: dict[int, str] = field(default_factory=dict)
    folds: dict[int, str] = field(default_factory=dict)
    parts: set[Instances] = field(default_factory=set)
    only_written: frozenset[str] = frozenset()
    has_extents: bool = False
    narrow: str = field(init=False)

    def __post_init__(self) -> None:
        self.narrow = narrow_storage(self.group, self.types)


def narrow_storage(group: Group, types: Mapping[str, TileType]) -> str:
    """Return the C++ type of a group's elements if they are narrow, of one type, and need no wider lanes."""
    dtypes = set()
    for stmt in (step.stmt for step in group.steps if isinstance(step.stmt, Instr | Store)):
        if isinstance(stmt, Instr) and stmt.op not in NARROW:
            return ""
        dtypes |= {types[tile].dtype.name for tile in (*tiles_read(stmt), tile_written(stmt)) if tile}
    return STORAGE[dtypes.pop()] if len(dtypes) == 1 and dtypes < set(NARROW_TYPES) else ""


def folds_one_by_one(column: TileType) -> bool:
    """Return whether the lanes of each row are folded alone: there are few, or lanes are of 64 bits."""
    return column.rows < MANY_ROWS or column.dtype.itemsize > 4


def identity(fold: Fold, dtype: DType) -> str:
    """Return the vector that a reduction starts from."""
    if dtype.is_float:
        return f"splat({fold.float_identity})"
    low, high = (literal(limit, i64) for limit in dtype.integer_range)
    return f"splat(static_cast<{lane_type(dtype)}>({fold.int_identity.format(low=low, high=high)}))"


@dataclass(slots=True)
class _Lines:
    """Code at the three depths of the nest."""

    before: list[str] = field(default_factory=list)
    row: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    row_end: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


class GroupWriter:
    """Writes one group's loop nest."""

    def __init__(self, scope: GroupScope) -> None:
        self.scope = scope
        self.lines = _Lines()
        self.values: dict[tuple[str, str], str] = {}
        self.unrounded: dict[str, str] = {}
        self.pointers: set[str] = set()
        self.accessed: list[str] = []
        self.is_flat = not scope.group.is_column
        self.versions = 0
        self.touches_users_memory = False
        self.touches_scratch = False
        self.has_folds = False
        self.past: list[str] = []

    def write(self, writer: TextWriter) -> None:
        """Write the loops."""
        for number, step in enumerate(self.scope.group.steps):
            match step.stmt:
                case Store():
                    self.store(number, step.stmt)
                case Instr() if isinstance(TEMPLATES[step.stmt.op], Fold):
                    self.fold(number, step.stmt)
                case Instr():
                    self.instruction(number, step.stmt)
                case Load() | Assign():
                    pass  # done before the loops
                case Prefetch() | Print() | Assert():
                    raise AssertionError("a group does not contain such a step")
                case _:
                    assert_never(step.stmt)
        self.keep_live_tiles()
        self._assemble(writer)

    def instruction(self, number: int, instr: Instr) -> None:
        """Compute an elementwise instruction in registers."""
        template = TEMPLATES[instr.op]
        assert isinstance(template, Vector)
        dst = self.scope.types[instr.dst].dtype
        places = operand_places(instr, self.scope.group.is_column)
        operands = [self.operand(t, p) for t, p in zip(instr.tiles, places, strict=True)]
        operands += self.scope.scalars.get(number, [])
        # In a group of columns, j is the row.
        is_iota = TABLE[instr.op].form is Form.IOTA
        self.is_flat &= not is_iota and all(place == ELEMENT for place in places)
        text = "{0}" if is_iota and self.scope.group.is_column else template.text
        source = STORAGE[self.scope.types[(*instr.tiles, instr.dst)[0]].dtype.name]
        names = {"mode": instr.attr("mode"), "rmode": instr.attr("rmode") or "none"}
        text = text.format(*operands, **names, to=STORAGE[dst.name], source=source)
        name = self.define(instr.dst)
        if dst.kind not in template.keeps and dst.name in ROUNDING and not self.scope.narrow:
            self.unrounded[name] = f"{name}_unrounded"
            text = f"{text}, {name} = {ROUNDING[dst.name].format(self.unrounded[name])}"
        self.lines.body.append(f"const {self.vector(dst)} {self.unrounded.get(name, name)} = {text};")

    def vector(self, dtype: DType) -> str:
        """Return the C++ type of the vectors of the loop."""
        return f"Narrow<{self.scope.narrow}>" if self.scope.narrow else vector_type(dtype)

    def define(self, tile: str) -> str:
        """Return a new variable for the value of a tile."""
        name = f"{mangle('v', tile)}_{self.versions}"
        self.versions += 1
        self.values = {key: value for key, value in self.values.items() if key[0] != tile}
        self.values[tile, ELEMENT] = name
        return name

    def operand(self, tile: str, place: str) -> str:
        """Return the variable that holds an operand, loading it where it is not in a register yet."""
        if (tile, place) in self.values:
            return self.values[tile, place]
        dtype = self.scope.types[tile].dtype
        name = f"{mangle('v', tile)}_{self.versions}"
        self.versions += 1
        variable = tile_name(tile)
        declared, suffix = f"const {self.vector(dtype)} {name} = ", "_narrow" if self.scope.narrow else ""
        if place == ROW:
            one = f"splat_narrow({variable}.data[i])" if suffix else f"load_splat({variable}.data + i)"
            self.lines.row.append(f"{declared}{one};")
        else:
            access = self.access(tile)
            base = f"{variable}.data" if place == COLUMN else self.pointer(tile)
            self.lines.loads.append(f"{declared}load{suffix}({base} + j, {access});")
        self.values[tile, place] = name
        return name

    def pointer(self, tile: str) -> str:
        """Return the variable that points to the current row of a tile."""
        name = mangle("r", tile)
        if name not in self.pointers:
            self.pointers.add(name)
            storage = STORAGE[self.scope.types[tile].dtype.name]
            self.lines.row.append(f"{storage}* const {name} = {tile_name(tile)}.row(i);")
            self.accessed.append(tile_name(tile))
        return name

    def access(self, tile: str) -> str:
        """Return how a tile's memory may be touched: whole vectors in scratch, else to the valid end only.

        Rows in scratch are not padded to vectors of narrow lanes.
        """
        if tile not in self.scope.memory.in_place and not self.scope.narrow:
            self.touches_scratch = True
            return "Full{}"
        self.touches_users_memory = True
        return "n"

    def store(self, number: int, stmt: Store) -> None:
        """Write a value to user memory."""
        value = self.stored(self.operand(stmt.tile, ELEMENT))
        self.touches_users_memory = True
        window = self.scope.windows[number]
        storage = STORAGE[self.scope.types[stmt.tile].dtype.name]
        self.lines.row.append(f"{storage}* const {window}_row = {window}.row(i);")
        past = ""
        if stmt.region.tensor in self.scope.only_written:
            self.past.append(window)
            past = f", {window}_past"
        self.lines.body.append(f"store_exact({window}_row + j, {value}, n{past});")
        self.accessed.append(window)

    def stored(self, value: str) -> str:
        """Return what to store of a value: as it was before it was rounded, for storing rounds it."""
        return f"Unrounded{{{self.unrounded[value]}}}" if value in self.unrounded else value

    def fold(self, number: int, instr: Instr) -> None:
        """Reduce a value along the vectors of a row, or over the rows."""
        template = TEMPLATES[instr.op]
        assert isinstance(template, Fold)
        self.is_flat = False
        self.has_folds = True
        value = self.operand(instr.tiles[0], ELEMENT)
        if is_inner_fold(instr, self.scope.group):
            self.inner_fold(number, instr, template, value)
        else:
            self.outer_fold(number, instr, template, value)

    def inner_fold(self, number: int, instr: Instr, template: Fold, value: str) -> None:
        """Reduce along a row: lane by lane, then over the lanes in a fixed order."""
        dtype = self.scope.types[instr.dst].dtype
        start, total = identity(template, dtype), f"fold{number}"
        vector = vector_type(dtype)
        self.touches_users_memory = True
        self.lines.row.append(f"{vector} {total} = {start};")
        self.lines.body.append(f"{total} = {template.function}(keep({value}, n, {start}), {total});")
        column = f"{tile_name(instr.dst)}.data"
        if self.scope.group.is_column or folds_one_by_one(self.scope.types[instr.dst]):
            combine = f"[]({vector} a, {vector} b) {{ return {template.function}(a, b); }}"
            self.lines.row_end.append(f"store({column} + i, fold({total}, {combine}), First{{}});")
        else:
            self.scope.parts.add(folds(vector, STORAGE[dtype.name], template.function))
            self.lines.before.append(f"RowFolds<{vector}> {total}_rows;")
            add = f"{total}_rows.add<{template.function}>"
            self.lines.row_end.append(f"{add}({total}, i, i + 1 == rows, {column});")

    def outer_fold(self, number: int, instr: Instr, template: Fold, value: str) -> None:
        """Reduce over the rows, in partial results that are combined after the loop."""
        dtype = self.scope.types[instr.dst].dtype
        start, partial = identity(template, dtype), self.scope.folds[number]
        source = self.scope.types[instr.tiles[0]]
        width = source.rows if self.scope.group.is_column else source.cols
        stride = -(-width // self.scope.lanes) * self.scope.lanes
        self.lines.before.append(
            f"for (int64_t j = 0; j < {template.partials * stride}; j += kLanes) "
            f"store({partial} + j, {start}, Full{{}});"
        )
        row = "" if template.partials == 1 else f" + (i % {template.partials}) * {stride}"
        at = f"{partial}{row} + j"
        self.lines.body.append(f"store({at}, {template.function}({value}, load({at}, Full{{}})), Full{{}});")
        parts = [f"load({partial} + {k * stride} + j, Full{{}})" for k in range(template.partials)]
        while len(parts) > 1:
            parts = [f"{template.function}({a}, {b})" for a, b in zip(parts[::2], parts[1::2], strict=True)]
        self.lines.after.append(
            f"for (int64_t j = 0; j < cols; j += kLanes) "
            f"store({tile_name(instr.dst)}.data + j, {parts[0]}, Full{{}});"
        )

    def keep_live_tiles(self) -> None:
        """Store the tiles that are read after the group to their memory."""
        steps = self.scope.group.steps
        for tile in dict.fromkeys(t for s in steps if (t := self._made(s)) is not None):
            if tile in steps[-1].live:
                value = self.stored(self.values[tile, ELEMENT])
                access = self.access(tile) if self.scope.narrow else "Full{}"
                self.touches_scratch = True
                self.lines.body.append(f"store_exact({self.pointer(tile)} + j, {value}, {access});")

    def _made(self, step: Step) -> str | None:
        if isinstance(step.stmt, Instr) and isinstance(TEMPLATES[step.stmt.op], Vector):
            return tile_written(step.stmt)
        return None

    def columns(self) -> str:
        """Return what goes over the columns of a row."""
        if self.scope.narrow:
            return f"columns<{2 if self._is_short else 1}, kNarrowLanes<{self.scope.narrow}>>"
        ops = (step.stmt.op for step in self.scope.group.steps if isinstance(step.stmt, Instr))
        if any(HEADERS.get(op) == "math" for op in ops):
            return "columns_once"
        return "columns<2>" if self._is_short and self.scope.lanes < LINE_LANES else "columns"

    @property
    def _is_short(self) -> bool:
        """Whether the loop's body is a few instructions, so that counting costs as much as they do."""
        return len(self.lines.loads + self.lines.body) <= LIGHT

    @property
    def _has_lead(self) -> bool:
        """Whether vectors of a row may begin anywhere; those of scratch and of sums have places."""
        return bool(self.past) and not self.touches_scratch and not self.has_folds

    def _places(self, first: str = "") -> list[str]:
        """Return what finds out whether a row can be stored past the caches from an element on."""
        return [f"const bool {w}_past = {w}.streams_at({w}_row{first});" for w in self.past]

    def _over_columns(self, writer: TextWriter, count: str, index: str, body: list[str]) -> None:
        head = f"{self.columns()}({count}, [&](int64_t {index}, auto n) PTO_INLINE {{"
        if not self.touches_users_memory:
            head = f"padded_columns({count}, [&](int64_t {index}, Full) PTO_INLINE {{"
        writer.line(head)
        with writer.indented():
            for line in body:
                writer.line(line)
        writer.line("});")

    def _in_parts(self, writer: TextWriter, body: list[str]) -> None:
        """Write a row whose elements before the first line of its first window are stored by themselves."""
        lead = f"{self.past[0]}.lead({self.past[0]}_row, cols)"
        writer.line(f"in_parts({lead}, cols, [&](int64_t first, int64_t count) PTO_INLINE {{")
        with writer.indented():
            for line in self._places(" + first"):
                writer.line(line)
            self._over_columns(writer, "count", "k", ["const int64_t j = first + k;", *body])
        writer.line("});")

    def _assemble(self, writer: TextWriter) -> None:
        for line in self.lines.before:
            writer.line(line)
        if self.is_flat and self.accessed:
            writer.line(f"flatten(rows, cols, {', '.join(self.accessed)});")
        writer.line("for (int64_t i = 0; i < rows; ++i) {")
        with writer.indented():
            for line in self.lines.row:
                writer.line(line)
            # All loads come first: a store may be to the very elements that a tile is read from in place.
            body = self.lines.loads + self.lines.body
            if self._has_lead:
                self._in_parts(writer, body)
            else:
                for line in self._places():
                    writer.line(line)
                self._over_columns(writer, "cols", "j", body)
            for line in self.lines.row_end:
                writer.line(line)
        writer.line("}")
        for line in self.lines.after:
            writer.line(line)


def reads_in_place(group: Group, memory: Memory) -> list[tuple[str, bool]]:
    """Return the tiles that a group reads in place, and whether each is read at [i, j] alone."""
    found: dict[str, bool] = {}
    for step in group.steps:
        if isinstance(step.stmt, Store):
            places = [ELEMENT]
        elif isinstance(step.stmt, Instr):
            places = operand_places(step.stmt, group.is_column)
        else:
            continue
        for tile, place in zip(tiles_read(step.stmt), places, strict=True):
            if tile in memory.in_place:
                found[tile] = found.get(tile, True) and place == ELEMENT
    return list(found.items())
