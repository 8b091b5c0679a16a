"""One kernel as a C++ function: its groups of instructions, and those that work on whole tiles."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.steps import REDUCTIONS, Step
from pto_wsp.ir.kernel import OUT, Assign, Instr, KernelFunction, Load, Store
from pto_wsp.isa.table import TABLE
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.plan import Group, Node, turned_stores
from pto_wsp.targets.c_style.spelling import tile_name
from pto_wsp.targets.cpu.code import KernelCode
from pto_wsp.targets.cpu.groups import GroupScope, GroupWriter, reads_in_place
from pto_wsp.targets.cpu.parts import turns
from pto_wsp.targets.cpu.templates import TEMPLATES, CallTemplate, Whole, lane_type
from pto_wsp.targets.cpu.whole import write_call, write_matmul, write_matmul_quantised, write_transpose
from pto_wsp.targets.cpu.widening import without_conversions


def write_kernel(kernel: KernelFunction, lanes: int, out: TextWriter) -> KernelCode:
    """Write the function of a kernel and return what was found out about it.

    Raises:
        NoneKernelBody: the kernel is only declared.
    """
    code = CppKernel(without_conversions(kernel), lanes, out)
    code.write()
    return code


class CppKernel(KernelCode):
    """Writes instructions: those of a group as one loop of vectors, the others as calls."""

    def __init__(self, kernel: KernelFunction, lanes: int, out: TextWriter) -> None:
        super().__init__(kernel, lanes, out)
        self._turned: dict[int, Group] = {}

    def body(self, nodes: Sequence[Node]) -> None:
        """Write planned nodes in order; a transpose is written together with the store of its result."""
        self._turned |= turned_stores(nodes)
        super().body([node for node in nodes if not (isinstance(node, Group) and id(node) in self._turned)])

    def group(self, group: Group) -> None:
        """Write the loop that the steps of a group share."""
        _write_group(self, group)

    def instruction(self, step: Step, instr: Instr) -> None:
        """Write an instruction on whole tiles."""
        node = self.node_of(instr)
        match TEMPLATES[instr.op]:
            case CallTemplate() as call:
                write_call(self, node, instr, call)
            case Whole(method="transpose") if id(node) in self._turned:
                _write_turned_store(self, step, instr, self._turned[id(node)])
            case Whole(method="transpose"):
                write_transpose(self, node, instr)
            case Whole(method="matmul_quantised"):
                write_matmul_quantised(self, node, instr)
            case _:
                write_matmul(self, node, instr)


def _write_turned_store(code: KernelCode, transpose: Step, instr: Instr, store: Group) -> None:
    """Write a transpose and the store after it, which alone reads the result."""
    (step,) = store.steps
    assert isinstance(step.stmt, Store)
    code.result(transpose, instr)
    code.mark(step.stmt.loc)
    window = code.store_window(step, step.stmt)
    code.parts.add(turns(code.storage(instr.dst)))
    code.out.line(f"write_turned({window}, {tile_name(instr.tiles[0])}, {tile_name(instr.dst)});")


# --- groups ---------------------------------------------------------------------------------------------


def _write_group(code: KernelCode, node: Group) -> None:
    """Write what the steps of a group need, in order, and then their common loop."""
    outputs = frozenset(param.name for param in code.kernel.views if param.role == OUT)
    scope = GroupScope(node, code.types, code.memory, code.lanes, parts=code.parts, only_written=outputs)
    code.out.line("{")
    with code.out.indented():
        for number, step in enumerate(node.steps):
            code.mark(step.stmt.loc)
            _write_group_step(code, scope, number, step)
        _write_copies(code, scope)
        redirected = _redirect_stores(code, scope)
        GroupWriter(scope).write(code.out)
        for line in redirected:
            code.out.line(line)
    code.out.line("}")


def _write_group_step(code: KernelCode, scope: GroupScope, number: int, step: Step) -> None:
    stmt = step.stmt
    if isinstance(stmt, Assign | Load):
        code.prelude(stmt)
        return
    if isinstance(stmt, Store):
        scope.windows[number] = code.store_window(step, stmt)
        over = stmt.tile
    else:
        assert isinstance(stmt, Instr)
        code.agree(step, stmt)
        scope.scalars[number] = [code.scalar_operand(s, stmt, scope.narrow) for s in stmt.scalars]
        over = stmt.tiles[0] if TABLE[stmt.op].form in REDUCTIONS else stmt.dst
        code.result(step, stmt)
        storage = lane_type(code.types[stmt.dst].dtype)
        place = code.extra(scope.group, f"fold{number}", storage)
        if place is not None:
            scope.folds[number] = code.name("partial")
            code.out.line(f"{storage}* const {scope.folds[number]} = {place};")
    if not scope.has_extents:
        scope.has_extents = True
        extents = ("cols", "rows") if scope.group.is_column else ("rows", "cols")
        code.out.line(f"int64_t rows = {tile_name(over)}.{extents[0]};")
        code.out.line(f"int64_t cols = {tile_name(over)}.{extents[1]};")


def _write_copies(code: KernelCode, scope: GroupScope) -> None:
    """Write copies of tiles read in place, for when a store of the group overlaps them.

    A store to the very elements that are read at [i, j] alone is harmless: they are read first.
    """
    for tile, is_elementwise in reads_in_place(scope.group, code.memory):
        variable = tile_name(tile)
        for window in scope.windows.values():
            how = f"{window}, {str(is_elementwise).lower()}, {code.buffer(tile)}"
            code.out.line(f"shield({variable}, {how});")


def _redirect_stores(code: KernelCode, scope: GroupScope) -> list[str]:
    """Write later stores to the tile's own memory where they overlap earlier ones; return what ends them."""
    ends: list[str] = []
    earlier: list[str] = []
    for number, window in list(scope.windows.items()):
        stmt = scope.group.steps[number].stmt
        assert isinstance(stmt, Store)
        if earlier:
            clear = " && ".join(f"apart_or_same(footprint({window}), footprint({e}))" for e in earlier)
            direct, target = f"{window}_direct", f"{window}_target"
            place, stride = code.buffer(stmt.tile).rsplit(", ", 1)
            kind = f"Window<{code.storage(stmt.tile)}>"
            code.out.line(f"const bool {direct} = {clear};")
            own = f"{kind}{{{place}, {stride}, 1, nullptr, {window}.rows, {window}.cols}}"
            code.out.line(f"const {kind} {target} = {direct} ? {window} : {own};")
            tile = f"{{{place}, {stride}, {window}.rows, {window}.cols}}"
            ends.append(f"if (!{direct}) write({window}, {tile});")
            scope.windows[number] = target
        earlier.append(window)
    return ends
