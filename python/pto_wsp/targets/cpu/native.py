"""Hand-written kernels: each is a translation unit of its own, made around the user's text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pto_wsp.errors import CppError
from pto_wsp.ir.kernel import IN, KernelFunction, Native
from pto_wsp.ir.scalar import Value
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.spelling import INTEGERS, function_name, scalar_type
from pto_wsp.targets.cpu.code import write_fence
from pto_wsp.targets.cpu.spelling import c_string, literal
from pto_wsp.types.dtype import DType, b1, f32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType

ELEMENTS: dict[str, str] = {
    **INTEGERS,
    "f32": "float",
    "f64": "double",
    "f16": "F16",
    "bf16": "Bf16",
    "b1": "Bool",
}
"""C++ types of the elements of a `TensorView`."""

GENERATED = "<generated>"
"""What the compiler calls the lines around a user's text."""

FREESTANDING = ("-fno-exceptions", "-fno-rtti")
"""Options that hand-written kernels are compiled without: they have the standard library and exceptions."""

PARAMETERS = "const View* views, const Scalar* scalars, const TaskContext* context"

_UNTRACKED = re.compile(
    r"^[ \t]*#[ \t]*(?:include_next|import|embed|include(?=[ \t]+[A-Za-z_]))[^\n]*", re.MULTILINE
)
"""Directives whose file is not known from the text, or that the compiler alone knows how to find."""

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)


@record
class TranslationUnit:
    """A translation unit: its text, and the kernel that it is made for."""

    kernel: KernelFunction
    text: str

    @property
    def native(self) -> Native:
        """The C++ of the kernel."""
        assert self.kernel.native is not None
        return self.kernel.native


def declaration(kernel: KernelFunction) -> str:
    """Return the declaration of a kernel's function."""
    return f"int32_t {function_name(kernel)}({PARAMETERS});"


def make_unit(kernel: KernelFunction) -> TranslationUnit:
    """Return the translation unit of a hand-written kernel."""
    native = kernel.native
    assert native is not None
    out = TextWriter()
    out.line(f'#line 1 "{GENERATED}"')
    out.line('#include "pto/wsp/tile/tile.hpp"')
    for header in native.includes:
        out.line(f"#include {header}")
    if native.entry:
        write_text(native, out)
        out.line("namespace pto::wsp::tile {")
        function = f"::{native.entry}"
    else:
        function = f"body_{function_name(kernel)}"
        out.line("namespace pto::wsp::tile {")
        parameters = [f"[[maybe_unused]] {p}" for p in _declared(kernel)]
        out.line(f"static void {function}({', '.join(parameters)}) {{")
        for name, value in native.constants:
            out.line(f"[[maybe_unused]] {constant(name, value, ELEMENTS)}")
        write_text(native, out)
        out.line("}")
    _write_entry(kernel, function, out)
    out.line("}  // namespace pto::wsp::tile")
    return TranslationUnit(kernel, str(out))


def write_text(native: Native, out: TextWriter) -> None:
    """Write the user's text so that the compiler, and `__LINE__`, know its places."""
    if native.loc is not None:
        out.line(f"#line {native.loc.line} {c_string(native.loc.file)}")
    margin = " " * (native.loc.col - 1) if native.loc is not None and native.loc.col else ""
    out.line(margin + native.source)
    out.line(f'\n#line 1 "{GENERATED}"')


def _declared(kernel: KernelFunction) -> Iterator[str]:
    """Yield the parameters of the function of a body, in order."""
    for param in kernel.params:
        yield f"{_parameter_type(param.role, param.type)} {param.name}"
    yield "const TaskContext& context"


def _write_entry(kernel: KernelFunction, function: str, out: TextWriter) -> None:
    """Write the function of the ABI, which calls the user's."""
    native = kernel.native
    assert native is not None
    place = f"{kernel.loc.file}:{kernel.loc.line}" if kernel.loc else "?"
    out.line(f"int32_t {function_name(kernel)}({PARAMETERS.replace('const ', '[[maybe_unused]] const ')}) {{")
    with out.indented():
        values = dict(_passed(kernel))
        names = native.order if native.entry else [p.name for p in kernel.params]
        constants = {name: _constant_value(value) for name, value in native.constants}
        passed = ", ".join([*((values | constants)[name] for name in names), "*context"])
        out.line(f"const NativeCall call{{{c_string(kernel.name)}, {c_string(place)}, context}};")
        write_fence(kernel, out)
        out.line(f"return native::run(call, [&] {{ {function}({passed}); }});")
    out.line("}")


