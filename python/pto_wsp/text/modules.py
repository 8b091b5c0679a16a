"""Modules of `.pto` text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pto_wsp.errors import did_you_mean
from pto_wsp.errors_text import BadText, RepeatedText, UnknownText
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import DEFAULT, Schedule
from pto_wsp.ir.verify import verify
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.text.kernels import read_kernel_body
from pto_wsp.text.native import read_native
from pto_wsp.text.parameters import read_kernel_params, read_workload_params
from pto_wsp.text.schedules import read_schedule
from pto_wsp.text.shapes import Shapes
from pto_wsp.text.tokens import FUNCTION, Cursor, Source
from pto_wsp.text.workloads import read_workload_body

_HEADER = re.compile(r"//\s*(PTO Module|PTO Program|Functions|Entry|Function Type)\s*:\s*(.*?)\s*", re.I)
_KEYS = ("PTO Module", "PTO Program", "Functions", "Entry", "Function Type")
_KINDS = {"InCore": False, "Orchestration": True}


def parse(text: str, filename: str = "<text>") -> Module:
    """Return the module that `.pto` text says, verified. Nothing of it is compiled, imported or run.

    Args:
        text: a whole module, as `print(module)` writes it, or in the forms of docs/pto_text.md.
        filename: what errors call the text.

    Raises:
        TextError: text that cannot be read, at its line and column.
        InvalidIR: a function that breaks a rule, at its line.
    """
    return verify(_ModuleReader(Source(text, filename)).module())


@record
class _Later:
    """A workload whose body is read when every function is known: the line it begins at."""

    function: w.WorkloadFunction
    line: int


class _ModuleReader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.header: dict[str, tuple[str, Location]] = {}
        self.functions: dict[str, k.KernelFunction | w.WorkloadFunction] = {}
        self.shapes = Shapes()
        self.later: list[_Later] = []
        self.scheduled: Schedule | None = None

    def module(self) -> Module:
        for is_workload in self.heads():
            if self.source.first_word() == "SCHEDULE":
                self.schedule()
            else:
                self.function(is_workload)
        workloads = [self.workload(later) for later in self.later]
        kernels = tuple(f for f in self.functions.values() if isinstance(f, k.KernelFunction))
        self.require_listed()
        name, _ = self.header.get("PTO Module", ("", None))
        return Module(name, kernels, tuple(workloads), self.entry(), self.scheduled or DEFAULT)

    def schedule(self) -> None:
        place = self.source.place()
        if self.scheduled is not None:
            raise RepeatedText(kind="block", name="SCHEDULE", loc=place)
        self.scheduled = read_schedule(self.source)

    # --- comments that say something ---

    def heads(self) -> Iterator[bool]:
        """Yield at every function whether it is a workload, when the next statement is its head."""
        source = self.source
        kind: bool | None = None
        while not source.at_end:
            text = source.peek()
            if text.startswith("//"):
                kind = self.comment(*source.raw())
            elif text:
                yield self.is_workload() if kind is None else kind
                kind = None
            else:
                source.line += 1

    def comment(self, text: str, loc: Location) -> bool | None:
        """Note what a comment says of the module; return the kind of function that it announces."""
        found = _HEADER.fullmatch(text)
        if found is None:
            return None
        key, value = found.groups()
        if key not in _KEYS:
            known = next(k for k in _KEYS if k.lower() == key.lower())
            raise BadText(expected=f"`{known}`", found=f"`{key}`", advice="", loc=loc)
        if key == "Function Type":
            word = value.partition(" ")[0]
            if word not in _KINDS:
                raise BadText(expected="`InCore` or `Orchestration`", found=f"`{word}`", advice="", loc=loc)
            return _KINDS[word]
        if key in self.header:
            raise RepeatedText(kind="header", name=key, loc=loc)
        self.header[key] = (value, loc)
        return None

    def entry(self) -> str:
        text, loc = self.header.get("Entry", ("", None))
        name = text.removeprefix("@")
        if text and (name == text or name not in self.functions):
            hint = did_you_mean(name, self.functions)
            raise UnknownText(kind="function", name=name, where="the text", advice=hint, loc=loc)
        return name

    def require_listed(self) -> None:
        """Refuse a text without a function that its header lists: it may have been cut off."""
        text, loc = self.header.get("Functions", ("", None))
        for name in filter(None, (part.strip() for part in text.split(","))):
            if name not in self.functions:
                advice = did_you_mean(name, self.functions)
                raise UnknownText(kind="function", name=name, where="the text", advice=advice, loc=loc)

    # --- functions ---

    def is_workload(self) -> bool:
        """Return the kind of a function that no comment tells: by its body."""
        return False

    def function(self, is_workload: bool) -> None:
        cursor = self.source.statement()
        cursor.expect("func")
        token = cursor.take(FUNCTION, "a function: `@name`")
        name = token.text[1:]
        if name in self.functions:
            raise RepeatedText(kind="function", name=name, loc=cursor.place(token))
        if is_workload:
            params = read_workload_params(cursor)
            cursor.expect("{")
            cursor.end()
            function = w.WorkloadFunction(name, params, (), cursor.whole)
            self.later.append(_Later(function, self.source.line))
            self.functions[name] = function
            self.skip_body(cursor)
        else:
            self.functions[name] = self.kernel(cursor, name)

    def skip_body(self, head: Cursor) -> None:
        source = self.source
        while not source.at_end:
            source.line += 1
            if source.lines[source.line - 2].strip() == "}":
                return
        raise BadText(
            expected="`}` behind the function", found="the end of the text", advice="", loc=head.whole
        )

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
        return read_kernel_body(self.source, function, self.shapes)

    def workload(self, later: _Later) -> w.WorkloadFunction:
        self.source.line = later.line
        return read_workload_body(self.source, later.function, self.functions)


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
