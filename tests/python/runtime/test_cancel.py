"""`Program.cancel` from another thread: whatever a run is at, it ends, and the next one is whole."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    InOut,
    P,
    Program,
    Schedule,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    TimingPolicy,
    f32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import RunInterrupted


@kernel
def bump(x: InOut[Tile[8, 8, f32]]):
    t = pto.load(x)
    pto.store(x, t + 1.0)


@workload
def bump_often(X: Tensor[f32, "n", 8], k: DenseDyn):
    for i in P.range(k):
        for rows in P.tiles("n", 8):
            bump[i, rows](x=X[rows])


CPU, INTERP = bump_often.compile("cpu"), bump_often.compile("interp")
SCHEDULES = {
    "default": Schedule(),
    "window": Schedule().task_graph(window=TaskWindow(2)),
    "order_by": Schedule().order_by(lambda t: t.i),
    "paced": Schedule().timing(TimingPolicy.rate_limit(100)),
    "building": Schedule().task_graph(start=StartPolicy.after_build()),
    "graph": Schedule().task_graph(start=StartPolicy.threshold(1000)),
}


def cancelled(program: Program, **options: Any) -> float:
    """Cancel an endless run once, a while after it has begun; return the seconds until it ended."""
    began: list[float] = []

    def cancel() -> None:
        began.append(time.monotonic())
        program.cancel()

    timer = threading.Timer(0.05, cancel)
    timer.start()
    with pytest.raises(RunInterrupted, match="cancelled"):
        program.run(X=np.zeros((64, 8), np.float32), k=10**12, **options)
    timer.join()
    return time.monotonic() - began[0]


def run_whole(program: Program, workers: int | None = None) -> None:
    x = np.zeros((64, 8), np.float32)
    program.run(X=x, k=3, workers=workers)
    assert (x == 3).all()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_is_cancelled(name: str, workers: int) -> None:
    CPU.reschedule(SCHEDULES[name])
    assert cancelled(CPU, workers=workers) < 2
    CPU.reschedule(Schedule())
    run_whole(CPU, workers)


def test_the_check_of_a_run_is_cancelled() -> None:
    assert cancelled(CPU, check="hazards") < 2
    run_whole(CPU)


def test_the_interpreter_is_cancelled() -> None:
    assert cancelled(INTERP) < 2
    run_whole(INTERP)


def test_a_run_that_was_rescheduled_meanwhile_is_cancelled() -> None:
    timer = threading.Timer(0.1, CPU.reschedule, [SCHEDULES["window"]])
    timer.start()
    cancelled(CPU)
    timer.join()
    run_whole(CPU)


def test_nothing_is_cancelled_where_nothing_runs() -> None:
    for program in (CPU, INTERP):
        program.cancel()
        run_whole(program)
