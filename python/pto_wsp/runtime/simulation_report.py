"""What a run takes on a simulated device, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from pto_wsp import _native
from pto_wsp.advice.advice import Advices
from pto_wsp.advice.report import SIMULATED, Report, StallTimes
from pto_wsp.device.kernel_amounts import KernelAmounts, kernel_amounts
from pto_wsp.device.kernel_cost import KernelCost
from pto_wsp.device.model import Device
from pto_wsp.errors import NoCost, naming_file
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.network_report import NetworkReport
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import record, replace
from pto_wsp.support.text import counted, table
from pto_wsp.visualize.drawing import escaped
from pto_wsp.visualize.report import figures_html, html_table, page, picture, section
from pto_wsp.visualize.timeline import timeline_drawing

IDLE = (
    "the host had not begun",
    "tasks were not made",
    "tasks waited for others",
    "ready tasks need other cores",
    "dispatchers waited for values",
    "the schedule starts tasks later",
    "all tasks had started",
)
"""Why cores were idle, in the order of the simulator."""

CAUSES = ("when it was made", "after", "the core was taken by", "limited rate", "start of the schedule")
"""Why a task on the critical path started when it did."""

MOST_STEPS, _MOST_STEPS_OF_PAGE = 12, 500
"""Steps of the critical path that the text and the page list."""


@record
class KernelLine:
    """What the tasks of one kernel did.

    Attributes:
        kernel: its name.
        tasks: how many there were.
        mean: cycles of each on average.
        total: cycles of all together.
        operations: floating-point operations of all; a product counts two per term.
        bytes: that all load from their arguments and store to them.
    """

    kernel: str
    tasks: int
    mean: float
    total: float
    operations: int
    bytes: int


@record
class PathStep:
    """A task on the path that decides the makespan.

    Attributes:
        task: its number in program order.
        label: the task as a user writes it.
        location: of the task call.
        cause: why it started when it did, one of CAUSES.
        start: in cycles since the run began.
        end: the same.
    """

    task: int
    label: str
    location: str
    cause: str
    start: float
    end: float

    @property
    def cycles(self) -> float:
        """How long it took."""
        return self.end - self.start


class SimulationReport(Report):
    """A report with the figures of a device. `str` of it is the text that `pto run --target sim` prints.

    `lanes` are the cores, and a kernel of two kinds of cores is in two lanes. What concerns single tasks is
    empty for a run with more than 65,536 tasks that was not traced.

    Attributes:
        device: the device.
        trace: when and where each task ran, in nanoseconds of the device; None where it is not known.
        network: what processes, channels and tokens did; None for a workload.
    """

    device: Device
    trace: Trace | None
    network: NetworkReport | None
    _result: _native.SimResult
    _costs: Sequence[tuple[KernelFunction, KernelCost]]

    def __init__(
        self,
        device: Device,
        result: _native.SimResult,
        costs: Sequence[tuple[KernelFunction, KernelCost]],
        trace: Trace | None,
        network: NetworkReport | None = None,
    ) -> None:
        figures = _figures(device, result, trace)
        super().__init__(**{name: getattr(figures, name) for name in _FIELDS})
        vars(self).update(device=device, trace=trace, network=network, _result=result, _costs=costs)

    @property
    def cycles(self) -> int:
        """Cycles of the device from the call until the last task is seen complete: the makespan."""
        return round(self._result.cycles)

    @property
    def time_us(self) -> float:
        """The makespan in microseconds."""
        return self.device.microseconds(self._result.cycles)

    @property
    def busy(self) -> Mapping[str, float]:
        """The share of the makespan that cores of each kind work."""
        total = max(self._result.cycles, 1.0)
        pairs = zip(self.device.cores, self._result.busy, strict=True)
        return {kind.name: cycles / kind.count / total for kind, cycles in pairs}

    @property
    def idle(self) -> Mapping[str, Mapping[str, float]]:
        """The share of the makespan that cores of each kind are idle, by reason (IDLE)."""
        total = max(self._result.cycles, 1.0)
        pairs = zip(self.device.cores, self._result.idle, strict=True)
        return {
            kind.name: {
                why: cycles / kind.count / total for why, cycles in zip(IDLE, row, strict=True) if cycles > 0
            }
            for kind, row in pairs
        }

    @cached_property
    def pipes(self) -> Mapping[str, float]:
        """The share of the makespan that each pipe of a core works, over all cores that have it."""
        total: dict[str, float] = {}
        for (_, cost), calls in zip(self._costs, self._result.calls, strict=True):
            for pipe, cycles in cost.busy.items():
                total[pipe] = total.get(pipe, 0.0) + cycles * calls
        counts = {pipe: kind.count for kind in self.device.cores for pipe in kind.pipes}
        makespan = max(self._result.cycles, 1.0)
        return {pipe: total.get(pipe, 0.0) / count / makespan for pipe, count in counts.items()}

    @property
    def making(self) -> float:
        """The share of the makespan that dispatchers make tasks."""
        return self._of_dispatchers(self._result.generating)

    @property
    def stalled(self) -> float:
        """The share of the makespan that dispatchers wait for room in the window or in their records."""
        return self._of_dispatchers(self._result.stalled)

    def _of_dispatchers(self, cycles: Sequence[float]) -> float:
        return sum(cycles) / max(len(cycles), 1) / max(self._result.cycles, 1.0)

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes that all tasks move: to and from cores (`l2`), and of these past the cache (`gm`)."""
        return {"l2": self._result.l2_bytes, "gm": self._result.gm_bytes}

    @property
    def hits(self) -> float:
        """The share of regions that the cache held when a task used them."""
        return self._result.hits / max(self._result.hits + self._result.misses, 1)

    @property
    def operations(self) -> int:
        """Floating-point operations of all tasks."""
        return self._result.operations

    @cached_property
    def bounds(self) -> Mapping[str, float]:
        """Cycles that no schedule of these tasks can be under on this device, by what needs them."""
        result, device = self._result, self.device
        found: dict[str, float] = {}
        if result.longest > 0:
            found["the longest chain of tasks"] = result.longest
        for kind in device.cores:
            work = [
                cost.cycles * calls
                for (_, cost), calls in zip(self._costs, result.calls, strict=True)
                if kind.name in cost.units
            ]
            found[f"the {kind.count} {kind.name} cores"] = sum(work) / kind.count
        found["the rate of global memory"] = result.gm_bytes / device.gm_rate
        if device.l2.size:
            found["the rate of the cache"] = result.l2_bytes / device.l2.rate
        found["the dispatchers"] = (
            result.tasks * device.cycles(device.dispatchers.generate) / device.dispatchers.count
        )
        return found

    @property
    def bound(self) -> tuple[str, float]:
        """The largest of `bounds`: what needs it, and the cycles."""
        return max(self.bounds.items(), key=lambda item: item[1])

    @cached_property
    def kernels(self) -> list[KernelLine]:
        """What the tasks of each kernel did, the most cycles first."""
        found: dict[str, list[float]] = {}
        for (kernel, cost), calls, spent in zip(
            self._costs, self._result.calls, self._result.spent, strict=True
        ):
            moved = sum(cost.loaded) + sum(cost.stored)
            added = (calls, spent, calls * cost.operations, calls * moved)
            before = found.get(kernel.name, (0, 0.0, 0, 0))
            found[kernel.name] = [a + b for a, b in zip(before, added, strict=True)]
        lines = [
            KernelLine(name, int(tasks), total / max(tasks, 1), total, int(operations), int(moved))
            for name, (tasks, total, operations, moved) in found.items()
        ]
        return sorted(lines, key=lambda line: (-line.total, line.kernel))

    @cached_property
    def amounts(self) -> Mapping[str, KernelAmounts]:
        """What a call of each kernel computes and moves, as expressions of the sizes of its arguments.

        Kernels are left out whose body is not known, or in which elements decide.
        """
        kernels = {kernel.name: kernel for kernel, _ in self._costs}
        found: dict[str, KernelAmounts] = {}
        for name, kernel in kernels.items():
            try:
                found[name] = kernel_amounts(kernel, self.device)
            except NoCost:
                continue
        return found

    @cached_property
    def critical_path(self) -> list[PathStep]:
        """The tasks that decide the makespan, the first one first; empty without a trace.

        Each step is the task that the next one waited for: for what it wrote, or for its core.
        """
        if self.trace is None or self.tasks == 0:
            return []
        columns = self._result.times()
        task = int(np.argmax(columns["end"]))
        steps: list[int] = []
        while task >= 0:
            steps.append(task)
            task = int(columns["because"][task]) if columns["cause"][task] in (1, 2) else -1
        return [self._step(number, columns) for number in reversed(steps)]

    def _step(self, number: int, columns: Mapping[str, np.ndarray]) -> PathStep:
        assert self.trace is not None
        event = self.trace[number]
        cause = CAUSES[columns["cause"][number]]
        start, end = float(columns["start"][number]), float(columns["end"][number])
        return PathStep(number, event.label, event.location, cause, start, end)

    def __repr__(self) -> str:
        return f"<SimulationReport of {self.tasks:,} tasks in {self.cycles:,} cycles on {self.device.name}>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        what, least = self.bound
        yield f"{self.device.name}: {self._title}"
        yield f"  at least {least:,.0f} cycles, for {what}: the run takes {self._distance:.2f} times as long"
        yield ""
        yield "cores"
        for kind in self.device.cores:
            reasons = sorted(self.idle[kind.name].items(), key=lambda item: -item[1])
            text = ", ".join(f"{share:.0%} {why}" for why, share in reasons if share >= 0.005)
            yield f"  {kind.count} {kind.name}: busy {self.busy[kind.name]:.0%}" + (
                f"; idle {text}" if text else ""
            )
        yield "  pipes: " + ", ".join(f"{pipe} {share:.0%}" for pipe, share in self.pipes.items())
        count = self.device.dispatchers.count
        yield f"  {count} dispatchers: make tasks {self.making:.0%}, stalled {self.stalled:.0%}"
        yield ""
        yield "memory"
        yield f"  {_bytes(self.bytes['l2'])} moved, {self.hits:.0%} of regions in the cache"
        yield f"  {_bytes(self.bytes['gm'])} of global memory, {self._gm_share:.0%} of its rate"
        for part in (self._kernel_table(), self._path_table(MOST_STEPS), self._longest_table()):
            if part.rows:
                yield ""
                yield part.title
                yield from table(part.headings, part.rows)
        if self.network is not None:
            yield ""
            yield str(self.network)

    @property
    def _title(self) -> str:
        return f"{self.tasks:,} tasks in {self.cycles:,} cycles, {_time(self.time_us)}"

    @property
    def _distance(self) -> float:
        """How many times as long as the bound the run takes."""
        return self._result.cycles / max(self.bound[1], 1.0)

    @property
    def _gm_share(self) -> float:
        return self.bytes["gm"] / max(self._result.cycles, 1.0) / self.device.gm_rate

    # Tables

    def _kernel_table(self) -> _Table:
        spent = max(sum(line.total for line in self.kernels), 1.0)
        rows = [
            (line.kernel, f"{line.tasks:,}", f"{line.mean:,.0f}", f"{line.total / spent:.0%}")
            for line in self.kernels
        ]
        return _Table("kernels", ("kernel", "tasks", "cycles each", "share"), rows)

    def _amount_table(self) -> _Table:
        rows: list[tuple[str, ...]] = []
        for name, amounts in self.amounts.items():
            rows += [(name, what, text) for what, text in amounts.texts()]
        return _Table("a call of each kernel", ("kernel", "amount", "expression"), rows)

    def _path_table(self, most: int) -> _Table:
        path = self.critical_path
        last = f", the last {most}" if len(path) > most else ""
        rows = [
            (step.label, step.cause, f"{step.start:,.0f}", f"{step.cycles:,.0f}", step.location)
            for step in path[-most:]
        ]
        headings = ("task", "started", "at cycle", "took", "line")
        return _Table(f"critical path: {counted(len(path), 'task')}{last}", headings, rows)

    def _longest_table(self) -> _Table:
        rows: list[tuple[str, ...]] = []
        for task in self.longest if self.trace is not None else ():
            assert self.trace is not None
            event = self.trace[task.task]
            rows.append((event.label, f"{self.device.cycles(task.took_ns):,.0f}", event.location))
        return _Table("tasks that cost most", ("task", "cycles", "line"), rows)

    def _bound_table(self) -> _Table:
        total = max(self._result.cycles, 1.0)
        ordered = sorted(self.bounds.items(), key=lambda item: -item[1])
        rows = [(what, f"{cycles:,.0f}", f"{cycles / total:.0%}") for what, cycles in ordered]
        return _Table("bounds", ("needed by", "cycles", "share of the makespan"), rows)

    def _core_table(self) -> _Table:
        reasons = [why for why in IDLE if any(why in self.idle[kind.name] for kind in self.device.cores)]
        rows = [
            (
                f"{kind.count} {kind.name}",
                f"{self.busy[kind.name]:.1%}",
                *(f"{self.idle[kind.name].get(why, 0.0):.1%}" for why in reasons),
            )
            for kind in self.device.cores
        ]
        return _Table("cores", ("", "busy", *(f"idle: {why}" for why in reasons)), rows)

    def _unit_table(self) -> _Table:
        rows = [(pipe, f"{share:.1%}") for pipe, share in self.pipes.items()]
        rows += [("dispatchers: make tasks", f"{self.making:.1%}")]
        rows += [("dispatchers: stalled", f"{self.stalled:.1%}")]
        rows += [("rate of global memory", f"{self._gm_share:.1%}")]
        return _Table("pipes, dispatchers and memory", ("", "share of the makespan"), rows)

    # HTML

    def _figures(self) -> list[tuple[str, str]]:
        """Return the figures that say most, each with what it is."""
        what, least = self.bound
        return [
            (f"{self.cycles:,}", f"cycles, {_time(self.time_us)}"),
            (f"{self.tasks:,}", "tasks"),
            (f"{self._distance:.2f}", f"times the bound of {least:,.0f} cycles, for {what}"),
            (_bytes(self.bytes["gm"]), f"of global memory, of {_bytes(self.bytes['l2'])} moved"),
            (f"{self.hits:.0%}", "of regions in the cache"),
        ]

    def _tables(self) -> list[_Table]:
        every = (
            *(self._bound_table(), self._core_table(), self._unit_table(), self._kernel_table()),
            *(self._amount_table(), self._path_table(_MOST_STEPS_OF_PAGE), self._longest_table()),
        )
        return [part for part in every if part.rows]

    def to_html(self) -> str:
        """Return the report as one page: figures, timeline, bounds, cores, kernels and critical path."""
        parts = [f"<p>device: {escaped(self.device.name)}</p>", figures_html(self._figures())]
        if self.trace is not None:
            drawing = timeline_drawing(self.trace.timeline(dependences=False))
            parts.append(section("Timeline", picture(drawing)))
        parts += [
            section(part.title.capitalize(), html_table(part.headings, part.rows)) for part in self._tables()
        ]
        if self.network is not None:
            parts.append(
                section("Network", f"{self.network.to_svg()}<pre>{escaped(str(self.network))}</pre>")
            )
        return page(self._title, parts)

    def save_html(self, path: str | Path) -> None:
        """Write `to_html()` to a file, which opens in any browser without a network."""
        with naming_file("written", path):
            Path(path).write_text(self.to_html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        figures = html_table(("", ""), ((value, what) for value, what in self._figures()))
        parts = [f"<b>{escaped(self.device.name)}: {escaped(self._title)}</b>", figures]
        for part in self._tables():
            title = escaped(part.title)
            shown = html_table(part.headings, part.rows)
            parts.append(f"<details><summary>{title}</summary>{shown}</details>")
        return f"<div>{''.join(parts)}</div>"


@record
class _Table:
    """A table of the report."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


_FIELDS = Report.__match_args__


def _figures(device: Device, result: _native.SimResult, trace: Trace | None) -> Report:
    """Return the figures that every report has."""

    def ns(cycles: float) -> int:
        return round(device.microseconds(cycles) * 1e3)

    makespan, longest = max(ns(result.cycles), 1), ns(result.longest)
    stalled = ns(sum(result.stalled))
    stalls = (StallTimes("window", result.stalls, stalled),) if result.stalls else ()
    if trace is None:
        empty = Report(SIMULATED, makespan, 0, result.tasks, (), stalls, (), longest, (), (), Advices())
        return empty
    return replace(trace.case().report, makespan_ns=makespan, stalls=stalls)


def _time(us: float) -> str:
    return f"{us:,.1f} us" if us < 1e4 else f"{us / 1e3:,.2f} ms"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
