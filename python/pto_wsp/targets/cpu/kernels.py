"""One kernel as a C++ function: its parameters, control flow and groups."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.steps import REDUCTIONS, Step
from pto_wsp.errors import NoneKernelBody
from pto_wsp.ir.kernel import OUT, Assign, Instr, KernelFunction, Load, Prefetch, Store, While
from pto_wsp.isa.table import TABLE
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.cpu.code import KernelCode
from pto_wsp.targets.cpu.expressions import mangle, scalar_name, scalar_type, tile_name, view_name
from pto_wsp.targets.cpu.groups import GroupScope, GroupWriter, reads_in_place
from pto_wsp.targets.cpu.parts import turns
from pto_wsp.targets.cpu.plan import Alone, Group, Node, PlannedBranch, PlannedLoop, turned_stores
from pto_wsp.targets.cpu.templates import TEMPLATES, CallTemplate, Whole, lane_type
from pto_wsp.targets.cpu.whole import write_call, write_matmul, write_transpose


def function_name(kernel: KernelFunction) -> str:
    """Return the name of a kernel's C++ function."""
    return mangle("k", kernel.name)


def write_kernel(kernel: KernelFunction, lanes: int, out: TextWriter) -> KernelCode:
    """Write the function of a kernel and return what was found out about it.

    Raises:
        NoneKernelBody: the kernel is only declared.
    """
    if kernel.body is None:
        raise NoneKernelBody(name=kernel.name, loc=kernel.loc)
    code = KernelCode(kernel, lanes, out)
    code.mark(kernel.loc)
    parameters = "const View* views, const Scalar* scalars, const TaskContext* context"
    unused = parameters.replace("const ", "[[maybe_unused]] const ")
    out.line(f"int32_t {function_name(kernel)}({unused}) {{")
    with out.indented():
        _write_declarations(code)
        _write_body(code, code.nodes)
        out.line("return 0;")
    out.line("}")
    return code


def _write_declarations(code: KernelCode) -> None:
    for i, param in enumerate(code.kernel.views):
        code.out.line(f"[[maybe_unused]] const View& {view_name(param.name)} = views[{i}];")
    write_fence(code.kernel, code.out)
    for i, param in enumerate(code.kernel.scalar_params):
        assert param.type.dtype is not None
        kind = scalar_type(param.type.dtype)
        value = f"scalars[{i}].{'f32' if kind == 'float' else 'i64'}" + (" != 0" if kind == "bool" else "")
        code.out.line(f"[[maybe_unused]] {kind} {scalar_name(param.name)} = {value};")
    declared = {p.name for p in code.kernel.scalar_params}
    for name, kind in code.kernel.scalars:
        if name not in declared:
            code.out.line(f"[[maybe_unused]] {scalar_type(kind.dtype)} {scalar_name(name)}{{}};")
    for name in code.types:
        kind = "Window" if name in code.memory.windows else "Tile"
        code.out.line(f"[[maybe_unused]] {kind}<{code.storage(name)}> {tile_name(name)}{{}};")


def write_fence(kernel: KernelFunction, out: TextWriter) -> None:
    """Write what makes stores past the caches visible before the kernel returns."""
    outputs = [f"views[{i}].streams" for i, param in enumerate(kernel.views) if param.role == OUT]
    if outputs:
        out.line(f"const StoreFence fence({' || '.join(outputs)});")


def _write_body(code: KernelCode, nodes: Sequence[Node]) -> None:
    turned = turned_stores(nodes)
    for node in nodes:
        match node:
            case Group() if id(node) in turned:
                pass  # with its transpose
            case Alone() if id(node) in turned:
                _write_turned_store(code, node, turned[id(node)])
            case Group():
                _write_group(code, node)
            case Alone():
                _write_alone(code, node)
            case PlannedLoop():
                _write_loop(code, node)
            case PlannedBranch():
                _write_branch(code, node)


def _write_loop(code: KernelCode, node: PlannedLoop) -> None:
    stmt = node.stmt
    code.mark(stmt.loc)
    if isinstance(stmt, While):
        code.out.line("for (;;) {")
        with code.out.indented():
            code.out.line(f"if (!({code.value(stmt.condition, stmt.loc)})) break;")
            _write_body(code, node.body)
    else:
        start, stop = code.value(stmt.start, stmt.loc), code.value(stmt.stop, stmt.loc)
        counter = code.name("i")
        made = f"Counter {counter}{{{start}, {stop}, {stmt.step}}}"
        code.out.line(f"for ({made}; {counter}.more(); {counter}.advance()) {{")
        with code.out.indented():
            code.out.line(f"[[maybe_unused]] int64_t {scalar_name(stmt.var)} = {counter}.value;")
            _write_body(code, node.body)
    code.out.line("}")


def _write_branch(code: KernelCode, node: PlannedBranch) -> None:
    code.mark(node.stmt.loc)
    code.out.line(f"if ({code.value(node.stmt.condition, node.stmt.loc)}) {{")
    with code.out.indented():
        _write_body(code, node.then)
    if node.other:
        code.out.line("} else {")
        with code.out.indented():
            _write_body(code, node.other)
    code.out.line("}")


def _write_alone(code: KernelCode, node: Alone) -> None:
    step = node.step
    code.mark(step.stmt.loc)
    match step.stmt:
        case Assign() | Load():
            _write_prelude(code, step.stmt)
        case Prefetch():
            code.prefetch(step.stmt)
        case Store():
            window = code.store_window(step, step.stmt)
            code.out.line(f"write({window}, {tile_name(step.stmt.tile)});")
        case Instr():
            code.agree(step, step.stmt)
            match TEMPLATES[step.stmt.op]:
                case CallTemplate() as call:
                    write_call(code, node, step.stmt, call)
                case Whole(method="transpose"):
                    write_transpose(code, node, step.stmt)
                case _:
                    write_matmul(code, node, step.stmt)


def _write_turned_store(code: KernelCode, node: Alone, store: Group) -> None:
    """Write a transpose and the store behind it, which alone reads it."""
    instr, (step,) = node.step.stmt, store.steps
    assert isinstance(instr, Instr) and isinstance(step.stmt, Store)
    code.mark(instr.loc)
    code.agree(node.step, instr)
    code.result(node.step, instr)
    code.mark(step.stmt.loc)
    window = code.store_window(step, step.stmt)
    code.parts.add(turns(code.storage(instr.dst)))
    code.out.line(f"write_turned({window}, {tile_name(instr.tiles[0])}, {tile_name(instr.dst)});")


def _write_prelude(code: KernelCode, stmt: Assign | Load) -> None:
    if isinstance(stmt, Load):
        code.load(stmt)
    else:
        code.out.line(f"{scalar_name(stmt.name)} = {code.value(stmt.value, stmt.loc)};")


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
        _write_prelude(code, stmt)
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
