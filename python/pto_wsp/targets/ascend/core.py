"""What kernels of vector cores and of cube cores have in common: flags, fences and variables of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import KernelFunction, Load, Store, statement_expressions, walk_statements
from pto_wsp.ir.scalar import Element, walk
from pto_wsp.location import Location
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.hazards import Flag, FlagPlanner, Sync, Touched
from pto_wsp.targets.ascend.spelling import AscendSpelling
from pto_wsp.targets.c_style.kernel import KernelWriter
from pto_wsp.targets.c_style.plan import Node, PlannedBranch, PlannedLoop, is_row_major, walk_nodes
from pto_wsp.targets.c_style.spelling import tile_name

GLOBAL = (Touched("gm"),)
"""What loads read and stores write: a task may pass one tensor as several parameters."""


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
            bad = f"{window}.rows > 1 && ({window}.stride != 1 || {window}.index)"
            self.check(bad, text, stmt.loc, [f"{window}.stride"])

    def require_no_list(self, stmt: Store, window: str) -> None:
        """Write the check that the rows of a store follow one another in global memory."""
        text = CheckText(
            f"rows of `{stmt.region.tensor}` are listed, and `{stmt.tile}` takes all of L0C: use less"
        )
        self.check(f"{window}.index", text, stmt.loc)

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
        self.planner = FlagPlanner(generation.orders_vectors)
        self.variables: dict[str, str] = {}
        self._draft = draft
        self._outstanding: list[Flag] = []
        self._loops = {id(node.body) for node in walk_nodes(self.nodes) if isinstance(node, PlannedLoop)}

    # --- the function -----------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the function."""
        self.out.line("AICORE inline")
        super().write()

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

    # --- instructions on pipes --------------------------------------------------------------------------

    def issue(
        self, pipe: str, call: str, guard: str, reads: tuple[Touched, ...], writes: tuple[Touched, ...]
    ) -> None:
        """Write a call with the flags around it. The call is left out where `guard` does not hold."""
        number = self.planner.add(pipe, reads, writes)
        sync = self._draft.planner.syncs[number] if self._draft else Sync()
        for flag in sync.waits:
            self.out.line(flag.text("wait"))
            self._outstanding.remove(flag)
        for barrier in sync.barriers:
            self.out.line(f"pipe_barrier({barrier});")
        self.out.line(f"if ({guard}) {call};")
        for flag in sync.sets:
            self.out.line(flag.text("set"))
            self._outstanding.append(flag)

    def declare(self, variable: str, line: str, address: int) -> None:
        """Declare a variable of the library that has its memory at an address."""
        self.variables[variable] = f"{line} TASSIGN({variable}, {address:#x});"
