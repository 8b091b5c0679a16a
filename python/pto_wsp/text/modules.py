"""Modules of `.pto` text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pto_wsp.builder.function import PTOFunctionBuilder
from pto_wsp.builder.module import PTOModule
from pto_wsp.errors import BadText, NoMeaning, RepeatedText, TextLimit, TextVersion, UnknownText, did_you_mean
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import DEFAULT, Directives
from pto_wsp.ir.verify import verify
from pto_wsp.lang.kernel.outputs import check_outputs
from pto_wsp.location import Location
from pto_wsp.support.garbage import collection_paused
from pto_wsp.support.record import record, replace
from pto_wsp.text.kernels import read_kernel_body
from pto_wsp.text.native import read_native
from pto_wsp.text.parameters import read_kernel_params, read_workload_params
from pto_wsp.text.refused import refuse_known
from pto_wsp.text.schedules import read_schedule
from pto_wsp.text.tokens import FUNCTION, WORD, Cursor, Source, Token
from pto_wsp.text.workloads import read_workload_body

VERSION = "1"
VERSION_LINE = f"// PTO Text: {VERSION}"

_HEADER = re.compile(
    r"//\s*(PTO Text|PTO Module|PTO Program|Functions|Entry|Function Type)\s*:\s*(.*?)\s*", re.I
)
HEADER_KEYS = ("PTO Text", "PTO Module", "PTO Program", "Functions", "Entry", "Function Type")
_KINDS = {"InCore": False, "Orchestration": True}
_KIND = re.compile(r"//\s*(InCore|Orchestration) Function\b.*")

MAX_CALLS = 32


def parse(text: str, filename: str = "<text>") -> Module:
    """Return the module that `.pto` text says, verified. Nothing of it is compiled, imported or run.

    Args:
        text: a whole module, as `print(module)` writes it, or in the forms of docs/pto_text.md.
        filename: what errors call the text.

    Raises:
        TextError: text that cannot be read, at its line and column.
        InvalidIR: a function that breaks a rule, at its line.
        OutNotStored, OutRead, OutPartlyStored: a kernel's output that some path does not store, that is read
            before, or with a part that is never stored.
    """
    with collection_paused():
        module = verify(_ModuleReader(Source(text, filename)).module())
        kernels = {kernel.name: kernel for kernel in module.kernels}
        for kernel in module.kernels:
            if kernel.body is not None:
                check_outputs(kernel, kernels)
        return module


@record
class _Later:
    """A function whose body is read when others are known: its head, and the line that its body begins at."""

    name: str
    is_workload: bool
    loc: Location
    head: Cursor
    line: int


class _ModuleReader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.header: dict[str, tuple[str, Location]] = {}
        self.functions: dict[str, k.KernelFunction | w.WorkloadFunction | None] = {}
        self.workloads: list[_Later] = []
        self.foreign: dict[str, _Later] = {}
        self.reading: list[str] = []
        self.imports: list[tuple[str, Location]] = []
        self.scheduled: Directives | None = None

    def module(self) -> Module:
        for kind in self.heads():
            word = self.source.first_word()
            if word == "SCHEDULE":
                self.schedule()
            elif word == "#import":
                self.import_function()
            else:
                self.function(kind)
        for name in self.foreign:
            self.foreign_function(name)
        for later in self.workloads:
            self.workload(later)
        self.require_listed()
        every = self.functions.values()
        kernels = tuple(f for f in every if isinstance(f, k.KernelFunction))
        workloads = tuple(f for f in every if isinstance(f, w.WorkloadFunction))
        entry = self.entry(workloads)
        return Module(self.name(entry), kernels, workloads, entry, self.scheduled or DEFAULT)

    def name(self, entry: str) -> str:
        for key in ("PTO Module", "PTO Program"):
            if key in self.header:
                return self.header[key][0]
        return entry or "module"

    def schedule(self) -> None:
        place = self.source.place()
        if self.scheduled is not None:
            raise RepeatedText(kind="block", name="SCHEDULE", loc=place)
        self.scheduled = read_schedule(self.source)

    def import_function(self) -> None:
        cursor = self.source.statement()
        cursor.expect("#")
        cursor.expect("import")
        token = cursor.take(FUNCTION, "a function: `@name`")
        cursor.end()
        self.imports.append((token.text[1:], cursor.place(token)))

    # --- comments that say something ---

    def heads(self) -> Iterator[bool | None]:
        """Yield at every function whether it is a workload, if comments say so, before its head is read."""
        source = self.source
        kind: bool | None = None
        while not source.at_end:
            text = source.peek()
            if text.startswith("//"):
                said = self.comment(*source.raw())
                kind = kind if said is None else said
            elif text:
                yield kind
                kind = None
            else:
                source.line += 1

    def comment(self, text: str, loc: Location) -> bool | None:
        """Note what a comment says of the module; return the kind of function that it announces."""
        short = _KIND.fullmatch(text)
        if short is not None:
            return _KINDS[short[1]]
        found = _HEADER.fullmatch(text)
        if found is None:
            return None
        key, value = found.groups()
        if key not in HEADER_KEYS:
            known = next(k for k in HEADER_KEYS if k.lower() == key.lower())
            raise BadText(expected=f"`{known}`", found=f"`{key}`", advice="", loc=loc)
        if key == "Function Type":
            word = value.partition(" ")[0]
            if word not in _KINDS:
                raise BadText(expected="`InCore` or `Orchestration`", found=f"`{word}`", advice="", loc=loc)
            return _KINDS[word]
        if key == "PTO Text" and value != VERSION:
            raise TextVersion(found=value, expected=VERSION, loc=loc)
        if key in self.header:
            raise RepeatedText(kind="header", name=key, loc=loc)
        self.header[key] = (value, loc)
        return None

    def entry(self, workloads: Sequence[w.WorkloadFunction]) -> str:
        """Return the entry: the one that the header names; without a header the only one that can be."""
        if "Entry" not in self.header:
            if "PTO Module" in self.header:
                return ""
            names = [f.name for f in workloads] or list(self.functions)
            return names[0] if len(names) == 1 else ""
        text, loc = self.header["Entry"]
        name = text.removeprefix("@")
        if name == text or name not in self.functions:
            raise self.unknown(name, loc)
        return name

    def unknown(self, name: str, loc: Location) -> UnknownText:
        advice = did_you_mean(name, self.functions)
        return UnknownText(kind="function", name=name, where="the text", advice=advice, loc=loc)

    def require_listed(self) -> None:
        """Refuse a text without a function that it lists or imports: it may have been cut off."""
        listed = self.imports
        if "Functions" in self.header:
            text, loc = self.header["Functions"]
            listed = [*listed, *((part.strip(), loc) for part in text.split(",") if part.strip())]
        for name, loc in listed:
            if name not in self.functions:
                raise self.unknown(name, loc)

    # --- functions ---

    def function(self, kind: bool | None) -> None:
        """Read the head of a function, and what can be read of it before the others are known."""
        cursor = self.source.statement()
        if cursor.at(".function"):
            cursor.advance()
            token, name = cursor.token, cursor.take(WORD, "the name of the function").text
            last = ".end"
        else:
            refuse_known(cursor)
            cursor.expect("func", "a module has functions: `func @name(...) {`")
            token = cursor.take(FUNCTION, "a function: `@name`")
            name, last = token.text[1:], "}"
        if name in self.functions:
            raise RepeatedText(kind="function", name=name, loc=cursor.place(token))
        self.functions[name] = None
        from pto_wsp.text.foreign.detection import form_of  # here: programs in Python need none of the forms

        form = form_of(self.source, cursor, last)
        is_workload = form.is_workload if kind is None else kind
        later = _Later(name, is_workload, cursor.whole, cursor, self.source.line)
        if form.is_foreign or (is_workload and form.is_foreign_workload):
            self.foreign[name] = later
            self.skip_body(cursor, last)
        elif is_workload:
            params = read_workload_params(cursor)
            cursor.expect("{")
            cursor.end()
            self.functions[name] = w.WorkloadFunction(name, params, (), cursor.whole)
            self.workloads.append(later)
            self.skip_body(cursor, last)
        else:
            self.functions[name] = self.kernel(cursor, name)

    def skip_body(self, head: Cursor, last: str) -> None:
        source = self.source
        while not source.at_end:
            source.line += 1
            if source.lines[source.line - 2].split(None, 1)[:1] == [last]:
                return
        expected = f"`{last}` after the function"
        raise BadText(expected=expected, found="the end of the text", advice="", loc=head.whole)

    def kernel(self, cursor: Cursor, name: str) -> k.KernelFunction:
        params = read_kernel_params(cursor)
        unit, blocks = _attributes(cursor) if cursor.accept("attributes") else ("any", 1)
        function = k.KernelFunction(name, params, loc=cursor.whole, unit=unit, block_dim=blocks)
        if not cursor.accept("{"):
            cursor.end()
            return function
        cursor.end()
        self.source.skip_blank()
        if self.source.first_word() == "CPP":
            return replace(function, native=read_native(self.source))
        return read_kernel_body(self.source, function)

    def workload(self, later: _Later) -> None:
        function = self.functions[later.name]
        assert isinstance(function, w.WorkloadFunction)
        self.source.line = later.line
        self.functions[later.name] = read_workload_body(self.source, function, self.called)

    def called(self, cursor: Cursor, token: Token) -> k.KernelFunction | w.WorkloadFunction:
        """Return the function that a token names, of which at least the head has been read."""
        name = token.text[1:]
        if name not in self.functions:
            cursor.unknown("function", name, "the text", self.functions, token)
        if name in self.reading:
            path, place = " -> ".join((*self.reading, name)), cursor.place(token)
            raise NoMeaning(
                form=f"the call of `{name}`", reason=f"it leads back: {path}", advice="", loc=place
            )
        if len(self.reading) > MAX_CALLS:
            limit, place = f"{MAX_CALLS} are read", cursor.place(token)
            raise TextLimit(what="too many calls of functions that follow", limit=limit, loc=place)
        self.foreign_function(name)
        found = self.functions[name]
        assert found is not None
        return found

    def foreign_function(self, name: str) -> None:
        """Read a function in a form of elsewhere, unless it has been read."""
        if self.functions[name] is not None:
            return
        later, line = self.foreign[name], self.source.line
        self.reading.append(name)
        self.source.line = later.line
        function = self.built(later)
        self.functions[name] = replace(function, loc=later.loc)
        self.source.line = line
        self.reading.pop()

    def built(self, later: _Later) -> k.KernelFunction | w.WorkloadFunction:
        module = PTOModule()
        builder = PTOFunctionBuilder(later.name, module).at(later.loc)
        builder = builder.not_in_core() if later.is_workload else builder.in_core()

        def require(cursor: Cursor, token: Token) -> None:
            callee = self.called(cursor, token)
            if not module.has_function(callee.name):
                module.import_function(callee)

        from pto_wsp.text.foreign.functions import read_foreign

        return read_foreign(self.source, later.head, builder, later.is_workload, require)


def _attributes(cursor: Cursor) -> tuple[str, int]:
    """Read the attributes of a kernel: its unit and its blocks."""
    cursor.expect("{")
    unit, blocks = "any", 1
    seen: set[str] = set()
    while True:
        token = cursor.token
        key = cursor.word(("unit", "block_dim"), "an attribute of a kernel")
        if key in seen:
            raise RepeatedText(kind="attribute", name=key, loc=cursor.place(token))
        seen.add(key)
        cursor.expect("=")
        if key == "unit":
            unit = cursor.word(k.UNITS, "a unit")
        else:
            blocks = cursor.integer()
        if cursor.accept("}"):
            return unit, blocks
        cursor.expect(",")
