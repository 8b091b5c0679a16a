"""Hand-written kernels: each is a translation unit of its own, made around the user's text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from pto_wsp.errors import CppError
from pto_wsp.ir.kernel import KernelFunction, Native
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.c_style.native import (
    GENERATED,
    arguments,
    constant_value,
    parameters,
    write_constants,
    write_text,
)
from pto_wsp.targets.c_style.spelling import c_string, function_name
from pto_wsp.targets.cpu.code import write_fence

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
        declared = [*parameters(kernel), "[[maybe_unused]] const TaskContext& context"]
        out.line(f"static void {function}({', '.join(declared)}) {{")
        write_constants(native, out)
        write_text(native, out)
        out.line("}")
    _write_entry(kernel, function, out)
    out.line("}  // namespace pto::wsp::tile")
    return TranslationUnit(kernel, str(out))


def _write_entry(kernel: KernelFunction, function: str, out: TextWriter) -> None:
    """Write the function of the ABI, which calls the user's."""
    native = kernel.native
    assert native is not None
    place = f"{kernel.loc.file}:{kernel.loc.line}" if kernel.loc else "?"
    out.line(f"int32_t {function_name(kernel)}({PARAMETERS.replace('const ', '[[maybe_unused]] const ')}) {{")
    with out.indented():
        values = dict(arguments(kernel))
        names = native.order if native.entry else [p.name for p in kernel.params]
        constants = {name: constant_value(value) for name, value in native.constants}
        passed = ", ".join([*((values | constants)[name] for name in names), "*context"])
        out.line(f"const NativeCall call{{{c_string(kernel.name)}, {c_string(place)}, context}};")
        write_fence(kernel, out)
        out.line(f"return native::run(call, [&] {{ {function}({passed}); }});")
    out.line("}")


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