def _passed(kernel: KernelFunction) -> Iterator[tuple[str, str]]:
    """Yield the name of every parameter of the ABI, and its value for the user's function."""
    for number, param in enumerate(kernel.views):
        yield param.name, f"{_parameter_type(param.role, param.type)}(views[{number}])"
    for number, param in enumerate(kernel.scalar_params):
        assert param.type.dtype is not None
        kind = scalar_type(param.type.dtype)
        field = "f32" if kind == "float" else "i64"
        yield param.name, f"scalars[{number}].{field}" + (" != 0" if kind == "bool" else "")


def _parameter_type(role: str, type: TileType | ViewType | ScalarType) -> str:
    match type:
        case ScalarType(dtype=dtype):
            return f"const {scalar_type(dtype)}"
        case TileType(dtype=dtype):
            return _view_type(role, dtype, 2)
        case ViewType(dtype=DType() as dtype, dims=dims) if dims is not None:
            return _view_type(role, dtype, len(dims))
        case _:
            raise AssertionError("not a specialised parameter")


def _view_type(role: str, dtype: DType, rank: int) -> str:
    constness = "const " if role == IN else ""
    return f"TensorView<{constness}{ELEMENTS[dtype.name]}, {rank}>"


def constant(name: str, value: object, elements: Mapping[str, str]) -> str:
    """Return the declaration of a constant parameter; `elements` are the types of elements."""
    if isinstance(value, DType):
        return f"typedef {elements[value.name]} {name};"
    return f"constexpr auto {name} = {_constant_value(value)};"


def _constant_value(value: object) -> str:
    match value:
        case DType():
            return f"DType::{value.name}"
        case str():
            return c_string(value)
        case bool() | int() | float():
            return _number(value)
        case _:
            raise AssertionError("not a constant of a kernel")


def _number(value: Value) -> str:
    dtype = b1 if isinstance(value, bool) else i64 if isinstance(value, int) else f32
    return literal(value, dtype)


# --- headers --------------------------------------------------------------------------------------------


def included_files(unit: TranslationUnit, shipped: Path) -> dict[Path, str]:
    """Return the hash of every file that the text includes, itself or through others.

    Headers that are neither in the folder of the including file nor among the shipped ones are the
    compiler's own.

    Raises:
        CppError: a file is included in a way that does not say which.
    """
    native = unit.native
    _require_tracked(unit, native.source, native.loc)
    folder = Path(native.folder)
    found: dict[Path, str] = {}
    pending = [*_includes(native.source, folder)]
    pending += [(header[1:-1], header[0] == '"', folder) for header in native.includes]
    while pending:
        name, is_quoted, beside = pending.pop()
        path = _find(name, [*([beside, folder] if is_quoted else []), shipped])
        if path is not None and path not in found:
            content = path.read_bytes()
            found[path] = hashlib.sha256(content).hexdigest()
            text = content.decode(errors="replace")
            _require_tracked(unit, text, Location(str(path), 1))
            pending += _includes(text, path.parent)
    return found


def _require_tracked(unit: TranslationUnit, text: str, start: Location | None) -> None:
    """Refuse what would leave a change of a file unnoticed, and an old library in use."""
    match = _UNTRACKED.search(text)
    if match is None:
        return
    line = text.count("\n", 0, match.start())
    loc = Location(start.file, start.line + line) if start is not None else unit.kernel.loc
    message = f"`{match[0].strip()}` does not say which file: write #include with its name"
    raise CppError(kernel=unit.kernel.name, message=message, output="", loc=loc, hint="", source="")


def _includes(text: str, folder: Path) -> Iterator[tuple[str, bool, Path]]:
    for mark, name in _INCLUDE.findall(text):
        yield name, mark == '"', folder


def _find(name: str, folders: list[Path]) -> Path | None:
    for folder in folders:
        path = (folder / name).resolve()
        if path.is_file():
            return path
    return None
