"""An emitted program as a function of C: its header, and the function itself."""

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


def c_header(module: Module) -> str:
    """Return the header of a program as a function of C."""
    name, out = c_name(module.entry), TextWriter()
    out.line(f"// The program {ascii(module.entry)[1:-1]} as a function of C.")
    for line in ("#pragma once", "#include <stdbool.h>", "#include <stdint.h>", "", "#ifdef __cplusplus"):
        out.line(line)
    for line in ('extern "C" {', "#endif", ""):
        out.line(line)
    out.line("// All sizes, scalars and arrays are needed. Arrays are in C order, without gaps.")
    out.line(f"struct {name}_arguments {{")
    with out.indented():
        for member in members_of(module):
            out.line(f"{member.type.rstrip()} {member.name};  // {ascii(member.text)[1:-1]}")
        out.line("uint32_t workers;  // threads; 0 = one per core")
    out.line("};")
    out.line()
    out.line(
        "// Runs the program and returns when all tasks are done. Returns NULL, or what is wrong: a text that"
    )
    out.line("// is valid until the thread calls the function again. Several threads may call it.")
    out.line(f"const char* {name}(const struct {name}_arguments* arguments);")
    for line in ("", "#ifdef __cplusplus", "}", "#endif"):
        out.line(line)
    return str(out)


def write_function(module: Module, out: TextWriter) -> None:
    """Write the function, after `make_program`."""
    name, entry, members = c_name(module.entry), module.entry_workload, members_of(module)
    values = {member.number: member for member in members if not member.is_array}
    arrays = {member.number: member for member in members if member.is_array}
    out.line(f'extern "C" __attribute__((visibility("default"))) const char* {name}(')
    out.line(f"    const struct {name}_arguments* arguments) {{")
    with out.indented():
        out.line("static pto::wsp::host::Callable callable{make_program()};")
        out.line(f"pto::wsp::host::Values values({len(entry.symbols)});")
        for number, member in values.items():
            value = f"arguments->{member.name}"
            bits = f"pto::wsp::host::bits_of({value})" if member.type == "float " else f"int64_t({value})"
            out.line(f"values[{number}] = {bits};")
        out.line("const void* const arrays[] = {")
        with out.indented():
            for number in range(len(entry.tensors)):
                out.line(f"arguments->{arrays[number].name}," if number in arrays else "nullptr,")
        out.line("};")
        out.line("return pto::wsp::host::call(callable, std::move(values), arrays, arguments->workers);")
    out.line("}")
