"""Which workers run a task."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pto_wsp import (
    DispatchPolicy,
    InOut,
    P,
    Pools,
    Program,
    ReadyPolicy,
    Scalar,
    Schedule,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    f32,
    i64,
    kernel,
    pto,
    stage,
    workload,
)
from pto_wsp.errors import BadKey
from tests.python.schedule.steps import (
    CORES,
    STEPS,
    cube,
    run,
    run_cores,
)

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
