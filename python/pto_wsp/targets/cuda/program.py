"""The walk of a workload as device code: every block expands the tasks and runs its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from pto_wsp.analysis.accesses.instances import settled_tensors
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.flush_points import reads_element
from pto_wsp.ir.kernel import IN, KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.ir.region_text import expr_text
from pto_wsp.ir.rules import call_left
from pto_wsp.ir.scalar import (
    Element,
    Expr,
    LoopExtent,
    LoopStart,
    Name,
    TileElement,
    Var,
    can_fail,
    name_of,
    substitute,
    walk,
)
from pto_wsp.location import Location
from pto_wsp.prove.waits import Derive
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import record
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.expressions import ExpressionWriter
from pto_wsp.targets.c_style.spelling import function_name, scalar_name, scalar_type
from pto_wsp.targets.cpu.emit import extent_bounds
from pto_wsp.targets.cuda.notes import Notes
from pto_wsp.targets.cuda.order import TaskOrder
from pto_wsp.targets.cuda.spelling import CudaSpelling
from pto_wsp.targets.cuda.waits import device_waits, is_regular
from pto_wsp.types.dtype import DType, b1, u8
from pto_wsp.types.tile import ScalarType


@record
class DeviceWalk:
    """The walk of a workload.

    Attributes:
        text: the function `walk` in the namespace `pto::wsp::cuda`, which calls the kernels.
        sites: the tasks of the text, by the number that a failure names.
        places: what else can fail, by the number that a failure names.
        order: which block runs a task.
        notes_bytes: shared memory of a block for numbers of tasks.
    """

    text: str
    sites: tuple[w.Task, ...]
    places: tuple[tuple[str, Location | None], ...]
    order: TaskOrder
    notes_bytes: int


def emit_walk(module: Module, target: str, derive: Derive) -> DeviceWalk:
    """Return the walk of the entry of a prepared module.

    Raises:
        UnsupportedByTarget: the workload uses what the walk has no code for.
        NotYetSupported: it is a network.
    """
    writer = _WalkWriter(module, target, derive)
    text, sites, places = writer.text(), tuple(writer.sites), tuple(writer.places)
    return DeviceWalk(text, sites, places, writer.order, writer.notes.num_bytes)


class _WalkSpelling(CudaSpelling):
    """Tensors that decide what runs are arrays with a name of their own."""

    def __init__(self, arrays: Mapping[str, str]) -> None:
        self.arrays = arrays

    def element(self, expr: Element | TileElement, kind: str, places: Sequence[str], failed: str) -> str:
        """Return a call of `element` of program.hpp."""
        return f"scalar::element<{kind}>({', '.join([self.arrays[expr.name], failed, *places])})"


class _WalkWriter:
    def __init__(self, module: Module, target: str, derive: Derive) -> None:
        self.module, self.target = module, target
        self.workload = module.entry_workload
        self.written = module.written
        self.changing = self.written - settled_tensors(module)
        self.waits = device_waits(module, derive)
        self.fresh = Fresh()
        self.values: dict[Name, str] = {}
        self.order = TaskOrder(module, target)
        self.scopes: list[str] = []
        self.loops: list[w.Loop] = []
        self.sites: list[w.Task] = []
        self.labels: dict[str, int] = {}
        self.places: list[tuple[str, Location | None]] = []
        self.num_loops = 0
        self.num_names = 0
        self.out = TextWriter()
        self.arrays = {t.name: f"p_{_identifier(t.name)}_{i}" for i, t in enumerate(self.workload.tensors)}
        for param in self.workload.symbols:
            self.values[param.name] = self.fresh.name(_identifier(param.name))
        # The elements of masks are bytes.
        types = {t.name: u8 if t.type.dtype is b1 else t.type.dtype for t in self.workload.tensors}
        self.expressions = ExpressionWriter(_WalkSpelling(self.arrays), types)
        self.flush_tensors = self._flush_tensors()
        nodes = w.walk_nodes(self.workload.body)
        self.has_flushes = any(reads_element(e, self.written) for n in nodes for e in w.node_expressions(n))
        self.notes = Notes(self.waits, [*self._noted()])

    def text(self) -> str:
        with self.out.indented():
            for name in self.workload.variables:
                stem = name if isinstance(name, str) else "slot"
                self.values[name] = self.fresh.name(_identifier(stem))
                self.out.line(f"[[maybe_unused]] int64_t {scalar_name(self.values[name])} = 0;")
            self.nodes(self.workload.body)
        head = TextWriter()
        self.notes.write_type(head)
        head.line("/// The workload: every block numbers all tasks and runs its own.")
        head.line("template <bool kRuns>")
        head.line("PTO_DEVICE_INLINE void walk(Run<kRuns>& run, [[maybe_unused]] Notes& notes) {")
        with head.indented():
            for line in self._declarations():
                head.line(line)
        return f"{head}{self.out}}}\n"

    def _declarations(self) -> list[str]:
        unused = "[[maybe_unused]]"
        lines = [
            f"{unused} const Array& {name} = run.array({i});" for i, name in enumerate(self.arrays.values())
        ]
        for i, param in enumerate(self.workload.symbols):
            dtype = param.type.dtype if isinstance(param, w.ScalarParam) else None
            kind = "int64_t" if dtype is None else scalar_type(dtype)
            value = f"run.symbol({i}).{'f32' if kind == 'float' else 'i64'}"
            value += " != 0" if kind == "bool" else ""
            lines.append(f"{unused} const {kind} {scalar_name(self.values[param.name])} = {value};")
        return lines

    def _flush_tensors(self) -> frozenset[str]:
        """Return the tensors whose elements decide what runs, and may be written after blocks read them."""
        return frozenset(w.deciding_tensors(self.workload.body)) & self.changing

    # --- structure ---

    def nodes(self, body: Sequence[w.Node]) -> None:
        for node in body:
            match node:
                case w.Loop():
                    self.loop(node)
                case w.Task():
                    self.task(node)
                case w.Cond():
                    self.condition(node)
                case w.Set(name=name, value=value):
                    text = self.value(value, f"{name} = {expr_text(value)}", node.loc)
                    self.out.line(f"{scalar_name(self.values[name])} = {text};")
                case w.Refuse():
                    self.place(node.assumption or "a size that no tier takes", node.loc)
                    self.out.line(f"run.fail({len(self.places) - 1});")
                    self.out.line("return;")
                case w.WorkloadCall(workload=name, loc=loc):
                    raise call_left(name, loc)
                case w.Process() | w.Send() | w.Receive() | w.Delay():
                    raise self.refused("a network of processes", "its walk has one program order", node.loc)

    def loop(self, loop: w.Loop) -> None:
        number, self.num_loops = self.num_loops, self.num_loops + 1
        own = self.fresh.name(_identifier(loop.var))
        var = scalar_name(own)
        extent = self.value(loop.extent, f"for {loop.called} in {expr_text(loop.extent)}", loop.loc)
        self.values[loop.var] = own
        self.out.line("{")
        self.out.deeper()
        self.mark(f"for {loop.called} in {expr_text(loop.extent)}", loop.loc)
        self.out.line(f"const int64_t extent_{number} = {extent};")
        self.out.line(f"if (extent_{number} < 0) {{")
        self.fails(f"the extent of {loop.called} is negative", loop.loc)
        self.notes.write(self.out, f"begin_{number}")
        tile = loop.tile or 1
        trips = f"extent_{number}" if loop.tile is None else f"(extent_{number} + {tile - 1}) / {tile}"
        self.out.line(f"const int64_t trips_{number} = {trips};")
        is_seq, is_skipped = loop.kind == w.SEQUENTIAL, self._may_be_skipped(loop)
        if is_skipped or f"per_{number}" in self.notes:
            self._tasks_per_iteration(loop, number)
        if is_seq:
            self.notes.add(f"floor_{number}")
            self.notes.write(self.out, f"floor_{number}", "notes.floor.end")
        self.out.line(f"for (int64_t {var} = 0; {var} < trips_{number}; ++{var}) {{")
        self.out.deeper()
        if is_skipped:
            skip = f"run.template skip<{str(self.order.is_claimed).lower()}>"
            self.out.line(f"{var} += {skip}(per_{number}, trips_{number} - {var});")
        self.notes.write(self.out, f"before_{number}", f"notes.here_{number}")
        self.notes.write(self.out, f"here_{number}")
        if is_seq:
            self.out.line("run.note(notes.floor.end);")
        if loop.tile is not None:
            self._tile(loop, number, tile)
        self.scopes.append(var)
        self.loops.append(loop)
        self.nodes(loop.body)
        self.scopes.pop()
        self.loops.pop()
        self._dedent("}")
        if is_seq:
            self.out.line(f"run.note(notes.floor.end, notes.floor_{number});")
        self.notes.write(self.out, f"end_{number}")
        self._dedent("}")

    def _tasks_per_iteration(self, loop: w.Loop, number: int) -> None:
        """Write how many tasks each iteration of a regular loop makes; 0 if an inner loop fails."""
        name = f"per_{number}"
        extents = [node.extent for node in w.walk_nodes(loop.body) if isinstance(node, w.Loop)]
        failed = f"{name}_failed" if any(map(can_fail, extents)) else ""
        if failed:
            self.out.line(f"bool {failed} = false;")
        self.out.line(f"{'' if failed else 'const '}uint64_t {name} = {self._num_tasks(loop.body, failed)};")
        if failed:
            self.out.line(f"if ({failed}) {name} = 0;")
        self.notes.write(self.out, name, name)

    def _num_tasks(self, body: Sequence[w.Node], failed: str) -> str:
        terms = [f"uint64_t{{{sum(isinstance(node, w.Task) for node in body)}}}"]
        for node in body:
            if isinstance(node, w.Loop):
                trips = f"num_iterations({self._text(node.extent, failed)}, {node.tile or 1})"
                terms.append(f"{trips} * ({self._num_tasks(node.body, failed)})")
        return " + ".join(terms)

    def _may_be_skipped(self, loop: w.Loop) -> bool:
        """Return whether a block may pass over iterations without tasks of its own, at no flush point."""
        if not self.order.is_by_number or not is_regular(loop, self.module):
            return False
        nodes = w.walk_nodes(loop.body)
        return not any(reads_element(e, self.changing) for node in nodes for e in w.node_expressions(node))

    def _tile(self, loop: w.Loop, number: int, tile: int) -> None:
        """Write the current range of a loop over tiles."""
        start, length = (self.fresh.name(f"{_identifier(loop.var)}_{part}") for part in ("start", "length"))
        self.values |= {loop.start: start, loop.length: length}
        first = f"{scalar_name(self.values[loop.var])} * {tile}"
        self.out.line(f"[[maybe_unused]] const int64_t {scalar_name(start)} = {first};")
        rest = f"extent_{number} - {scalar_name(start)}"
        self.out.line(
            f"[[maybe_unused]] const int64_t {scalar_name(length)} = min({rest}, int64_t{{{tile}}});"
        )

    def condition(self, node: w.Cond) -> None:
        condition = self.value(node.condition, f"if {expr_text(node.condition)}", node.loc)
        self.out.line(f"if ({condition}) {{")
        self.out.deeper()
        self.nodes(node.then)
        if node.other:
            self._dedent("} else {")
            self.out.deeper()
            self.nodes(node.other)
        self._dedent("}")

    def _dedent(self, text: str) -> None:
        self.out.shallower()
        self.out.line(text)

    # --- expressions ---

    def value(self, expr: Expr, what: str, loc: Location | None) -> str:
        """Return the value of an expression; where it reads what tasks write, at a flush point."""
        is_flush = reads_element(expr, self.written)
        if not is_flush and not can_fail(expr):
            return self._text(expr, "")
        self.mark(what, loc)
        number = self.place(what, loc)
        if is_flush:
            self.out.line("if constexpr (!kRuns) return;")
            tensors = {part.name for part in walk(expr) if isinstance(part, Element)}
            until = self._written_until(tensors)
            self.out.line(f"if (thread() == 0) notes.until = {{0, {until}}};")
            self.out.line(f"if (!run.wait_for_flush({number})) return;")
        name = self._name("value")
        self.out.line(f"bool {name}_failed = false;")
        text = self._text(expr, f"{name}_failed")
        self.out.line(f"const {scalar_type(expr.dtype)} {name} = {text};")
        if reads_element(expr, self.changing):
            self.out.line("run.flush();")
        self.out.line(f"if ({name}_failed) {{")
        self.fails("", loc, number)
        return name

    def _text(self, expr: Expr, failed: str) -> str:
        def renamed(part: Expr) -> Expr | None:
            name = name_of(part)
            known = None if name is None else self.values.get(name)
            return None if known is None or known == name else Var(known, part.dtype, part.loc)

        return self.expressions.text(substitute(expr, renamed), failed)

    def _name(self, stem: str) -> str:
        self.num_names += 1
        return f"{stem}_{self.num_names}"

    def place(self, what: str, loc: Location | None) -> int:
        self.places.append((what, loc))
        return len(self.places) - 1

    def fails(self, what: str, loc: Location | None, number: int = -1) -> None:
        """Write the rest of a block that is entered where the walk cannot go on."""
        number = self.place(what, loc) if number < 0 else number
        with self.out.indented():
            self.out.line(f"run.fail({number});")
            self.out.line("return;")
        self.out.line("}")

    def mark(self, what: str, loc: Location | None) -> None:
        where = f"  ({ascii(PurePath(loc.file).name)[1:-1]}:{loc.line})" if loc is not None else ""
        self.out.line(f"// {ascii(what)[1:-1]}{where}")

    def refused(self, what: str, reason: str, loc: Location | None) -> UnsupportedByTarget:
        return UnsupportedByTarget(target=self.target, what=what, reason=reason, loc=loc)

    # --- waits ---

    def _written_until(self, tensors: set[str]) -> str:
        """Return a number that all earlier tasks which write one of `tensors` are below."""
        found = "uint64_t{0}"
        for number, task in enumerate(w.tasks(self.workload.body)):
            if tensors & self._written_by(task):
                found = f"max({found}, notes.after_{number})"
        return found

    def _written_by(self, task: w.Task) -> set[str]:
        pairs = zip(self.module.kernel(task.kernel).params, task.args, strict=True)
        return {arg.tensor for param, arg in pairs if isinstance(arg, Region) and param.role != "in"}

    def _noted(self) -> Iterator[str]:
        """Yield the names of the numbers of tasks that flush points and tasks with `after` wait for."""
        deciding = w.deciding_tensors(self.workload.body)
        labels = {label for task in w.tasks(self.workload.body) for label in task.after}
        for number, task in enumerate(w.tasks(self.workload.body)):
            if task.label in labels or self._written_by(task) & deciding:
                yield f"after_{number}"

    # --- tasks ---

    def task(self, task: w.Task) -> None:
        kernel, site = self.module.kernel(task.kernel), len(self.sites)
        if task.workspace is not None:
            raise self.refused("a workspace", "blocks have shared memory alone", task.loc)
        self.sites.append(task)
        if task.label:
            self.labels[task.label] = site
        late = [arg for arg in task.args if not isinstance(arg, Region) and reads_element(arg, self.written)]
        late += [e for arg in task.args if isinstance(arg, Region) for e in arg.expressions]
        flushed = {
            e: self.value(e, f"an argument of {kernel.name}", task.loc)
            for e in dict.fromkeys(late)
            if reads_element(e, self.written)
        }
        self.mark(f"{kernel.name}[{', '.join(map(expr_text, task.keys))}]", task.loc)
        self.out.line(f"if ({self._taken(task, site)}) {{")
        with self.out.indented():
            self._arguments(kernel, task, site, flushed)
            self._run(kernel, task, site)
        self.out.line("}")
        self.notes.write(self.out, f"after_{site}")

    def _taken(self, task: w.Task, site: int) -> str:
        """Return the call that numbers a task, and tells whether the block runs it."""
        function, owner = self.order.taken(task, self.loops)
        if owner is None:
            return function
        if reads_element(owner, self.written):
            reason = "tasks write what its key reads: use a key of loops and sizes"
            raise self.refused("the place of a task", reason, owner.loc or task.loc)
        key = self.value(owner, f"the key {expr_text(owner)}", owner.loc or task.loc)
        most = self.order.num_keys
        if most > 0:
            self.out.line(f"if ({key} < 0 || {key} >= {most}) {{")
            self.out.line(f"  run.refuse_key({site}, {key});")
            self.out.line("  return;")
            self.out.line("}")
        return f"{function}({key})"

    def _run(self, kernel: KernelFunction, task: w.Task, site: int) -> None:
        self.out.line("if constexpr (kRuns) {")
        with self.out.indented():
            labels = [self.labels[label] for label in task.after]
            self.notes.write_wait(self.out, site, self.waits[site], labels, self.scopes)
            if self._written_by(task) & self.flush_tensors:
                self.out.line(f"if (!run.wait_for_readers({site})) return;")
            self._row_lists(task, site, is_late=True)
            dim = kernel.block_dim
            self.out.line(f"for (uint32_t instance = 0; instance < {dim}; ++instance) {{")
            call = f"{function_name(kernel)}(views, scalars, run.context(instance, {dim}))"
            if self.order.is_benchmark:
                call = "0"
            self.out.line(f"  if (!run.returned({site}, {call})) return;")
            self.out.line("}")
            self.out.line("run.complete();")
        self.out.line("} else {")
        with self.out.indented():
            self._row_lists(task, site, is_late=False)
        self.out.line("}")

    def _row_lists(self, task: w.Task, site: int, *, is_late: bool) -> None:
        """Write the checks of lists of rows: before all tasks run, or before the task does.

        The latter is for lists that tasks write, and for tasks after a flush point, where the first one ends.
        """
        number = 0
        for param, arg in zip(self.module.kernel(task.kernel).params, task.args, strict=True):
            if not isinstance(arg, Region):
                continue
            rows = next((dim for dim in arg.dims if isinstance(dim, Rows)), None)
            is_written = rows is not None and rows.indices in self.written
            if rows is not None and (is_written or self.has_flushes if is_late else not is_written):
                indices = self.workload.tensor(rows.indices)
                differ = param.role != IN and not (indices.is_distinct and indices.is_local)
                names = f"run.template names_rows<{str(differ).lower()}>"
                self.out.line(f"if (!{names}(part_{number})) {{")
                self.out.line(f"  run.refuse({site}, {number});")
                self.out.line("  return;")
                self.out.line("}")
            number += 1

    def _arguments(self, kernel: KernelFunction, task: w.Task, site: int, flushed: dict[Expr, str]) -> None:
        self.out.line(f"[[maybe_unused]] View views[{max(1, len(kernel.views))}];")
        self.out.line(f"[[maybe_unused]] Scalar scalars[{max(1, len(kernel.scalar_params))}];")
        self.out.line("[[maybe_unused]] bool failed = false;")
        views = scalars = 0
        for param, arg in zip(kernel.params, task.args, strict=True):
            if isinstance(arg, Region):
                self._view(param, arg, views, flushed)
                views += 1
            else:
                assert isinstance(param.type, ScalarType)
                self._scalar(param.type.dtype, arg, scalars, flushed)
                scalars += 1
        self.out.line("if (failed) {")
        self.out.line(f"  run.refuse({site}, -1);")
        self.out.line("  return;")
        self.out.line("}")

    def _scalar(self, dtype: DType, arg: Expr, number: int, flushed: dict[Expr, str]) -> None:
        text = flushed.get(arg) or self._text(arg, "failed")
        member = "f32" if dtype.is_float else "i64"
        self.out.line(f"scalars[{number}].i64 = 0;")
        self.out.line(f"scalars[{number}].{member} = {text};")

    def _view(self, param: Param, region: Region, number: int, flushed: dict[Expr, str]) -> None:
        part, dtype = f"part_{number}", param.type.dtype
        assert dtype is not None
        self.out.line(f"Part {part}({self.arrays[region.tensor]});")
        for dim, entry in enumerate(region.dims):
            match entry:
                case Full():
                    self.out.line(f"{part}.full();")
                case Index(at=at):
                    self.out.line(f"{part}.index({self._at(at, flushed)});")
                case Range(start=start, extent=extent):
                    self.out.line(f"{part}.range({self._at(start, flushed)}, {self._at(extent, flushed)});")
                case TileRange(loop=loop):
                    names: tuple[Name, Name] = (LoopStart(loop), LoopExtent(loop))
                    start_and_extent = ", ".join(scalar_name(self.values[name]) for name in names)
                    self.out.line(f"{part}.range({start_and_extent});")
                case Rows(indices=indices, start=start, extent=extent):
                    merged = sum(isinstance(other, Merged) for other in region.dims[dim:])
                    where = f"{self._at(start, flushed)}, {self._at(extent, flushed)}"
                    self.out.line(f"{part}.rows({self.arrays[indices]}, {where}, {merged});")
                case Merged():
                    pass  # indexed by the list
        for dim, (least, most) in enumerate(extent_bounds(param)):
            if most is not None:
                self.out.line(f"{part}.fits({dim}, {least}, {most});")
        self.out.line(f"views[{number}] = {part}.view({dtype.itemsize});")
        self.out.line(f"failed |= {part}.failed();")

    def _at(self, expr: Expr, flushed: dict[Expr, str]) -> str:
        """Return an index of a region; `failed` becomes true where it has no value."""
        return flushed.get(expr) or self._text(expr, "failed")


def _identifier(name: str) -> str:
    """Return a name of letters, digits and underscores for one that may have others."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
