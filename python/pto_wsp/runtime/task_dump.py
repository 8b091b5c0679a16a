"""Reading task dumps back: the text of docs/task_dump.md.

Dumps of other runtimes state buffers in KB, and may end their lists with `...`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pto_wsp.errors import UnusableFile, naming_file
from pto_wsp.support.record import record

READY, WAIT, DONE = "READY", "WAIT", "DONE"

_TASK = re.compile(
    r"  Task (\d+): (.*?) +\[(READY|WAIT|DONE)\] +"
    r"fanin=(\d+) buf=(\d+(?:\.\d+)?)([KM]?)B fanout=\[([\d, ]*)\]"
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_TOTAL = re.compile(r"  Total tasks scheduled: +(\d+)")
_REST = "  ..."
"""A line in place of the rest of a list, in dumps that were cut."""


@record
class DumpedTask:
    """A task of a dump.

    Attributes:
        name: of its kernel.
        state: `READY`, `WAIT` or `DONE`.
        fanin: tasks that it waits for and that are not complete.
        buffer_bytes: what the tiles of its kernel take, sharing memory.
        fanout: numbers of the tasks that wait for it, ascending.
        details: what a verbose dump says besides, one text per line.
    """

    name: str
    state: str
    fanin: int
    buffer_bytes: int
    fanout: tuple[int, ...]
    details: tuple[str, ...]


def read_task_dump(path: str | Path) -> tuple[DumpedTask, ...]:
    """Return the tasks of a dump, in program order; their numbers are their positions.

    Args:
        path: a file that holds a dump of either form.

    Raises:
        UnusableFile: it cannot be read, or is not a task dump, with the line that is not of one.
    """
    try:
        with naming_file("read", path):
            text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UnusableFile(what="read", path=path, reason="it is not UTF-8 text") from None
    return parse_task_dump(text, path)


def parse_task_dump(text: str, path: str | Path = "dump") -> tuple[DumpedTask, ...]:
    """Return the tasks of the text of a dump; see `read_task_dump`.

    Args:
        text: all of it.
        path: what errors call it.
    """
    lines = text.splitlines()
    if "PTO RUNTIME DUMP" not in lines or "TASK TABLE" not in lines:
        raise UnusableFile(what="read", path=path, reason="it is not a task dump")
    tasks: list[DumpedTask] = []
    first = lines.index("TASK TABLE") + 1
    for number, line in enumerate(lines[first:], first + 1):
        if not line or (tasks and line == _REST):
            break
        if tasks and line.startswith("    "):
            tasks[-1] = _with_detail(tasks[-1], line.strip())
            continue
        found = _TASK.fullmatch(line)
        if found is None or int(found[1]) != len(tasks):
            raise UnusableFile(what="read", path=path, reason=f"line {number} is not of task {len(tasks)}")
        fanout = tuple(int(task) for task in found[7].split(",") if task.strip())
        buffer_bytes = round(float(found[5]) * _UNITS[found[6]])
        tasks.append(DumpedTask(found[2], found[3], int(found[4]), buffer_bytes, fanout, ()))
    _check_fanout(tasks, len(tasks) + num_omitted(text, tasks), path)
    return tuple(tasks)


def num_omitted(text: str, tasks: Sequence[DumpedTask]) -> int:
    """Return how many tasks the summary of a dump counts in addition to those in its table."""
    found = _TOTAL.search(text)
    return 0 if found is None else max(0, int(found[1]) - len(tasks))


def _with_detail(task: DumpedTask, detail: str) -> DumpedTask:
    details = (*task.details, detail)
    return DumpedTask(task.name, task.state, task.fanin, task.buffer_bytes, task.fanout, details)


def _check_fanout(tasks: list[DumpedTask], num_tasks: int, path: str | Path) -> None:
    for number, task in enumerate(tasks):
        for after in task.fanout:
            if not number < after < num_tasks:
                reason = f"task {after} cannot wait for task {number}"
                raise UnusableFile(what="read", path=path, reason=reason)
