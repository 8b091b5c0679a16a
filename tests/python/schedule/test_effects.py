"""What each policy does to the order and the place of tasks, as recorded in a trace."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DispatchPolicy,
    InOut,
    P,
    Pools,
    Program,
    Ragged,
    ReadyPolicy,
    Scalar,
    Schedule,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    TimingPolicy,
    TracePolicy,
    WindowMode,
    f32,
    i32,
    i64,
    kernel,
    pto,
    stage,
    workload,
)
from pto_wsp.errors import BadKey, UnsupportedByTarget, WindowFull, WrongValue
from pto_wsp.runtime.trace import TaskEvent, Trace
from pto_wsp.visualize.timeline import STALLS
from tests.python.schedule.programs import total, totals


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


@pytest.mark.parametrize("workers", [1, 3])
def test_dispatchers_take_turns(workers: int) -> None:
    schedule = Schedule().dispatch(DispatchPolicy.round_robin(3))
    trace = run(STEPS, schedule.task_graph(window=TaskWindow(16)), workers)
    pieces = [int(d) for d, after in pairwise([*trace.dispatcher, -1]) if d != after]
    assert pieces == [i % 3 for i in range(len(pieces))] and len(pieces) > 6


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["i", "j"])
def test_equal_keys_have_one_dispatcher(name: str, workers: int) -> None:
    by_key = {
        "affinity": DispatchPolicy.affinity(lambda t: getattr(t, name) - 2, 4),
        "hash": DispatchPolicy.hash(lambda t: getattr(t, name), 4),
        "dispatch_by": DispatchPolicy.dispatch_by(lambda t: (getattr(t, name) * 3) % 4, 4),
    }
    found: dict[str, dict[int, set[int]]] = {policy: {} for policy in by_key}
    for policy, dispatch in by_key.items():
        for event in run(STEPS, Schedule().dispatch(dispatch), workers):
            if len(event.keys) == 2:
                found[policy].setdefault(event.keys["ij".index(name)], set()).add(event.dispatcher)
    assert all(len(dispatchers) == 1 for by in found.values() for dispatchers in by.values())
    assert found["affinity"] == {key: {(key - 2) % 4} for key in found["affinity"]}
    assert found["dispatch_by"] == {key: {key * 3 % 4} for key in found["dispatch_by"]}
    assert len({frozenset(dispatchers) for dispatchers in found["hash"].values()}) > 1


def test_the_number_of_dispatchers() -> None:
    for n in (1, 2, 5, 16, 64):
        for policy in (
            DispatchPolicy.work_steal(n),
            DispatchPolicy.round_robin(n),
            DispatchPolicy.affinity(lambda t: t.i, n),
            DispatchPolicy.hash(lambda t: t.i, n),
            DispatchPolicy.dispatch_by(lambda t: 0 * t.i, n),
        ):
            trace = run(STEPS, Schedule().dispatch(policy))
            assert counter("dispatchers") == n and int(trace.dispatcher.max()) < n
            made = STEPS.stats.counters["dispatcher_tasks"] if STEPS.stats is not None else None
            assert made == np.bincount(trace.dispatcher, minlength=n).tolist()
    for workers in (1, 3, 12):
        run(STEPS, Schedule().dispatch(DispatchPolicy.round_robin()), workers)
        assert counter("dispatchers") == min(workers, 8)


def starts(trace: Trace) -> list[tuple[str, tuple[int, ...]]]:
    """Return kernels and coordinates in the order in which tasks started."""
    events = sorted(trace, key=lambda event: event.start_ns)
    return [(event.kernel, event.keys) for event in events]


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


def test_a_window_bounds_how_far_a_run_looks_ahead() -> None:
    schedule = Schedule().task_graph(window=TaskWindow(4)).order_by(lambda t: -t.i)
    order = [keys[0] for _, keys in starts(run(STEPS, schedule, 1)) if len(keys) == 2]
    assert order != sorted(order, reverse=True) and order[0] == 0
    assert counter("max_recorded") <= 4 and counter("window_stalls") > 0


def test_fifo_starts_tasks_in_program_order() -> None:
    fifo = Schedule().dispatch(DispatchPolicy.work_steal(3)).task_graph(ready=ReadyPolicy.fifo())
    trace = run(STEPS, fifo, 1)
    assert list(trace.start_ns) == sorted(trace.start_ns)


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


def test_benchmark_calls_no_kernel() -> None:
    x, z = np.ones(SHAPE, np.float32), np.ones((1, 8), np.float32)
    for workers in (1, 2):
        STEPS.reschedule(Schedule().task_graph(window=TaskWindow(64, mode=WindowMode.BENCHMARK)))
        STEPS.run(X=x, Z=z, workers=workers)
        assert (x == 1.0).all() and (z == 1.0).all()
        assert STEPS.stats is not None and STEPS.stats.tasks == 61 and STEPS.stats.is_benchmark
    STEPS.reschedule(Schedule())
    STEPS.run(X=x, Z=z)
    assert not (x == 1.0).any() and not STEPS.stats.is_benchmark


def test_benchmark_is_refused_where_kernels_decide() -> None:
    benchmark = Schedule().task_graph(window=TaskWindow(64, mode=WindowMode.BENCHMARK))

    @workload
    def decided(X: Tensor[f32, 1, 8], N: Tensor[i32, 1, 4]):
        step[0](x=N)
        for i in P(N[0, 0]):
            bump[i](x=X)

    with pytest.raises(UnsupportedByTarget, match="`N` decides what runs"):
        decided.compile("cpu").reschedule(benchmark)
    with pytest.raises(UnsupportedByTarget, match="benchmark"):
        totals.compile("interp").reschedule(benchmark)


def test_partitions_are_by_number() -> None:
    for bounds in ([10], [3, 4, 40], [0, 7, 61, 100]):
        trace = run(STEPS, Schedule().dispatch(DispatchPolicy.static_partition(bounds)), 2)
        assert [int(d) for d in trace.dispatcher] == [
            int(np.searchsorted(bounds, i, "right")) for i in range(61)
        ]


def one_at_a_time(events: list[TaskEvent]) -> bool:
    return all(a.end_ns <= b.start_ns for a, b in pairwise(events))


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


def test_keys_go_to_dispatchers_by_their_size() -> None:
    by_row = Schedule().dispatch(DispatchPolicy.threshold(lambda t: t.i, [2, 5]))
    for event in run(STEPS, by_row, 2):
        assert len(event.keys) == 1 or event.dispatcher == (event.keys[0] >= 2) + (event.keys[0] >= 5)
    assert counter("dispatchers") == 3


def test_each_level_of_a_size_can_have_a_rule_of_its_own() -> None:
    """Rows below 2 are dealt out by column, rows 2 and 3 have one dispatcher, the others two."""
    levels = [
        DispatchPolicy.affinity(lambda t: t.j, 2),
        DispatchPolicy.round_robin(1),
        DispatchPolicy.affinity(lambda t: t.i == 5, 2),
    ]
    by_level = DispatchPolicy.threshold(lambda t: t.i, [2, 4], levels)
    for event in run(STEPS, Schedule().dispatch(by_level), 2):
        if len(event.keys) == 2:
            i, j = event.keys
            assert event.dispatcher == (j % 2 if i < 2 else 2 if i < 4 else 3 + (i == 5))
    assert counter("dispatchers") == 5


def test_truth_values_have_a_size() -> None:
    by_kernel = Schedule().dispatch(DispatchPolicy.threshold(lambda t: t.kernel == drop, [1]))
    for event in run(STEPS, by_kernel, 2):
        assert event.dispatcher == (event.kernel == "drop")


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


def most_in_flight(events: list[TaskEvent], place: int) -> int:
    """Return the most values of a key that were between their first start and their last end at a time."""
    values = [[e for e in events if e.keys[place] == value] for value in {e.keys[place] for e in events}]
    spans = [(min(e.start_ns for e in each), max(e.end_ns for e in each)) for each in values]
    return max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)


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


def one_at_a_time_by(events: list[TaskEvent], place: int) -> bool:
    """Whether the values of a key follow each other in order."""
    order = [e.keys[place] for e in sorted(events, key=lambda e: e.start_ns)]
    return order == sorted(order)


def test_values_in_flight_are_used() -> None:
    """With room for two rows, the two that are admitted start in any order."""
    ordered = Schedule().concurrent(lambda t: t.i, max=2).order_by(lambda t: -t.i)
    order = [keys[0] for _, keys in starts(run(STEPS, ordered, 1)) if len(keys) == 2]
    assert order == [i for i in (1, 0, 3, 2, 5, 4) for _ in range(10)]


def test_keys_without_a_loop_are_not_in_flight() -> None:
    with pytest.raises(UnsupportedByTarget, match="follows no loop"):
        STEPS.reschedule(Schedule().concurrent(lambda t: t.kernel, max=2))


@pytest.mark.parametrize("start", [StartPolicy.immediate(), StartPolicy.after_build()])
@pytest.mark.parametrize("workers", [1, 2])
def test_starts_keep_their_distance(start: StartPolicy, workers: int) -> None:
    limited = Schedule().task_graph(start=start).timing(TimingPolicy.rate_limit(10000))
    trace = run(STEPS, limited, workers)
    assert trace.start_ns.max() - trace.start_ns.min() >= 60 * 100_000 * 0.99


def test_a_run_that_is_paced_can_be_stopped() -> None:
    STEPS.reschedule(Schedule().timing(TimingPolicy.rate_limit(20)))
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        STEPS.run(X=np.zeros(SHAPE, np.float32), Z=np.ones((1, 8), np.float32), progress=lambda n: 1 // 0)
    assert time.monotonic() - begin < 2


POOLS_OF_STEPS = {
    "halves": (lambda t: t.i, [2], 4, lambda i: ({0, 1}, {2, 3})[i % 2]),
    "uneven": (lambda t: t.i, [1, 3], 4, lambda i: ({0}, {1, 2}, {3})[i % 3]),
    "shared": (lambda t: t.i, [1, 2, 3], 2, lambda i: ({0}, {1}, {0}, {1})[i % 4]),
    "empty": (lambda t: t.i, [7], 2, lambda i: ({0, 1}, {1})[i % 2]),
}


@pytest.mark.parametrize("name", POOLS_OF_STEPS)
@pytest.mark.parametrize(
    "beside",
    [
        Schedule(),
        Schedule().task_graph(window=TaskWindow(1)),
        Schedule().task_graph(ready=ReadyPolicy.fifo()),
        Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.j, 3)),
    ],
)
def test_tasks_run_in_their_pool(name: str, beside: Schedule) -> None:
    key, bounds, workers, allowed = POOLS_OF_STEPS[name]
    trace = run(STEPS, beside.task_graph(pools=Pools.custom(key, bounds)), workers)
    assert all(len(event.keys) == 1 or event.worker in allowed(event.keys[0]) for event in trace)


@pytest.mark.parametrize(
    ("group", "workers", "groups"),
    [(1, 3, [{0}, {1}, {2}]), (2, 4, [{0, 1}, {2, 3}]), (2, 5, [{0, 1}, {2, 3, 4}]), (2, 1, [{0}])],
)
def test_equal_keys_run_on_one_group(group: int, workers: int, groups: list[set[int]]) -> None:
    near = Schedule().affinity(lambda t: t.i - 1, group=group)
    for schedule in (
        near,
        near.task_graph(window=TaskWindow(2)),
        near.order_by(lambda t: -t.j),
        near.task_graph(start=StartPolicy.after_build()),
        near.dispatch(DispatchPolicy.affinity(lambda t: t.j, 3)),
    ):
        for event in run(STEPS, schedule, workers):
            assert len(event.keys) == 1 or event.worker in groups[(event.keys[0] - 1) % len(groups)]
        queued = STEPS.stats.counters["lanes_queued"] if STEPS.stats is not None else []
        assert isinstance(queued, list) and len(queued) == len(groups) + 1


def test_a_trace_is_as_full_as_the_schedule_says() -> None:
    x, z = np.ones(SHAPE, np.float32), np.ones((1, 8), np.float32)
    STEPS.reschedule(Schedule().task_graph(trace=TracePolicy.tasks(), window=TaskWindow(4)))
    STEPS.run(X=x, Z=z, workers=2)
    assert STEPS.trace is not None and len(STEPS.trace) == 61 and not len(STEPS.trace.walks)
    STEPS.run(X=x, Z=z, workers=2, trace="off")
    assert STEPS.trace is None
    STEPS.run(X=x, Z=z, workers=2, trace="full")
    assert STEPS.trace is not None
    made = STEPS.trace.walks
    assert made[:, 2].sum() == 61 and (np.diff(made[made[:, 0] == 0][:, 3]) >= 0).all()
    for dispatcher, first, count, _ in made:
        assert (STEPS.trace.dispatcher[first : first + count] == dispatcher).all()
    stalls = STEPS.trace.stalls
    assert len(stalls) == sum(counter(f"{name}_stalls") for name in STALLS)
    assert (stalls[:, 2] <= stalls[:, 3]).all()
    with pytest.raises(WrongValue, match="'full'"):
        STEPS.run(X=x, Z=z, trace="all")


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


@pytest.mark.parametrize(("n", "workers"), [(None, 2), (1, 3), (2, 3), (None, 1)])
def test_kernels_run_on_workers_for_their_cores(n: int | None, workers: int) -> None:
    expected = np.random.default_rng(0).standard_normal((200, 1, 8)).astype(np.float32)
    x = expected.copy()
    CORES.reschedule(Schedule())
    CORES.run(X=expected, workers=1)
    CORES.reschedule(Schedule().task_graph(pools=Pools.by_exec_unit(n)))
    CORES.run(X=x, workers=workers, trace=True)
    assert x.tobytes() == expected.tobytes() and CORES.trace is not None
    limit = n or max(workers // 2, 1)
    for event in CORES.trace:
        if workers > 1 and event.kernel != "bump":
            assert (event.worker < limit) == (event.kernel == "cube")
    assert CORES.stats is not None and len(CORES.stats.counters["lanes_queued"]) == 3


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


@pytest.mark.parametrize(("workers", "split"), [(1, [1, 1]), (2, [1, 1]), (3, [1, 2]), (6, [2, 4])])
def test_stages_share_the_workers(workers: int, split: list[int]) -> None:
    stages = Schedule().pipeline(stage(cube, cores=8), stage("vector", cores=16))
    for schedule in (
        stages,
        stages.task_graph(start=StartPolicy.after_build()),
        stages.order_by(lambda t: -t.i),
    ):
        for event in run_cores(schedule, workers):
            if workers > 1 and event.kernel != "bump":
                assert (event.worker < split[0]) == (event.kernel == "cube")
        assert CORES.stats is not None and CORES.stats.counters["pool_workers"] == split


def test_stages_of_unknown_kernels_are_refused() -> None:
    with pytest.raises(BadKey, match="no kernel is called `vektor`"):
        CORES.reschedule(Schedule().pipeline(stage(cube, cores=8), stage("vektor", cores=16)))


@kernel
def slow_load(x: InOut[Tile[1, 64, f32]], n: Scalar[i64]):
    for _ in range(n):
        pto.store(x, x + 1.0)


@kernel
def slow_exp(x: InOut[Tile[1, 64, f32]], n: Scalar[i64]):
    for _ in range(n):
        pto.store(x, pto.exp(x * 0.001))


@workload
def classes(X: Tensor[f32, "n", 1, 64], Y: Tensor[f32, "n", 1, 64], rounds: Scalar[i64]):
    for i in P("n"):
        slow_load[i](x=X[i], n=rounds)
    for i in P("n"):
        slow_exp[i](x=Y[i], n=rounds)


def test_both_classes_run_at_a_time() -> None:
    """Worker 0 takes the first class and worker 1 the second one, and each helps when its own is done.

    A run shows less where a thread has no core for a while, or its class is empty before its tasks are made.
    """
    program = classes.compile("cpu")
    overlap = Schedule().overlap(stage(slow_load, cores=1), stage(slow_exp, cores=1))
    for schedule in (overlap, overlap.task_graph(start=StartPolicy.after_build())):
        program.reschedule(schedule)
        assert any(each_begins_with_its_class(program) for _ in range(100))
    x, y = np.zeros((2, 40, 1, 64), np.float32)
    program.run(X=x, Y=y, rounds=1, workers=1)


def each_begins_with_its_class(program: Program) -> bool:
    """Whether in a run worker 0 starts with loads and worker 1 with exps, and each changes once at most."""
    x, y = np.zeros((2, 40, 1, 64), np.float32)
    program.run(X=x, Y=y, rounds=2000, workers=2, trace=True)
    assert program.trace is not None
    events = sorted(program.trace, key=lambda e: e.start_ns)
    found = [[e.kernel for e in events if e.worker == worker] for worker in (0, 1)]
    begins = [kernels[:1] for kernels in found] == [["slow_load"], ["slow_exp"]]
    return begins and all(sum(a != b for a, b in pairwise(kernels)) <= 1 for kernels in found)


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


def test_dispatchers_count_what_they_make_and_wait_for() -> None:
    def counts(schedule: Schedule, name: str) -> list[int]:
        CORES.reschedule(schedule.order_by(lambda t: t.kernel))
        CORES.run(X=np.zeros((50, 1, 8), np.float32), workers=2, trace=True)
        assert CORES.stats is not None and CORES.trace is not None
        counters = CORES.stats.counters
        assert counters["dispatcher_tasks"] == np.bincount(CORES.trace.dispatcher).tolist()
        found = counters[f"dispatcher_{name}"]
        assert isinstance(found, list)
        return found

    by_kernel = Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.kernel, 3))
    assert sum(counts(by_kernel, "remote_waits")) > 0 and sum(counts(by_kernel, "local_waits")) == 0
    alone = Schedule().dispatch(DispatchPolicy.round_robin(1))
    assert counts(alone, "remote_waits") == [0] and counts(alone, "local_waits")[0] > 0
    assert counts(alone, "recorded") == [150]


@workload
def chosen(Counts: Tensor[i32, "n", 1, 4], X: Tensor[f32, "n", 1, 8]):
    for i in P("n"):
        step[i](x=Counts[i])
    for i in P("n"):
        with P.when(Counts[i, 0, 0] > 0):
            bump[i](x=X[i])


CHOSEN = chosen.compile("cpu")


def test_tasks_behind_what_tasks_decide_are_dealt_out_too() -> None:
    CHOSEN.reschedule(Schedule().dispatch(DispatchPolicy.round_robin(2)))
    x = np.ones((40, 1, 8), np.float32)
    CHOSEN.run(Counts=np.zeros((40, 1, 4), np.int32), X=x, workers=2, trace=True)
    assert (x == 2.5).all() and CHOSEN.trace is not None
    makers = [event.dispatcher for event in CHOSEN.trace if event.kernel == "bump"]
    assert [makers.count(0), makers.count(1)] == [20, 20]


def test_the_counters_of_the_guide_are_there() -> None:
    run(STEPS, Schedule())
    guide = Path(__file__).parents[3] / "docs" / "schedules.md"
    rows = re.findall(r"^\| .*", guide.read_text("utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row) if name.endswith(("stalls", "_ns"))}
    named |= {"max_recorded", "max_live_slices", "lanes_queued", "max_queued", "max_waiting", "waits"}
    assert STEPS.stats is not None and named <= STEPS.stats.counters.keys() and len(named) == 14


def test_what_stops_a_dispatcher_is_counted() -> None:
    """One thread walks as far as it can before it does anything else."""
    x, z, counts = np.ones(SHAPE, np.float32), np.ones((1, 8), np.float32), np.zeros((40, 1, 4), np.int32)
    STEPS.reschedule(Schedule().task_graph(window=TaskWindow(1)).order_by(lambda t: -t.i))
    STEPS.run(X=x, Z=z, workers=1)
    CHOSEN.reschedule(Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.i, 2)))
    CHOSEN.run(Counts=counts, X=np.ones((40, 1, 8), np.float32), workers=1)
    for name, program in (("window", STEPS), ("flush", CHOSEN)):
        assert program.stats is not None
        stops, ns = (program.stats.counters[f"{name}_{what}"] for what in ("stalls", "stall_ns"))
        assert isinstance(stops, int) and isinstance(ns, int) and 0 < stops < ns, name


WAITS_FOR_ALL_THAT_CAN_RUN = """
static std::atomic<int> others{0};
if (i != 0) {
  ++others;
} else {
  for (int ms = 0; others < 8191 && ms < 30000; ++ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}
"""


@kernel(
    cpp_src=WAITS_FOR_ALL_THAT_CAN_RUN,
    cpp_includes=["<atomic>", "<chrono>", "<thread>"],
    cost=lambda p: 20_000 + 0 * p.x.rows,
)
def late_first(x: InOut[Tile[1, 1, f32]], i: Scalar[i64]): ...


@workload
def late_firsts(X: Tensor[f32, "n", 1, 1]):
    for i in P("n"):
        late_first[i](x=X[i], i=i)


def test_slices_on_their_way_are_bounded() -> None:
    """While the first task waits, no more than 8,191 slices, of a task each, come behind it."""
    program = late_firsts.dispatch(DispatchPolicy.work_steal(2)).compile("cpu")
    program.run(X=np.zeros((20_000, 1, 1), np.float32), workers=2)
    assert program.stats is not None
    counters = program.stats.counters
    assert counters["slice_stalls"] != 0 and counters["max_live_slices"] == 8192
