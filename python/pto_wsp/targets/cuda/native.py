"""Kernels that users write in C++ for a block: their text as it is, inside of a device function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import IN, KernelFunction, Native, Param
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.spelling import function_name, scalar_type
from pto_wsp.targets.cpu.native import ELEMENTS, constant, write_text
from pto_wsp.targets.cuda.memory import SHARED_BYTES
from pto_wsp.types.tile import ScalarType, TileType, ViewType

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])*'|(?P<word>\w+)|(?P<mark>[()])""",
    re.DOTALL,
)


def write_native(kernel: KernelFunction, target: str, out: TextWriter) -> tuple[tuple[Check, ...], int]:
    """Write the device function of a kernel in C++; return what its checks mean, and its shared memory.

    Raises:
        UnsupportedByTarget: the C++ is for other targets, is a whole file or includes files of its own, or
            states shared memory that a block does not have.
    """
    native = kernel.native
    assert native is not None
    _require_text(kernel, native, target)
    native = replace(native, loc=native.loc or Location(f"<C++ of {kernel.name}>", 1))
    calls = list(_calls(native))
    name = function_name(kernel)
    declared = [f"[[maybe_unused]] {_parameter(param)}" for param in kernel.params]
    declared.append("[[maybe_unused]] const TaskContext& context")
    out.line(f"PTO_DEVICE inline Status body_{name}({', '.join(declared)}) {{")
    assert native.loc is not None
    out.line(f"[[maybe_unused]] constexpr int32_t kLinesBefore = {native.loc.line - 1};")
    for key, value in native.constants:
        out.line(f"[[maybe_unused]] {constant(key, value, ELEMENTS)}")
    write_text(native, out)
    out.line("return kDone;")
    out.line("}")
    parameters = "const View* views, const Scalar* scalars, const TaskContext* context"
    out.line("PTO_DEVICE")
    out.line(f"int32_t {name}({parameters.replace('const ', '[[maybe_unused]] const ')}) {{")
    with out.indented():
        out.line(f"const Status status = body_{name}({', '.join([*_passed(kernel), '*context'])});")
        out.line("finish_copies();")
        out.line("return status.code;")
    out.line("}")
    shared = [call for call in calls if call.name == "PTO_SHARED"]
    return _checks(kernel, native, target, calls), _shared_bytes(kernel, target, shared)


@record
class _Call:
    """A call of a macro: its message or argument, its place, and its lines in the text."""

    name: str
    text: str
    loc: Location
    lines: range


def _checks(kernel: KernelFunction, native: Native, target: str, calls: Sequence[_Call]) -> tuple[Check, ...]:
    """Return what a failed check on each line of the text means."""
    assert native.loc is not None
    found = [
        Check(
            replace(native.loc, line=native.loc.line + line, col=0, end_col=0),
            CheckText("a check on this line failed"),
        )
        for line in range(native.source.count("\n") + 1)
    ]
    taken: set[int] = set()
    for call in calls:
        if call.name != "PTO_CHECK":
            continue
        if not taken.isdisjoint(call.lines):
            what, reason = "two PTO_CHECK on one line", "a failed check is known by its line"
            raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=call.loc)
        taken |= set(call.lines)
        for line in call.lines:
            found[line] = Check(call.loc, CheckText(call.text))
    return tuple(found)


def _require_text(kernel: KernelFunction, native: Native, target: str) -> None:
    if not native.targets:
        reason = f'its C++ is written for a CPU: state `targets=("{target}",)`, or use `pto` instructions'
    elif native.entry:
        reason = "give its body with `cpp_src` or `cpp_body_path`, not a translation unit"
    elif native.folder:
        reason = "files next to a kernel are not emitted: move the text into the kernel"
    else:
        return
    what = f"the kernel `{kernel.name}` in C++"
    raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=kernel.loc)


def _shared_bytes(kernel: KernelFunction, target: str, stated: Sequence[_Call]) -> int:
    """Return the shared memory that the text states; 0 if it states none."""
    if not stated:
        return 0
    text = stated[0].text
    if len(stated) == 1 and text.isdecimal() and 0 < int(text) <= SHARED_BYTES:
        return int(text)
    what = f"`PTO_SHARED({text})` of kernel `{kernel.name}`"
    reason = f"state a number of bytes once: at most {SHARED_BYTES}"
    raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=stated[-1].loc)


def _calls(native: Native) -> Iterator[_Call]:
    """Yield the calls of macros in the text."""
    assert native.loc is not None
    tokens = list(_TOKEN.finditer(native.source))
    for number, token in enumerate(tokens):
        name = token["word"]
        if name not in ("PTO_CHECK", "PTO_SHARED"):
            continue
        depth, message, after = 0, "", 0
        for end in tokens[number + 1 :]:
            if end["text"] is not None:
                is_continued = not native.source[after : end.start()].strip()
                message = message * is_continued + end["text"][1:-1]
                after = end.end()
            depth += {"(": 1, ")": -1}.get(end["mark"] or "", 0)
            if depth == 0:
                break
        else:
            continue  # the compiler says that a bracket is missing
        argument = native.source[tokens[number + 1].end() : end.start()].strip()
        first, last = (native.source.count("\n", 0, at) for at in (token.start(), end.end()))
        loc = Location(native.loc.file, native.loc.line + first)
        yield _Call(name, message if name == "PTO_CHECK" else argument, loc, range(first, last + 1))


def _parameter(param: Param) -> str:
    if isinstance(param.type, ScalarType):
        return f"const {scalar_type(param.type.dtype)} {param.name}"
    return f"{_view_type(param)} {param.name}"


def _view_type(param: Param) -> str:
    dims = param.type.dims if isinstance(param.type, ViewType) else (0, 0)
    assert isinstance(param.type, TileType | ViewType) and dims is not None and param.type.dtype is not None
    return f"TensorView<{'const ' * (param.role == IN)}{ELEMENTS[param.type.dtype.name]}, {len(dims)}>"


def _passed(kernel: KernelFunction) -> Iterator[str]:
    """Yield the arguments of the function of the text, in the order of the parameters."""
    views = scalars = 0
    for param in kernel.params:
        if isinstance(param.type, ScalarType):
            kind = scalar_type(param.type.dtype)
            field = "f32" if kind == "float" else "i64"
            yield f"scalars[{scalars}].{field}" + (" != 0" if kind == "bool" else "")
            scalars += 1
        else:
            yield f"{_view_type(param)}(views[{views}])"
            views += 1


def kernel_of_place(kernels: Sequence[KernelFunction], file: str, line: int) -> KernelFunction | None:
    """Return the kernel in C++ whose text has a line of a file."""
    for kernel in kernels:
        native = kernel.native
        if native is not None and native.loc is not None and native.loc.file == file:
            if native.loc.line <= line <= native.loc.line + native.source.count("\n"):
                return kernel
    return None
