"""Kernels in C++: the arguments of `@kernel` that locate the text, and their IR."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pto_wsp.errors import BadKernelOption
from pto_wsp.ir.kernel import HEADER, KernelFunction, Native, Param
from pto_wsp.ir.native_cycles import native_cycles
from pto_wsp.lang.kernel.signature import KernelParam
from pto_wsp.lang.source import FunctionSource
from pto_wsp.location import Location
from pto_wsp.support.record import record

PathText = str | os.PathLike[str]

KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl
    const const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()
)
"""Words that C++ parameters and functions cannot be called."""

CONTEXT = "context"
"""The parameter that every kernel in C++ has: the TaskContext of include/pto/wsp/abi.hpp."""

_QUOTED_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*\"", re.MULTILINE)


@record
class CppOptions:
    """What `@kernel` was given of a kernel in C++: one of the first three, if it is one."""

    cpp_src: str | None = None
    cpp_body_path: PathText | None = None
    cpp_tu_path: PathText | None = None
    cpp_includes: Sequence[str] = ()
    reference: Callable[..., object] | None = None
    targets: Sequence[str] = ()

    @property
    def given(self) -> list[str]:
        """Names of the arguments that give C++."""
        names = ("cpp_src", "cpp_body_path", "cpp_tu_path")
        return [name for name in names if getattr(self, name) is not None]


def read_native(
    source: FunctionSource, params: Sequence[KernelParam], options: CppOptions, has_body: bool
) -> Native | None:
    """Return the C++ of a kernel, or None if it has none.

    Raises:
        BadKernelOption: arguments that contradict each other, a file that cannot be read, a name that C++
            cannot use.
    """
    reader = _Reader(source, options)
    given = options.given
    if not given:
        reader.require_plain()
        return None
    if len(given) > 1:
        raise reader.bad("its C++ is given twice", "one of " + ", ".join(given), "each of them")
    if has_body:
        raise reader.bad("it has a body in Python and one in C++", "the body `...`", "statements")
    is_unit = given == ["cpp_tu_path"]
    reader.check_names([*([source.function.__name__] if is_unit else []), *(p.name for p in params)])
    reader.check_reference([p.name for p in params])
    text, loc = reader.text(given[0])
    includes = reader.includes()
    is_quoting = _QUOTED_INCLUDE.search(text) or any(header[0] == '"' for header in includes)
    return Native(
        source=text,
        entry=source.function.__name__ if is_unit else "",
        includes=includes,
        folder=str(reader.folder(given[0])) if is_quoting else "",
        order=tuple(p.name for p in params),
        reference=options.reference,
        loc=loc,
        targets=reader.targets(),
    )


def native_function(
    name: str, params: tuple[Param, ...], native: Native, constants: Mapping[str, object], loc: Location
) -> KernelFunction:
    """Return the IR of a kernel in C++ for values of its constant parameters.

    Raises:
        BadKernelOption: the C++ states a cost that cannot be read.
    """
    text = Native(
        native.source,
        native.entry,
        native.includes,
        native.folder,
        tuple(constants.items()),
        native.order,
        native.reference,
        native.loc,
        native.targets,
    )
    function = KernelFunction(name, params, loc=loc, native=text)
    native_cycles(function)  # an error here, and not when the kernel is simulated
    return function


@record
class _Reader:
    source: FunctionSource
    options: CppOptions

    def require_plain(self) -> None:
        """Refuse what only kernels in C++ have."""
        for name in ("cpp_includes", "reference", "targets"):
            if getattr(self.options, name):
                raise self.bad(f"`{name}` belongs to kernels in C++", "cpp_src or a path", f"`{name}` alone")

    def check_names(self, names: Sequence[str]) -> None:
        for name in names:
            reserved = "__" in name or re.match(r"_[A-Z]", name)
            if not name.isascii() or name in KEYWORDS or name == CONTEXT or reserved:
                arg = self.source.args.get(name)
                loc = self.source.at(arg) if arg is not None else self.source.loc
                raise self.bad("a name has another meaning in C++", "another name", f"`{name}`", loc)

    def check_reference(self, names: Sequence[str]) -> None:
        reference = self.options.reference
        if reference is None:
            return
        if not callable(reference):
            raise self.bad("its reference cannot be called", "a function", type(reference).__name__)
        try:
            inspect.signature(reference).bind(**dict.fromkeys(names))
        except (TypeError, ValueError) as error:
            wanted = f"a function of {', '.join(names)}"
            raise self.bad("its reference has other parameters", wanted, str(error)) from None

    def includes(self) -> tuple[str, ...]:
        headers = self.options.cpp_includes
        if isinstance(headers, str) or not all(isinstance(header, str) for header in headers):
            raise self.bad(
                "`cpp_includes` is not a list of headers", '["mine.hpp", "<cmath>"]', repr(headers)
            )
        found = tuple(header if header[:1] == "<" else f'"{header}"' for header in headers)
        for header in found:
            if not HEADER.fullmatch(header):
                raise self.bad("an include is not a header", '"mine.hpp" or "<cmath>"', header)
        return found

    def targets(self) -> tuple[str, ...]:
        names = self.options.targets
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise self.bad("`targets` is not a list of names", '("ascend_a2a3",)', repr(names))
        return tuple(names)

    # --- the text ---

    def text(self, option: str) -> tuple[str, Location]:
        value = getattr(self.options, option)
        return self.literal(value) if option == "cpp_src" else self.file(option)

    def file(self, option: str) -> tuple[str, Location]:
        path = self.path(option)
        try:
            return path.read_bytes().decode(), Location(str(path), 1)
        except (OSError, UnicodeDecodeError) as error:
            found = getattr(error, "strerror", None) or "a file that is not UTF-8 text"
            raise self.bad(f"the file of `{option}` cannot be read", str(path), found) from None

    def path(self, option: str) -> Path:
        value = getattr(self.options, option)
        if not isinstance(value, (str, os.PathLike)):
            raise self.bad(f"`{option}` is not a path", "a path", repr(value))
        return self.beside / value

    def folder(self, option: str) -> Path:
        return self.beside if option == "cpp_src" else self.path(option).parent

    @property
    def beside(self) -> Path:
        """The folder of the kernel's file, or the working directory if there is no such file."""
        file = self.source.file
        return Path(file).resolve().parent if os.path.isfile(file) else Path.cwd()

    def literal(self, text: object) -> tuple[str, Location]:
        """Return text that was given as a string, with its place: in a file of its own if computed."""
        if not isinstance(text, str):
            raise self.bad("`cpp_src` is not a text", "a string of C++", type(text).__name__)
        loc = self.literal_place(text)
        if loc is None:
            name = f"<C++ of {self.source.function.__name__} at {self.source.loc}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            loc = Location(name, 1)
        return text, loc

    def literal_place(self, text: str) -> Location | None:
        """Return where `text` is written as an argument of the decorator, if its lines are the file's."""
        lines = "".join(linecache.getlines(self.source.file))
        for node in self.decorator_arguments("cpp_src"):
            written = ast.get_source_segment(lines, node) or ""
            for quotes in ('"""', "'''", '"', "'"):
                before, found, rest = written.partition(quotes)
                if found and rest == text + quotes and before.lower() in ("", "r"):
                    start = self.source.at(node)
                    return Location(start.file, start.line, start.col + len(before + quotes))
        return None

    def decorator_arguments(self, name: str) -> list[ast.Constant]:
        assert self.source.node is not None
        calls = [d for d in self.source.node.decorator_list if isinstance(d, ast.Call)]
        keywords = [k for call in calls for k in call.keywords if k.arg == name]
        return [k.value for k in keywords if isinstance(k.value, ast.Constant)]

    def bad(self, problem: str, expected: str, found: str, loc: Location | None = None) -> BadKernelOption:
        return BadKernelOption(
            kernel=self.source.function.__name__,
            problem=problem,
            expected=expected,
            found=found,
            advice="",
            loc=loc or self.source.loc,
        )
