"""Which of the tasks that are ready starts first."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    DispatchPolicy,
    InOut,
    P,
    Ragged,
    ReadyPolicy,
    Scalar,
    Schedule,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    TimingPolicy,
    f32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import UnsupportedByTarget
from tests.python.schedule.programs import total
from tests.python.schedule.steps import (
    STEPS,
    drop,
    most_in_flight,
    one_at_a_time,
    one_at_a_time_by,
    run,
    starts,
)


def test_the_least_keys_of_the_ready_start_first() -> None:
    backwards = Schedule().order_by(lambda t: -t.i, lambda t: -t.j)
    for start in (StartPolicy.immediate(), StartPolicy.after_build()):
        order = starts(run(STEPS, backwards.task_graph(start=start), 1))
        bumps = [keys for kernel, keys in order if len(keys) == 2 and kernel == "bump"]
        assert bumps == sorted(bumps, reverse=True)
        order = starts(run(STEPS, Schedule().order_by(lambda t: t.j, lambda t: -t.i), 1))
        bumps = [keys for kernel, keys in order if len(keys) == 2 and kernel == "bump"]
        assert bumps == sorted(bumps, key=lambda keys: (keys[1], -keys[0]))
    order = starts(run(STEPS, Schedule().order_by(lambda t: t.kernel != drop), 1))
    bumps = [place for place, (kernel, keys) in enumerate(order) if kernel == "bump" and len(keys) == 2]
    assert len(bumps) == 30 and all(order[at + 1] == ("drop", order[at][1]) for at in bumps)
    for by in (Schedule().order_by(lambda t: t.i, lambda t: t.kernel), Schedule().order_by(lambda t: t.i)):
        rows = [keys[0] for _, keys in starts(run(STEPS, by, 1)) if len(keys) == 2]
        assert rows == sorted(rows)


def test_keys_that_a_task_lacks_are_0() -> None:
    later = Schedule().order_by(lambda t: 10 - t.i)
    assert starts(run(STEPS, later, 1))[0] == ("bump", (0,))
    second = starts(run(STEPS, Schedule().order_by(lambda t: t.kernel, lambda t: 1 + t.i), 1))
    bumps = [("bump", (i, j)) for i in range(6) for j in range(5)]
    assert second[:31] == [("bump", (0,)), *bumps]


def test_fifo_starts_tasks_in_program_order() -> None:
    fifo = Schedule().dispatch(DispatchPolicy.work_steal(3)).task_graph(ready=ReadyPolicy.fifo())
    trace = run(STEPS, fifo, 1)
    assert list(trace.start_ns) == sorted(trace.start_ns)


def test_tasks_of_a_stream_run_one_at_a_time() -> None:
    for n in (1, 3):
        events = list(run(STEPS, Schedule().streams(n), 3))
        assert all(one_at_a_time(events[lane::n]) for lane in range(n))
    events = list(run(STEPS, Schedule().stream_by(lambda t: t.j), 3))
    by_key = [[e for e in events if len(e.keys) == 2 and e.keys[1] == j] for j in range(5)]
    assert all(one_at_a_time(lane) and len(lane) == 12 for lane in by_key)
    events = list(run(STEPS, Schedule().streams(2).stream_by(lambda t: t.j - 7), 3))
    by_key = [[e for e in events if len(e.keys) == 2 and (e.keys[1] - 7) % 2 == j] for j in range(2)]
    assert all(one_at_a_time(lane) for lane in by_key)


@pytest.mark.parametrize("n", [1, 7, 100])
def test_batches_start_one_after_the_other(n: int) -> None:
    for schedule in (
        Schedule(),
        Schedule().task_graph(window=TaskWindow(2)),
        Schedule().order_by(lambda t: -t.i),
    ):
        trace = run(STEPS, schedule.timing(TimingPolicy.batched(n)), 3)
        for first in range(n, len(trace), n):
            assert trace.end_ns[:first].max() <= trace.start_ns[first:].min()


def test_within_a_batch_the_least_key_starts_first() -> None:
    schedule = Schedule().order_by(lambda t: -t.i).timing(TimingPolicy.batched(20))
    order = [keys[0] for _, keys in starts(run(STEPS, schedule, 1)) if len(keys) == 2]
    assert order == [*[1] * 10, *[0] * 10, *[3] * 10, *[2] * 10, *[5] * 10, *[4] * 10]


def test_values_take_turns() -> None:
    for n, groups in (
        (6, [range(6)]),
        (2, [range(2), range(2, 4), range(4, 6)]),
        (1, [[i] for i in range(6)]),
    ):
        order = starts(run(STEPS, Schedule().interleave(lambda t: t.i, n), 1))
        expected = [i for group in groups for _ in range(10) for i in group]
        assert [keys[0] for _, keys in order if len(keys) == 2] == expected
        assert order[0] == ("bump", (0,))


def test_keys_order_the_tasks_of_values_that_take_turns() -> None:
    by_kernel = Schedule().interleave(lambda t: t.i, 2).order_by(lambda t: t.kernel)
    for start in (StartPolicy.immediate(), StartPolicy.after_build()):
        order = starts(run(STEPS, by_kernel.task_graph(start=start), 1))[1:]
        groups = [(i, kernel) for i in range(3) for kernel in ("bump", "drop") for _ in range(10)]
        assert [(keys[0] // 2, kernel) for kernel, keys in order] == groups


def test_turns_allow_no_program_order() -> None:
    with pytest.raises(UnsupportedByTarget, match="decided by fifo"):
        STEPS.reschedule(Schedule().interleave(lambda t: t.i, 2).task_graph(ready=ReadyPolicy.fifo()))


@pytest.mark.parametrize("n", [1, 2, 3, 100])
def test_so_many_values_are_in_flight(n: int) -> None:
    in_flight = Schedule().concurrent(lambda t: t.i, max=n)
    for schedule in (
        in_flight,
        in_flight.dispatch(DispatchPolicy.round_robin(3)).task_graph(window=TaskWindow(2)),
        in_flight.order_by(lambda t: -t.i),
        in_flight.task_graph(start=StartPolicy.after_build()).order_by(lambda t: t.j),
    ):
        for _ in range(5):
            events = [e for e in run(STEPS, schedule, 4) if len(e.keys) == 2]
            assert most_in_flight(events, 0) <= n
            assert n > 1 or one_at_a_time_by(events, 0)


def test_values_in_flight_are_used() -> None:
    """With room for two rows, the two that are admitted start in any order."""
    ordered = Schedule().concurrent(lambda t: t.i, max=2).order_by(lambda t: -t.i)
    order = [keys[0] for _, keys in starts(run(STEPS, ordered, 1)) if len(keys) == 2]
    assert order == [i for i in (1, 0, 3, 2, 5, 4) for _ in range(10)]


def test_keys_without_a_loop_are_not_in_flight() -> None:
    with pytest.raises(UnsupportedByTarget, match="follows no loop"):
        STEPS.reschedule(Schedule().concurrent(lambda t: t.kernel, max=2))


@workload
def uneven(rows: Ragged["batch"], X: Tensor[f32, "tokens", 4, 8], Y: Tensor[f32, "batch", 4, 1, 8]):
    for b in P("batch"):
        for h in P(4):
            total[b, h](x=X[rows[b], h], y=Y[b, h])


def test_the_longest_tasks_start_first() -> None:
    program = uneven.compile("cpu")
    lengths = np.random.default_rng(0).permutation(40) + 1
    x = np.ones((int(lengths.sum()), 4, 8), np.float32)
    for start in (StartPolicy.immediate(), StartPolicy.after_build()):
        program.reschedule(Schedule().load_balance().task_graph(start=start))
        y = np.empty((40, 4, 1, 8), np.float32)
        program.run(rows=Ragged.lengths(lengths), X=x, Y=y, workers=1, trace=True)
        assert program.trace is not None and (y[:, 0, 0, 0] == lengths).all()
        order = [int(lengths[keys[0]]) for _, keys in starts(program.trace)]
        assert order == sorted(order, reverse=True)
    program.reschedule(Schedule().load_balance().order_by(lambda t: t.h))
    program.run(rows=Ragged.lengths(lengths), X=x, Y=y, workers=1, trace=True)
    order = [(keys[1], -int(lengths[keys[0]])) for _, keys in starts(program.trace)]
    assert order == sorted(order)


def test_stated_costs_go_before_elements() -> None:
    @kernel(cost=lambda p: 100 * p.i)
    def costly(x: InOut[Tile[1, 8, f32]], i: Scalar[i64]):
        pto.store(x, x + 1.0)

    @workload
    def costs(X: Tensor[f32, "n", 1, 8]):
        for i in P("n"):
            costly[i](x=X[i], i=i)

    program = costs.load_balance().compile("cpu")
    program.run(X=np.zeros((30, 1, 8), np.float32), workers=1, trace=True)
    assert program.trace is not None
    assert [keys[0] for _, keys in starts(program.trace)] == [*range(29, -1, -1)]
