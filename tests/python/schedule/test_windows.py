"""How far a run looks ahead, and when its tasks may start."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    DispatchPolicy,
    ReadyPolicy,
    Schedule,
    StartPolicy,
    TaskWindow,
    TimingPolicy,
    WindowMode,
)
from pto_wsp.errors import WindowFull
from tests.python.schedule.steps import (
    SHAPE,
    STEPS,
    counter,
    run,
    starts,
)


def test_a_window_bounds_how_far_a_run_looks_ahead() -> None:
    schedule = Schedule().task_graph(window=TaskWindow(4)).order_by(lambda t: -t.i)
    order = [keys[0] for _, keys in starts(run(STEPS, schedule, 1)) if len(keys) == 2]
    assert order != sorted(order, reverse=True) and order[0] == 0
    assert counter("max_recorded") <= 4 and counter("window_stalls") > 0


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64])
def test_windows_bound_what_is_recorded(n: int) -> None:
    fifo = Schedule().task_graph(ready=ReadyPolicy.fifo())
    for schedule in (Schedule(), fifo, Schedule().order_by(lambda t: t.i)):
        run(STEPS, schedule.task_graph(window=TaskWindow(n)), 3)
        assert counter("max_recorded") <= n


def test_abort_ends_the_run_before_the_task_that_has_no_room() -> None:
    ordered = Schedule().order_by(lambda t: -t.i)
    x, z = np.zeros(SHAPE, np.float32), np.zeros((1, 8), np.float32)
    STEPS.reschedule(ordered.task_graph(window=TaskWindow(61, mode=WindowMode.ABORT)))
    STEPS.run(X=x, Z=z, workers=1)
    STEPS.reschedule(ordered.task_graph(window=TaskWindow(9, mode=WindowMode.ABORT)))
    with pytest.raises(WindowFull) as caught:
        STEPS.run(X=x, Z=z, workers=1)
    assert caught.value.tasks_before == 9
    run(STEPS, Schedule())


@pytest.mark.parametrize("n", [1, 20, 61, 64])
def test_no_task_starts_before_so_many_are_made(n: int) -> None:
    threshold = {"start": StartPolicy.threshold(n)}
    for schedule in (
        Schedule().dispatch(DispatchPolicy.round_robin(3)).task_graph(**threshold),
        Schedule().task_graph(window=TaskWindow(64), **threshold),
        Schedule()
        .dispatch(DispatchPolicy.static_partition([20]))
        .stream_by(lambda t: t.j)
        .task_graph(**threshold),
    ):
        trace = run(STEPS, schedule, 2)
        assert STEPS.stats is not None and counter("graph_tasks") == 61
        if n >= 61:
            assert trace.start_ns.min() >= STEPS.stats.counters["build_ns"]
        STEPS.run(X=np.ones(SHAPE, np.float32), Z=np.ones((1, 8), np.float32), workers=2)
        assert counter("replayed")


def test_with_a_threshold_the_least_key_of_all_starts_first() -> None:
    by_row = Schedule().task_graph(start=StartPolicy.threshold(61)).order_by(lambda t: -t.i)
    order = [keys[0] for _, keys in starts(run(STEPS, by_row, 1)) if len(keys) == 2]
    assert order == sorted(order, reverse=True)


@pytest.mark.parametrize("start", [StartPolicy.immediate(), StartPolicy.after_build()])
@pytest.mark.parametrize("workers", [1, 2])
def test_starts_keep_their_distance(start: StartPolicy, workers: int) -> None:
    limited = Schedule().task_graph(start=start).timing(TimingPolicy.rate_limit(10000))
    trace = run(STEPS, limited, workers)
    assert trace.start_ns.max() - trace.start_ns.min() >= 60 * 100_000 * 0.99


def test_a_run_that_is_paced_can_be_stopped() -> None:
    """The run ends between two starts: most tasks have not run."""
    STEPS.reschedule(Schedule().timing(TimingPolicy.rate_limit(4)))
    x = np.zeros(SHAPE, np.float32)
    with pytest.raises(ZeroDivisionError):
        STEPS.run(X=x, Z=np.zeros((1, 8), np.float32), progress=lambda n: 1 // 0)
    assert not x[-1, -1].any()
