"""`idle-workers`: workers have nothing to do, and the reason is in the program or its schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pto_wsp.advice.advice import Advice
from pto_wsp.advice.case import Case
from pto_wsp.advice.report import ChainPart
from pto_wsp.advice.rule import Rule, advice, larger_tasks
from pto_wsp.advice.rules.serial_loop import find as find_serial_loops
from pto_wsp.ir.core import Region
from pto_wsp.types.tile import ViewType
from pto_wsp.visualize.timeline import STALLS, duration_text

CODE = "idle-workers"
LEAST_IDLE = 0.2
"""Share of the workers' time without anything to do."""
MOSTLY = 0.75
"""Share of the run that a chain takes, or of the idle time that one reason explains."""

STALL_REMEDIES = {
    "window": (
        "record more tasks",
        "program.reschedule(program.schedule.task_graph(window=TaskWindow(65536)))",
    ),
    "slice": ("give each task more work", ""),
    "flush": (
        "read values that tasks write as late as possible: put independent calls before the read",
        "",
    ),
    "pool": (
        "give the pool that works longest more workers",
        "program.reschedule(program.schedule.task_graph(pools=Pools.custom(key, [...])))",
    ),
}
STALL_TEXTS = {
    "window": "the window has no room for another record",
    "slice": "too many slices are incomplete",
    "flush": "a value that tasks write decides what comes next",
    "pool": "tasks wait for workers of their pool",
}


def find(case: Case) -> Iterable[Advice]:
    """Return an advice for the first reason that explains the idle time."""
    report = case.report
    idle = report.waiting_ns / (report.makespan_ns * max(1, case.num_workers))
    if case.num_workers < 2 or idle < LEAST_IDLE or not report.tasks:
        return []
    if any(find_serial_loops(case)):
        return []  # which says why
    for reason in (_chain, _pools, _stalls, _tail):
        found = list(reason(case, f"workers idle {idle:.0%} of the time"))
        if found:
            return found
    return []


def _chain(case: Case, idle: str) -> Iterator[Advice]:
    """Tasks that must follow each other take nearly all of the run."""
    report = case.report
    if report.critical_ns < MOSTLY * report.makespan_ns:
        return
    part = report.critical[0]
    call = _call_of(case, part)
    kernel = part.site.kernel
    if part.tasks == 1 and part.took_ns >= MOSTLY * report.critical_ns:
        message = f"{idle}: one task of `{kernel}` takes {duration_text(part.took_ns)}"
    else:
        message = f"{idle}: tasks that must follow each other take {duration_text(report.critical_ns)}"
    notes = [(_chain_text(p), case.nodes[_call_of(case, p)].loc) for p in report.critical]
    yield from advice(
        case,
        CODE,
        f"{message} of {duration_text(report.makespan_ns)}",
        report.makespan_ns - report.busy_ns / case.num_workers,
        f"split the tasks of `{kernel}`, so that workers share them: a loop with tiles inside the chain",
        f"for part in P.tiles(..., 64):\n    {kernel}[..., part](...)",
        case.nodes[call].loc,
        f"{part.tasks:,} of the chain, {duration_text(part.took_ns)}",
        notes,
    )


def _chain_text(part: ChainPart) -> str:
    why = f", mostly by {part.through}" if part.through else ""
    return f"the chain has {part.tasks:,} of `{part.site.kernel}`, {duration_text(part.took_ns)}{why}"


def _call_of(case: Case, part: ChainPart) -> int:
    return [*case.run.calls].index(part.site)


