"""What a block notes of its walk in shared memory, and the waits that read it, as device code."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pto_wsp.support.text import TextWriter
from pto_wsp.targets.cuda.waits import (
    BEFORE,
    ENDED,
    ENTERED,
    HERE,
    LATEST,
    START,
    DeviceWait,
    Moment,
)

_NAMES = {ENTERED: "begin", HERE: "here", BEFORE: "before", LATEST: "after"}

_NEEDED = {ENDED: ("begin", "end", "per"), BEFORE: ("before", "here")}
"""Names of the numbers that give a moment; for others the one of `_NAMES`."""

_BOARD_WORDS = 9
"""The size of `Board` of waits.hpp."""

_ALIGNMENT = 64

_MOST_KNOWN = 64
"""Rows of complete tasks that a block keeps. A wait that does not continue a row begins another one."""


class Notes:
    """Numbers of tasks that a block notes.

    Args:
        waits: what the tasks of the text wait for.
        others: names of further numbers.
    """

    def __init__(self, waits: Sequence[Sequence[DeviceWait]], others: Collection[str]) -> None:
        self._names = {*others}
        for wait in (wait for each in waits for wait in each):
            for moment in (wait.since, wait.until):
                names = _NEEDED.get(moment.kind, tuple(filter(None, (_NAMES.get(moment.kind),))))
                self._names |= {f"{name}_{moment.number}" for name in names}
        self._most_waits = self._most_known = 1
        self._next_known = 0

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """Add a number."""
        self._names.add(name)

    @property
    def num_bytes(self) -> int:
        """Bytes of the type `Notes`."""
        words = _BOARD_WORDS + len(self._names) + 2 * (self._most_waits + self._most_known)
        return (8 * words + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT

    def write_type(self, out: TextWriter) -> None:
        """Write the type `Notes`, after the walk."""
        out.line("/// What a block notes of its walk: how many tasks came before a moment.")
        out.line("struct Notes : Board {")
        with out.indented():
            for name in sorted(self._names):
                out.line(f"uint64_t {name};")
            out.line(f"Tasks waits[{self._most_waits}], known[{self._most_known}];")
        out.line("};")
        out.line(f"inline constexpr int64_t kNotesBytes = {self.num_bytes};")
        out.line('static_assert(sizeof(Notes) <= kNotesBytes, "the host reserves it");')
        out.line()

    def write(self, out: TextWriter, name: str, value: str = "") -> None:
        """Write the assignment of a number that waits need: `value`, or the number of the next task."""
        if name in self._names:
            out.line(f"run.note(notes.{name}{value and f', {value}'});")

    def write_wait(
        self,
        out: TextWriter,
        site: int,
        waits: Sequence[DeviceWait],
        labels: Sequence[int],
        scopes: Sequence[str],
    ) -> None:
        """Write the wait before a task. Thread 0 knows what it waits for.

        Args:
            out: gets the text.
            site: number of the task in the text.
            waits: what it waits for.
            labels: places in the text whose latest tasks it waits for.
            scopes: variables of the loops around it.
        """
        rows = [wait for wait in waits if not wait.is_latest]
        found = [self._awaited(wait, scopes) for wait in (*rows, *(w for w in waits if w.is_latest))]
        found += [f"latest(0, notes.after_{label})" for label in labels]
        if found:
            out.line("if (thread() == 0) {")
            for number, tasks in enumerate(found):
                out.line(f"  notes.waits[{number}] = {tasks};")
            out.line("}")
        num_known = min(len(rows), _MOST_KNOWN)
        if self._next_known + num_known > _MOST_KNOWN:
            self._next_known = 0
        known = f"notes.known + {self._next_known}, {num_known}"
        out.line(f"if (!run.wait({site}, notes.waits, {len(found)}, {known})) return;")
        self._next_known += num_known
        self._most_waits = max(self._most_waits, len(found))
        self._most_known = max(self._most_known, self._next_known)

    def _awaited(self, wait: DeviceWait, scopes: Sequence[str]) -> str:
        """Return the tasks that are waited for, as `Tasks`."""
        since, until = self._moment(wait.since, scopes), self._moment(wait.until, scopes)
        return f"latest({since}, {until})" if wait.is_latest else f"Tasks{{{since}, {until}}}"

    def _moment(self, moment: Moment, scopes: Sequence[str]) -> str:
        """Return a moment as the number of the task that came next."""
        number = moment.number
        if moment.kind == ENDED:
            base = "" if moment.base is None else f"{scopes[moment.base]} + "
            begin, per, end = (f"notes.{name}_{number}" for name in ("begin", "per", "end"))
            return f"after_iterations({begin}, {per}, {base}{moment.offset}, {end})"
        return "uint64_t{0}" if moment.kind == START else f"notes.{_NAMES[moment.kind]}_{number}"
