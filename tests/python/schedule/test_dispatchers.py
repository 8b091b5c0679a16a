"""Which dispatcher makes a task, and what dispatchers count."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DispatchPolicy,
    InOut,
    P,
    Scalar,
    Schedule,
    TaskWindow,
    Tensor,
    Tile,
    f32,
    i64,
    kernel,
    workload,
)
from tests.python.schedule.steps import (
    CHOSEN,
    CORES,
    SHAPE,
    STEPS,
    counter,
    drop,
    run,
)


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


def test_partitions_are_by_number() -> None:
    for bounds in ([10], [3, 4, 40], [0, 7, 61, 100]):
        trace = run(STEPS, Schedule().dispatch(DispatchPolicy.static_partition(bounds)), 2)
        assert [int(d) for d in trace.dispatcher] == [
            int(np.searchsorted(bounds, i, "right")) for i in range(61)
        ]


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
    """While the first task waits, no more than 8,191 slices, of a task each, follow it."""
    program = late_firsts.dispatch(DispatchPolicy.work_steal(2)).compile("cpu")
    program.run(X=np.zeros((20_000, 1, 1), np.float32), workers=2)
    assert program.stats is not None
    counters = program.stats.counters
    assert counters["slice_stalls"] != 0 and counters["max_live_slices"] == 8192