def _stalls(case: Case, idle: str) -> Iterator[Advice]:
    """Dispatchers were stopped for most of the time in which workers waited."""
    report = case.report
    for stall in sorted(report.stalls, key=lambda stall: -stall.took_ns)[:1]:
        if stall.took_ns < MOSTLY * report.waiting_ns:
            return
        rows = case.run.stalls[case.run.stalls[:, 1] == STALLS.index(stall.reason)]
        longest = rows[np.argmax(rows[:, 3] - rows[:, 2])]
        running = np.flatnonzero((case.run.start_ns < longest[3]) & (case.run.end_ns > longest[2]))
        calls = case.run.call[running] if len(running) else case.run.call
        call = int(np.bincount(calls).argmax())
        remedy, example = STALL_REMEDIES[stall.reason]
        yield from advice(
            case,
            CODE,
            f"{idle}: {STALL_TEXTS[stall.reason]}, {stall.count:,} times, {duration_text(stall.took_ns)}",
            report.makespan_ns - report.least_ns,
            remedy,
            example or (larger_tasks(case, call) if stall.reason == "slice" else ""),
            case.nodes[call].loc,
            "runs during the longest of these times",
        )


def _pools(case: Case, idle: str) -> Iterator[Advice]:
    """Pools of the schedule divide the tasks unevenly."""
    report = case.report
    if not any(d.kind == "pools" and d.name != "single" for d in case.module.schedule):
        return
    lanes = sorted(report.lanes, key=lambda lane: lane.busy_ns)
    most, least = (lane.busy_ns / report.makespan_ns for lane in (lanes[-1], lanes[0]))
    if most < MOSTLY or least > most / 2:
        return
    worker = report.lanes.index(lanes[-1])
    ran = np.flatnonzero(case.run.worker == worker)
    busy = np.bincount(case.run.call[ran], case.took_ns[ran])
    call = int(busy.argmax())
    remedy, example = STALL_REMEDIES["pool"]
    yield from advice(
        case,
        CODE,
        f"{idle}: pools divide the tasks unevenly: {lanes[-1].name} is busy {most:.0%} of the time, "
        f"{lanes[0].name} {least:.0%}",
        report.makespan_ns - report.least_ns,
        remedy,
        example,
        case.nodes[call].loc,
        f"{duration_text(int(busy[call]))} on {lanes[-1].name}",
    )


def _tail(case: Case, idle: str) -> Iterator[Advice]:
    """One long task ends long after all others, and could have begun earlier."""
    report, run = case.report, case.run
    last = int(run.end_ns.argmax())
    others = np.delete(run.end_ns, last).max(initial=run.begin_ns)
    alone = int(run.end_ns[last] - max(others, run.start_ns[last]))
    if alone * (case.num_workers - 1) < 0.5 * report.waiting_ns:
        return
    call = int(run.call[last])
    kernel, took = case.nodes[call].kernel, int(case.took_ns[last])
    param = _growing(case, call)
    if param and took > 2 * int(np.median(case.took_ns)):
        remedy = "start the longest tasks first"
        example = f"program.reschedule(program.schedule.order_by(lambda t: -t.args.{param}.rows))"
    else:
        remedy, example = f"split the tasks of `{kernel}`, so that the last ones end together", ""
    mean = duration_text(report.busy_ns // report.tasks)
    yield from advice(
        case,
        CODE,
        f"{idle}: the last task of `{kernel}` runs {duration_text(alone)} while no other task runs",
        report.makespan_ns - report.least_ns,
        remedy,
        example,
        case.nodes[call].loc,
        f"the last task takes {duration_text(took)}, a task takes {mean} on average",
    )


def _growing(case: Case, call: int) -> str:
    """Return a parameter of a kernel whose number of rows tasks decide, or nothing."""
    pairs = zip(case.kernel(call).params, case.nodes[call].args, strict=True)
    for param, arg in pairs:
        dims = param.type.dims if isinstance(param.type, ViewType) else None
        if isinstance(arg, Region) and dims and not isinstance(dims[0], int):
            return param.name
    return ""


RULE = Rule(
    CODE,
    "workers have nothing to do: a chain of tasks, uneven pools, a stopped dispatcher, or a long last task",
    f"share of time without work (from {LEAST_IDLE:.0%}); the chain by call, the busiest and the idlest "
    "worker, the stalls, or the last task",
    "split the tasks of the chain; change the pools; widen the window; start the longest tasks first",
    find,
    is_timed=True,
)
