"""Directives of schedules on the target `cuda`: which block runs a task, and how many are under way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Deps,
    DispatchPolicy,
    In,
    Out,
    P,
    Pools,
    Program,
    ReadyPolicy,
    Schedule,
    TaskWindow,
    Tensor,
    Tile,
    WindowMode,
    f32,
    group_by,
    i32,
    kernel,
    pto,
    stage,
    workload,
)
from pto_wsp.errors import NoDispatcher, UnsupportedByTarget, WrongValue

pytestmark = pytest.mark.usefixtures("gpu")


@kernel
def double(x: In[Tile[4, 16, f32]], y: Out[Tile[4, 16, f32]]):
    pto.store(y, x * 2.0)


@kernel
def halve(x: In[Tile[4, 16, f32]], y: Out[Tile[4, 16, f32]]):
    pto.store(y, x * 0.5)


@workload
def both(X: Tensor[f32, "n", 4, 16], Y: Tensor[f32, "n", 4, 16], Z: Tensor[f32, "n", 4, 16]):
    for i in P("n"):
        double[i](x=X[i], y=Y[i])
    for j in P("n"):
        halve[j](x=Y[j], y=Z[j])


N = 10


def traced(schedule: Schedule, workers: int | None = None) -> Program:
    """Run `both` under a schedule, check its results, and return the program with its trace."""
    program = both.compile("cuda")
    program.reschedule(schedule)
    x = np.random.default_rng(1).standard_normal((N, 4, 16)).astype(np.float32)
    y, z = np.zeros_like(x), np.zeros_like(x)
    program(X=x, Y=y, Z=z, workers=workers, trace=True)
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_array_equal(z, x)
    assert program.trace is not None and len(program.trace) == 2 * N
    return program


def blocks_of(program: Program) -> list[int]:
    """Return the block of each task."""
    assert program.trace is not None
    return program.trace.worker.tolist()


def test_blocks_claim_tasks() -> None:
    program = traced(Schedule(), workers=3)
    assert set(blocks_of(program)) <= {0, 1, 2}
    trace = program.trace
    assert trace is not None
    assert (trace.end_ns >= trace.start_ns).all() and trace.start_ns.min() == 0
    for i in range(N):  # a task begins after the one that it reads from
        assert trace.start_ns[N + i] >= trace.end_ns[i]
    assert [event.label for event in trace][N - 1 : N + 1] == [f"double[{N - 1}]", "halve[0]"]


def test_the_number_of_blocks_goes_with_pools() -> None:
    """The first two blocks run even rows, the others odd ones."""
    pools = Pools.custom(lambda t: t.i, [2])
    program = traced(Schedule().dispatch(DispatchPolicy.work_steal(4)).task_graph(pools=pools))
    keys = [*range(N), *range(N)]
    assert all((block >= 2) == i % 2 for block, i in zip(blocks_of(program), keys, strict=True))


def test_a_run_is_drawn(tmp_path: Path) -> None:
    """The swimlane has a lane per block; dependences are not recorded."""
    trace = traced(Schedule(), workers=2).trace
    assert trace is not None
    trace.save(tmp_path / "run.json", dependences=False)
    assert "block 1" in (tmp_path / "run.json").read_text()
    with pytest.raises(UnsupportedByTarget, match="dependences=False"):
        trace.save(tmp_path / "run.json")


def test_blocks_take_turns() -> None:
    program = traced(Schedule().dispatch(DispatchPolicy.round_robin(4)))
    assert blocks_of(program) == [k % 4 for k in range(2 * N)]
    with pytest.raises(WrongValue, match="expected 4, as the schedule says"):
        x = np.zeros((1, 4, 16), np.float32)
        program(X=x, Y=x.copy(), Z=x.copy(), workers=3)
    with pytest.raises(UnsupportedByTarget, match="a schedule of 40 dispatchers"):
        traced(Schedule().dispatch(DispatchPolicy.round_robin(40)))


def test_tasks_go_to_blocks_by_key() -> None:
    keys = [*range(N), *range(N)]

    def blocks(policy: DispatchPolicy, workers: int | None = None) -> list[int]:
        return blocks_of(traced(Schedule().dispatch(policy), workers))

    def index(t: Any) -> Any:
        return t.i

    first, second = blocks(DispatchPolicy.affinity(index, 3))[:N], blocks(DispatchPolicy.hash(index, 3))[:N]
    assert first == [k % 3 for k in keys[:N]]
    assert len(set(second)) > 1
    assert blocks(DispatchPolicy.threshold(index, [2, 5]))[:N] == [(k >= 2) + (k >= 5) for k in keys[:N]]
    assert blocks(DispatchPolicy.static_partition([4, 13])) == [(k >= 4) + (k >= 13) for k in range(2 * N)]
    by_kernel = DispatchPolicy.dispatch_by(lambda t: t.kernel == double, 2)
    assert len({*blocks(by_kernel)[:N]}) == 1
    with pytest.raises(NoDispatcher, match=r"is for dispatcher 4[\s\S]*one of 0 to 3 in iteration i = 4"):
        blocks(DispatchPolicy.dispatch_by(index, 4))


def test_pools_of_blocks() -> None:
    def blocks(pools: Pools, workers: int = 6) -> tuple[set[int], set[int]]:
        found = blocks_of(traced(Schedule().task_graph(pools=pools), workers))
        return set(found[:N]), set(found[N:])

    first, second = blocks(Pools.custom(lambda t: t.kernel == halve, [2]))
    assert first <= {0, 1} and second <= {2, 3, 4, 5}
    stages = Schedule().pipeline(stage(double, cores=1), stage(halve, cores=2))
    found = blocks_of(traced(stages, 6))
    assert {*found[:N]} <= {0, 1} and {*found[N:]} <= {2, 3, 4, 5}
    found = blocks_of(traced(Schedule().affinity(lambda t: t.i, group=2), 6))[:N]
    assert all(block // 2 == i % 3 for i, block in enumerate(found))
    with pytest.raises(WrongValue, match="expected more blocks, for 2 pools"):
        blocks(Pools.custom(lambda t: t.kernel == halve, [2]), workers=2)


def test_a_launch_that_is_refused_ends_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is freed with it. The substitute ends the process if a copy still uses the memory."""
    monkeypatch.setenv("PTO_SUBSTITUTE_DELAY_MS", "5")
    program = both.compile("cuda")
    program.reschedule(Schedule().task_graph(pools=Pools.custom(lambda t: t.kernel == halve, [2])))
    x = np.ones((N, 4, 16), np.float32)
    with pytest.raises(WrongValue, match="expected more blocks"):
        program(X=x, Y=x.copy(), Z=x.copy(), workers=2)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_window_bounds_tasks_under_way(size: int) -> None:
    trace = traced(Schedule().task_graph(window=TaskWindow(size)), workers=4).trace
    assert trace is not None
    for task in range(size, 2 * N):
        assert trace.start_ns[task] >= trace.end_ns[task - size]


