"""A program as a folder: kernels, the headers that they need, bytecode, a host program and a Makefile."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel import OUT, KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_directive
from pto_wsp.ir.scalar import Expr, Var, substitute, walk
from pto_wsp.location import Location
from pto_wsp.lower.lower_workload_to_bytecode import lower_workload_to_bytecode
from pto_wsp.support.record import replace
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import SourceTree, table_hash
from pto_wsp.targets.c_style.expressions import ExpressionWriter
from pto_wsp.targets.c_style.spelling import function_name, scalar_name, scalar_type
from pto_wsp.targets.cpu.emit import Library
from pto_wsp.targets.cpu.features import Features
from pto_wsp.targets.cpu.native import FREESTANDING, included_files
from pto_wsp.targets.cpu.spelling import CppSpelling, c_string
from pto_wsp.targets.cpu.toolchain import FLAGS, include_directory

_INCLUDE = re.compile(r"""^\s*#\s*include\s*["<](pto/[^">]+)[">]""", re.MULTILINE)
_HOST = "pto/wsp/host/program.hpp"
_BYTES_PER_LINE = 24


def program_tree(module: Module, library: Library, features: Features) -> SourceTree:
    """Return the folder of a program; without an entry, that of its kernels.

    Args:
        module: what `portable` returned.
        library: its generated code.
        features: what the code is generated for.

    Raises:
        UnsupportedByTarget: the program has axes with rows, or kernels that include files of their own.
    """
    kernels = {"kernels.cpp": library.source, "parts.cpp": "\n".join(part.source for part in library.parts)}
    kernels |= {f"{function_name(unit.kernel)}.cpp": unit.text for unit in library.units}
    if not module.entry:
        return SourceTree(kernels, tuple(kernels))
    _require_portable(module, library)
    names = [kernel.name for kernel in module.kernels]
    lowered = lower_workload_to_bytecode(module, names, table_hash(module.kernels))
    sources = kernels | {"bytecode.hpp": _bytecode(lowered.code), "main.cpp": _main(module, library)}
    built = {"README.md": _readme(module, features), "Makefile": _makefile(module, library, features)}
    headers = {f"include/{name}": text for name, text in _headers(sources.values())}
    return SourceTree({**built, **sources, **headers}, tuple(kernels))


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


def _require_portable(module: Module, library: Library) -> None:
    shipped = include_directory()
    for unit in library.units:
        own = [path.name for path in included_files(unit, shipped) if shipped not in path.parents]
        if own:
            what = f"emitting kernel `{unit.kernel.name}`, which includes `{min(own)}`"
            reason = "files next to a kernel are not emitted: move the text into the kernel"
            raise UnsupportedByTarget(target="cpu", what=what, reason=reason, loc=unit.kernel.loc)
    for directive in module.schedule:
        if directive.kind == "trace" and directive.name != "off":
            what, reason = f"emitting `{print_directive(directive)}`", "the host program records nothing"
            raise UnsupportedByTarget(target="cpu", what=what, reason=reason, loc=None)


def _headers(sources: Iterable[str]) -> list[tuple[str, str]]:
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


def _main(module: Module, library: Library) -> str:
    entry = module.entry_workload
    out = TextWriter()
    out.line(f"// The host program of {ascii(entry.name)[1:-1]}. It reads and writes `.npy` files.")
    native = ["pto/wsp/tile/kernel.hpp"] if library.units else []
    for header in (_HOST, "pto/wsp/tile/scalar.hpp", *native, "bytecode.hpp"):
        out.line(f'#include "{header}"')
    out.line()
    out.line("namespace pto::wsp::tile {")
    out.line()
    _write_derive(entry, out)
    out.line()
    out.line("}  // namespace pto::wsp::tile")
    out.line()
    out.line("int main(int argc, char** argv) {")
    with out.indented():
        out.line("using pto::wsp::host::Kind;")
        out.line("pto::wsp::host::Program program{};")
        out.line(f"program.name = {c_string(entry.name)};")
        out.line("program.bytecode = bytecode;")
        out.line("program.bytecode_size = sizeof(bytecode);")
        hidden = _hidden_symbols(entry)
        _write_rows(out, "symbols", (_symbol(param, param.name in hidden) for param in entry.symbols))
        _write_rows(out, "tensors", _tensors(module))
        _write_rows(out, "checks", _checks(library))
        out.line("program.derive = pto::wsp::tile::derive;")
        for directive in module.schedule:
            for name, value in directive.engine_settings().items():
                out.line(f"program.options.{name} = {_option(name, value)};")
        if library.units:
            out.line("program.native = pto_wsp_native_kernels();")
        out.line("return pto::wsp::host::run_command(program, argc, argv);")
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


def _hidden_symbols(entry: w.WorkloadFunction) -> frozenset[str]:
    """Return the symbols that follow from others, or from the arrays of an axis."""
    found = {param.name for param in entry.symbols if param.value is not None}
    for axis in _axes(entry):
        found |= {axis.count, axis.outer, *([axis.entries] if isinstance(axis, w.SparseParam) else [])}
    return frozenset(found)


def _axes(entry: w.WorkloadFunction) -> list[w.RaggedParam | w.SparseParam]:
    return [param for param in entry.params if isinstance(param, w.RaggedParam | w.SparseParam)]


