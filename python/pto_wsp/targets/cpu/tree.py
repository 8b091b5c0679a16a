"""A program as a folder: kernels, the headers that they need, bytecode and a host program."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_directive
from pto_wsp.ir.scalar import Expr, Var, substitute, walk
from pto_wsp.location import Location
from pto_wsp.lower.lower_workload_to_bytecode import Lowered, lower_workload_to_bytecode
from pto_wsp.lower.lower_workload_to_source import lower_workload_to_source
from pto_wsp.support.record import replace
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import SourceTree, table_hash
from pto_wsp.targets.c_style.expressions import ExpressionWriter
from pto_wsp.targets.c_style.spelling import c_string, function_name, scalar_name, scalar_type
from pto_wsp.targets.cpu.arguments import axes_of, hidden_symbols, read_tensors
from pto_wsp.targets.cpu.c_function import c_header, c_name, write_functions
from pto_wsp.targets.cpu.emit import Library
from pto_wsp.targets.cpu.native import included_files
from pto_wsp.targets.cpu.spelling import CppSpelling
from pto_wsp.targets.cpu.toolchain import include_directory

_INCLUDE = re.compile(r"""^\s*#\s*include\s*["<](pto/[^">]+)[">]""", re.MULTILINE)
_HOST = "pto/wsp/host/program.hpp"
_BYTES_PER_LINE = 24
_ENGINE = """\
// The engine, and what reads and writes arrays: the same for every program.
#include "pto/wsp/host/command.hpp"
"""
_SESSIONS = '#include "pto/wsp/host/session.hpp"\n'


BuildFiles = Callable[[Module, Library], Mapping[str, str]]
"""Returns the files that say how a program is built, by path."""


def program_tree(
    target: str, module: Module, library: Library, build_files: BuildFiles, *, has_walk: bool = False,
    has_function: bool = False, has_networks: bool = False,
    orchestration: Callable[[Module], str] | None = None,
) -> SourceTree:  # fmt: skip
    """Return the folder of a program; without an entry, that of its kernels.

    Args:
        target: the name of the target, for errors.
        module: what `portable` returned.
        library: its generated code.
        build_files: makes the files that build it.
        has_walk: whether the workload is emitted as source, too.
        has_function: whether the program is a function of C, too, which the build makes a library of.
        has_networks: whether the program may be a network.
        orchestration: returns the workload as C, which then adds the tasks in place of the engine. Sessions
            launch only programs of the engine.

    Raises:
        UnsupportedByTarget: the program has axes with rows, or kernels that include files of their own.
    """
    kernels = {"kernels.cpp": library.source, "parts.cpp": "\n".join(part.source for part in library.parts)}
    kernels |= {f"{function_name(unit.kernel)}.cpp": unit.text for unit in library.units}
    if not module.entry:
        return SourceTree(kernels, tuple(kernels))
    _require_portable(target, module, library, has_networks=has_networks)
    names = [kernel.name for kernel in module.kernels]
    lowered = lower_workload_to_bytecode(module, names, table_hash(module.kernels))
    header = f"{c_name(module.entry)}.h" if has_function else ""
    walks = {"walk": "pto_wsp_walk"} if has_walk else {}
    walks |= {"orchestrate": "pto_wsp_orchestrate"} if orchestration is not None else {}
    has_launch = has_function and orchestration is None
    main = _main(module, library, header, walks, lowered, has_launch=has_launch)
    own = {"bytecode.hpp": _bytecode(lowered.code), "main.cpp": main}
    if has_function:
        own[header] = c_header(module, has_launch=has_launch)
    if has_walk:
        own["walk.cpp"] = lower_workload_to_source(module, lowered)
    if orchestration is not None:
        own["orchestration.c"] = orchestration(module)
    sources = kernels | own | {"host.cpp": _ENGINE + _SESSIONS * has_launch}
    headers = {f"include/{name}": text for name, text in headers_of(sources.values())}
    return SourceTree({**build_files(module, library), **sources, **headers}, tuple(kernels))


def portable(module: Module) -> Module:
    """Return a module whose kernels in C++ name their files without folders."""
    return module.with_kernels(map(_portable_kernel, module.kernels))


def _portable_kernel(kernel: KernelFunction) -> KernelFunction:
    if kernel.native is None:
        return kernel
    native = replace(kernel.native, loc=_without_folder(kernel.native.loc))
    return replace(kernel, loc=_without_folder(kernel.loc), native=native)


def _without_folder(loc: Location | None) -> Location | None:
    return None if loc is None else replace(loc, file=PurePath(loc.file).name)


def _require_portable(target: str, module: Module, library: Library, *, has_networks: bool) -> None:
    if module.entry_workload.processes and not has_networks:
        what, reason = "sources of a network of processes", "its host program runs one program order"
        loc = module.entry_workload.processes[0].loc
        raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=loc)
    shipped = include_directory()
    for unit in library.units:
        own = [path.name for path in included_files(unit, shipped) if shipped not in path.parents]
        if own:
            what = f"emitting kernel `{unit.kernel.name}`, which includes `{min(own)}`"
            reason = "files next to a kernel are not emitted: move the text into the kernel"
            raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=unit.kernel.loc)
    for directive in module.schedule:
        if directive.kind == "trace" and directive.name != "off":
            what, reason = f"emitting `{print_directive(directive)}`", "the host program records nothing"
            raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=None)