def test_a_benchmark_calls_no_kernel() -> None:
    program = both.compile("cuda")
    program.reschedule(Schedule().task_graph(window=TaskWindow(64, mode=WindowMode.BENCHMARK)))
    x = np.ones((N, 4, 16), np.float32)
    y = np.zeros_like(x)
    program(X=x, Y=y, Z=y.copy())
    assert not y.any() and program.stats is not None
    assert program.stats.is_benchmark and program.stats.tasks == 2 * N


def test_what_is_refused() -> None:
    program = both.compile("cuda")
    x = np.ones((N, 4, 16), np.float32)
    for schedule in (
        Schedule().streams(2),
        Schedule().order_by(lambda t: -t.i),
        Schedule().task_graph(window=TaskWindow(8, mode=WindowMode.ABORT)),
        Schedule().task_graph(deps=Deps.trust()),
        Schedule().dispatch(DispatchPolicy.round_robin(2)).task_graph(ready=ReadyPolicy.fifo()),
    ):
        with pytest.raises(UnsupportedByTarget, match="cuda"):
            program.reschedule(schedule)
    with pytest.raises(UnsupportedByTarget, match=r"full[\s\S]*\^\^ blocks expand tasks"):
        program(X=x, Y=x.copy(), Z=x.copy(), trace="full")
    with pytest.raises(UnsupportedByTarget, match=r"a calendar[\s\S]*only `cpu` and `sim`"):
        program.calendar(X=x, Y=x.copy(), Z=x.copy())

    @workload
    def grouped(K: Tensor[i32, "n"], X: Tensor[f32, "n", 16], Y: Tensor[f32, "n", 16]):
        groups = group_by(K, num_groups=3)
        for g in P(3):
            for rows in P.tiles(groups[g], 4):
                double[g, rows](x=X[groups.rows(rows)], y=Y[groups.rows(rows)])

    with pytest.raises(UnsupportedByTarget, match="the host cannot name the tasks"):
        grouped.compile("cuda")(K=np.zeros(4, np.int32), X=x[0], Y=x[0].copy(), trace=True)
