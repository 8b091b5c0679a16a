"""Programs of short tasks, and what their traces tell, for tests of what schedules do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pto_wsp import (
    InOut,
    P,
    Program,
    Schedule,
    Tensor,
    Tile,
    f32,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.runtime.trace import TaskEvent, Trace


@kernel
def bump(x: InOut[Tile[1, 8, f32]]):
    pto.store(x, x * 1.5 + 1.0)


@kernel
def drop(x: InOut[Tile[1, 8, f32]]):
    pto.store(x, x * 0.5 - 1.0)


@kernel
def step(x: InOut[Tile[1, 4, i32]]):
    pto.store(x, x + 1)


@workload
def steps(X: Tensor[f32, "n", "m", 1, 8], Z: Tensor[f32, 1, 8]):
    for i in P("n"):
        for j in P.range("m"):
            bump[i, j](x=X[i, j])
            drop[i, j](x=X[i, j])
    bump[0](x=Z)


STEPS = steps.compile("cpu")


SHAPE = (6, 5, 1, 8)


def run(program: Program, schedule: Schedule, workers: int = 2) -> Trace:
    """Run under a schedule, compare with program order, and return the trace."""
    expected = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    x, z = expected.copy(), np.ones((1, 8), np.float32)
    program.reschedule(Schedule())
    program.run(X=expected, Z=np.ones_like(z), workers=1)
    program.reschedule(schedule)
    program.run(X=x, Z=z, workers=workers, trace=True)
    assert x.tobytes() == expected.tobytes() and program.trace is not None
    return program.trace


def counter(name: str) -> int:
    assert STEPS.stats is not None
    found = STEPS.stats.counters[name]
    assert isinstance(found, int)
    return found


def starts(trace: Trace) -> list[tuple[str, tuple[int, ...]]]:
    """Return kernels and coordinates in the order in which tasks started."""
    events = sorted(trace, key=lambda event: event.start_ns)
    return [(event.kernel, event.keys) for event in events]


def one_at_a_time(events: list[TaskEvent]) -> bool:
    return all(a.end_ns <= b.start_ns for a, b in pairwise(events))


def most_in_flight(events: list[TaskEvent], place: int) -> int:
    """Return the most values of a key that were between their first start and their last end at a time."""
    values = [[e for e in events if e.keys[place] == value] for value in {e.keys[place] for e in events}]
    spans = [(min(e.start_ns for e in each), max(e.end_ns for e in each)) for each in values]
    return max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)


def one_at_a_time_by(events: list[TaskEvent], place: int) -> bool:
    """Whether the values of a key follow each other in order."""
    order = [e.keys[place] for e in sorted(events, key=lambda e: e.start_ns)]
    return order == sorted(order)


@kernel(core="cube")
def cube(x: InOut[Tile[1, 8, f32]]):
    pto.store(x, x + 1.0)


@kernel(core="vector")
def vector(x: InOut[Tile[1, 8, f32]]):
    pto.store(x, x * 2.0)


@workload
def cores(X: Tensor[f32, "n", 1, 8]):
    for i in P("n"):
        cube[i](x=X[i])
        vector[i](x=X[i])
        bump[i](x=X[i])


CORES = cores.compile("cpu")


def run_cores(schedule: Schedule, workers: int, n: int = 200) -> Trace:
    """Run CORES under a schedule, compare with program order, and return the trace."""
    expected = np.random.default_rng(0).standard_normal((n, 1, 8)).astype(np.float32)
    x = expected.copy()
    CORES.reschedule(Schedule())
    CORES.run(X=expected, workers=1)
    CORES.reschedule(schedule)
    CORES.run(X=x, workers=workers, trace=True)
    assert x.tobytes() == expected.tobytes() and CORES.trace is not None
    return CORES.trace


@workload
def chosen(Counts: Tensor[i32, "n", 1, 4], X: Tensor[f32, "n", 1, 8]):
    for i in P("n"):
        step[i](x=Counts[i])
    for i in P("n"):
        with P.when(Counts[i, 0, 0] > 0):
            bump[i](x=X[i])


CHOSEN = chosen.compile("cpu")
