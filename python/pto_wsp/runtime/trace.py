"""The record of a run: which task ran where and when; as Perfetto JSON and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pto_wsp.advice.machine import Machine
from pto_wsp.errors import NothingRecorded, naming_file
from pto_wsp.ir import workload as w
from pto_wsp.ir.evaluate import ExtentReader, Scope, evaluate
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import loop_text
from pto_wsp.ir.scalar import Const, Expr, Value, children, name_of, walk
from pto_wsp.lower.lower_workload_to_bytecode import Lowered
from pto_wsp.runtime.networks import require_one_order
from pto_wsp.support.record import record
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.drawing import to_svg
from pto_wsp.visualize.graph import MOST_BOXES
from pto_wsp.visualize.perfetto import PerfettoWriter
from pto_wsp.visualize.report import run_report
from pto_wsp.visualize.timeline import NO_CALLS, Timeline, timeline_drawing

if TYPE_CHECKING:
    from pto_wsp.advice.advice import Advices
    from pto_wsp.advice.case import Case
    from pto_wsp.advice.report import Report


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

    @property
    def workers(self) -> int:
        """How many workers could run them."""
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

    def stretches(self) -> np.ndarray:
        """Return rows of a worker, and from when to when it was at work for the run."""
        ...

    def dependences(self) -> np.ndarray:
        """Return rows of a task, one that depended on it, its reason in `REASONS`, and its tensor or -1."""
        ...

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the task's node, and the registers at its place."""
        ...


@record
class Ran:
    """What an adviser must know of a run besides its record: the program, and what ran it."""

    module: Module
    machine: Machine


@record
class Lanes:
    """The lanes of a run on a simulated device.

    Attributes:
        device: name of the device.
        names: of the cores.
        second: index of another core that each task takes too, or -1.
    """

    device: str
    names: Sequence[str]
    second: np.ndarray