def headers_of(sources: Iterable[str]) -> list[tuple[str, str]]:
    """Return the shipped headers that sources include, themselves or through others, by name."""
    found: dict[str, str] = {}
    pending = [name for text in sources for name in _INCLUDE.findall(text)]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = (include_directory() / name).read_text(encoding="utf-8")
            pending += _INCLUDE.findall(found[name])
    return sorted(found.items())


def _bytecode(code: bytes) -> str:
    """Return a header with the bytes of a program."""
    lines = (code[at : at + _BYTES_PER_LINE] for at in range(0, len(code), _BYTES_PER_LINE))
    rows = "".join(f"    {', '.join(map(str, line))},\n" for line in lines)
    head = (
        "// The bytecode of the workload: docs/bytecode.md of PTO-WSP describes it.\n#include <stdint.h>\n\n"
    )
    return f"{head}static const uint8_t bytecode[] = {{\n{rows}}};\n"


# --- the host program -----------------------------------------------------------------------------------


def _main(
    module: Module, library: Library, header: str, walks: Mapping[str, str], lowered: Lowered, *,
    has_launch: bool,
) -> str:  # fmt: skip
    entry = module.entry_workload
    out = TextWriter()
    out.line(f"// The host program of {ascii(entry.name)[1:-1]}. It reads and writes `.npy` files.")
    native = ["pto/wsp/tile/kernel.hpp"] if library.units else []
    own = ["bytecode.hpp", header] if header else ["bytecode.hpp"]
    for included in (_HOST, "pto/wsp/tile/scalar.hpp", *native, *own):
        out.line(f'#include "{included}"')
    out.line()
    out.line("namespace pto::wsp::tile {")
    out.line()
    _write_derive(entry, out)
    out.line()
    out.line("}  // namespace pto::wsp::tile")
    out.line()
    out.line("static pto::wsp::host::Program make_program() {")
    with out.indented():
        out.line("using pto::wsp::host::TensorKind;")
        out.line("pto::wsp::host::Program program{};")
        out.line(f"program.name = {c_string(entry.name)};")
        out.line("program.bytecode = bytecode;")
        out.line("program.bytecode_size = sizeof(bytecode);")
        for member, function in walks.items():
            out.line(f"program.{member} = {function};")
        hidden = hidden_symbols(entry)
        _write_rows(out, "symbols", (_symbol(param, param.name in hidden) for param in entry.symbols))
        _write_rows(out, "tensors", _tensors(module))
        _write_rows(out, "checks", _checks(library))
        if "orchestrate" not in walks:
            _write_rows(out, "sites", _sites(module, lowered))
        if entry.processes:
            _write_rows(out, "processes", (c_string(process.name) for process in entry.processes))
            _write_rows(out, "moves", moves_of(entry, lowered))
        out.line("program.derive = pto::wsp::tile::derive;")
        for directive in module.schedule:
            for name, value in directive.engine_settings().items():
                out.line(f"program.options.{name} = {_option(name, value)};")
        if library.units:
            out.line("program.native = pto_wsp_native_kernels();")
        out.line("return program;")
    out.line("}")
    out.line()
    if header:
        write_functions(module, out, has_launch=has_launch)
        out.line()
    out.line("int main(int argc, char** argv) {")
    with out.indented():
        out.line("return pto::wsp::host::run_command(make_program(), argc, argv);")
    out.line("}")
    return str(out)


def _option(name: str, value: int | str | list[int]) -> str:
    """Return a setting of the engine in C++; a text names an enumerator, as in `AFTER_BUILD`."""
    match value:
        case str():
            enumerator = "".join(word.capitalize() for word in value.split("_"))
            return f"decltype(program.options.{name})::k{enumerator}"
        case bool():
            return _bool(value)
        case int():
            return f"{value}u"
        case _:
            return f"{{{', '.join(map(str, value))}}}"


def _write_rows(out: TextWriter, member: str, rows: Iterator[str]) -> None:
    out.line(f"program.{member} = {{")
    with out.indented():
        for row in rows:
            out.line(f"{{{row}}},")
    out.line("};")


def _symbol(param: w.SizeParam | w.ScalarParam, is_hidden: bool) -> str:
    bits = "std::nullopt"
    if param.default is not None and param.value is None:
        is_float = isinstance(param, w.ScalarParam) and param.type.dtype.is_float
        number = struct.unpack("<i", struct.pack("<f", param.default))[0] if is_float else int(param.default)
        bits = f"int64_t{{{number & 0xFFFFFFFF if is_float else number}}}"
    return f"{c_string(param.name)}, {bits}, {_bool(is_hidden)}"


