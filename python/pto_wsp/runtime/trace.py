"""The record of a run: which task ran where and when; as Perfetto JSON and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from pto_wsp.ir import workload as w
from pto_wsp.ir.evaluate import ExtentReader, Scope, evaluate
from pto_wsp.ir.scalar import Const, Expr, Name, Value, children, name_of, walk
from pto_wsp.support.record import record
from pto_wsp.visualize.drawing import to_svg
from pto_wsp.visualize.graph import MOST_BOXES
from pto_wsp.visualize.perfetto import PerfettoWriter
from pto_wsp.visualize.report import run_report
from pto_wsp.visualize.timeline import Timeline, timeline_drawing


@record
class TaskEvent:
    """One task of a traced run.

    Attributes:
        task: its number in program order.
        kernel: name of the kernel it ran.
        keys: the coordinates of the task call.
        worker: index of the thread that ran it.
        dispatcher: index of the dispatcher that made it.
        start_ns: start, in nanoseconds since the run began.
        end_ns: end, in nanoseconds since the run began.
        location: `file:line:col` of the task call.
    """

    task: int
    kernel: str
    keys: tuple[int, ...]
    worker: int
    dispatcher: int
    start_ns: int
    end_ns: int
    location: str

    @property
    def label(self) -> str:
        """The task as a user writes it: `kernel[coordinates]`."""
        return f"{self.kernel}[{', '.join(map(str, self.keys))}]" if self.keys else self.kernel


class Record(Protocol):
    """What the engine wrote down during a run: arrays with one row per task, in program order."""

    @property
    def tasks(self) -> int:
        """How many tasks ran."""
        ...

    def times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the worker, and start and end in nanoseconds."""
        ...

    def dispatchers(self) -> np.ndarray:
        """Return the dispatcher."""
        ...

    def walks(self) -> np.ndarray:
        """Return rows of a dispatcher, its first task, how many, and when it had made them."""
        ...

    def stalls(self) -> np.ndarray:
        """Return rows of a dispatcher, the index of the reason in `STALLS`, and start and end."""
        ...

    def dependences(self) -> np.ndarray:
        """Return rows of a task, one that depended on it, and the index of the reason in `REASONS`."""
        ...

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the task's node, and the registers at its place."""
        ...


