"""Every directive on the target `sim`: it changes the simulated run as its page says, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CalendarPolicy,
    Deps,
    DispatchPolicy,
    In,
    Out,
    P,
    Pools,
    Program,
    Ragged,
    ReadyPolicy,
    Schedule,
    StartPolicy,
    StorePolicy,
    TaskWindow,
    Tensor,
    Tile,
    TimingPolicy,
    TracePolicy,
    WindowMode,
    f32,
    i32,
    kernel,
    pto,
    stage,
    workload,
)
from pto_wsp.errors import EdgesMissing, PtoError, UnsupportedByTarget
from pto_wsp.lang.schedule.registry import DIRECTIVES
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.trace import Trace
from pto_wsp.simulation import Device, get_device, report_of
from pto_wsp.support.record import replace
from tests.python.schedule import test_prefetch
from tests.python.schedule.programs import totals
from tests.python.schedule.steps import (
    bump,
    drop,
    most_in_flight,
    one_at_a_time,
    starts,
    step,
    steps,
)

N, M = 6, 5
TASKS = 2 * N * M + 1
BUILT = Schedule().task_graph(start=StartPolicy.after_build())


@cache
def device(cores: int) -> Device:
    """Return a device with `cores` vector cores, whose latencies are those of a real one."""
    base = get_device("ascend_910b")
    kinds = tuple(replace(k, count=cores) if k.name == "vector" else k for k in base.cores)
    return replace(base, name=f"{cores}_cores", cores=kinds)


@cache
def compiled(made: Workload, cores: int) -> Program:
    """Return a program of time alone: nothing needs kernels, or results that false statements would spoil."""
    return made.compile(target="sim", device=device(cores), values=False)


def run(schedule: Schedule, cores: int = 8, made: Workload = steps, **shapes: Any) -> Trace:
    program = compiled(made, cores)
    program.reschedule(schedule)
    program.run(trace="full", **(shapes or {"X": (N, M, 1, 8), "Z": (1, 8)}))
    assert program.trace is not None
    return program.trace


def loops(trace: Trace) -> np.ndarray:
    """Return the index i of each task of the loops."""
    return np.array([event.keys[0] for event in trace if len(event.keys) == 2])


def made_at(trace: Trace) -> np.ndarray:
    found = np.empty(len(trace))
    found[trace.walks[:, 1]] = trace.walks[:, 3]
    return found


def require_waits(trace: Trace) -> None:
    """Whatever a schedule says, tasks follow those that they depend on."""
    for i in range(0, TASKS - 1, 2):
        assert trace.end_ns[i] <= trace.start_ns[i + 1]


# Dispatchers


def dispatched(schedule: Schedule, dispatcher: Callable[[np.ndarray], np.ndarray]) -> None:
    trace = run(schedule)
    require_waits(trace)
    assert (trace.dispatcher[: TASKS - 1] == dispatcher(loops(trace))).all()


def any_dispatcher() -> None:
    for n in (1, 4):
        assert set(run(Schedule().dispatch(DispatchPolicy.work_steal(n))).dispatcher) == {*range(n)}
    with pytest.raises(UnsupportedByTarget, match="has 6"):
        run(Schedule().dispatch(DispatchPolicy.work_steal(7)))


def in_turn() -> None:
    trace = run(Schedule().dispatch(DispatchPolicy.round_robin(3)), made=totals, **_lengths())
    assert (trace.dispatcher == np.arange(len(trace)) % 3).all()


def hashed() -> None:
    trace = run(Schedule().dispatch(DispatchPolicy.hash(lambda t: t.i, 3)))
    of_key = {(i, d) for i, d in zip(loops(trace), trace.dispatcher, strict=False)}
    assert len(of_key) == N and len({d for _, d in of_key}) > 1


def by_number() -> None:
    dispatched(Schedule().dispatch(DispatchPolicy.dispatch_by(lambda t: t.i % 4, 4)), lambda i: i % 4)
    with pytest.raises(PtoError, match="dispatcher"):
        run(Schedule().dispatch(DispatchPolicy.dispatch_by(lambda t: t.i, 4)))


def partitioned() -> None:
    trace = run(Schedule().dispatch(DispatchPolicy.static_partition([10, 50])))
    assert (trace.dispatcher == np.digitize(np.arange(TASKS), [10, 50])).all()


# Order


def windowed() -> None:
    for n in (1, 3):
        trace = run(Schedule().task_graph(window=TaskWindow(n)))
        require_waits(trace)
        made = made_at(trace)
        under_way = [int(((made <= at) & (at < trace.end_ns)).sum()) for at in made]
        assert max(under_way) <= n
    assert one_at_a_time([*run(Schedule().task_graph(window=TaskWindow(1)))])
    assert not one_at_a_time([*run(Schedule())])


def in_program_order(schedule: Schedule) -> None:
    assert [event.task for event in sorted(run(schedule, cores=1), key=lambda e: e.start_ns)] == [
        *range(TASKS)
    ]


def by_keys() -> None:
    trace = run(BUILT.order_by(lambda t: -t.j, lambda t: t.kernel, lambda t: t.i), cores=1)
    require_waits(trace)
    bumps = [event.keys for event in sorted(trace, key=lambda e: e.start_ns) if event.kernel == "bump"]
    # Z's task lacks both keys: they are 0, as j = 0 is, and of its equals it is the first by i.
    expected = [(i, j) for j in reversed(range(1, M)) for i in range(N)]
    assert bumps[: len(expected)] == expected
    order = starts(trace)
    assert order.index(("drop", (0, M - 1))) == N  # as soon as no bump of this j is ready


def started(schedule: Schedule, is_expected: Callable[[np.ndarray, float], bool]) -> None:
    trace = run(schedule)
    require_waits(trace)
    assert is_expected(np.sort(made_at(trace)), float(trace.start_ns.min()))


def streams_in_turn() -> None:
    assert not one_at_a_time([*run(BUILT)][::3])
    trace = run(BUILT.streams(3))
    require_waits(trace)
    for number in range(3):
        assert one_at_a_time([*trace][number::3])


def streams_by_key() -> None:
    trace = run(BUILT.stream_by(lambda t: t.i))
    for i in range(N):
        assert one_at_a_time([event for event in trace if event.keys[0] == i and len(event.keys) == 2])
    assert not one_at_a_time([*trace])


def turns() -> None:
    assert _keys(run(BUILT, cores=1)) == sorted(2 * M * [*range(N)])
    found = _keys(run(BUILT.interleave(lambda t: t.i, 2), cores=1))
    assert found == [first + turn % 2 for first in (0, 2, 4) for turn in range(4 * M)]


def _keys(trace: Trace) -> list[int]:
    return [keys[0] for _, keys in starts(trace) if len(keys) == 2]


def balanced() -> None:
    found = {}
    for schedule in (BUILT, BUILT.load_balance()):
        trace = run(schedule, cores=1, made=totals, **_lengths())
        found[schedule] = [LENGTHS[keys[0]] for kernel, keys in starts(trace) if kernel == "total"]
    assert found[BUILT] != sorted(found[BUILT], reverse=True)
    assert found[BUILT.load_balance()] == sorted(found[BUILT], reverse=True)


LENGTHS = [3, 400, 30, 90, 8, 200]


def _lengths() -> dict[str, Any]:
    b, tokens = len(LENGTHS), sum(LENGTHS)
    shapes = {"X": (tokens, 4, 8), "Y": (b, 4, 1, 8), "Z": (b, 1, 8)}
    return {"rows": Ragged.lengths(LENGTHS), **shapes}


def batched() -> None:
    trace = run(Schedule().timing(TimingPolicy.batched(7)))
    require_waits(trace)
    for first in range(7, TASKS, 7):
        assert trace.end_ns[first - 7 : first].max() <= trace.start_ns[first : first + 7].min()


def spaced() -> None:
    trace = run(Schedule().timing(TimingPolicy.rate_limit(100_000)))
    assert np.diff(np.sort(trace.start_ns)).min() >= 9_999  # ns, rounded
    assert np.diff(np.sort(run(BUILT).start_ns)).min() == 0


def in_flight() -> None:
    for n in (1, 2):
        events = [e for e in run(Schedule().concurrent(lambda t: t.i, max=n)) if len(e.keys) == 2]
        assert most_in_flight(events, 0) == n
    assert most_in_flight([e for e in run(BUILT) if len(e.keys) == 2], 0) > 2


# Places


def cores_of(trace: Trace, kernel_name: str) -> set[int]:
    """Return the vector cores that ran a kernel; 24 cube cores come before them."""
    return {int(e.worker) - 24 for e in trace if e.kernel == kernel_name and len(e.keys) == 2}


def pooled() -> None:
    trace = run(BUILT.task_graph(pools=Pools.custom(lambda t: t.i % 2, [3])))
    for i, core in zip(loops(trace), trace.worker - 24, strict=False):
        assert (core >= 3) == (i % 2 == 1)
    assert cores_of(run(BUILT), "bump") == {*range(8)}


def grouped() -> None:
    trace = run(BUILT.affinity(lambda t: t.i, group=4))  # of the kind with the fewest cores
    for i, core in zip(loops(trace), trace.worker - 24, strict=False):
        assert core // 4 == i % 2


def staged() -> None:
    trace = run(BUILT.pipeline(stage(bump, cores=3), stage(drop, cores=1)))
    assert cores_of(trace, "bump") == {*range(6)} and cores_of(trace, "drop") == {6, 7}


# Memory and records


@kernel
def copy(x: In[Tile[64, 64, f32]], y: Out[Tile[64, 64, f32]]):
    pto.store(y, x)


@workload
def copied_twice(X: Tensor[f32, "n", 64, 64], Y: Tensor[f32, "n", 64, 64], Z: Tensor[f32, "n", 64, 64]):
    for i in P("n"):
        copy[i](x=X[i], y=Y[i])
    for i in P("n"):
        copy[i](x=X[i], y=Z[i])


def bytes_of(schedule: Schedule, tiles: int) -> int:
    """Return the tiles of 16 KB that pass the cache, which holds 64."""
    base = get_device("ascend_910b")
    small = replace(base, l2=replace(base.l2, size=64 << 14))
    program = copied_twice.compile(target="sim", device=small, values=False)
    program.reschedule(schedule)
    program.run(X=(tiles, 64, 64), Y=(tiles, 64, 64), Z=(tiles, 64, 64))
    return report_of(program).bytes["gm"] >> 14


def streamed() -> None:
    """Results that bypass the cache leave the input there for the second loop."""
    assert bytes_of(Schedule().task_graph(stores=StorePolicy.streaming(1)), 40) == 3 * 40
    assert bytes_of(Schedule(), 40) == 4 * 40  # 40 tiles are not beyond the cache
    assert bytes_of(Schedule(), 64) == 3 * 64


def stored_in_caches() -> None:
    assert bytes_of(Schedule().task_graph(stores=StorePolicy.cached()), 64) == 4 * 64


def traced(policy: TracePolicy, is_traced: bool) -> None:
    program = compiled(steps, 8)
    program.reschedule(Schedule().task_graph(trace=policy))
    program.run(X=(N, M, 1, 8), Z=(1, 8))
    assert (program.trace is not None) == is_traced
    if program.trace is not None:
        assert len(program.trace) == TASKS and len(program.trace.walks) == TASKS


# Waits


@workload
def columns(X: Tensor[f32, 8, "n", 8], Y: Tensor[f32, 8, "n", 8]):
    """Tasks of separate columns, whose bounds in memory overlap. Iterations of the second loop share them."""
    for i in P("n"):
        pair[i](x=X[:, i], y=Y[:, i])
    for i in P("n"):
        pair[i](x=X[:, i], y=Y[:, i // 2])


@kernel
def pair(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
    pto.store(y, x)


COLUMNS = 8


def waiting(deps: Deps) -> set[tuple[int, int]]:
    """Return the pairs of tasks of which one starts after the other under a schedule of these waits."""
    shape = (8, COLUMNS, 8)
    trace = run(BUILT.task_graph(deps=deps), 2 * COLUMNS, columns, X=shape, Y=shape)
    pairs = ((a, b) for b in range(2 * COLUMNS) for a in range(b))
    return {(a, b) for a, b in pairs if trace.end_ns[a] <= trace.start_ns[b]}


def waits(
    deps: Deps, expected: Callable[[int, int], bool], apart: Callable[[int, int], bool] = lambda a, b: False
) -> None:
    """Require the pairs of tasks of which one follows the other, and those that overlap.

    There is a core for each task.
    """
    pairs = [(a, b) for b in range(2 * COLUMNS) for a in range(b)]
    found = waiting(deps)
    assert {pair for pair in pairs if expected(*pair)} <= found
    assert not {pair for pair in pairs if apart(*pair)} & found


def is_first_loop(a: int, b: int) -> bool:
    return b < COLUMNS


def is_of_data(a: int, b: int) -> bool:
    """Whether a pair has a true dependence; two writers of one column are a false one of the second loop."""
    return b >= COLUMNS and a == (b - COLUMNS) // 2


def is_of_writers(a: int, b: int) -> bool:
    return b >= COLUMNS and a == b - 1 and b % 2 == 1


def exact(deps: Deps) -> None:
    waits(deps, lambda a, b: is_of_data(a, b) or is_of_writers(a, b), is_first_loop)


@workload
def edged(X: Tensor[f32, 8, "n", 8], Y: Tensor[f32, 8, "n", 8]):
    for i in P("n"):
        first = pair[i](x=X[:, i], y=Y[:, i])
        pair[i](x=Y[:, i], y=X[:, i], after=[first])


@workload
def counted(X: Tensor[f32, 8, 8, 8], steps: Tensor[i32, 1, 4]):
    """How often the loop runs follows from what a task writes."""
    step(x=steps)
    for _ in P.range(steps[0, 0]):
        pair(x=X[:, 0], y=X[:, 1])


def missing_edges() -> None:
    explicit = Schedule().task_graph(deps=Deps.explicit())
    with pytest.raises(EdgesMissing, match="no edges lead"):
        waiting(Deps.explicit())
    shape = (8, COLUMNS, 8)
    assert len(run(explicit, made=edged, X=shape, Y=shape)) == 2 * COLUMNS
    for rounds, is_enough in ((1, True), (2, False)):
        given = {"steps": np.array([[rounds, 0, 0, 0]], np.int32)}
        program = counted.compile("sim", values=False, given=given)
        program.reschedule(explicit)
        if is_enough:
            program.run(X=(8, 8, 8))
            continue
        with pytest.raises(EdgesMissing, match="no edges lead"):
            program.run(X=(8, 8, 8))


# Calendars


def places(program: Program) -> list[tuple[int, int]]:
    trace = program.trace
    assert trace is not None
    return [*zip(trace.worker.tolist(), trace.start_ns.tolist(), strict=True)]


def by_calendar() -> None:
    program = compiled(steps, 8)
    shapes: dict[str, Any] = {"X": (N, M, 1, 8), "Z": (1, 8)}
    program.reschedule(Schedule())
    table = program.calendar(**shapes)
    program.run(trace=True, calendar=table, **shapes)
    expected = places(program)
    program.reschedule(Schedule().task_graph(calendar=CalendarPolicy.by_cost()))
    program.run(trace=True, **shapes)
    assert places(program) == expected
    program.reschedule(Schedule())
    program.run(trace=True, **shapes)
    assert places(program) != expected


REFUSED = {
    ("window", "abort"): (
        Schedule().task_graph(window=TaskWindow(8, mode=WindowMode.ABORT)),
        "waits until its window has room",
    ),
    ("window", "benchmark"): (
        Schedule().task_graph(window=TaskWindow(8, mode=WindowMode.BENCHMARK)),
        "measures the dispatch of this machine",
    ),
    ("pools", "by_exec_unit"): (
        Schedule().task_graph(pools=Pools.by_exec_unit()),
        "cores of its own for each unit",
    ),
    ("pools", "overlap"): (
        Schedule().overlap(stage(bump, cores=1), stage(drop, cores=1)),
        "cores of its own for each unit",
    ),
    ("deps", "symbolic"): (Schedule().task_graph(deps=Deps.symbolic()), "by hazard maps"),
}

ENFORCED: dict[tuple[str, str], Callable[[], None]] = {
    ("dispatch", "work_steal"): any_dispatcher,
    ("dispatch", "round_robin"): in_turn,
    ("dispatch", "affinity"): lambda: dispatched(
        Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.i, 4)), lambda i: i % 4
    ),
    ("dispatch", "hash"): hashed,
    ("dispatch", "dispatch_by"): by_number,
    ("dispatch", "threshold"): lambda: dispatched(
        Schedule().dispatch(DispatchPolicy.threshold(lambda t: t.i, [2, 4])),
        lambda i: np.digitize(i, [2, 4]),
    ),
    ("dispatch", "static_partition"): partitioned,
    ("window", "stall"): windowed,
    ("ready", "work_steal"): lambda: in_program_order(BUILT),
    ("ready", "fifo"): lambda: in_program_order(BUILT.task_graph(ready=ReadyPolicy.fifo())),
    ("ready", "order_by"): by_keys,
    ("start", "immediate"): lambda: started(Schedule(), lambda made, first: first < made[10]),
    ("start", "threshold"): lambda: started(
        Schedule().task_graph(start=StartPolicy.threshold(40)),
        lambda made, first: made[39] <= first < made[-1],
    ),
    ("start", "after_build"): lambda: started(BUILT, lambda made, first: made[-1] <= first),
    ("streams", "off"): lambda: in_program_order(BUILT),
    ("streams", "in_turn"): streams_in_turn,
    ("streams", "by"): streams_by_key,
    ("interleave", "off"): lambda: in_program_order(BUILT),
    ("interleave", "by"): turns,
    ("load_balance", "off"): balanced,
    ("load_balance", "by_cost"): balanced,
    ("timing", "immediate"): spaced,
    ("timing", "batched"): batched,
    ("timing", "rate_limit"): spaced,
    ("concurrent", "off"): in_flight,
    ("concurrent", "by"): in_flight,
    ("pools", "single"): pooled,
    ("pools", "custom"): pooled,
    ("pools", "affinity"): grouped,
    ("pools", "pipeline"): staged,
    ("stores", "streaming"): streamed,
    ("stores", "cached"): stored_in_caches,
    ("trace", "off"): lambda: traced(TracePolicy.off(), False),
    ("trace", "tasks"): lambda: traced(TracePolicy.tasks(), True),
    ("trace", "full"): lambda: traced(TracePolicy.full(), True),
    ("deps", "infer_tensor_map_exact"): lambda: exact(Deps.infer_tensor_map_exact()),
    ("deps", "infer_bytes_overlap"): lambda: waits(Deps.infer_bytes_overlap(), lambda a, b: True),
    ("deps", "hybrid"): lambda: exact(Deps.hybrid()),
    ("deps", "explicit"): missing_edges,
    ("deps", "explicit_unchecked"): lambda: waits(
        Deps.explicit(unchecked=True), lambda a, b: False, lambda a, b: True
    ),
    ("deps", "trust"): lambda: waits(
        Deps.trust(), is_of_data, lambda a, b: is_first_loop(a, b) or is_of_writers(a, b)
    ),
    ("prefetch", "off"): test_prefetch.test_transfers_of_the_next_inputs_overlap_with_the_present_task,
    ("prefetch", "by"): test_prefetch.test_transfers_of_the_next_inputs_overlap_with_the_present_task,
    ("calendar", "off"): by_calendar,
    ("calendar", "by_cost"): by_calendar,
}


EVERY = [(kind.kind, name) for kind in DIRECTIVES.values() for name in kind.policies]


@pytest.mark.parametrize(("kind", "name"), EVERY, ids=lambda part: part)
def test_a_directive_acts_in_simulated_time_or_is_refused(kind: str, name: str) -> None:
    if (kind, name) in ENFORCED:
        ENFORCED[kind, name]()
        return
    schedule, reason = REFUSED[kind, name]
    program = compiled(steps, 8)
    program.reschedule(Schedule())
    with pytest.raises(UnsupportedByTarget, match=reason) as caught:
        program.reschedule(schedule)
    assert f"{kind} = {name}" in str(caught.value)


def test_each_directive_has_one_place_in_the_tables() -> None:
    assert {*ENFORCED} | {*REFUSED} == {*EVERY} and not {*ENFORCED} & {*REFUSED}
