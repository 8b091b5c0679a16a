"""What kernels of vector cores and of cube cores have in common: flags, fences and variables of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pto_wsp.analysis.loop_loads import is_straight, most_turns
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import RESHAPED, CheckText, undefined
from pto_wsp.ir.core import DimSelect, Index, Range, Region
from pto_wsp.ir.kernel import (
    For,
    Instr,
    KernelFunction,
    Load,
    Param,
    Prefetch,
    Store,
    While,
    statement_expressions,
    walk_statements,
)
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Var, walk
from pto_wsp.isa.meaning import ELEMENT_OUTSIDE, PART_OUTSIDE
from pto_wsp.location import Location
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.hazards import (
    OVERLAP_EVENT,
    SCALAR,
    Flag,
    FlagPlanner,
    PipeStep,
    Sync,
    Touched,
    overlap_pairs,
)
from pto_wsp.targets.ascend.loop_flags import LoopFlags, loop_flags
from pto_wsp.targets.ascend.spelling import AscendSpelling
from pto_wsp.targets.c_style.kernel import KernelWriter
from pto_wsp.targets.c_style.plan import Node, PlannedBranch, PlannedLoop, is_row_major, walk_nodes
from pto_wsp.targets.c_style.spelling import FIELDS, tile_name, view_name
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import ViewType


class AscendWriter(KernelWriter):
    """What code of cores and code that calls it on other cores have in common.

    Args:
        kernel: with a body.
        generation: what it is written for.
    """

    parameters = "const View* views, const Scalar* scalars, const TaskContext* context"

    def __init__(self, kernel: KernelFunction, generation: Generation) -> None:
        super().__init__(kernel, AscendSpelling(generation), TextWriter())
        self.generation = generation
        self._check_elements()

    def tile(self, name: str) -> str:
        """Return the type of the valid shape of a tile."""
        return "Extents"

    def set_tile(self, name: str, extents: str) -> None:
        """Write that a tile has these valid extents."""
        self.out.line(f"{tile_name(name)} = {{{extents}}};")

    def prefetch(self, stmt: Prefetch, window: str) -> None:
        """Write that a window is not used: a prefetch never changes a result."""
        self.out.line(f"(void){window};")

    def _check_elements(self) -> None:
        """Refuse reads of elements of a tensor that the kernel stores to, because no flag orders them."""
        stmts = tuple(walk_statements(self.kernel.body or ()))
        stored = {stmt.region.tensor for stmt in stmts if isinstance(stmt, Store)}
        for stmt in stmts:
            for expr in statement_expressions(stmt):
                for part in walk(expr):
                    if isinstance(part, Element) and part.name in stored:
                        what = f"the element of `{part.name}`, which the kernel also stores to"
                        raise self.refused(what, "read it in another kernel", part.loc or stmt.loc)

    def refused(self, what: str, reason: str, loc: Location | None) -> UnsupportedByTarget:
        """Return the error that the target does not support `what`, with a hint."""
        return UnsupportedByTarget(target=self.generation.name, what=what, reason=reason, loc=loc)

    def require_rows(self, stmt: Load | Store) -> None:
        """Refuse a move whose columns are not contiguous in global memory."""
        if not is_row_major(stmt.region):
            verb = "load" if isinstance(stmt, Load) else "store"
            what = f"a {verb} of `{stmt.tile}` whose columns are not contiguous in `{stmt.region.tensor}`"
            raise self.refused(what, "make the last dimension of the region its columns", stmt.loc)

    def require_column(self, stmt: Load | Store, window: str) -> None:
        """Write the check that a tile of one column is contiguous in global memory."""
        if self.types[stmt.tile].cols == 1:
            text = CheckText(f"a column of `{stmt.region.tensor}` is not contiguous in memory", "stride {0}")
            bad = f"{window}.rows > 1 && ({window}.stride != 1 || {window}.index || {window}.period)"
            self.check(bad, text, stmt.loc, [f"{window}.stride"])

    def require_no_list(self, stmt: Store, window: str) -> None:
        """Write the check that the rows of a store follow one another in global memory."""
        text = CheckText(
            f"rows of `{stmt.region.tensor}` are listed, and `{stmt.tile}` takes all of L0C: use less"
        )
        self.check(f"{window}.index", text, stmt.loc)

    # --- parts of tiles ---------------------------------------------------------------------------------

    def attribute(self, instr: Instr, name: str) -> str:
        """Return an attribute as an argument; 0 where it is absent."""
        value = instr.attr(name)
        if isinstance(value, Expr):
            return self.value(value, instr.loc)
        assert value is None or isinstance(value, int)
        return self.spelling.literal(value or 0, i64)

    def place_of(self, instr: Instr) -> tuple[str, str]:
        """Return the row and the column where a part begins."""
        return self.attribute(instr, "row"), self.attribute(instr, "col")

    def require_part(self, instr: Instr, row: str, col: str) -> None:
        """Write the check that a part, or an element, is inside of its tile."""
        tiles = [tile_name(t) for t in (*instr.tiles, *([instr.dst] if instr.op in RESHAPED else []))]
        rows, cols = (f"{tiles[1]}.{extent}" if len(tiles) > 1 else "1" for extent in FIELDS)
        bad = f"!inside({row}, {rows}, {tiles[0]}.rows) || !inside({col}, {cols}, {tiles[0]}.cols)"
        text = undefined(instr.op, PART_OUTSIDE if len(tiles) > 1 else ELEMENT_OUTSIDE)
        extents = [f"{tile}.{extent}" for tile in tiles for extent in FIELDS]
        self.check(bad, text, instr.loc, [*extents, row, col])

    # --- sums of products -------------------------------------------------------------------------------

    def no_terms(self, name: str) -> None:
        """Write that a sum of products has no terms."""
        self.out.line(f"{sum_name(name)} = true;")

    def require_terms(self, name: str, loc: Location | None) -> None:
        """Write the check that a sum of products has a term: cube cores do not make zeros."""
        text = CheckText(f"no product was added to `{name}`: cube cores need at least one term")
        self.check(f"{tile_name(name)}.has_elements() && {sum_name(name)}", text, loc)


def sum_name(name: str) -> str:
    """Return the variable that says whether a sum of products has no terms."""
    return f"z_{tile_name(name)}"


def overlap_name(pair: tuple[str, str]) -> str:
    """Return the variable that says whether the tensors of two parameters overlap."""
    return "same_" + "_".join(map(view_name, pair))


def either(odd: str, address: int, shift: int) -> str:
    """Return the text of an address that every second iteration of a loop shifts."""
    return f"({odd} ? {address + shift:#x} : {address:#x})"


def apart_dims(region: Region, loop: For | While) -> frozenset[int]:
    """Return the dimensions in which iterations of a loop touch different indices of a tensor."""
    if not isinstance(loop, For):
        return frozenset()
    return frozenset(number for number, dim in enumerate(region.dims) if _is_apart(dim, loop))


def fixed_dims(region: Region) -> tuple[tuple[int, int, int], ...]:
    """Return the dimensions of a region whose indices [start, stop) are known."""
    found: list[tuple[int, int, int]] = []
    for number, dim in enumerate(region.dims):
        if isinstance(dim, Index | Range):
            start = dim.at if isinstance(dim, Index) else dim.start
            extent = Const(1) if isinstance(dim, Index) else dim.extent
            if isinstance(start, Const) and isinstance(extent, Const):
                found.append((number, int(start.value), int(start.value + extent.value)))
    return tuple(found)


def _is_apart(dim: DimSelect, loop: For) -> bool:
    """Return whether iterations of a loop select different indices of a dimension."""
    if not isinstance(dim, Index | Range):
        return False
    start = dim.at if isinstance(dim, Index) else dim.start
    if not isinstance(start, Var) or start.name != loop.var:
        return False
    if isinstance(dim, Index):
        return True
    extent = dim.extent
    is_min = isinstance(extent, Binary) and extent.op == "min"
    bounds = (extent.a, extent.b) if is_min else (extent,)  # pyright: ignore[reportAttributeAccessIssue]
    return any(isinstance(bound, Const) and bound.value <= loop.step for bound in bounds)


@dataclass(slots=True)
class StraightLoop:
    """A loop without loops and choices inside of it.

    Attributes:
        stmt: the loop.
        odd: the variable that says whether an iteration is the second of two.
        steps: its instructions.
        shifted: variables of tiles with two places: the first one, and how far after it the second one is.
        carried: flags that an iteration sets for a later one.
        has_fence: whether all pipes complete before an iteration, because its events are not enough.
    """

    stmt: For | While
    odd: str
    steps: list[PipeStep] = field(default_factory=list)
    shifted: dict[str, tuple[int, int]] = field(default_factory=dict)
    carried: tuple[Flag, ...] = ()
    has_fence: bool = False


C = TypeVar("C", bound="CoreCode")


def write_code(kind: type[C], kernel: KernelFunction, generation: Generation) -> C:
    """Return a kernel that was written twice: the second time, its flags are known.

    Raises:
        TilesTooLarge: its tiles do not fit.
        UnsupportedByTarget: it holds what the generation refuses.
    """
    draft = kind(kernel, generation)
    draft.write()
    code = kind(kernel, generation, draft)
    code.write()
    return code


class CoreCode(AscendWriter):
    """The calls of one kernel of a core while they are written.

    Args:
        kernel: with a body.
        generation: what it is written for.
        draft: the kernel as it was written before, which knows the flags and the variables; or None.
    """

    def __init__(self, kernel: KernelFunction, generation: Generation, draft: CoreCode | None = None) -> None:
        super().__init__(kernel, generation)
        self.syncs: list[Sync] = []
        self.loops: list[StraightLoop] = []
        self.variables: dict[str, str] = {}
        self._draft = draft
        self._planner = FlagPlanner(generation.orders_vectors)
        self._open: StraightLoop | None = None
        self._number = 0
        self._outstanding: list[tuple[Flag, int]] = []
        self._bodies = {
            id(node.body): node for node in walk_nodes(self.nodes) if isinstance(node, PlannedLoop)
        }

    # --- the function -----------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the function."""
        self.out.line("AICORE inline")
        super().write()

    def begin(self) -> None:
        """Write which tensors overlap, and the variables of tiles with their addresses."""
        views = {param.name: param for param in self.kernel.views}
        for pair in overlap_pairs(self._draft.syncs) if self._draft else ():
            spans = ", ".join(self._span(views[name]) for name in pair)
            self.out.line(f"const bool {overlap_name(pair)} = overlap({spans});")
        for line in self._draft.variables.values() if self._draft else ():
            self.out.line(line)

    def _span(self, param: Param) -> str:
        dims = param.type.dims if isinstance(param.type, ViewType) else (0, 0)
        assert dims is not None and param.type.dtype is not None
        return f"span_of({view_name(param.name)}, {len(dims)}, {param.type.dtype.itemsize})"

    def body(self, nodes: Sequence[Node]) -> None:
        """Write planned nodes; all pipes end together around loops and choices."""
        loop = self._bodies.get(id(nodes))
        if self._open is not None:
            self.iteration_of(self._open, nodes)
            return
        if loop is not None:
            self.fence()
        for node in nodes:
            is_control = isinstance(node, PlannedLoop | PlannedBranch)
            if is_control:
                self._end_piece()
            if isinstance(node, PlannedLoop) and is_straight(node.stmt.body):
                self._straight_loop(node)
            else:
                super().body([node])
                if is_control:
                    self.fence()
        if nodes is self.nodes:
            self._end_piece()

    def _end_piece(self) -> None:
        """Write a barrier of all pipes if instructions came after the last one."""
        if not self._planner.is_clean:
            self.fence()

    def fence(self) -> None:
        """Write a barrier of all pipes."""
        self._planner.fence()
        self.out.line("pipe_barrier(PIPE_ALL);")

    def leave(self, bad: str, result: str) -> None:
        """Write that the kernel ends where `bad` holds: flags that are set are waited for."""
        waits = "".join(f"{self._flag(flag, 'wait', age)} " for flag, age in self._outstanding)
        self.out.line(f"if ({bad}) {{ {waits}pipe_barrier(PIPE_ALL); return {result}; }}")

    # --- loops whose iterations overlap -----------------------------------------------------------------

    def _straight_loop(self, node: PlannedLoop) -> None:
        """Write a loop; flags order its iterations."""
        loop = StraightLoop(node.stmt, self.name("odd"))
        if self._draft:
            known = self._draft.loops[len(self.loops)]
            loop.shifted, loop.carried, loop.has_fence = known.shifted, known.carried, known.has_fence
        self.loops.append(loop)
        if loop.shifted:
            self.out.line(f"bool {loop.odd} = false;")
        self._outstanding = [(flag, age) for flag in loop.carried for age in range(1, flag.distance + 1)]
        for flag, age in self._outstanding:
            self.out.line(flag.first(age).text("set"))
        self._open, first = loop, self._number
        super().body([node])
        self._open = None
        for flag, age in self._outstanding:
            last = flag.first(age) if flag.distance == flag.copies else flag
            self.out.line(last.text("wait", loop.odd, age))
        self._outstanding = []
        self.fence()
        self._plan(loop, first)

    def iteration_of(self, loop: StraightLoop, nodes: Sequence[Node]) -> None:
        """Write the body of a straight loop."""
        carried = list(self._outstanding)
        if loop.has_fence:
            self.out.line("pipe_barrier(PIPE_ALL);")
        for variable, (address, shift) in list(loop.shifted.items()):
            self.out.line(f"TASSIGN({variable}, {either(loop.odd, address, shift)});")
        super().body(nodes)
        if loop.shifted:
            self.out.line(f"{loop.odd} = !{loop.odd};")
        self._outstanding = carried

    def _plan(self, loop: StraightLoop, first: int) -> None:
        """Decide the flags of a loop, after its instructions are known."""
        if self._draft is not None:
            return
        flags = loop_flags(loop.steps, self.generation.orders_vectors, most_turns(loop.stmt, self.kernel))
        if flags is None:
            loop.has_fence = True
            planner = FlagPlanner(self.generation.orders_vectors)
            for step in loop.steps:
                planner.add(step)
            flags = LoopFlags(tuple(planner.syncs), ())
        loop.carried = flags.carried
        self.syncs[first:] = flags.syncs

    def _flag(self, flag: Flag, verb: str, age: int) -> str:
        return flag.text(verb, self._open.odd if self._open else "", age)

    # --- instructions on pipes --------------------------------------------------------------------------

    def issue(
        self,
        pipe: str,
        call: str,
        guard: str,
        reads: tuple[Touched, ...],
        writes: tuple[Touched, ...],
        picks: tuple[Touched, ...] = (),
    ) -> None:
        """Write a call with the flags around it.

        Args:
            pipe: of the instruction.
            call: the call.
            guard: the call is left out where it does not hold; empty if it always holds.
            reads: what the instruction reads.
            writes: what it writes.
            picks: what the scalar unit reads to issue it.
        """
        steps = [PipeStep(SCALAR, picks, ())] if picks else []
        steps.append(PipeStep(pipe, reads, writes))
        syncs = [self._sync(step) for step in steps]
        for step, sync in zip(steps, syncs, strict=True):
            self._write_before(step, sync)
        self.out.line(f"if ({guard}) {call};" if guard else f"{call};")
        for sync in syncs:
            for flag in sync.sets:
                self.out.line(self._flag(flag, "set", 0))
                self._outstanding.append((flag, 0))

    def _write_before(self, step: PipeStep, sync: Sync) -> None:
        """Write what comes before an instruction."""
        for source, pairs in sync.overlaps.items():
            self.out.line(self._overlap(source, step.pipe, pairs))
        for flag in sync.waits:
            self.out.line(self._flag(flag, "wait", flag.distance))
            self._outstanding.remove((flag, flag.distance))
        for barrier in sync.barriers:
            self.out.line(f"pipe_barrier({barrier});")

    def _sync(self, step: PipeStep) -> Sync:
        """Return what orders the next instruction; nothing while it is not known."""
        self._number += 1
        if self._draft is not None:
            if self._open is None:
                self._planner.add(step)
            return self._draft.syncs[self._number - 1]
        if self._open is not None:
            self._open.steps.append(step)
            self.syncs.append(Sync())
        else:
            self._planner.add(step)
            self.syncs.append(self._planner.syncs[-1])
        return Sync()

    def _overlap(self, source: str, pipe: str, pairs: list[tuple[str, str]]) -> str:
        condition = " || ".join(map(overlap_name, pairs))
        if source == pipe:
            return f"if ({condition}) pipe_barrier({pipe});"
        flag = Flag(source, pipe, OVERLAP_EVENT)
        return f"if ({condition}) {{ {flag.text('set')} {flag.text('wait')} }}"

    # --- memory -----------------------------------------------------------------------------------------

    def in_tensor(self, region: Region) -> tuple[Touched, ...]:
        """Return what a load reads, or what a store writes."""
        apart = apart_dims(region, self._open.stmt) if self._open else frozenset[int]()
        return (Touched("gm", tensor=region.tensor, apart=apart, fixed=fixed_dims(region)),)

    def declare(self, variable: str, line: str, address: int, shift: int = 0) -> None:
        """Declare a variable of the library that has its memory at an address.

        Args:
            variable: its name.
            line: the declaration.
            address: of its memory.
            shift: how far after it the memory is in every second iteration of the loop.
        """
        self.variables[variable] = f"{line} TASSIGN({variable}, {address:#x});"
        if shift:
            assert self._open is not None
            self._open.shifted[variable] = address, shift

    def address(self, address: int, shift: int) -> str:
        """Return the text of an address, which differs between iterations if there is a shift."""
        return either(self._open.odd, address, shift) if shift and self._open else f"{address:#x}"
