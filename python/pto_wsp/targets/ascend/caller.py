"""The caller of a kernel's phases: its control flow and checks, where tasks are expanded."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.buffers import round_up
from pto_wsp.analysis.steps import Step, rows_dim
from pto_wsp.ir.effects import name_written, written
from pto_wsp.ir.kernel import Instr, Load, Prefetch, Stmt, Store, walk_statements
from pto_wsp.targets.ascend.core import AscendWriter, sum_name
from pto_wsp.targets.ascend.cube_memory import operands_of
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.memory import BLOCK
from pto_wsp.targets.ascend.split import CUBE, Phase, Split
from pto_wsp.targets.ascend.templates import TEMPLATES, Method
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.plan import Node, PlannedBranch, PlannedLoop
from pto_wsp.targets.c_style.spelling import FIELDS, scalar_name, tile_name, view_name
from pto_wsp.types.tile import ScalarType, TileType

LINE = 64
"""Bytes of a line of global memory, which two cores must not write at the same time."""


class CallerCode(AscendWriter):
    """A function that computes valid shapes and scalars, checks them, and calls phases in order.

    Args:
        split: with a caller.
        generation: what it is written for.
        tight: sums whose rows cube cores do not store one by one.
        checks: those of each phase.

    Attributes:
        workspace_bytes: global memory of tiles that live from one phase to another, per bytes of an element.
    """

    def __init__(
        self,
        split: Split,
        generation: Generation,
        tight: frozenset[str],
        checks: Sequence[Sequence[Check]],
    ) -> None:
        assert split.caller is not None
        super().__init__(split.caller, generation)
        self._split = split
        self._tight = tight
        self._first = {phase.first: phase for phase in split.phases}
        self._last = {phase.last: number for number, phase in enumerate(split.phases)}
        self._kept: dict[str, str] = {}
        self._slots: dict[str, int] = {}
        self._phase_checks = checks
        self.workspace_bytes: dict[int, int] = {}
        for phase in split.phases:
            for tile in phase.outputs:
                self._place(tile)

    def _place(self, tile: str) -> None:
        if tile not in self._slots:
            kind = self.types[tile]
            itemsize = kind.dtype.itemsize
            self._slots[tile] = self.workspace_bytes.get(itemsize, 0)
            size = kind.rows * itemsize if kind.cols == 1 else kind.rows * _row_bytes(kind)
            self.workspace_bytes[itemsize] = self._slots[tile] + round_up(size, LINE)

    def write(self) -> None:
        """Write the function."""
        self.out.line("inline")
        super().write()

    def begin(self) -> None:
        """Write the variables of sums."""
        stmts = walk_statements(self.kernel.body or ())
        products = [s for s in stmts if isinstance(s, Instr) and _is_sum(s, self._split.on_cube)]
        for name in sorted({instr.dst for instr in products}):
            self.out.line(f"[[maybe_unused]] bool {sum_name(name)} = true;")

    # --- statements -------------------------------------------------------------------------------------

    def body(self, nodes: Sequence[Node]) -> None:
        """Write planned nodes, and the calls of phases around them."""
        for node in nodes:
            stmt = node.stmt if isinstance(node, PlannedLoop | PlannedBranch) else None
            self._before(stmt)
            super().body([node])
            self._after(stmt)

    def step(self, step: Step) -> None:
        """Write what a statement means outside of the cores, and the calls of phases around it."""
        self._before(step.stmt)
        super().step(step)
        self._after(step.stmt)

    def pick(self, stmt: Load | Store | Prefetch, window: str) -> str:
        """Write a window with as many rows as a tile names; the phase checks which ones."""
        assert stmt.rows is not None
        picked, rows = self.name("w"), f"{tile_name(stmt.rows)}.{FIELDS[rows_dim(self.types[stmt.rows])]}"
        self.out.line(f"const auto {picked} = resized({window}, {rows});")
        return picked

    def load(self, stmt: Load, window: str) -> None:
        """Write the valid shape of a loaded tile."""
        self.require_rows(stmt)
        self.require_column(stmt, window)
        self.set_tile(stmt.tile, f"{window}.rows, {window}.cols")

    def store(self, stmt: Store, window: str) -> None:
        """Write the checks of a store."""
        self.out.line(f"(void){window};")
        self.require_rows(stmt)
        self.require_column(stmt, window)
        if stmt.tile in self._split.on_cube:
            self.require_terms(stmt.tile, stmt.loc)
            if stmt.tile in self._tight:
                self.require_no_list(stmt, window)

    def instruction(self, step: Step, instr: Instr) -> None:
        """Write the valid shape of a result."""
        self.result(step, instr)
        if TEMPLATES[instr.op] == Method("part"):
            self.require_part(instr, *self.place_of(instr))
        if not _is_sum(instr, self._split.on_cube):
            return
        if instr.op != "matmul_acc":
            self.no_terms(instr.dst)
        for operand in operands_of(instr)[:1]:
            self.out.line(f"if ({tile_name(operand.tile)}.cols > 0) {sum_name(instr.dst)} = false;")

    # --- calls ------------------------------------------------------------------------------------------

    def _before(self, stmt: Stmt | None) -> None:
        """Keep what a phase reads as it is before the statements of the phase."""
        phase = self._first.get(id(stmt)) if stmt is not None else None
        if phase is None:
            return
        changed = {name_written(s) for s in self._statements(phase)}
        scalars = written(phase.kernel.body or ())[1]
        self._kept = {}
        for tile in phase.inputs:
            if tile in changed:
                self._kept[tile] = self.name("x")
                self.out.line(f"const Extents {self._kept[tile]} = {tile_name(tile)};")
        for param in phase.kernel.scalar_params:
            if param.name in scalars:
                self._kept[param.name] = self.name("x")
                self.out.line(f"const auto {self._kept[param.name]} = {scalar_name(param.name)};")

    def _statements(self, phase: Phase) -> Sequence[Stmt]:
        """Return the statements of a phase without its loads and stores of tiles of other phases."""
        body = phase.kernel.body or ()
        return tuple(walk_statements(body[len(phase.inputs) : len(body) - len(phase.outputs)]))

    def _after(self, stmt: Stmt | None) -> None:
        number = self._last.get(id(stmt)) if stmt is not None else None
        if number is not None:
            self._call(number, self._split.phases[number])

    def _call(self, number: int, phase: Phase) -> None:
        """Write the call of a phase: its views, its scalars, and the tiles that it loads and stores."""
        if phase.core == CUBE:
            for tile in phase.outputs:
                self.require_terms(tile, self.kernel.loc)
        own = {param.name for param in self.kernel.params}
        views = [view_name(param.name) for param in phase.kernel.views if param.name in own]
        views += [self._view(tile, self._kept.get(tile, tile_name(tile))) for tile in phase.inputs]
        views += [self._view(tile, tile_name(tile)) for tile in phase.outputs]
        scalars = [self._scalar_of(param.name, param.type) for param in phase.kernel.scalar_params]
        self.out.line("{")
        with self.out.indented():
            self.out.line(f"const View phase_views[] = {{{', '.join(views)}}};")
            self.out.line(f"const Scalar phase_scalars[] = {{{', '.join(scalars) or 'Scalar{0}'}}};")
            call, checks = f"context->call(context, {number}, phase_views, phase_scalars)", len(self.checks)
            self.checks += self._phase_checks[number]
            if self._phase_checks[number]:
                self.out.line(f"const int32_t failed = {call};")
                self.out.line(f"if (failed != 0) return {checks} + failed;")
            else:
                self.out.line(f"{call};")
        self.out.line("}")

    def _view(self, tile: str, extents: str) -> str:
        kind = self.types[tile]
        stride = 1 if kind.cols == 1 else _row_bytes(kind) // kind.dtype.itemsize
        size = kind.dtype.itemsize.bit_length() - 1
        return f"slot(context, {size}, {self._slots[tile]}, {extents}, {stride})"

    def _scalar_of(self, name: str, kind: object) -> str:
        assert isinstance(kind, ScalarType)
        return f"scalar_of({self._kept.get(name, scalar_name(name))})"


def _row_bytes(kind: TileType) -> int:
    return round_up(kind.cols * kind.dtype.itemsize, BLOCK)


def _is_sum(instr: Instr, on_cube: frozenset[str]) -> bool:
    """Return whether an instruction makes or changes a sum of products on a cube core."""
    return bool(operands_of(instr)) or (instr.op == "expands" and instr.dst in on_cube)