def _tensors(module: Module) -> Iterator[str]:
    """Yield the rows of the table of tensors; those of an axis have its name."""
    entry, read = module.entry_workload, _read_tensors(module)
    symbols = {param.name: i for i, param in enumerate(entry.symbols)}
    numbers = {tensor.name: i for i, tensor in enumerate(entry.tensors)}
    axes = {
        axis.offsets: f"{c_string(axis.name)}, Kind::kOffsets, true, {symbols[axis.outer]}"
        for axis in _axes(entry)
    }
    for axis in _axes(entry):
        if isinstance(axis, w.SparseParam):
            row = f"{c_string(axis.indices)}, Kind::kIndices, true, {numbers[axis.offsets]}"
            axes[axis.indices] = row
    for tensor in entry.tensors:
        kind = "kLocal" if tensor.is_local else "kArray"
        is_read = tensor.name in read and not tensor.is_local
        yield axes.get(tensor.name, f"{c_string(tensor.name)}, Kind::{kind}, {_bool(is_read)}")


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


def _read_tensors(module: Module) -> frozenset[str]:
    """Return the tensors whose elements a run reads: tasks do, or they decide what runs."""
    entry = module.entry_workload
    found = set(w.deciding_tensors(entry.body))
    for task in w.tasks(entry.body):
        for param, arg in zip(module.kernel(task.kernel).params, task.args, strict=True):
            if isinstance(arg, Region) and param.role != OUT:
                found.add(arg.tensor)
    return frozenset(found)


# --- how it is built and run ----------------------------------------------------------------------------


def _command_name(module: Module) -> str:
    """Return a file name for the host program."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", module.entry)
    taken = ("include", "clean", "Makefile", "makefile", "GNUmakefile")
    return name if name not in taken else f"{name}_program"


def _makefile(module: Module, library: Library, features: Features) -> str:
    name = _command_name(module)
    native = "".join(f" {function_name(unit.kernel)}.o" for unit in library.units)
    flags = " ".join(flag for flag in FLAGS if flag not in ("-std=c++17", "-fPIC", "-pipe", *FREESTANDING))
    of_native = f"{native.strip()}: CXXFLAGS = $(COMMON) {flags}\n" if native else ""
    return f"""# Builds `{name}`. `make CXX=clang++` builds it with another compiler.
COMMON = -std=c++17 -Iinclude {" ".join(features.flags)}

{name}: kernels.o parts.o{native} main.o
\t$(CXX) $^ -pthread -o $@

# Each instruction is rounded separately: without -ffp-contract=off, results change.
kernels.o parts.o: CXXFLAGS = $(COMMON) {flags} {" ".join(FREESTANDING)}
{of_native}main.o: CXXFLAGS = $(COMMON) -O2 -ffp-contract=off -pthread -Wno-psabi

%.o: %.cpp
\t$(CXX) $(CXXFLAGS) -c $< -o $@

clean:
\trm -f {name} *.o
.PHONY: clean
"""


def _readme(module: Module, features: Features) -> str:
    has_native = any(kernel.native is not None for kernel in module.kernels)
    entry, name = module.entry_workload, _command_name(module)
    read, written = _read_tensors(module), module.written
    rows, command = [], [f"./{name}"]
    axes = _axes(entry)
    of_axes = {name for axis in axes for name in axis.tensors}
    for axis in axes:
        command.append(f"--input {axis.name}={axis.name}.npy")
        use = "where each row begins, and where the last one ends"
        rows.append(f"| `{axis.name}` | integers `[{axis.outer} + 1]` | {use} |")
        if isinstance(axis, w.SparseParam):
            command.append(f"--input {axis.indices}={axis.indices}.npy")
            rows.append(f"| `{axis.indices}` | integers | the indices of all rows |")
    for tensor in entry.tensors:
        if tensor.is_local or tensor.name in of_axes:
            continue
        dims = ", ".join(map(str, tensor.type.dims))
        if tensor.name in read:
            command.append(f"--input {tensor.name}={tensor.name}.npy")
        if tensor.name in written:
            command.append(f"--output {tensor.name}={tensor.name}{'_out' * (tensor.name in read)}.npy")
        use = " and ".join(
            word for word, names in (("read", read), ("written", written)) if tensor.name in names
        )
        packed = f"; `{tensor.columns} columns` packed in panels" if tensor.columns is not None else ""
        rows.append(f"| `{tensor.name}` | `{tensor.type.dtype}[{dims}]`{packed} | {use or 'not used'} |")
    known = {dim for tensor in entry.tensors if tensor.name in read for dim in tensor.type.dims}
    hidden = _hidden_symbols(entry)
    for param in entry.symbols:
        if param.name in hidden:
            continue
        kind = "size" if isinstance(param, w.SizeParam) else f"`{param.type.dtype}`"
        default = "" if param.default is None else f", {param.default} by default"
        rows.append(f"| `{param.name}` | {kind} | a number{default} |")
        if param.name not in known and param.default is None:
            command.append(f"--set {param.name}=1")
    native = "\n| `k_*.cpp` | kernels that are written in C++ |" if has_native else ""
    names = ", ".join(features.names) or "no features beyond the baseline"
    return f"""# {entry.name}

The program `{entry.name}` as C++17, emitted by PTO-WSP for {features.machine} with {names}.
It needs `make` and g++ or clang++.

```sh
make
{" ".join(command)}
```

| argument | type | use |
|---|---|---|
{chr(10).join(rows)}

Arrays are `.npy` files in C order. A tensor that is only written begins as zeros of the size that other
arrays and `--set` decide. `--workers N` sets the number of threads, and `--stats` prints the time.
Results have the same bits for every number of threads.

| file | content |
|---|---|
| `kernels.cpp` | the kernels, one function each |
| `parts.cpp` | instances of the tile library that the kernels call |{native}
| `bytecode.hpp` | the workload, which the engine expands into tasks |
| `main.cpp` | the host program: arguments, schedule, messages of checks |
| `include/` | the engine and the tile library |
"""
