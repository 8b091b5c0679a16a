"""One kernel as a device function that all threads of a block call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pto_wsp.analysis.steps import Step, rows_dim, scalar_tile
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.effects import tiles_read
from pto_wsp.ir.kernel import Assign, For, Instr, KernelFunction, Load, Prefetch, Store
from pto_wsp.ir.scalar import Const, Element, Expr, TileElement, walk
from pto_wsp.isa.forms import Form, factors
from pto_wsp.isa.meaning import OTHER_DEPTH, PART_OF_BLOCK
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.kernel import KernelWriter
from pto_wsp.targets.c_style.plan import ELEMENT, ROW, Group, Node, PlannedBranch, PlannedLoop, operand_places
from pto_wsp.targets.c_style.spelling import FIELDS, mangle, scalar_name, tile_name
from pto_wsp.targets.cpu.templates import STORAGE, TEMPLATES, CallTemplate, Fold, Vector, Whole
from pto_wsp.targets.cuda.ahead import with_more_places, with_two_places
from pto_wsp.targets.cuda.barriers import GLOBAL, Barriers, Range
from pto_wsp.targets.cuda.memory import SPILLED, LoadsAhead, Segment, assign_memory, kept_tiles, segments
from pto_wsp.targets.cuda.spelling import CudaSpelling
from pto_wsp.targets.cuda.sums import (
    FEW_REGISTERS,
    Shape,
    add_in_place,
    changes_in_registers,
    most_registers,
    part_shape,
    shape_of,
    sums_in_registers,
    uses_tensor_cores,
)
from pto_wsp.types.dtype import DType, i64
from pto_wsp.types.quantised import FORMATS, rounded_cols


class CudaKernel(KernelWriter):
    """Writes one kernel. Tiles lie in shared memory, or in global memory; values of a group are in registers.

    Attributes:
        memory: places of the kernel's tiles.
        changes: ids of the instructions that change sums in registers.
        own_sums: names of the sums that are in registers now, by tile.
    """

    def __init__(self, kernel: KernelFunction, out: TextWriter) -> None:
        kernel = add_in_place(kernel)
        super().__init__(kernel, CudaSpelling(), out)
        self._sums = sums_in_registers(kernel)
        self.changes = changes_in_registers(kernel, self._sums)
        self.own_sums: dict[str, str] = {}
        self._assign = partial(assign_memory, kernel, self.nodes, self._sums)
        ahead, self.memory = with_two_places(kernel, self._assign)
        self._ahead = {id(its.loop): its for its in ahead}
        self.barriers = Barriers()
        self._depth = 0
        self._places: dict[str, str] = {}
        self._has_met = False

    @property
    def stages(self) -> tuple[int, ...]:
        """The places of tiles in each loop whose loads begin ahead."""
        return tuple(its.stages for its in self._ahead.values())

    def add_stages(self, most_bytes: int) -> None:
        """Let loads begin further ahead, as far as tiles take at most these bytes of shared memory."""
        ahead = with_more_places(self.kernel, [*self._ahead.values()], self._assign, most_bytes)
        self._ahead = {id(its.loop): its for its in ahead}
        self.memory = self._assign(ahead)

    def write(self) -> None:
        """Write the function."""
        is_large = most_registers(self.kernel, self._sums) > FEW_REGISTERS
        self.out.line("PTO_DEVICE_APART" if is_large else "PTO_DEVICE")
        super().write()

    # --- barriers ---------------------------------------------------------------------------------------

    def body(self, nodes: Sequence[Node]) -> None:
        """Write planned nodes in order; all paths of a choice or loop end with a barrier if one is due."""
        if self._depth and not self._has_met:
            self.barriers.forget()
        self._has_met = False
        self._depth += 1
        for node in nodes:
            is_nest = isinstance(node, PlannedLoop | PlannedBranch)
            if is_nest:
                self.meet()
            sums = self._sums.get(id(node.stmt), ()) if isinstance(node, PlannedLoop) else ()
            self._begin_sums(sums)
            super().body([node])
            if is_nest:
                self.barriers.forget()
            self._end_sums(sums)
        self.meet()
        self._depth -= 1

    def meet(self) -> None:
        """Write a barrier if anything was written since the last one."""
        if not self.barriers.is_clear:
            self._barrier()
            self.barriers.clear()

    def use(self, reads: Iterable[str | Range] = (), writes: Iterable[str | Range] = ()) -> None:
        """Write the barrier that is due before tiles, or other ranges, are read and written."""
        if self.barriers.use(map(self.range_of, reads), map(self.range_of, writes)):
            self._barrier()

    def _barrier(self) -> None:
        if self.barriers.has_copies:
            self.out.line("finish_copies();")
            self.barriers.has_copies = False
        self.out.line("sync();")

    def range_of(self, tile: str | Range) -> Range:
        """Return the bytes of a tile; none if it is in registers only."""
        if not isinstance(tile, str):
            return tile
        if tile not in self.memory.offsets or tile in self.own_sums:
            return (0, 0)
        first = self.memory.offsets[tile]
        return first, first + self.memory.sizes[tile] * self.memory.places.get(tile, 1)

    def value(self, expr: Expr, loc: Location | None) -> str:
        """Return the value of an expression, whose elements are read after a barrier if one is due."""
        parts = list(walk(expr))
        reads: list[str | Range] = [part.name for part in parts if isinstance(part, TileElement)]
        self.use(reads=reads + [GLOBAL for part in parts if isinstance(part, Element)])
        return super().value(expr, loc)

    # --- tiles and moves --------------------------------------------------------------------------------

    def tile(self, name: str) -> str:
        """Return the type of a tile's variable."""
        return f"Tile<{self.storage(name)}>"

    def storage(self, tile: str) -> str:
        """Return the type of a tile's elements."""
        return STORAGE[self.types[tile].dtype.name]

    def buffer(self, tile: str) -> str:
        """Return the pointer and row stride of a tile's memory; null where it lives in registers only."""
        if tile not in self.memory.offsets:
            return "nullptr, 0"
        return self._place(tile, self._places.get(tile, self.memory.offsets[tile]))

    def _place(self, tile: str, offset: int | str) -> str:
        function = "scratch"
        if isinstance(offset, int) and offset >= SPILLED:
            function, offset = "spilled", offset - SPILLED
        return f"{function}<{self.storage(tile)}>(context, {offset}), {self.memory.strides[tile]}"

    def set_tile(self, name: str, extents: str) -> None:
        """Write that a tile has its own memory and these valid extents."""
        self.out.line(f"{tile_name(name)} = {{{self.buffer(name)}, {extents}}};")

    def pick(self, stmt: Load | Store | Prefetch, window: str) -> str:
        """Write the window of the rows of another one that `stmt.rows` names; return its name."""
        assert stmt.rows is not None
        self.use(reads=[stmt.rows])
        rows, picked = tile_name(stmt.rows), self.name("w")
        count = f"{rows}.{FIELDS[rows_dim(self.types[stmt.rows])]}"
        self.out.line(f"const auto {picked} = pick({window}, {rows}, {count});")
        return picked

    def row_outside(self, stmt: Load | Store | Prefetch, window: str) -> Sequence[str]:
        """Return the first row outside of a window that `stmt.rows` names, and the rows of the window."""
        assert stmt.rows is not None
        rows = tile_name(stmt.rows)
        count = f"{rows}.{FIELDS[rows_dim(self.types[stmt.rows])]}"
        return f"first_outside({rows}, {count}, {window}.rows)", f"{window}.rows"

    def begin_iteration(self, loop: For, counter: str, start: str) -> None:
        """Wait for the loads of this iteration, and begin those of a later one."""
        its = self._ahead.get(id(loop))
        if its is None:
            return
        turn, ahead, later = self.name("turn"), self.name("ahead"), self.name("i")
        last = its.stages - 1
        count = f"uint64_t({counter}.value)"
        if loop.start != Const(0):
            count = f"({count} - uint64_t({start}))"
        self.out.line(f"const int {turn} = int({count} / {loop.step} % {its.stages});")
        self._load_ahead(its, ahead)
        self.out.line(f"if ({counter}.value == {start}) {{")
        with self.out.indented():
            self.out.line("sync();")
            self.out.line(f"Counter first = {counter};")
            self.out.line(f"PTO_ROLLED for (int place = 0; place < {last}; ++place, first.advance()) {{")
            with self.out.indented():
                self.out.line(f"if (first.more()) {ahead}(first.value, place);")
                self.out.line("end_group();")
            self.out.line("}")
        self.out.line("}")
        self.out.line(f"finish_groups<{last - 1}>();")
        self.out.line("sync();")
        self.out.line(f"const Counter {later} = {counter}.later({last});")
        self.out.line(f"if ({later}.more()) {ahead}({later}.value, {turn} == 0 ? {last} : {turn} - 1);")
        self.out.line("end_group();")
        self.barriers.clear()
        self._has_met = True
        self._places |= {load.tile: self._place_of_turn(load.tile, turn) for load in its.loads}

    def _load_ahead(self, its: LoadsAhead, name: str) -> None:
        """Write a function that begins the loads of an iteration; where a check fails, it begins nothing."""
        num_checks = len(self.checks)
        self.out.line(
            f"const auto {name} = [&]([[maybe_unused]] int64_t {scalar_name(its.loop.var)}, int place) {{"
        )
        with self.out.indented():
            self.out.line("[[maybe_unused]] const auto failed = [](auto...) { return 0; };")
            for load in its.loads:
                window = self.load_window(load)
                place = self._place(load.tile, self._place_of_turn(load.tile, "place"))
                self.out.line(
                    f"load({self.tile(load.tile)}{{{place}, {window}.rows, {window}.cols}}, {window});"
                )
            self.out.line("return 0;")
        self.out.line("};")
        del self.checks[num_checks:]

    def _place_of_turn(self, tile: str, turn: str) -> str:
        return f"{self.memory.offsets[tile]} + {turn} * {self.memory.sizes[tile]}"

    def load(self, stmt: Load, window: str) -> None:
        """Write a load, asynchronous to shared memory; one that began ahead is complete."""
        if any(stmt is load for its in self._ahead.values() for load in its.loads):
            self.set_tile(stmt.tile, f"{window}.rows, {window}.cols")
            return
        self.use(reads=[GLOBAL, *([stmt.rows] if stmt.rows else [])], writes=[stmt.tile])
        self.set_tile(stmt.tile, f"{window}.rows, {window}.cols")
        if self.memory.offsets[stmt.tile] >= SPILLED:
            self.out.line(f"load_now({tile_name(stmt.tile)}, {window});")
            return
        self.out.line(f"load({tile_name(stmt.tile)}, {window});")
        self.barriers.has_copies = True

    def store(self, stmt: Store, window: str) -> None:
        """Write a store."""
        self.use(reads=[stmt.tile, *([stmt.rows] if stmt.rows else [])], writes=[GLOBAL])
        self.out.line(f"store({window}, {tile_name(stmt.tile)});")

    def prefetch(self, stmt: Prefetch, window: str) -> None:
        """Write a prefetch to the cache of all multiprocessors."""
        self.out.line(f"prefetch({window});")

    def scalar_operand(self, expr: Expr, instr: Instr) -> str:
        """Write a scalar operand as a value of the tile's type; return its name."""
        text, name = self.scalar(expr, instr), self.name("c")
        self.out.line(
            f"[[maybe_unused]] const auto {name} = operand<{self.storage(scalar_tile(instr))}>({text});"
        )
        return name

    # --- instructions on whole tiles --------------------------------------------------------------------

    def instruction(self, step: Step, instr: Instr) -> None:
        """Write an instruction on whole tiles."""
        match TEMPLATES[instr.op]:
            case CallTemplate() as call:
                self._call(step, instr, call)
            case Whole(method="matmul_quantised"):
                self._matmul_quantised(step, instr)
            case Whole(method="transpose"):
                with self._made(step, instr) as made:
                    self.out.line(f"transpose({made}, {tile_name(instr.tiles[0])});")
            case _:
                self._matmul(step, instr)

    @contextmanager
    def _made(self, step: Step, instr: Instr) -> Iterator[str]:
        """Write the result of an instruction; it is copied where it belongs if that is an operand."""
        extents = self.result_extents(step, instr)
        if id(instr) not in self.memory.results:
            self.use(reads=instr.tiles, writes=[instr.dst])
            # Operands keep their extents: the result may be one of them.
            made = self.name("made")
            self.out.line(f"const {self.tile(instr.dst)} {made}{{{self.buffer(instr.dst)}, {extents}}};")
            yield made
            self.out.line(f"{tile_name(instr.dst)} = {made};")
            return
        offset = self.memory.results[id(instr)]
        where = (offset, offset + self.memory.sizes[instr.dst])
        self.use(reads=instr.tiles, writes=[where])
        made = self.name("made")
        self.out.line(f"const {self.tile(instr.dst)} {made}{{{self._place(instr.dst, offset)}, {extents}}};")
        yield made
        self.use(reads=[where], writes=[instr.dst])
        self.set_tile(instr.dst, f"{made}.rows, {made}.cols")
        self.out.line(f"copy({tile_name(instr.dst)}, {made});")

    def _call(self, step: Step, instr: Instr, call: CallTemplate) -> None:
        attributes = [self._attribute(instr, name) for name in call.arguments]
        scalars = [self.scalar_operand(scalar, instr) for scalar in instr.scalars]
        with self._made(step, instr) as made:
            arguments = [made, *map(tile_name, instr.tiles), *attributes, *scalars]
            self.call(f"{call.function}({', '.join(arguments)})", call.failure, instr, made, attributes)

    def _attribute(self, instr: Instr, name: str) -> str:
        """Return an attribute as an argument; 0 where it is absent."""
        value = instr.attr(name)
        return self.value(value, instr.loc) if isinstance(value, Expr) else str(value or 0)

    def _matmul(self, step: Step, instr: Instr) -> None:
        form = TABLE[instr.op].form
        a, b = factors(form, instr.tiles)
        trans_a, trans_b = bool(instr.attr("trans_a")), bool(instr.attr("trans_b"))
        depth = f"{tile_name(a)}.{FIELDS[not trans_a]}"
        terms = self.types[a].shape[not trans_a]
        left, right = self._matrix(a, "left", trans_a), self._matrix(b, "right", not trans_b)
        if instr.dst in self.own_sums:
            self.use(reads=[a, b])
            sums = self.own_sums[instr.dst]
            self.out.line(f"{sums}.add<{terms}>({left}, {right}, {depth});")
            return
        start = "0.0f" if self.types[instr.dst].dtype.is_float else "int32_t{0}"
        if form is Form.MATMUL_ACC:
            start = f"get({tile_name(instr.tiles[0])}, i, j)"
        elif form is Form.MATMUL_BIAS:
            start = f"get({tile_name(instr.tiles[2])}, 0, j)"
        if uses_tensor_cores(instr, self.types):
            call = f"multiply<{_sums_type(part_shape(self.types[instr.dst]))}, {terms}>"
        else:
            call = "matmul"
            left, right = (
                f"Factor<{self.storage(t)}>({tile_name(t)}, {str(turned).lower()})"
                for t, turned in ((a, trans_a), (b, trans_b))
            )
        with self._made(step, instr) as made:
            lines = "[[maybe_unused]] int64_t i, [[maybe_unused]] int64_t j"
            self.out.line(f"{call}({made}, {left}, {right}, {depth}, [&]({lines}) {{ return {start}; }});")

    def _matrix(self, tile: str, side: str, is_turned: bool) -> str:
        """Return an operand of tensor cores; it is turned if rows of the tile are terms."""
        arguments = f"{self.storage(tile)}, Side::{side}, {str(is_turned).lower()}"
        if self.memory.offsets[tile] >= SPILLED:
            return f"GlobalMatrix<{arguments}>({tile_name(tile)})"
        return f"SharedMatrix<{arguments}, {self.memory.strides[tile]}>({tile_name(tile)})"

    def _begin_sums(self, tiles: Sequence[str]) -> None:
        """Write that the sums of tiles lie in registers."""
        for tile in tiles:
            self.use(reads=[tile])
            sums, of = self.name("sums"), tile_name(tile)
            self.out.line(f"{_sums_type(shape_of(self.types[tile]))} {sums}({of});")
            self.out.line(f"{sums}.start([&](int64_t i, int64_t j) {{ return get({of}, i, j); }});")
            self.own_sums[tile] = sums

    def _end_sums(self, tiles: Sequence[str]) -> None:
        """Write that the sums of tiles lie in memory again."""
        for tile in tiles:
            sums = self.own_sums.pop(tile)
            self.use(writes=[tile])
            self.out.line(f"{sums}.write({tile_name(tile)});")

    def _matmul_quantised(self, step: Step, instr: Instr) -> None:
        acc, x, w = map(tile_name, instr.tiles)
        form = FORMATS[str(instr.attr("format"))]
        level = {"": 0, "u1": 1, "i1": -1}[form.level]
        numbers = (form.bits, form.zero, form.group, form.block, int(form.has_minimum), level)
        most = form.column_bytes
        wrong = f"{w}.cols % {most} != 0 || {acc}.cols > {w}.cols / {most}"
        self.check(wrong, CheckText(PART_OF_BLOCK), instr.loc)
        is_float = self.types[instr.tiles[1]].dtype.is_float
        depth = form.block if is_float else rounded_cols(form.block)
        self.check(f"{x}.cols != {w}.rows * {depth}", CheckText(OTHER_DEPTH), instr.loc)
        with self._made(step, instr) as made:
            arguments = f"{made}, {acc}, {x}, {w}"
            self.out.line(f"matmul_quantised<Format<{', '.join(map(str, numbers))}>>({arguments});")

    # --- groups -----------------------------------------------------------------------------------------

    def group(self, group: Group) -> None:
        """Write the steps of a group: a loop whose values stay in registers, then its reductions."""
        self.out.line("{")
        with self.out.indented():
            GroupLoops(self, group).write()
        self.out.line("}")