def _tensors(module: Module) -> Iterator[str]:
    """Yield the rows of the table of tensors; those of an axis have its name."""
    entry, read = module.entry_workload, read_tensors(module)
    symbols = {param.name: i for i, param in enumerate(entry.symbols)}
    numbers = {tensor.name: i for i, tensor in enumerate(entry.tensors)}
    axes = {
        axis.offsets: f"{c_string(axis.name)}, TensorKind::kOffsets, true, {symbols[axis.outer]}"
        for axis in axes_of(entry)
    }
    for axis in axes_of(entry):
        if isinstance(axis, w.SparseParam):
            row = f"{c_string(axis.indices)}, TensorKind::kIndices, true, {numbers[axis.offsets]}"
            axes[axis.indices] = row
    for tensor in entry.tensors:
        kind = "kLocal" if tensor.is_local else "kArray"
        is_read = tensor.name in read and not tensor.is_local
        yield axes.get(tensor.name, f"{c_string(tensor.name)}, TensorKind::{kind}, {_bool(is_read)}")


def moves_of(entry: w.WorkloadFunction, lowered: Lowered) -> Iterator[str]:
    """Yield the rows of the table of sends and receives."""
    numbers = {tensor.name: i for i, tensor in enumerate(entry.tensors)}
    for pc, node in sorted(lowered.sites.items()):
        if isinstance(node, w.Send | w.Receive):
            place = f"{PurePath(node.loc.file).name}:{node.loc.line}" if node.loc else ""
            yield f"{pc}, {numbers[node.channel]}, {c_string(place)}"


def _sites(module: Module, lowered: Lowered) -> Iterator[str]:
    """Yield the rows of the table of places in the workload that errors name."""
    places = {pc: node.loc for pc, node in lowered.sites.items()} | dict(lowered.places)
    for pc, loc in sorted(places.items()):
        if loc is None:
            continue
        node, kernel, views = lowered.sites.get(pc), "", ""
        if isinstance(node, w.Task):
            kernel = node.kernel
            views = ", ".join(c_string(view.name) for view in module.kernel(kernel).views)
        loops = ", ".join(f"{{{_site_loop(loop, lowered)}}}" for loop in lowered.enclosing.get(pc, ()))
        place = c_string(f"{PurePath(loc.file).name}:{loc.line}")
        yield f"{pc}, {place}, {c_string(kernel)}, {{{views}}}, {{{loops}}}"


def _site_loop(loop: w.Loop, lowered: Lowered) -> str:
    is_text = isinstance(loop.first, str)
    first, start = (c_string(str(loop.first)), 0) if is_text else ("nullptr", loop.first)
    return f"{c_string(loop.called)}, {lowered.registers[loop.var]}, {first}, {start}, {loop.step}"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _checks(library: Library) -> Iterator[str]:
    for kernel, checks in library.checks.items():
        for number, check in enumerate(checks, start=1):
            place = f"{PurePath(check.loc.file).name}:{check.loc.line}: " if check.loc else ""
            names = "".join(f"{c_string(name)}, " for name, _ in check.scalars)
            text = f"{c_string(place + check.text.message)}, {c_string(check.text.found)}"
            yield f"{c_string(kernel)}, {number}, {text}, {check.num_values}, {{{names[:-2]}}}"


def _write_derive(entry: w.WorkloadFunction, out: TextWriter) -> None:
    """Write the function that computes the sizes and scalars which follow from others."""
    numbers = {param.name: i for i, param in enumerate(entry.symbols)}
    expressions = ExpressionWriter(CppSpelling(), {})
    out.line("static void derive([[maybe_unused]] host::Values& values) {")
    for param in entry.symbols:
        if param.value is None:
            continue
        variables = {part.name: part for part in walk(param.value) if isinstance(part, Var)}
        with out.indented():
            out.line(f"{{  // {ascii(param.name)[1:-1]}")
            with out.indented():
                for name, var in variables.items():
                    number, kind = numbers[name], scalar_type(var.dtype)
                    member = {"float": "f32", "bool": "i64 != 0"}.get(kind, "i64")
                    value = f"host::value_of(values, {number}, {c_string(name)}).{member}"
                    out.line(f"const {kind} {scalar_name(f'v{number}')} = {value};")
                out.line("[[maybe_unused]] bool failed = false;")
                text = expressions.text(_numbered(param.value, numbers), "failed")
                out.line(f"const {scalar_type(param.value.dtype)} value = {text};")
                bad = "failed || value < 0" if isinstance(param, w.SizeParam) else "failed"
                message = c_string(f"the value of `{param.name}` is negative or beyond 64 bits")
                out.line(f"if ({bad}) throw host::Mistake({message});")
                bits = "host::bits_of(value)" if param.value.dtype.is_float else "value"
                out.line(f"host::set_derived(values, {numbers[param.name]}, {bits}, {c_string(param.name)});")
            out.line("}")
    out.line("}")


def _numbered(expr: Expr, numbers: dict[str, int]) -> Expr:
    """Return an expression over symbols with their numbers as names."""

    def renamed(part: Expr) -> Expr | None:
        return Var(f"v{numbers[part.name]}", part.dtype, part.loc) if isinstance(part, Var) else None

    return substitute(expr, renamed)