class Trace:
    """The tasks of one run, in program order; those of a network in the order in which they began.

    Of a network, the dispatcher of a task is the number of its process.

    Iterating yields a `TaskEvent` per task. Arrays `task`, `worker`, `dispatcher`, `start_ns`, `end_ns`
    (length = tasks) hold the same figures for numeric work. The places of tasks in the program are computed
    when it is first asked for, from what decided in the run.
    """

    def __init__(
        self,
        lowered: Lowered,
        recorded: Record,
        sizes: Mapping[str, Value],
        reader: ExtentReader,
        about: Mapping[str, str] | None = None,
        ran: Ran | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self._lanes = ((), NO_CALLS) if lanes is None else (lanes.names, lanes.second)
        tasks = ((number, node) for number, node in lowered.sites.items() if isinstance(node, w.Task))
        self._sites = dict(sorted(tasks))
        self._loops = lowered.enclosing
        self._register_names = lowered.registers
        self._tensors = lowered.tensors
        self._record = recorded
        self._sizes = sizes
        self._reader = reader
        self._about = dict(about or {}) | ({} if lanes is None else {"device": lanes.device})
        self._ran = ran

    @cached_property
    def _times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._record.times()

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        return self._record.places()

    @cached_property
    def dependences(self) -> np.ndarray:
        """What tasks waited for, found by comparing their regions once more: an array [n, 4].

        A row is a task, a later one that depended on it, the index of the reason in
        `pto_wsp.visualize.timeline.REASONS`, and the index of the tensor in `tensors`, or -1 for `after=`.
        An update in place reads, so that a chain of updates is read after write. Of each task the latest 8
        are there. What the task before in a `P.seq` or `sequential` ordered is not.
        """
        return self._record.dependences()

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors, which `dependences` numbers."""
        return self._tensors

    @property
    def num_workers(self) -> int:
        """How many workers could run tasks, those that ran none among them."""
        return self._record.workers

    @cached_property
    def stretches(self) -> np.ndarray:
        """When workers were at work: an array [n, 3], empty unless `trace="full"` and several workers.

        A row is a worker, and start and end of a time in which it expanded tasks, found their dependences or
        took tasks, in nanoseconds since the run began. Tasks that it ran meanwhile lie inside.
        """
        return self._record.stretches()

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

    def column(self, key: Expr, rows: np.ndarray) -> np.ndarray:
        """Return the values of a coordinate, or another expression of the workload, for some tasks."""
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
        sites, arrows = self._places[0], self.dependences if dependences else None
        with naming_file("written", path), Path(path).open("w", encoding="utf-8") as file:
            with PerfettoWriter(file, *self._times, self._about, self.num_workers, *self._lanes) as out:
                for number, node in self._sites.items():
                    rows = np.flatnonzero(sites == number)
                    keys = [self.column(key, rows) for key in node.keys]
                    out.tasks(self._call(number), rows, keys)
                if arrows is not None:
                    out.arrows(arrows, self.tensors)
                out.stretches(self.stretches)
                out.dispatchers(self.walks, self.stalls)

    def timeline(self, dependences: bool = True) -> Timeline:
        """Return what pictures of the run are drawn from.

        Args:
            dependences: find out what tasks waited for, too.
        """
        names = sorted({node.kernel for node in self._sites.values()})
        kernels = np.array([names.index(node.kernel) for node in self._sites.values()], np.int64)
        call = np.searchsorted(np.array([*self._sites], np.int64), self._places[0])
        return Timeline(
            names,
            [event.label for event in self] if dependences and len(self) <= MOST_BOXES else [],
            kernels[call] if len(self) else call,
            *self._times,
            self.dependences if dependences else np.empty((0, 4), np.int64),
            self.walks,
            self.stalls,
            self._about,
            self.num_workers,
            self.stretches,
            self.tensors,
            [self._call(number) for number in self._sites],
            call,
            *self._lanes,
        )

    def _call(self, site: int) -> CallSite:
        node = self._sites[site]
        loops = self._loops.get(site, ())
        nest = _location(loops[-1]) if loops else ""
        return CallSite(node.kernel, tuple(map(loop_text, loops)), _location(node), nest)

    def report(self) -> Report:
        """Return the figures of the run: time of workers, critical path, longest tasks, and advice.

        Raises:
            NothingRecorded: the run was not recorded with `trace="full"`.
        """
        from pto_wsp.advice.registry import full_report  # here: few programs ask, and all of them start

        return full_report(self.case())

    def advise(self) -> Advices:
        """Return what costs time in the run, with the line of source, the gain at stake and the remedy.

        Raises:
            NothingRecorded: the run was not recorded with `trace="full"`.
        """
        from pto_wsp.advice.registry import advise  # here: few programs ask, and all of them start

        return advise(self.case())

    def case(self) -> Case:
        """Return what an adviser looks at.

        Raises:
            NothingRecorded: the run was not recorded with `trace="full"`.
            NotYetSupported: it is a network, whose tasks have no common program order.
        """
        from pto_wsp.advice.case import Case  # here: few programs ask, and all of them start

        if self._ran is None:
            raise NothingRecorded(program=self._about.get("program", "the program"))
        require_one_order(self._ran.module.entry_workload, "advice on a trace")
        loops = [self._loops[site] for site in self._sites]
        nodes = [*self._sites.values()]
        return Case(self.timeline(), self._ran.module, nodes, loops, self, self._ran.machine)

    def to_svg(self) -> str:
        """Return a picture of the run: a lane per worker and dispatcher, a colour per kernel."""
        return to_svg(timeline_drawing(self.timeline(dependences=False)))

    def to_html(self) -> str:
        """Return a report: timeline, task graph, figures, advice, hazards and schedule, in one page."""
        has_advice = self._ran is not None and not self._ran.module.entry_workload.processes
        return run_report(self.timeline(), str(self.advise()) if has_advice else "")

    def save_html(self, path: str | Path) -> None:
        """Write `to_html()` to a file, which opens in any browser without a network."""
        with naming_file("written", path):
            Path(path).write_text(self.to_html(), encoding="utf-8")

    def save_svg(self, path: str | Path) -> None:
        """Write `to_svg()` to a file."""
        with naming_file("written", path):
            Path(path).write_text(self.to_svg(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _location(node: w.Task | w.Loop) -> str:
    return str(node.loc) if node.loc else ""
