"""Calendars: which core runs which task when, for the sizes of one call."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp import _native
from pto_wsp.errors import UnusableFile, naming_file
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import DEFAULT
from pto_wsp.support.record import record
from pto_wsp.visualize.drawing import to_svg
from pto_wsp.visualize.timeline import NO_CALLS, Timeline, timeline_drawing

_FORMAT = "pto-wsp calendar 1"
_COLUMNS = ("task", "core", "second core or -1", "start", "end", "[core, count] pairs", "name")
_MOST_SHOWN = 40


@record
class CalendarRow:
    """One task of a calendar.

    Attributes:
        task: its number in program order.
        name: the task as a user writes it: `kernel[coordinates]`.
        core: index of its core in `Calendar.cores`.
        second: index of another core that it takes, or None.
        start: when it starts, in the unit of the calendar.
        end: when it ends.
        waits: pairs of a core and a count: the first tasks of that core that must be complete.
    """

    task: int
    name: str
    core: int
    second: int | None
    start: int
    end: int
    waits: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        cores = str(self.core) if self.second is None else f"{self.core}+{self.second}"
        waits = ",".join(f"{core}:{count}" for core, count in self.waits) or "-"
        return f"{self.task:>8} {cores:>5} {self.start:>12} {self.end:>12} {waits:>12} {self.name}"


class Calendar:
    """A table of all tasks of one call: their cores, times, and what they wait for.

    `Program.calendar` returns it, `Program.run(calendar=...)` runs it as it is. Rows ascend by start.

    Attributes:
        program: name and identity of the workload that it was made for.
        unit: of times: `ns`, or `cycles` of a simulated device.
        cores: their names.
        native: the table in the engine.
    """

    def __init__(
        self,
        program: tuple[str, str],
        clock_ghz: float | None,
        cores: Sequence[str],
        names: Sequence[str],
        native: _native.Calendar,
    ) -> None:
        self.program = program
        self.unit = "ns" if clock_ghz is None else "cycles"
        self.cores = tuple(cores)
        self.native = native
        self._clock_ghz = clock_ghz
        self._names = names

    @cached_property
    def rows(self) -> tuple[CalendarRow, ...]:
        """The tasks in the order of their starts."""
        pairs = zip(self.native.rows, self.native.waits, strict=True)
        return tuple(
            CalendarRow(
                task, self._names[task], core, second if second >= 0 else None, start, end, tuple(waits)
            )
            for (task, core, second, start, end), waits in pairs
        )

    @property
    def makespan(self) -> int:
        """When the last task ends, in the unit of the calendar."""
        return max((row.end for row in self.rows), default=0)

    def __len__(self) -> int:
        return len(self.native.rows)

    def __repr__(self) -> str:
        cores = f"{len(self.cores)} cores"
        return f"<Calendar of {self.program[0]}: {len(self)} tasks, {cores}, {self.makespan} {self.unit}>"

    def __str__(self) -> str:
        shown = [str(row) for row in self.rows[:_MOST_SHOWN]]
        more = [f"... {len(self) - _MOST_SHOWN} more tasks"] if len(self) > _MOST_SHOWN else []
        return "\n".join([repr(self), _header(), *shown, *more])

    def to_text(self) -> str:
        """Return the whole table as JSON with a line per task, which `Calendar.from_text` reads."""
        native = self.native
        head = {
            "format": _FORMAT,
            "program": self.program,
            "clock_ghz": self._clock_ghz,
            "kinds": native.kinds,
            "cores": self.cores,
            "symbols": native.symbols,
            "elements": native.elements,
            "memories": native.groups,
            "columns": _COLUMNS,
        }
        table = zip(native.rows, native.waits, strict=True)
        rows = [[*row, waits, self._names[row[0]]] for row, waits in table]
        fields = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
        return "\n".join(["{", *fields, ' "rows": [', lines, " ]", "}"]) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as text.

        Raises:
            UnusableFile: the file cannot be written.
        """
        with naming_file("written", path):
            Path(path).write_text(self.to_text(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calendar:
        """Read a table that `save` wrote. The run that uses it checks it.

        Raises:
            UnusableFile: the file cannot be read, or is not such a table.
        """
        try:
            with naming_file("read", path):
                text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UnusableFile(what="read", path=path, reason="it is not UTF-8 text") from None
        return cls.from_text(text, os.fspath(path))

    @classmethod
    def from_text(cls, text: str, path: str = "<text>") -> Calendar:
        """Read a table from text; `path` names it in errors.

        Raises:
            UnusableFile: the text is not such a table.
        """
        try:
            found = json.loads(text)
            if not isinstance(found, dict) or found.get("format") != _FORMAT:
                raise ValueError(f"expected `format` to be `{_FORMAT}`")
            return _from_fields(found)
        except json.JSONDecodeError as error:
            reason = f"expected JSON text: line {error.lineno}, column {error.colno}: {error.msg}"
        except KeyError as error:
            reason = f"expected a field {error}"
        except ValueError as error:
            reason = str(error)
        except TypeError:  # a number that the engine has no type for
            reason = "expected integers of 64 bits"
        raise UnusableFile(what="loaded", path=path, reason=reason)

    def to_svg(self) -> str:
        """Return a picture: a lane per core, time from left to right, a colour per kernel."""
        return to_svg(timeline_drawing(self._timeline()))

    def save_svg(self, path: str | os.PathLike[str]) -> None:
        """Write `to_svg()` to a file."""
        with naming_file("written", path):
            Path(path).write_text(self.to_svg(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _timeline(self) -> Timeline:
        rows = sorted(self.rows, key=lambda row: row.task)
        kernel_of = [row.name.partition("[")[0] for row in rows]
        kernels = sorted(set(kernel_of))
        scale = 1.0 if self._clock_ghz is None else 1 / self._clock_ghz
        second = [-1 if row.second is None else row.second for row in rows]
        return Timeline(
            kernels,
            [],
            np.array([kernels.index(kernel) for kernel in kernel_of], np.int64),
            np.array([row.core for row in rows], np.int64),
            np.array([round(row.start * scale) for row in rows], np.int64),
            np.array([round(row.end * scale) for row in rows], np.int64),
            np.empty((0, 4), np.int64),
            np.empty((0, 4), np.int64),
            np.empty((0, 4), np.int64),
            {"program": self.program[0], "calendar": f"{self.makespan} {self.unit}"},
            num_workers=len(self.cores),
            lanes=self.cores,
            second=np.array(second, np.int64) if any(i >= 0 for i in second) else NO_CALLS,
        )


def _header() -> str:
    return f"{'task':>8} {'core':>5} {'start':>12} {'end':>12} {'waits':>12} name"


def _from_fields(found: dict[str, Any]) -> Calendar:
    """Return the calendar that these fields state, or raise ValueError with what was expected."""
    program, cores, clock = found["program"], found["cores"], found["clock_ghz"]
    _expect(_is_list_of(str, program) and len(program) == 2, "`program` to be two texts")
    _expect(_is_list_of(str, cores), "`cores` to be a list of names")
    _expect(clock is None or isinstance(clock, (int, float)), "`clock_ghz` to be a number or null")
    for key in ("kinds", "symbols", "elements", "memories"):
        _expect(_is_list_of(int, found[key]), f"`{key}` to be a list of integers")
    kinds = found["kinds"]
    _expect(sum(kinds) == len(cores), f"{sum(kinds)} names in `cores`")
    _expect(found["columns"] == [*_COLUMNS], f"`columns` to be {[*_COLUMNS]}")
    rows = found["rows"]
    _expect(isinstance(rows, list), "`rows` to be a list")
    for number, row in enumerate(rows):
        _expect(_is_row(row), f"row {number} of `rows` to be [{', '.join(_COLUMNS)}]")
    names = {row[0]: row[6] for row in rows}
    _expect(sorted(names) == list(range(len(rows))), f"one row for each of the tasks 0 to {len(rows) - 1}")
    native = _native.Calendar(
        kinds,
        found["symbols"],
        found["elements"],
        found["memories"],
        [tuple(row[:5]) for row in rows],
        [[(core, count) for core, count in row[5]] for row in rows],
    )
    ordered = [names[task] for task in range(len(rows))]
    return Calendar((program[0], program[1]), None if clock is None else float(clock), cores, ordered, native)


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"expected {what}")


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)


def _is_row(row: object) -> bool:
    if not isinstance(row, list) or len(row) != len(_COLUMNS):
        return False
    *numbers, waits, name = row
    task, core, second = numbers[:3]
    if (
        not _is_list_of(int, numbers)
        or min(task, core) < 0
        or not -1 <= second < 2**32
        or not isinstance(name, str)
    ):
        return False
    return isinstance(waits, list) and all(map(_is_wait, waits))


def _is_wait(pair: Any) -> bool:
    return _is_list_of(int, pair) and len(pair) == 2 and min(pair) >= 0


def identity_of(module: Module) -> str:
    """Return a hash of a module without its schedule."""
    return hashlib.sha256(str(module.with_schedule(DEFAULT)).encode()).hexdigest()[:16]
