"""Kernels that users write in C++ for a block: their text as it is, inside of a device function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import KernelFunction, Native
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.base import Check
from pto_wsp.targets.c_style.native import arguments, parameters, require_text, write_constants, write_text
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.targets.cuda.memory import SHARED_BYTES

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
    require_text(kernel, target)
    native = replace(native, loc=native.loc or Location(f"<C++ of {kernel.name}>", 1))
    calls = list(_calls(native))
    name = function_name(kernel)
    declared = [*parameters(kernel), "[[maybe_unused]] const TaskContext& context"]
    out.line(f"PTO_DEVICE inline Status body_{name}({', '.join(declared)}) {{")
    assert native.loc is not None
    out.line(f"[[maybe_unused]] constexpr int32_t kLinesBefore = {native.loc.line - 1};")
    write_constants(native, out)
    write_text(native, out)
    out.line("return kDone;")
    out.line("}")
    abi = "const View* views, const Scalar* scalars, const TaskContext* context"
    out.line("PTO_DEVICE")
    out.line(f"int32_t {name}({abi.replace('const ', '[[maybe_unused]] const ')}) {{")
    passed = [*dict(arguments(kernel)).values(), "*context"]
    with out.indented():
        out.line(f"const Status status = body_{name}({', '.join(passed)});")
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


def kernel_of_place(kernels: Sequence[KernelFunction], file: str, line: int) -> KernelFunction | None:
    """Return the kernel in C++ whose text has a line of a file."""
    for kernel in kernels:
        native = kernel.native
        if native is not None and native.loc is not None and native.loc.file == file:
            if native.loc.line <= line <= native.loc.line + native.source.count("\n"):
                return kernel
    return None
