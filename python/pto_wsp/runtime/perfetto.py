"""Chrome trace JSON, which Perfetto (ui.perfetto.dev) opens.

It is written a kernel at a time, since runs have millions of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import numpy as np

REASONS = ("read after write", "write after read", "write after write", "after=")
"""Why a task depends on another one."""

STALLS = ("window", "slice", "flush", "pool")
"""What stops a dispatcher: no room for a record, too many slices, a value that tasks write, another pool."""

_ROWS_AT_ONCE = 1 << 14


class PerfettoWriter:
    """Writes one run, as a context: entering writes what stands before the events, leaving what ends them.

    Times are given in nanoseconds and written in us, with the digits of both.
    """

    def __init__(self, file: IO[str], worker: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> None:
        self._file = file
        self._worker = worker
        self._start_ns = start_ns
        self._end_ns = end_ns

    def __enter__(self) -> PerfettoWriter:
        self._file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        self._file.write('{"ph":"M","pid":0,"name":"process_name","args":{"name":"pto-wsp"}}')
        form = '{"ph":"M","pid":0,"tid":%d,"name":"thread_name","args":{"name":"worker %d"}}'
        lanes = np.unique(self._worker)
        self._write(form, [lanes, lanes])
        return self

    def __exit__(self, *_: object) -> None:
        self._file.write("\n]}\n")

    def tasks(self, kernel: str, location: str, rows: np.ndarray, keys: Sequence[np.ndarray]) -> None:
        """Write the tasks `rows`, all of one call of a kernel, with their coordinates."""
        label = f"[{', '.join(['%d'] * len(keys))}]" if keys else ""
        form = (
            f'{{"ph":"X","pid":0,"tid":%d,"name":{_quoted(kernel)[:-1]}{label}","cat":{_quoted(kernel)},'
            f'"ts":%d.%03d,"dur":%d.%03d,"args":{{"task":%d,"location":{_quoted(location)}}}}}'
        )
        start, end = self._start_ns[rows], self._end_ns[rows]
        self._write(form, [self._worker[rows], *keys, *_us(start), *_us(end - start), rows])

    def arrows(self, dependences: np.ndarray) -> None:
        """Write an arrow for each row (task, one that depended on it, index in `REASONS`)."""
        for index, reason in enumerate(REASONS):
            numbers = np.flatnonzero(dependences[:, 2] == index)
            before, after = dependences[numbers, 0], dependences[numbers, 1]
            # An arrow begins in the last moment that belongs to its task.
            leave = np.maximum(self._end_ns[before] - 1, self._start_ns[before])
            common = f'"cat":"dependence","name":"{reason}","id":%d,"pid":0,"tid":%d,"ts":%d.%03d'
            form = f'{{"ph":"s",{common}}},\n{{"ph":"f","bp":"e",{common}}}'
            begins = [numbers, self._worker[before], *_us(leave)]
            self._write(form, [*begins, numbers, self._worker[after], *_us(self._start_ns[after])])

    def dispatchers(self, walks: np.ndarray, stalls: np.ndarray) -> None:
        """Write what dispatchers did, as a process of its own: when they made tasks, what stopped them."""
        if not len(walks):
            return
        self._file.write(',\n{"ph":"M","pid":1,"name":"process_name","args":{"name":"dispatchers"}}')
        lanes = np.unique(walks[:, 0])
        form = '{"ph":"M","pid":1,"tid":%d,"name":"thread_name","args":{"name":"dispatcher %d"}}'
        self._write(form, [lanes, lanes])
        made = '"name":"made %d tasks","cat":"walk","args":{"first":%d}'
        form = f'{{"ph":"i","s":"t","pid":1,"tid":%d,"ts":%d.%03d,{made}}}'
        self._write(form, [walks[:, 0], *_us(walks[:, 3]), walks[:, 2], walks[:, 1]])
        for index, reason in enumerate(STALLS):
            rows = stalls[stalls[:, 1] == index]
            form = f'{{"ph":"X","pid":1,"tid":%d,"name":"{reason}","cat":"stall","ts":%d.%03d,"dur":%d.%03d}}'
            self._write(form, [rows[:, 0], *_us(rows[:, 2]), *_us(rows[:, 3] - rows[:, 2])])

    def _write(self, form: str, columns: Sequence[np.ndarray]) -> None:
        for first in range(0, len(columns[0]), _ROWS_AT_ONCE):
            rows = (column[first : first + _ROWS_AT_ONCE].tolist() for column in columns)
            self._file.write(",\n" + ",\n".join(map(form.__mod__, zip(*rows, strict=True))))


def _us(ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return ns // 1000, ns % 1000


def _quoted(text: str) -> str:
    """Return `text` as a JSON string in which `%` is doubled."""
    import json  # here: few programs save a trace, and all of them start

    return json.dumps(text).replace("%", "%%")
