"""One kernel as a function of a C-like language."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import PurePath

from pto_wsp.analysis.extents import ExtentTable, upper_bound
from pto_wsp.analysis.steps import Asked, Step, Valid, ValidOf, may_be_beyond, scalar_tile
from pto_wsp.errors import NoneKernelBody, UnsupportedByTarget
from pto_wsp.ir import check_texts
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.kernel import (
    OUT,
    Assert,
    Assign,
    For,
    Instr,
    KernelFunction,
    Load,
    Prefetch,
    Print,
    Store,
    While,
    walk_statements,
)
from pto_wsp.ir.scalar import Const, Expr, can_fail
from pto_wsp.location import Location
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.expressions import ExpressionWriter
from pto_wsp.targets.c_style.plan import Alone, Group, Node, PlannedBranch, PlannedLoop, plan
from pto_wsp.targets.c_style.spelling import (
    FIELDS,
    Spelling,
    function_name,
    scalar_name,
    scalar_type,
    tile_name,
    view_name,
)
from pto_wsp.types.dtype import DType, i64
from pto_wsp.types.tile import TileType

MAX_CHECK_VALUES = 24
"""Numbers that a failed check keeps: `kMaxCheckValues` of include/pto/wsp/abi.hpp."""

MAX_SHORT_ITERATIONS = 64
"""Iterations of a loop that does not ask whether its run shall end."""


class KernelWriter(ABC):
    """Writes one kernel: parameters, control flow, checks, scalar values, windows and valid shapes.

    A target writes what is left: tiles, moves and instructions. The code calls `at_least_zero(n)` and
    `inside(start, extent, size)`, which the headers of a target define.

    Args:
        kernel: with a body, and without calls.
        spelling: of the language.
        out: where lines go.

    Attributes:
        types: of the kernel's tiles.
        nodes: the planned body.
        checks: the run-time checks so far; number n is at index n - 1.

    Raises:
        NoneKernelBody: the kernel is only declared.
        UnsupportedByTarget: a tile holds elements of a type that the spelling has no storage for.
    """

    parameters = "const View* views, const Scalar* scalars, const TaskContext* context"

    def __init__(self, kernel: KernelFunction, spelling: Spelling, out: TextWriter) -> None:
        if kernel.body is None:
            raise NoneKernelBody(name=kernel.name, loc=kernel.loc)
        self.kernel = kernel
        self.spelling = spelling
        self.out = out
        self.types: dict[str, TileType] = dict(kernel.tiles)
        self.nodes = plan(kernel)
        self.checks: list[Check] = []
        self._expressions = ExpressionWriter(spelling, {p.name: p.type.dtype for p in kernel.views})
        self._extents = ExtentTable(kernel)
        self._scalars: dict[str, DType] = {p.name: p.type.dtype for p in kernel.scalar_params if p.type.dtype}
        self._scalars |= {name: kind.dtype for name, kind in kernel.scalars}
        loops = (stmt for stmt in walk_statements(kernel.body) if isinstance(stmt, For))
        self._scalars |= {loop.var: i64 for loop in loops}
        self._iteration: list[str] = []
        self._names = 0
        self._marked = ""
        for name, tile in kernel.tiles:
            self.storage_of(tile.dtype, f"the tile `{name}` of type {tile.dtype}", kernel.loc)

    # --- what a target writes ---------------------------------------------------------------------------

    @abstractmethod
    def tile(self, name: str) -> str:
        """Return the type of a tile's variable, whose members `rows` and `cols` are its valid shape."""

    @abstractmethod
    def set_tile(self, name: str, extents: str) -> None:
        """Write that a tile's valid shape is `extents`, "rows, columns", and that it has its own memory."""

    @abstractmethod
    def load(self, stmt: Load, window: str) -> None:
        """Write a load of a window that is known to fit the tile."""

    @abstractmethod
    def store(self, stmt: Store, window: str) -> None:
        """Write a store to a window of the tile's valid shape."""

    @abstractmethod
    def instruction(self, step: Step, instr: Instr) -> None:
        """Write an instruction whose operands are known to have valid shapes that fit."""

    def pick(self, stmt: Load | Store | Prefetch, window: str) -> str:
        """Write the window of the rows of another one that `stmt.rows` names; return its name.

        Its member `rows` is negative where a row outside is named. By default, such moves are refused.

        Raises:
            UnsupportedByTarget: the target has no such moves.
        """
        raise self.unsupported("moves of rows that a tile names", stmt.loc)

    def prefetch(self, stmt: Prefetch, window: str) -> None:  # noqa: B027
        """Write a prefetch; it never changes a result. Nothing by default."""

    def print(self, stmt: Print) -> None:
        """Write what prints. By default, prints are refused.

        Raises:
            UnsupportedByTarget: the target cannot print.
        """
        raise self.unsupported("`pto.print`", stmt.loc, "remove it, or print on `cpu` or `interp`")

    def group(self, group: Group) -> None:
        """Write steps that may share a loop. By default, each step has a loop of its own."""
        for step in group.steps:
            self.step(step)

    def begin_iteration(self, loop: For, counter: str, start: str) -> None:  # noqa: B027
        """Write what comes first in an iteration of a loop from `start`. Nothing by default."""

    def begin(self) -> None:  # noqa: B027
        """Write what comes after the views are declared. Nothing by default."""

    # --- the function -----------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the function."""
        self.mark(self.kernel.loc)
        parameters = self.parameters.replace("const ", f"{self.spelling.unused}const ")
        self.out.line(f"int32_t {function_name(self.kernel)}({parameters}) {{")
        with self.out.indented():
            self._declarations()
            self.body(self.nodes)
            self.out.line("return 0;")
        self.out.line("}")

    def _declarations(self) -> None:
        spelling = self.spelling
        for i, param in enumerate(self.kernel.views):
            self.out.line(f"{spelling.unused}{spelling.view} {view_name(param.name)} = views[{i}];")
        self.begin()
        for i, param in enumerate(self.kernel.scalar_params):
            assert param.type.dtype is not None
            kind = scalar_type(param.type.dtype)
            value = f"scalars[{i}].{'f32' if kind == 'float' else 'i64'}" + (
                " != 0" if kind == "bool" else ""
            )
            self.out.line(f"{spelling.unused}{kind} {scalar_name(param.name)} = {value};")
        declared = {p.name for p in self.kernel.scalar_params}
        for name, kind in self.kernel.scalars:
            if name not in declared:
                variable = f"{scalar_type(kind.dtype)} {scalar_name(name)}"
                self.out.line(f"{spelling.unused}{variable}{spelling.zero};")
        for name in self.types:
            self.out.line(f"{spelling.unused}{self.tile(name)} {tile_name(name)}{spelling.zero};")

    def body(self, nodes: Sequence[Node]) -> None:
        """Write planned nodes in order."""
        for node in nodes:
            match node:
                case Group():
                    self.group(node)
                case Alone(step=step):
                    self.step(step)
                case PlannedLoop():
                    self._loop(node)
                case PlannedBranch():
                    self._branch(node)

    def _loop(self, node: PlannedLoop) -> None:
        stmt = node.stmt
        self.mark(stmt.loc)
        named = len(self._iteration)
        if isinstance(stmt, While):
            self._iteration += check_texts.variables(stmt.condition)
            self.out.line("for (;;) {")
            with self.out.indented():
                self._stop_point(stmt)
                self.out.line(f"if (!({self.value(stmt.condition, stmt.loc)})) break;")
                self.body(node.body)
        else:
            start, stop = self.value(stmt.start, stmt.loc), self.value(stmt.stop, stmt.loc)
            counter = self.name("i")
            self.out.line(f"for ({self.spelling.counter(counter, start, stop, stmt.step)}) {{")
            with self.out.indented():
                self.out.line(f"{self.spelling.unused}int64_t {scalar_name(stmt.var)} = {counter}.value;")
                self._iteration.append(stmt.var)
                self.begin_iteration(stmt, counter, start)
                self._stop_point(stmt)
                self.body(node.body)
        self.out.line("}")
        del self._iteration[named:]

    def _stop_point(self, stmt: For | While) -> None:
        """Write where a loop ends early when its run shall end. Short loops go on to their end."""
        if self.spelling.stop and not _is_short(stmt):
            self.out.line(self.spelling.stop)

    def _branch(self, node: PlannedBranch) -> None:
        self.mark(node.stmt.loc)
        self.out.line(f"if ({self.value(node.stmt.condition, node.stmt.loc)}) {{")
        with self.out.indented():
            self.body(node.then)
        if node.other:
            self.out.line("} else {")
            with self.out.indented():
                self.body(node.other)
        self.out.line("}")

    def step(self, step: Step) -> None:
        """Write a statement with its checks."""
        stmt = step.stmt
        self.mark(stmt.loc)
        match stmt:
            case Assign() | Load():
                self.prelude(stmt)
            case Prefetch():
                self.prefetch(stmt, self.moved(stmt))
            case Store():
                self.store(stmt, self.store_window(step, stmt))
            case Print():
                self.print(stmt)
            case Assert(condition=condition):
                bad, reads = f"!({self.value(condition, stmt.loc)})", check_texts.variables(condition)
                self.check(bad, CheckText(stmt.message), stmt.loc, reads=reads)
            case Instr():
                self.agree(step, stmt)
                self.instruction(step, stmt)

    def prelude(self, stmt: Assign | Load) -> None:
        """Write what may be done before the loop of a group: a scalar assignment, or a load."""
        if isinstance(stmt, Load):
            self.load(stmt, self.load_window(stmt))
        else:
            self.out.line(f"{scalar_name(stmt.name)} = {self.value(stmt.value, stmt.loc)};")

    # --- what is refused ---------------------------------------------------------------------------------

    def unsupported(self, what: str, loc: Location | None, reason: str = "") -> UnsupportedByTarget:
        """Return the error that the target does not support `what`."""
        return UnsupportedByTarget(target=self.spelling.target, what=what, reason=reason, loc=loc)

    def storage_of(self, dtype: DType, what: str, loc: Location | None) -> str:
        """Return the type of an element in memory.

        Raises:
            UnsupportedByTarget: there is none; the error names `what`.
        """
        if dtype.name not in self.spelling.storage:
            raise self.unsupported(what, loc)
        return self.spelling.storage[dtype.name]

    # --- names, places and checks -----------------------------------------------------------------------

    def name(self, stem: str) -> str:
        """Return a name that no other variable of the function has."""
        self._names += 1
        return f"{stem}{self._names}"

    def mark(self, loc: Location | None) -> None:
        """Name the source line that the code below comes from, without folders."""
        text = f"// {PurePath(loc.file).name}:{loc.line}" if loc else ""
        if text and text != self._marked:
            self.out.line(text)
            self._marked = text

    def check(
        self,
        bad: str,
        text: CheckText,
        loc: Location | None,
        values: Sequence[str] = (),
        reads: Sequence[str] = (),
    ) -> None:
        """Leave the kernel with the number of a new check where `bad` holds.

        Args:
            bad: a condition.
            text: what the check says.
            loc: of the statement.
            values: the numbers that the text mentions, as i64.
            reads: scalars, in addition to those that tell iterations apart, whose values are kept.
        """
        names = [n for n in dict.fromkeys((*self._iteration, *reads)) if n in self._scalars]
        names = names[: MAX_CHECK_VALUES - len(values)]
        self.checks.append(Check(loc, text, len(values), tuple((n, self._scalars[n]) for n in names)))
        kept = [*values, *map(scalar_name, names)]
        self.leave(bad, self.spelling.failed(len(self.checks), kept))

    def leave(self, bad: str, result: str) -> None:
        """Write that the kernel returns `result` where `bad` holds."""
        self.out.line(f"if ({bad}) return {result};")

    # --- scalars ----------------------------------------------------------------------------------------

    def value(self, expr: Expr, loc: Location | None) -> str:
        """Return the value of an expression, checked where it can fail."""
        if not can_fail(expr):
            return self._expressions.text(expr, "")
        name = self.name("e")
        self.out.line(f"bool {name}_failed = false;")
        text = self._expressions.text(expr, f"{name}_failed")
        self.out.line(f"const {scalar_type(expr.dtype)} {name} = {text};")
        self.check(f"{name}_failed", check_texts.no_value(expr), loc, reads=check_texts.variables(expr))
        return name

    def scalar(self, expr: Expr, instr: Instr) -> str:
        """Return a scalar operand, checked to lie in the range of the type of an integer tile."""
        dtype = self.types[scalar_tile(instr)].dtype
        text = self.value(expr, instr.loc)
        if dtype.kind in "iu" and may_be_beyond(expr, dtype):
            low, high = (self.spelling.literal(limit, i64) for limit in dtype.integer_range)
            bad = f"{text} < {low} || {text} > {high}"
            self.check(bad, check_texts.beyond_range(dtype), instr.loc, [text])
        return text

    # --- regions ----------------------------------------------------------------------------------------

    def load_window(self, stmt: Load) -> str:
        """Write the window of a load and the check that the tile can hold it; return its name."""
        window = self.moved(stmt)
        tile = self.types[stmt.tile]
        bounds = self._bounds(stmt.region)
        if stmt.rows is not None:
            bounds[0] = tile.rows
        too_large = [
            f"{window}.{extent} > {capacity}"
            for extent, capacity, bound in zip(FIELDS, tile.shape, bounds, strict=True)
            if bound is None or bound > capacity
        ]
        if too_large:
            message = check_texts.cannot_hold(tile, stmt.region.tensor)
            extents = [f"{window}.{extent}" for extent in FIELDS]
            self.check(" || ".join(too_large), message, stmt.loc, extents)
        return window

    def store_window(self, step: Step, stmt: Store) -> str:
        """Write the window of a store and the check that the tile fits it; return its name."""
        tile = tile_name(stmt.tile)
        window = self.moved(stmt)
        wrong = [f"{tile}.{FIELDS[a.dim]} != {window}.{FIELDS[a.dim]}" for a, _ in step.unequal]
        if wrong:
            extents = [f"{name}.{extent}" for name in (tile, window) for extent in FIELDS]
            text = check_texts.shapes_differ(stmt.region.tensor)
            self.check(" || ".join(wrong), text, stmt.loc, extents)
        return window

    def moved(self, stmt: Load | Store | Prefetch) -> str:
        """Write the window that a load or prefetch reads or a store writes; return its name."""
        window = self._window(stmt.region, stmt.loc)
        if stmt.rows is None:
            return window
        picked = self.pick(stmt, window)
        text, found = check_texts.row_outside(stmt.region.tensor), self.row_outside(stmt, window)
        self.check(f"{picked}.rows < 0", text, stmt.loc, found)
        return picked

    def row_outside(self, stmt: Load | Store | Prefetch, window: str) -> Sequence[str]:
        """Return the first row outside of a window that `stmt.rows` names, and the rows of the window.

        By default nothing: then a failed check does not tell them.
        """
        return ()

    def _bounds(self, region: Region) -> list[int | None]:
        """Return the largest extents that a region can have, where they are known."""
        found: list[int | None] = []
        for dim, entry in enumerate(region.dims):
            limits = [self._extents.bound(region.tensor, dim)]
            if isinstance(entry, Range):
                limits.append(upper_bound(entry.extent))
            if not isinstance(entry, Index):
                found.append(min((n for n in limits if n is not None), default=None))
        return found

    def _window(self, region: Region, loc: Location | None) -> str:
        """Write the window that a region selects, checked to lie inside its view; return its name."""
        view, null = view_name(region.tensor), self.spelling.null
        index, offsets, shape = null, [], []
        for dim, entry in enumerate(region.dims):
            start, extent = self._select(region.tensor, dim, entry, loc)
            row = start
            if extent is not None:
                shape.append(extent)
            if dim == 0 and extent is None:
                row = f"({view}.rows ? {view}.rows[{start}] : {start})"
            elif dim == 0:
                index = f"({view}.rows ? {view}.rows + {start} : {null})" if start else f"{view}.rows"
                row = f"({view}.rows ? 0 : {start})" if start else ""
            if row:
                offsets.append(f"{row} * {view}.stride[{dim}]")
        stride, step = (f"{view}.stride[{dim}]" for dim in region.kept)
        if region.kept[1] == len(region.dims) - 1:
            step = "1"
        param = self.kernel.param(region.tensor)
        dtype = param.type.dtype
        assert dtype is not None
        storage = self.storage_of(dtype, f"tensors of type {dtype}", param.loc)
        first = " + ".join([self.spelling.cast(f"{storage}*", f"{view}.data"), *offsets])
        fields = [first, stride, step, index, *shape]
        if param.role == OUT:
            fields.append(f"{view}.streams")
        name = self.name("w")
        self.out.line(self.spelling.window(name, storage, fields))
        return name

    def _select(self, tensor: str, dim: int, entry: object, loc: Location | None) -> tuple[str, str | None]:
        """Return the start ("" for 0) and extent (None for an index) of one dimension of a region."""
        size = f"{view_name(tensor)}.shape[{dim}]"
        match entry:
            case Full():
                return "", size
            case Index(at=at):
                start, extent = self.value(at, loc), None
            case Range(start=first, extent=count):
                start = self.value(first, loc)
                extent = self.name("n")
                self.out.line(f"const int64_t {extent} = at_least_zero({self.value(count, loc)});")
            case _:
                raise AssertionError("tile ranges occur in workloads only")
        bad = f"!inside({start}, {extent or 1}, {size})"
        text = check_texts.indexed_outside(tensor, dim)
        self.check(bad, text, loc, [start, self.spelling.stop_of(start, extent or "1"), size])
        return start, extent

    def call(self, call: str, failure: str, instr: Instr, result: str, attributes: Sequence[str]) -> None:
        """Write a call of a function of tiles, and the check of what it returns.

        Args:
            call: the call.
            failure: what is wrong where it returns false, or empty if it returns nothing.
            instr: the instruction.
            result: name of the tile that it writes.
            attributes: its arguments that are neither tiles nor scalars.
        """
        if not failure:
            self.out.line(f"{call};")
            return
        text = check_texts.undefined(instr.op, failure)
        tiles = [*map(tile_name, instr.tiles), *([result] if instr.op in check_texts.RESHAPED else [])]
        found = [*(f"{tile}.{extent}" for tile in tiles for extent in FIELDS), *attributes]
        self.check(f"!{call}", text, instr.loc, found if text.found else [])

    # --- valid shapes -----------------------------------------------------------------------------------

    def agree(self, step: Step, instr: Instr) -> None:
        """Write the check that operands have the valid shapes that their instruction asks for."""
        if step.unequal:
            wrong = [f"{self._valid(instr, a)} != {self._valid(instr, b)}" for a, b in step.unequal]
            text = check_texts.operands_differ(instr.op, len(instr.tiles))
            extents = [f"{tile_name(tile)}.{extent}" for tile in instr.tiles for extent in FIELDS]
            self.check(" || ".join(wrong), text, instr.loc, extents)

    def result(self, step: Step, instr: Instr) -> None:
        """Write where the result of an instruction is and what its valid shape is."""
        self.set_tile(instr.dst, self.result_extents(step, instr))

    def result_extents(self, step: Step, instr: Instr) -> str:
        """Return the valid rows and columns of the result of an instruction."""
        assert step.valid is not None
        rows, cols = (self._valid(instr, v) for v in step.valid)
        return f"{rows}, {cols}"

    def _valid(self, instr: Instr, valid: Valid) -> str:
        match valid:
            case ValidOf(name=name, dim=dim):
                return f"{tile_name(name)}.{FIELDS[dim]}"
            case Asked(dim=dim):
                return self._asked(instr, dim)
            case _:
                return self.spelling.literal(valid, i64)

    def _asked(self, instr: Instr, dim: int) -> str:
        """Return the valid extent that a fill or expand instruction is asked to make, checked."""
        asked = instr.attr(FIELDS[dim])
        capacity = self.types[instr.dst].shape[dim]
        if asked is None:
            return self.spelling.literal(capacity, i64)
        assert isinstance(asked, Expr)
        count = self.value(asked, instr.loc)
        text = check_texts.too_many_valid(capacity, FIELDS[dim])
        self.check(f"{count} < 0 || {count} > {capacity}", text, instr.loc, [count])
        return count


def _is_short(loop: For | While) -> bool:
    """Return whether a loop surely has few iterations."""
    if isinstance(loop, While) or not (isinstance(loop.start, Const) and isinstance(loop.stop, Const)):
        return False
    return loop.stop.value - loop.start.value <= MAX_SHORT_ITERATIONS * loop.step
