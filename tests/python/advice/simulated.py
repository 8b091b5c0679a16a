"""Runs with given times: what an adviser says of them does not depend on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pto_wsp.advice.case import Case
from pto_wsp.advice.machine import Machine
from pto_wsp.ir import workload as w
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace

Cost = Callable[[str, int], int]
"""Nanoseconds of a task, from its kernel and its number."""

L2 = 2 << 20


def recorded(program: Program, arguments: dict[str, Any], workers: int = 2) -> Case:
    """Return what an adviser looks at after a run."""
    program.run(workers=workers, trace="full", **arguments)
    assert program.trace is not None
    return program.trace.case()


def simulated(
    source: Workload | Program, arguments: dict[str, Any], cost: Cost, workers: int = 2, walk_ns: int = 50
) -> Case:
    """Return a run in which each task goes to the worker that is free first, in program order.

    Args:
        source: what runs.
        arguments: of the run.
        cost: of each task.
        workers: how many.
        walk_ns: what a worker takes to expand a task and find its dependences, before it can start.
    """
    case = recorded(source if isinstance(source, Program) else source.compile(), arguments)
    run = case.run
    before: list[list[int]] = [[] for _ in run.call]
    for first, second in run.dependences[:, :2].tolist():
        before[second].append(first)
    loops = [case.iterations(loop) for loop in case.every_loop if loop.kind == w.SEQUENTIAL]
    free, worker, start, end = [0] * workers, [], [], []
    steps: list[dict[int, tuple[int, int, int]]] = [{} for _ in loops]
    stretches = []
    for task, call in enumerate(run.call.tolist()):
        ready = max((end[b] for b in before[task]), default=0)
        for loop, seen in zip(loops, steps, strict=True):
            instance, number = int(loop.instance[task]), int(loop.iteration[task])
            last, was, now = seen.get(instance, (-1, 0, 0))
            if last != number:
                seen[instance] = (number, max(was, now), now)
            if instance >= 0:
                ready = max(ready, seen[instance][1])
        lane = min(range(workers), key=free.__getitem__)
        begin = max(free[lane] + walk_ns, ready)
        worker.append(lane)
        start.append(begin)
        end.append(begin + cost(case.nodes[call].kernel, task))
        stretches += [(lane, free[lane], free[lane] + walk_ns), (lane, begin, end[-1])]
        free[lane] = end[-1]
        for loop, seen in zip(loops, steps, strict=True):
            instance = int(loop.instance[task])
            if instance >= 0:
                last, was, now = seen[instance]
                seen[instance] = (last, was, max(now, end[-1]))
    columns = (np.array(column, np.int64) for column in (worker, start, end))
    names = zip(("worker", "start_ns", "end_ns"), columns, strict=True)
    table = np.array(stretches, np.int64).reshape(-1, 3)
    timed = replace(run, **dict(names), stretches=table, num_workers=workers, stalls=run.stalls[:0])
    machine = Machine(L2, case.machine.scratch_bytes)
    return Case(timed, case.module, case.nodes, case.loops, case.places, machine)
