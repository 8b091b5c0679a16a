"""The figures of a run: a measured one or a simulated one.

A report is made from a `Timeline` alone, so a simulated run needs only its swimlane: a lane per core, tasks
with start and end in nanoseconds of simulated time, dependences, and what stopped dispatchers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pto_wsp.advice.advice import Advices
from pto_wsp.advice.chains import LongestChain, Ordered, longest_chain
from pto_wsp.support.record import record
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.timeline import REASONS, STALLS, Timeline, duration_text, total_ns

MEASURED, SIMULATED = "measured", "simulated"
NUM_LONGEST = 5


@record
class LaneTimes:
    """What one worker, or one simulated core, did.

    Attributes:
        name: `worker 0`.
        kind: `worker`, or the kind of a simulated core: `cube`, `vector`.
        tasks: how many it ran.
        busy_ns: in tasks.
        walking_ns: expanding tasks and finding dependences.
        waiting_ns: without anything to do.
    """

    name: str
    kind: str
    tasks: int
    busy_ns: int
    walking_ns: int
    waiting_ns: int


@record
class CallTimes:
    """The tasks of one task call."""

    site: CallSite
    tasks: int
    busy_ns: int
    median_ns: int
    longest_ns: int


@record
class ChainPart:
    """The tasks of one call on the critical path.

    Attributes:
        site: the call.
        tasks: how many of its tasks are on the path.
        took_ns: their time.
        through: what they waited for: `read after write of Y`, or `P.seq`; empty for the first task alone.
    """

    site: CallSite
    tasks: int
    took_ns: int
    through: str


@record
class StallTimes:
    """How often and how long dispatchers were stopped by one of `STALLS`."""

    reason: str
    count: int
    took_ns: int


@record
class LongTask:
    """One of the longest tasks.

    Attributes:
        task: its number in program order.
        site: its call.
        lane: name of the lane that ran it.
        start_ns: when it started.
        took_ns: how long it took.
    """

    task: int
    site: CallSite
    lane: str
    start_ns: int
    took_ns: int


@record
class Report:
    """The figures of one run.

    Attributes:
        clock: `measured` or `simulated`: what the nanoseconds are.
        makespan_ns: from the first thing that a worker does to the last.
        stolen_ns: time in which workers that had work had no core, because other threads used it.
        tasks: how many ran.
        lanes: what each worker or core did.
        stalls: what stopped dispatchers, those that did not occur left out.
        calls: tasks and times per task call, those that took most first.
        critical_ns: the longest chain of tasks that must follow each other: no run is shorter.
        critical: its tasks by call, those that took most first.
        longest: the longest tasks.
        advice: what an adviser says of the run.
    """

    clock: str
    makespan_ns: int
    stolen_ns: int
    tasks: int
    lanes: tuple[LaneTimes, ...]
    stalls: tuple[StallTimes, ...]
    calls: tuple[CallTimes, ...]
    critical_ns: int
    critical: tuple[ChainPart, ...]
    longest: tuple[LongTask, ...]
    advice: Advices

    @property
    def busy_ns(self) -> int:
        """The time of all tasks together."""
        return sum(lane.busy_ns for lane in self.lanes)

    @property
    def walking_ns(self) -> int:
        """The time that all workers took to expand tasks and find dependences."""
        return sum(lane.walking_ns for lane in self.lanes)

    @property
    def waiting_ns(self) -> int:
        """The time in which workers had nothing to do."""
        return sum(lane.waiting_ns for lane in self.lanes)

    @property
    def least_ns(self) -> int:
        """No run on this number of workers takes less: the critical path, or the tasks divided evenly."""
        return max(self.critical_ns, self.busy_ns // max(1, len(self.lanes)))

    @property
    def busy_share(self) -> Mapping[str, float]:
        """The share of time that lanes of each kind are in tasks."""
        kinds = dict.fromkeys(lane.kind for lane in self.lanes)
        return {kind: self._share([lane for lane in self.lanes if lane.kind == kind]) for kind in kinds}

    def _share(self, lanes: Sequence[LaneTimes]) -> float:
        return sum(lane.busy_ns for lane in lanes) / (self.makespan_ns * max(1, len(lanes)))

    def __str__(self) -> str:
        """Return the report as text."""
        return "\n".join(_text(self))


def make_report(
    run: Timeline, loops: Sequence[Ordered] = (), cpu_ns: int | None = None, clock: str = MEASURED
) -> Report:
    """Return the figures of a run, without advice.

    Args:
        run: what was recorded or simulated.
        loops: its `P.seq` loops.
        cpu_ns: time that the process had cores during the run; None if every lane has a core of its own.
        clock: what its nanoseconds are.
    """
    took = run.end_ns - run.start_ns
    chain = longest_chain(took, run.dependences, loops)
    lanes = tuple(_lane(run, lane) for lane in run.workers)
    worked_ns = sum(lane.busy_ns + lane.walking_ns for lane in lanes)
    return Report(
        clock,
        run.span_ns,
        0 if cpu_ns is None else max(0, worked_ns - cpu_ns),
        len(took),
        lanes,
        tuple(_stalls(run)),
        tuple(sorted(_calls(run, took), key=lambda call: -call.busy_ns)),
        chain.took_ns,
        tuple(_critical(run, chain, took)),
        tuple(_longest(run, took)),
        Advices(),
    )


def _lane(run: Timeline, lane: int) -> LaneTimes:
    busy = run.busy_of(lane)
    walking, waiting = total_ns(run.walking_of(lane)), total_ns(run.waiting_of(lane))
    name = run.lane_name(lane)
    return LaneTimes(name, name.rsplit(" ", 1)[0], len(busy), total_ns(busy), walking, waiting)


def _stalls(run: Timeline) -> Iterator[StallTimes]:
    for index, reason in enumerate(STALLS):
        rows = run.stalls[run.stalls[:, 1] == index]
        if len(rows):
            yield StallTimes(reason, len(rows), total_ns(rows[:, 2:]))


def _calls(run: Timeline, took: np.ndarray) -> Iterator[CallTimes]:
    for index, site in enumerate(run.calls):
        times = np.sort(took[run.call == index])
        if len(times):
            yield CallTimes(site, len(times), int(times.sum()), int(times[len(times) // 2]), int(times[-1]))


def _critical(run: Timeline, chain: LongestChain, took: np.ndarray) -> Iterator[ChainPart]:
    tasks, edges = np.array(chain.tasks, np.int64), np.array(chain.edges, np.int64)
    calls = run.call[tasks] if len(run.calls) else np.empty(0, np.int64)
    parts = []
    for index in np.unique(calls).tolist():
        chosen = calls == index
        links = edges[chosen]
        rows = [links[i] for i in range(len(links)) if tasks[chosen][i] != tasks[0]]
        through = [link_text(run, int(row)) for row in rows]
        often = max(through, key=through.count) if through else ""
        parts.append(ChainPart(run.calls[index], int(chosen.sum()), int(took[tasks[chosen]].sum()), often))
    yield from sorted(parts, key=lambda part: -part.took_ns)


def link_text(run: Timeline, row: int) -> str:
    """Return why a task of a chain waited: `read after write of Y`; row -1 is a `P.seq`."""
    if row < 0:
        return "`P.seq`"
    _, _, reason, tensor = run.dependences[row].tolist()
    return REASONS[reason] + (f" of `{run.tensors[tensor]}`" if tensor >= 0 else "")


def _longest(run: Timeline, took: np.ndarray) -> Iterator[LongTask]:
    if not len(run.calls):
        return
    for task in np.argsort(-took, kind="stable")[:NUM_LONGEST].tolist():
        lane = run.lane_name(int(run.worker[task]))
        yield LongTask(task, run.calls[int(run.call[task])], lane, int(run.start_ns[task]), int(took[task]))


def _text(report: Report) -> Iterator[str]:
    lanes = len(report.lanes)
    noun = "worker" if all(lane.kind == "worker" for lane in report.lanes) else "core"
    on = f"{lanes} {noun}{'' if lanes == 1 else 's'}"
    time = duration_text(report.makespan_ns)
    yield f"{report.tasks:,} task{'' if report.tasks == 1 else 's'} on {on} in {time} ({report.clock})"
    busy = ", ".join(f"{kind} {share:.0%}" for kind, share in report.busy_share.items())
    total = report.makespan_ns * max(1, lanes)
    rest = f"expands {report.walking_ns / total:.0%}, waits {report.waiting_ns / total:.0%}"
    yield f"time of lanes: busy: {busy}; {rest}"
    if report.stolen_ns > report.makespan_ns // 100:
        yield f"workers without a core: {duration_text(report.stolen_ns)}"
    for stall in report.stalls:
        yield f"stopped by {stall.reason}: {stall.count:,} times, {duration_text(stall.took_ns)}"
    share = report.critical_ns / report.makespan_ns
    yield f"critical path: {duration_text(report.critical_ns)}, {share:.0%} of the run"
    for part in report.critical:
        why = f", mostly by {part.through}" if part.through else ""
        yield f"  {_named(part.site)}: {part.tasks:,} in {duration_text(part.took_ns)}{why}"
    yield "tasks by call:"
    for call in report.calls:
        times = f"median {duration_text(call.median_ns)}, longest {duration_text(call.longest_ns)}"
        yield f"  {_named(call.site)}: {call.tasks:,} in {duration_text(call.busy_ns)}, {times}"
    yield "longest tasks:"
    for task in report.longest:
        where = f"task {task.task:,} of {_named(task.site)} on {task.lane}"
        yield f"  {duration_text(task.took_ns)}: {where} at {duration_text(task.start_ns)}"
    if report.advice:
        yield from ("", str(report.advice))


def _named(site: CallSite) -> str:
    return f"`{site.kernel}`" + (f" ({site.location})" if site.location else "")
