"""The program of a control core: it expands the workload and submits the tasks to the device's runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.kernel import IN, KernelFunction, Param, statement_expressions, walk_statements
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Element, walk
from pto_wsp.location import Location
from pto_wsp.lower.lower_workload_to_bytecode import Lowered
from pto_wsp.support.record import record, replace
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.kernel import AscendKernel, Part
from pto_wsp.targets.ascend.split import CUBE
from pto_wsp.targets.base import table_hash
from pto_wsp.targets.c_style.spelling import c_string, function_name
from pto_wsp.targets.cpu.emit import extent_bounds, write_table
from pto_wsp.targets.cpu.tree import moves_of

MAX_TENSORS, MAX_SCALARS = 32, 16
"""Arguments of a task that the runtime takes."""

OWN_SCALARS = 2
"""Scalars of every task: where a failed check is kept, and the number of the block."""

FAILED_WORDS = 128
"""Integers that a failed check can keep: the function, the number of the check, and what it found."""

Codes = Mapping[str, AscendKernel]


def functions_of(codes: Codes) -> list[tuple[AscendKernel, Part]]:
    """Return the functions of cores; the place of a function is its number in the runtime."""
    return [(code, part) for code in codes.values() for part in code.parts]


@record
class TaskExtras:
    """What the tasks of a kernel pass in addition to its arguments.

    Attributes:
        lists: parameters that some task gives rows which a list names.
        written_lists: those whose lists tasks write.
        is_ordered: whether its tasks run in program order, with those of all such kernels.
    """

    lists: frozenset[str] = frozenset()
    written_lists: frozenset[str] = frozenset()
    is_ordered: bool = False

    def tensors(self, kernel: KernelFunction) -> int:
        """Return the number of tensors."""
        return len(self.written_lists & {param.name for param in kernel.views}) + self.is_ordered


Extras = Mapping[str, TaskExtras]


def extras_of(module: Module) -> dict[str, TaskExtras]:
    """Return per kernel what its tasks pass in addition."""
    tasks = list(w.tasks(module.entry_workload.body)) if module.entry else []
    ordered = _ordered_kernels(module) if module.entry else frozenset[str]()
    found = {kernel.name: TaskExtras(is_ordered=kernel.name in ordered) for kernel in module.kernels}
    for task in tasks:
        for param, arg in zip(module.kernel(task.kernel).params, task.args, strict=True):
            rows = _rows(arg) if isinstance(arg, Region) else None
            if rows is not None:
                old, name = found[task.kernel], frozenset({param.name})
                written = name if rows.indices in module.written else frozenset[str]()
                lists, written_lists = old.lists | name, old.written_lists | written
                found[task.kernel] = replace(old, lists=lists, written_lists=written_lists)
    return found


def _ordered_kernels(module: Module) -> frozenset[str]:
    """Return the kernels of tasks that the program orders, whatever they touch."""
    body = module.entry_workload.body
    loops = (n for n in w.walk_nodes(body) if isinstance(n, w.Loop) and n.kind == w.SEQUENTIAL)
    labels = {label for task in w.tasks(body) for label in task.after}
    found = [task for loop in loops for task in w.tasks(loop.body)]
    found += [task for task in w.tasks(body) if task.after or task.label in labels]
    return frozenset(task.kernel for task in found)


def _rows(region: Region) -> Rows | None:
    return next((dim for dim in region.dims if isinstance(dim, Rows)), None)


# --- what is refused ---------------------------------------------------------------------------------------


def require_expandable(module: Module, codes: Codes, generation: Generation) -> None:
    """Raise UnsupportedByTarget for the first thing in a program that a control core cannot expand."""
    found = _of_arguments(module, codes) or _of_phases(module, codes)
    if found is not None:
        what, reason, loc = found
        raise UnsupportedByTarget(target=generation.name, what=what, reason=reason, loc=loc)


_Refusal = tuple[str, str, Location | None]


def _of_arguments(module: Module, codes: Codes) -> _Refusal | None:
    extras = extras_of(module)
    for code, part in functions_of(codes):
        kernel, extra = part.phase.kernel, extras[code.kernel.name]
        lists = extra.lists & {p.name for p in kernel.views}
        scalars = len(kernel.scalar_params) + OWN_SCALARS + 2 * len(lists)
        tensors = len(kernel.views) + extra.tensors(kernel)
        if tensors > MAX_TENSORS or scalars > MAX_SCALARS:
            what = f"{tensors} tensors and {scalars} scalars of a task of `{kernel.name}`"
            reason = f"the runtime takes {MAX_TENSORS} and {MAX_SCALARS}: pass fewer arguments"
            return what, reason, code.kernel.loc
    return None


def _of_phases(module: Module, codes: Codes) -> _Refusal | None:
    """Return what a caller of phases would read before the tasks that write it are complete."""
    read = {
        name: dict(_elements_read(code.kernel)) for name, code in codes.items() if code.caller is not None
    }
    for task in w.tasks(module.entry_workload.body):
        for param, arg in zip(module.kernel(task.kernel).params, task.args, strict=True):
            places = read.get(task.kernel, {})
            if param.name in places and isinstance(arg, Region) and arg.tensor in module.written:
                what = (
                    f"an element of `{arg.tensor}`, which tasks write, in `{task.kernel}`, which has phases"
                )
                return what, "the control core would read it before they are complete", places[param.name]
    return None


def _elements_read(kernel: KernelFunction) -> Iterator[tuple[str, Location | None]]:
    """Yield the parameters of which a kernel reads single elements, and where."""
    for stmt in walk_statements(kernel.body or ()):
        for expr in statement_expressions(stmt):
            yield from ((p.name, p.loc or stmt.loc) for p in walk(expr) if isinstance(p, Element))


def workspace_bytes(codes: Codes) -> dict[int, int]:
    """Return the memory for tiles that phases of one task share, per bytes of an element."""
    found: dict[int, int] = {}
    for code in codes.values():
        for size, count in code.caller.workspace_bytes.items() if code.caller else ():
            found[size] = max(found.get(size, 0), count)
    return dict(sorted(found.items()))


# --- the entry of a kernel ---------------------------------------------------------------------------------


def kernel_entry(number: int, part: Part, extra: TaskExtras) -> str:
    """Return the function that the runtime calls on a core.

    Args:
        number: of the function.
        part: the function.
        extra: what its tasks pass in addition.
    """
    kernel = part.phase.kernel
    views = [
        f"view_of(args[{i}], {len(extent_bounds(p))}, {_itemsize(p)})" for i, p in enumerate(kernel.views)
    ]
    first = len(views) + extra.tensors(kernel)
    scalars = [f"Scalar{{args[{first + i}]}}" for i in range(len(kernel.scalar_params))]
    own = first + len(scalars)
    out = TextWriter()
    out.line('extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {')
    with out.indented():
        out.line("using namespace ascend;")
        out.line(f"View views[] = {{{', '.join(views) or 'View{}'}}};")
        out.line(f"const Scalar scalars[] = {{{', '.join(scalars) or 'Scalar{0}'}}};")
        out.line(f"GLOBAL int64_t* failed = (GLOBAL int64_t*)args[{own}];")
        out.line(f"const TaskContext context{{uint32_t(args[{own + 1}]), failed + 2, nullptr, nullptr}};")
        at = own + OWN_SCALARS
        for i, param in enumerate(kernel.views):
            if param.name in extra.lists:
                out.line(f"set_rows(views[{i}], args[{at}], args[{at + 1}]);")
                at += 2
        out.line(f"const int32_t number = {function_name(kernel)}(views, scalars, &context);")
        out.line(f"if (number != 0) failed[0] = {number + 1}, failed[1] = number;")
        pipe = "PIPE_FIX" if part.phase.core == CUBE else "PIPE_MTE3"
        out.line(f"set_flag({pipe}, PIPE_S, EVENT_ID7);")
        out.line(f"wait_flag({pipe}, PIPE_S, EVENT_ID7);")
    out.line("}")
    return f'#ifdef ASCEND_RUNTIME\n#include "runtime.hpp"\n\n{out}#endif\n'


def _itemsize(param: Param) -> int:
    assert param.type.dtype is not None
    return param.type.dtype.itemsize


# --- the orchestration -------------------------------------------------------------------------------------


def orchestration_file(module: Module, codes: Codes, lowered: Lowered) -> str:
    """Return the source of the library that a control core loads.

    Args:
        module: the program.
        codes: its kernels.
        lowered: its bytecode, whose instructions errors of networks name.
    """
    entry, out = module.entry_workload, TextWriter()
    out.line(f"// The orchestration of {ascii(entry.name)[1:-1]}, for a control core.")
    out.line("// Generated by pto-wsp: do not edit.")
    out.line("#define ASCEND_CONTROL_CORE")
    for name in ("pto/wsp/device/orchestration.hpp", "runtime.hpp", "bytecode.hpp"):
        out.line(f'#include "{name}"')
    for code in codes.values():
        if code.caller:
            out.line(f'#include "callers/{function_name(code.kernel)}.hpp"')
    out.line()
    out.line('extern "C" pto::wsp::walk::Event pto_wsp_walk(')
    out.line("    pto::wsp::walk::State& state, int64_t* registers, const pto::wsp::walk::Inputs& inputs);")
    out.line()
    out.line("static ascend::Run* run;")
    _write_functions(codes, extras_of(module), out)
    out.line()
    out.line("namespace pto::wsp::tile {")
    first = 0
    for code in codes.values():
        _write_submission(code, first, out)
        first += len(code.parts)
    kernels = [code.kernel for code in codes.values()]
    write_table(out, kernels, dict.fromkeys(codes, 0), f"0x{table_hash(kernels):016x}")
    out.line()
    _write_entry(module, codes, lowered, out)
    return str(out)


def _write_functions(codes: Codes, extras: Extras, out: TextWriter) -> None:
    """Write the table of the functions of cores, with their arguments."""
    rows: list[str] = []
    for number, (code, part) in enumerate(functions_of(codes)):
        kernel, extra = part.phase.kernel, extras[code.kernel.name]
        arguments = ", ".join(_argument(param, extra) for param in kernel.views)
        name = f"arguments_{number}"
        if kernel.views:
            out.line(f"static const ascend::Argument {name}[] = {{{arguments}}};")
        counts = f"{len(kernel.views)}, {len(kernel.scalar_params)}, {name if kernel.views else 'nullptr'}"
        flags = _bool(part.phase.core == CUBE), _bool(extra.is_ordered)
        rows.append(f"{{{number}, {flags[0]}, {counts}, {flags[1]}}},  // {kernel.name}")
    out.line("static const ascend::Function functions[] = {")
    with out.indented():
        for row in rows:
            out.line(row)
    out.line("};")


def _argument(param: Param, extra: TaskExtras) -> str:
    flags = (param.role != IN, param.name in extra.lists, param.name in extra.written_lists)
    return f"{{{len(extent_bounds(param))}, {_itemsize(param)}, {', '.join(map(_bool, flags))}}}"


def _bool(value: bool) -> str:
    return "true" if value else "false"


_CALL = "const View* views, const Scalar* scalars, const TaskContext* context"
_SAME = "reinterpret_cast<const ascend::View*>(views), reinterpret_cast<const ascend::Scalar*>(scalars)"


def _write_submission(code: AscendKernel, first: int, out: TextWriter) -> None:
    """Write the function that submits a task of a kernel; `first` is the number of its first function."""
    name = function_name(code.kernel)
    if code.caller is None:
        out.line(f"int32_t {name}({_CALL}) {{")
        out.line(f"  run->submit(functions[{first}], {_SAME}, context->block_idx);")
        out.line("  return 0;")
        out.line("}")
        return
    sizes = code.caller.workspace_bytes
    memory = ", ".join(
        f"run->take_workspace({sizes[size]}, {size})" if size in sizes else "nullptr" for size in (1, 2, 4, 8)
    )
    out.line(f"static int32_t call_{name}(")
    out.line("    const ascend::TaskContext* context, int32_t phase, const ascend::View* views,")
    out.line("    const ascend::Scalar* scalars) {")
    out.line(f"  run->submit(functions[{first} + phase], views, scalars, context->block_idx);")
    out.line("  return 0;")
    out.line("}")
    out.line(f"int32_t {name}({_CALL}) {{")
    out.line(f"  uint8_t* const workspace[] = {{{memory}}};")
    fields = f"context->block_idx, context->monitor->values, call_{name}, workspace"
    out.line(f"  const ascend::TaskContext task{{{fields}}};")
    out.line(f"  return ascend::{name}({_SAME}, &task);")
    out.line("}")


def _write_entry(module: Module, codes: Codes, lowered: Lowered, out: TextWriter) -> None:
    """Write the two functions that the runtime calls."""
    tensors = module.entry_workload.tensors
    count = len(tensors)
    sizes = workspace_bytes(codes)
    out.line('extern "C" __attribute__((visibility("default")))')
    out.line("OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs&) {")
    out.line(f"  return {{{count + 1 + len(sizes)}}};")
    out.line("}")
    out.line('extern "C" __attribute__((visibility("default")))')
    out.line("void aicpu_orchestration_entry(const ChipTaskArgs& args) {")
    with out.indented():
        out.line(f"ascend::Run own(args.tensor({count}));")
        out.line("run = &own;")
        out.line("std::vector<pto::wsp::bind::ArrayRef> arrays;")
        for number, tensor in enumerate(tensors):
            dtype = tensor.type.dtype
            text = f"pto::wsp::DType::{dtype.name}, {len(tensor.type.dims)}"
            out.line(
                f"arrays.push_back(own.bind(args.tensor({number}), {text}));  // {ascii(tensor.name)[1:-1]}"
            )
        for number, size in enumerate(sizes):
            out.line(f"own.bind_workspace(args.tensor({count + 1 + number}), {size});")
        out.line("std::vector<std::optional<int64_t>> symbols;")
        for number, param in enumerate(module.entry_workload.symbols):
            out.line(f"symbols.push_back(int64_t(args.scalar({number})));  // {ascii(param.name)[1:-1]}")
        out.line("const pto::wsp::KernelLibrary& library = *pto_wsp_kernel_library();")
        out.line("pto::wsp::sched::NetworkNames names;")
        if module.entry_workload.processes:
            _write_names(module.entry_workload, lowered, out)
        out.line("own.expand(bytecode, sizeof(bytecode), library, pto_wsp_walk, arrays, symbols, names);")
    out.line("}")


def _write_names(entry: w.WorkloadFunction, lowered: Lowered, out: TextWriter) -> None:
    """Write the names of a network, for its errors."""
    processes = ", ".join(c_string(process.name) for process in entry.processes)
    tensors = ", ".join(c_string(tensor.name) for tensor in entry.tensors)
    out.line(f"names.processes = {{{processes}}};")
    out.line(f"names.tensors = {{{tensors}}};")
    out.line("names.moves = {")
    with out.indented():
        for row in moves_of(entry, lowered):
            out.line(f"{{{row}}},")
    out.line("};")