class Trace:
    """The tasks of one run, in program order.

    Iterating yields a `TaskEvent` per task. Arrays `task`, `worker`, `dispatcher`, `start_ns`, `end_ns`
    (length = tasks) hold the same figures for numeric work. The places of tasks in the program are computed
    when it is first asked for, from what decided in the run.
    """

    def __init__(
        self,
        sites: Mapping[int, w.Node],
        registers: Mapping[Name, int],
        recorded: Record,
        sizes: Mapping[str, Value],
        reader: ExtentReader,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self._sites = {number: node for number, node in sites.items() if isinstance(node, w.Task)}
        self._register_names = registers
        self._record = recorded
        self._sizes = sizes
        self._reader = reader
        self._about = dict(about or {})

    @cached_property
    def _times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._record.times()

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        return self._record.places()

    @cached_property
    def dependences(self) -> np.ndarray:
        """What tasks waited for, found by comparing their regions once more: an array [n, 3].

        A row is a task, a later one that depended on it, and the index of the reason in
        `pto_wsp.visualize.timeline.REASONS`. Of each task the latest 8 are there; what the task before in a
        `P.seq` or `sequential` ordered is not.
        """
        return self._record.dependences()

    @property
    def task(self) -> np.ndarray:
        """Numbers of the tasks."""
        return np.arange(len(self))

    @property
    def worker(self) -> np.ndarray:
        """Index of the thread that ran each task."""
        return self._times[0]

    @cached_property
    def dispatcher(self) -> np.ndarray:
        """Index of the dispatcher that made each task."""
        return self._record.dispatchers()

    @cached_property
    def walks(self) -> np.ndarray:
        """When dispatchers made tasks: an array [n, 4], empty unless `trace="full"`.

        A row is a dispatcher, the first of consecutive tasks that it made, how many, and when it had made
        them, in nanoseconds since the run began.
        """
        return self._record.walks()

    @cached_property
    def stalls(self) -> np.ndarray:
        """What stopped dispatchers: an array [n, 4], empty unless `trace="full"`.

        A row is a dispatcher, the index of the reason in `pto_wsp.visualize.timeline.STALLS`, and start
        and end, in nanoseconds since the run began.
        """
        return self._record.stalls()

    @property
    def start_ns(self) -> np.ndarray:
        """Start of each task, in nanoseconds since the run began."""
        return self._times[1]

    @property
    def end_ns(self) -> np.ndarray:
        """End of each task, in nanoseconds since the run began."""
        return self._times[2]

    def __len__(self) -> int:
        return self._record.tasks

    def __iter__(self) -> Iterator[TaskEvent]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> TaskEvent:
        site, registers = self._places
        node = self._sites[int(site[i])]
        scope = self._scope(registers[i])
        return TaskEvent(
            i % len(self),
            node.kernel,
            tuple(int(evaluate(key, scope, self._reader)) for key in node.keys),
            int(self.worker[i]),
            int(self.dispatcher[i]),
            int(self.start_ns[i]),
            int(self.end_ns[i]),
            _location(node),
        )

    def _scope(self, registers: np.ndarray) -> Scope:
        return {**self._sizes, **{name: int(registers[reg]) for name, reg in self._register_names.items()}}

    def _key_column(self, key: Expr, rows: np.ndarray) -> np.ndarray:
        """Return the values of a coordinate for some tasks."""
        registers = self._places[1]
        name = name_of(key)
        if name is not None and name in self._register_names:
            return registers[rows, self._register_names[name]]
        if all(isinstance(part, Const) for part in walk(key) if not children(part)):
            return np.full(len(rows), int(evaluate(key, {}, self._reader)))
        values = (evaluate(key, self._scope(registers[row]), self._reader) for row in rows)
        return np.fromiter(values, np.int64, len(rows))

    def save(self, path: str | Path, dependences: bool = True) -> None:
        """Write the run as Chrome trace JSON, which Perfetto (ui.perfetto.dev) opens. Times are in us.

        Args:
            path: the file.
            dependences: draw an arrow for each of `dependences`.
        """
        sites = self._places[0]
        with Path(path).open("w", encoding="utf-8") as file:
            with PerfettoWriter(file, self.worker, self.start_ns, self.end_ns, self._about) as out:
                for number, node in self._sites.items():
                    rows = np.flatnonzero(sites == number)
                    keys = [self._key_column(key, rows) for key in node.keys]
                    out.tasks(node.kernel, _location(node), rows, keys)
                if dependences:
                    out.arrows(self.dependences)
                out.dispatchers(self.walks, self.stalls)

    def timeline(self, dependences: bool = True) -> Timeline:
        """Return what pictures of the run are drawn from.

        Args:
            dependences: find out what tasks waited for, too.
        """
        names = sorted({node.kernel for node in self._sites.values()})
        by_site = np.zeros(max(self._sites, default=0) + 1, np.int64)
        for site, node in self._sites.items():
            by_site[site] = names.index(node.kernel)
        return Timeline(
            names,
            [event.label for event in self] if dependences and len(self) <= MOST_BOXES else [],
            by_site[self._places[0]],
            *self._times,
            self.dependences if dependences else np.empty((0, 3), np.int64),
            self.walks,
            self.stalls,
            self._about,
        )

    def to_svg(self) -> str:
        """Return a picture of the run: a lane per worker and dispatcher, a colour per kernel."""
        return to_svg(timeline_drawing(self.timeline(dependences=False)))

    def to_html(self) -> str:
        """Return a report: timeline, task graph, figures, hazards and schedule, in one page."""
        return run_report(self.timeline())

    def save_html(self, path: str | Path) -> None:
        """Write `to_html()` to a file, which opens in any browser without a network."""
        Path(path).write_text(self.to_html(), encoding="utf-8")

    def save_svg(self, path: str | Path) -> None:
        """Write `to_svg()` to a file."""
        Path(path).write_text(self.to_svg(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _location(node: w.Node) -> str:
    return str(node.loc) if node.loc else ""