class GroupLoops:
    """Writes the loops of one group."""

    def __init__(self, code: CudaKernel, group: Group) -> None:
        self.code = code
        self.group = group
        self.windows: dict[int, str] = {}
        self.scalars: dict[int, list[str]] = {}
        self.values: dict[tuple[str, str], str] = {}
        self.lines: list[str] = []
        self.versions = 0

    def write(self) -> None:
        """Write what the steps need, in order, and then the loops and reductions."""
        for number, step in enumerate(self.group.steps):
            self._prepare(number, step)
        parts = segments(self.group, self.code.changes)
        for index, part in enumerate(parts):
            if part.sums is not None:
                self._change(part, part.sums)
            elif part.elementwise:
                self._loop(part, kept_tiles(self.group, parts, index))
            for _, step in part.folds:
                assert isinstance(step.stmt, Instr)
                self._fold(step.stmt)

    def _prepare(self, number: int, step: Step) -> None:
        code, stmt = self.code, step.stmt
        code.mark(stmt.loc)
        if isinstance(stmt, Assign | Load):
            code.prelude(stmt)
        elif isinstance(stmt, Store):
            self.windows[number] = code.store_window(step, stmt)
        else:
            assert isinstance(stmt, Instr)
            code.agree(step, stmt)
            self.scalars[number] = [code.scalar_operand(scalar, stmt) for scalar in stmt.scalars]
            if id(stmt) not in code.changes:
                code.result(step, stmt)

    def _loop(self, part: Segment, kept: Sequence[str]) -> None:
        code = self.code
        self.values, self.lines = {}, []
        stored: list[str] = []
        read: dict[str, None] = {}
        for number, step in part.elementwise:
            read.update(dict.fromkeys(tile for tile in tiles_read(step.stmt) if not self._is_made(tile)))
            if isinstance(step.stmt, Store):
                stored.append(self.windows[number])
                value = self._operand(step.stmt.tile, ELEMENT)
                self.lines.append(f"put({self.windows[number]}, i, j, {value});")
            else:
                assert isinstance(step.stmt, Instr)
                self._elementwise(number, step.stmt)
        self.lines += [f"put({tile_name(t)}, i, j, {self.values[t, ELEMENT]});" for t in kept]
        if not stored and not kept:
            return
        code.use(reads=read, writes=[*kept, *([GLOBAL] if stored else [])])
        first = part.elementwise[0][1].stmt
        over = tile_name(first.tile if isinstance(first, Store) else first.dst)  # pyright: ignore
        by_column = "".join(f", {' || '.join(f'{w}.has_list()' for w in stored)}" for _ in stored[:1])
        code.out.line(
            f"for (Cells cell({over}.rows, {over}.cols{by_column}); cell.more(); cell.advance()) {{"
        )
        with code.out.indented():
            code.out.line("[[maybe_unused]] const int64_t i = cell.i, j = cell.j;")
            for line in self.lines:
                code.out.line(line)
        code.out.line("}")

    def _change(self, part: Segment, tile: str) -> None:
        """Write steps that change sums in registers."""
        self.values, self.lines = {(tile, ELEMENT): "sum"}, []
        for number, step in part.elementwise:
            assert isinstance(step.stmt, Instr)
            self._elementwise(number, step.stmt)
        self.code.use(reads=[its for _, step in part.elementwise for its in tiles_read(step.stmt)])
        out = self.code.out
        lines = "float sum, [[maybe_unused]] int64_t i, [[maybe_unused]] int64_t j"
        out.line(f"{self.code.own_sums[tile]}.change([&]({lines}) {{")
        with out.indented():
            for line in self.lines:
                out.line(line)
            out.line(f"return {self.values[tile, ELEMENT]};")
        out.line("});")

    def _is_made(self, tile: str) -> bool:
        """Return whether the loop has computed a value of a tile."""
        value = self.values.get((tile, ELEMENT), "")
        return value.startswith("made")

    def _operand(self, tile: str, place: str) -> str:
        """Return the variable that holds an operand, read where it is not in a register yet."""
        if (tile, place) not in self.values:
            where = {ELEMENT: "i, j", ROW: "i, 0"}.get(place, "0, j")
            name = self._name("read", tile)
            self.lines.append(f"[[maybe_unused]] const auto {name} = get({tile_name(tile)}, {where});")
            self.values[tile, place] = name
        return self.values[tile, place]

    def _name(self, stem: str, tile: str) -> str:
        self.versions += 1
        return f"{mangle(stem, tile)}_{self.versions}"

    def _elementwise(self, number: int, instr: Instr) -> None:
        code, template = self.code, TEMPLATES[instr.op]
        assert isinstance(template, Vector)
        places = operand_places(instr, is_column=False)
        operands = [self._operand(t, p) for t, p in zip(instr.tiles, places, strict=True)]
        operands += self.scalars[number]
        names = {"mode": instr.attr("mode"), "rmode": instr.attr("rmode") or "none"}
        to, source = code.storage(instr.dst), code.storage((*instr.tiles, instr.dst)[0])
        text = template.text.format(*operands, **names, to=to, source=source)
        name = self._name("made", instr.dst)
        self.values = {key: value for key, value in self.values.items() if key[0] != instr.dst}
        self.values[instr.dst, ELEMENT] = name
        self.lines.append(f"[[maybe_unused]] const Value<{to}> {name} = rounded<{to}>({text});")

    def _fold(self, instr: Instr) -> None:
        code, template = self.code, TEMPLATES[instr.op]
        assert isinstance(template, Fold)
        code.use(reads=instr.tiles, writes=[instr.dst])
        storage = code.storage(instr.dst)
        function = "fold_rows" if TABLE[instr.op].form is Form.ROW_REDUCE else "fold_columns"
        start = f"Value<{storage}>({_identity(code, template, code.types[instr.dst].dtype)})"
        value = f"Value<{storage}>"
        combine = f"[]({value} a, {value} b) {{ return {template.function}(a, b); }}"
        code.out.line(f"{function}({tile_name(instr.dst)}, {tile_name(instr.tiles[0])}, {start}, {combine});")


def _sums_type(shape: Shape) -> str:
    return f"Sums<{shape.rows}, {shape.cols}, {shape.across}>"


def _identity(code: CudaKernel, fold: Fold, dtype: DType) -> str:
    """Return the value that a reduction starts from."""
    if dtype.is_float:
        return fold.float_identity
    low, high = (code.spelling.literal(limit, i64) for limit in dtype.integer_range)
    return fold.int_identity.format(low=low, high=high)
