"""An emitted program as functions of C: its header, and the functions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.support.record import record
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.cpu.arguments import axes_of

KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr
    const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false
    float for friend goto if inline int long main mutable namespace new noexcept not not_eq nullptr operator
    or or_eq private protected public register reinterpret_cast restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
    union unsigned using virtual void volatile wchar_t while xor xor_eq workers""".split()
)
_ELEMENTS = {"f32": "float", "b1": "bool", "f16": "uint16_t", "bf16": "uint16_t"}


@record
class Member:
    """A member of the structure of arguments.

    Attributes:
        name: in C.
        type: in C, with the space or the `*` before the name.
        text: what the header says of it.
        number: of the symbol or tensor.
        is_array: whether it is an array.
    """

    name: str
    type: str
    text: str
    number: int
    is_array: bool


def c_name(name: str) -> str:
    """Return a name of the program as an identifier of C and C++."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"{plain}_" if plain in KEYWORDS else plain


def members_of(module: Module) -> list[Member]:
    """Return the arguments of a program: sizes and scalars, then arrays."""
    found: list[Member] = []
    for made in (*_symbols(module.entry_workload), *_arrays(module)):
        name = made.name
        while any(name == other.name for other in found):
            name += "_"
        found.append(Member(name, made.type, made.text, made.number, made.is_array))
    return found


def _symbols(entry: w.WorkloadFunction) -> Iterator[Member]:
    """Yield what no array and no other symbol decides."""
    axes = axes_of(entry)
    counted = {axis.count for axis in axes}
    counted |= {axis.entries for axis in axes if isinstance(axis, w.SparseParam)}
    for number, param in enumerate(entry.symbols):
        if param.value is not None or param.name in counted:
            continue
        is_size = isinstance(param, w.SizeParam)
        kind = "int64_t" if is_size else _element(param.type.dtype.name)
        yield Member(c_name(param.name), f"{kind} ", "a size" if is_size else "a scalar", number, False)


def _arrays(module: Module) -> Iterator[Member]:
    entry = module.entry_workload
    for number, tensor in enumerate(entry.tensors):
        if tensor.is_local:
            continue
        constant = "" if tensor.name in module.written else "const "
        packed = f", `{tensor.columns}` columns packed in panels" if tensor.columns is not None else ""
        dims = ", ".join(map(str, tensor.type.dims))
        text = f"{tensor.type.dtype}[{dims}]{packed}"
        kind = f"{constant}{_element(tensor.type.dtype.name)}* "
        yield Member(c_name(tensor.name), kind, text, number, True)


def _element(dtype: str) -> str:
    sign = "u" if dtype.startswith("u") else ""
    return _ELEMENTS.get(dtype, f"{sign}int{dtype[1:]}_t")


_CALL = """\
// Runs the program and returns when all tasks are done. Returns NULL, or what is wrong: a text that
// is valid until the thread calls the function again. Several threads may call it.
const char* {name}(const struct {name}_arguments* arguments);
"""
_LAUNCH = """
// Launches the program in a session, which runs it concurrently with other launches, with the results
// of one after another. The structure is copied; its arrays must stay until the launch is done.
// `graph` is NULL or a contract, `launch` is NULL or receives the launch. Returns as above.
const char* {name}_launch(
    PTOSession* session, const struct {name}_arguments* arguments, const PTOGraph* graph,
    PTOLaunch** launch);

// Makes a graph of the program, for a contract in a session. `title` is for messages, or NULL.
const char* {name}_graph(PTOSession* session, const char* title, PTOGraph** graph);
"""


def c_header(module: Module, *, has_launch: bool) -> str:
    """Return the header of a program as functions of C.

    Args:
        module: the program.
        has_launch: whether sessions launch it, too.
    """
    name, out = c_name(module.entry), TextWriter()
    what = "functions" if has_launch else "a function"
    out.line(f"// The program {ascii(module.entry)[1:-1]} as {what} of C.")
    for line in ("#pragma once", "#include <stdbool.h>", "#include <stdint.h>"):
        out.line(line)
    if has_launch:
        out.line('#include "include/pto/wsp/pto_session.h"')
    for line in ("", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""):
        out.line(line)
    out.line("// All sizes, scalars and arrays are needed. Arrays are in C order, without gaps.")
    out.line(f"struct {name}_arguments {{")
    with out.indented():
        for member in members_of(module):
            out.line(f"{member.type.rstrip()} {member.name};  // {ascii(member.text)[1:-1]}")
        out.line("uint32_t workers;  // threads; 0 = one per core")
    out.line("};")
    out.line()
    for line in (_CALL + _LAUNCH * has_launch).format(name=name).splitlines():
        out.line(line)
    for line in ("", "#ifdef __cplusplus", "}", "#endif"):
        out.line(line)
    return str(out)


def write_functions(module: Module, out: TextWriter, *, has_launch: bool) -> None:
    """Write the functions of the header, after `make_program`."""
    name = c_name(module.entry)
    arguments = f"const struct {name}_arguments* arguments"
    out.line("static pto::wsp::host::Callable& pto_callable() {")
    with out.indented():
        out.line("static pto::wsp::host::Callable callable{make_program()};")
        out.line("return callable;")
    out.line("}")
    out.line()
    _write_given(module, arguments, out)
    _write_function(f"{name}(\n    {arguments})", "call(pto_callable(), pto_given(arguments))", out)
    if has_launch:
        declared = f"{name}_launch(\n    PTOSession* session, {arguments}, const PTOGraph* graph,\n"
        called = "launch(pto_callable(), pto_given(arguments), session, graph, launch)"
        _write_function(f"{declared}    PTOLaunch** launch)", called, out)
        declared = f"{name}_graph(\n    PTOSession* session, const char* title, PTOGraph** graph)"
        _write_function(declared, "make_graph(pto_callable(), session, title, graph)", out)


def _write_function(declared: str, called: str, out: TextWriter) -> None:
    out.line()
    for line in f'extern "C" __attribute__((visibility("default"))) const char* {declared} {{'.splitlines():
        out.line(line)
    with out.indented():
        out.line(f"return pto::wsp::host::{called};")
    out.line("}")


def _write_given(module: Module, arguments: str, out: TextWriter) -> None:
    """Write what turns the structure of arguments into values and arrays by their numbers."""
    entry, members = module.entry_workload, members_of(module)
    arrays = {member.number: member for member in members if member.is_array}
    out.line(f"static pto::wsp::host::Given pto_given({arguments}) {{")
    with out.indented():
        out.line("pto::wsp::host::Given given{};")
        out.line(f"given.values.resize({len(entry.symbols)});")
        for member in members:
            if member.is_array:
                continue
            value = f"arguments->{member.name}"
            bits = f"pto::wsp::host::bits_of({value})" if member.type == "float " else f"int64_t({value})"
            out.line(f"given.values[{member.number}] = {bits};")
        out.line("given.arrays = {")
        with out.indented():
            for number in range(len(entry.tensors)):
                out.line(f"arguments->{arrays[number].name}," if number in arrays else "nullptr,")
        out.line("};")
        out.line("given.workers = arguments->workers;")
        out.line("return given;")
    out.line("}")
