"""Inputs that are fetched before their tasks begin: which ones, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    CalendarPolicy,
    Deps,
    In,
    InOut,
    Out,
    P,
    Schedule,
    StartPolicy,
    Tensor,
    Tile,
    f32,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.device.model import Device
from pto_wsp.device.reader import get_device
from pto_wsp.errors import PtoError, UnsupportedByTarget
from pto_wsp.runtime.stats import RunStats
from pto_wsp.support.record import replace
from tests.python.schedule.steps import CHOSEN, STEPS, counter, run, starts


def test_defaults_fetch_nothing() -> None:
    run(STEPS, Schedule(), 1)
    assert counter("prefetched_tasks") == 0


@pytest.mark.parametrize("ahead", [1, 3])
def test_inputs_of_the_next_keys_are_fetched(ahead: int) -> None:
    """One worker fetches those of every row but the first; several workers do so one at a time."""
    fetching = Schedule().prefetch(lambda t: t.i, ahead)
    for schedule in (
        fetching,
        fetching.task_graph(start=StartPolicy.after_build()),
        fetching.task_graph(deps=Deps.symbolic()),
        fetching.task_graph(calendar=CalendarPolicy.by_cost()),
    ):
        events = [e for e in run(STEPS, schedule, 1) if len(e.keys) == 2]
        assert counter("prefetched_tasks") == sum(e.keys[0] > 0 for e in events)
        run(STEPS, schedule, 4)
        assert 0 < counter("prefetched_tasks") <= sum(e.keys[0] > 0 for e in events)


def test_fetching_orders_nothing() -> None:
    orders = [starts(run(STEPS, s, 1)) for s in (Schedule(), Schedule().prefetch(lambda t: t.i))]
    assert orders[0] == orders[1]


def test_nothing_is_fetched_past_a_value_that_tasks_write() -> None:
    counts, x = np.zeros((3, 1, 4), np.int32), np.ones((3, 1, 8), np.float32)
    CHOSEN.reschedule(Schedule().prefetch(lambda t: t.i))
    CHOSEN.run(Counts=counts, X=x, workers=1)
    assert CHOSEN.stats is not None
    assert (counts == 1).all() and (x == 2.5).all()
    assert CHOSEN.stats.counters["prefetched_tasks"] == 2


@kernel
def twice(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, x * 2.0)


@workload
def picked(Which: Tensor[i32, "n", 1], X: Tensor[f32, "m", 16, 64], Y: Tensor[f32, "n", 16, 64]):
    """Tasks whose inputs an array selects."""
    for i in P("n"):
        twice[i](x=X[Which[i, 0]], y=Y[i])


@pytest.mark.parametrize("expander", ["bytecode", "source"])
@pytest.mark.parametrize("workers", [1, 2])
def test_inputs_that_an_array_selects_are_fetched(expander: str, workers: int) -> None:
    program = picked.compile("cpu", expander=expander)
    program.reschedule(Schedule().prefetch(lambda t: t.i // 2, ahead=2))
    rng = np.random.default_rng(5)
    which, x = rng.integers(0, 50, (40, 1)).astype(np.int32), rng.random((50, 16, 64), np.float32)
    y = np.zeros((40, 16, 64), np.float32)
    program.run(Which=which, X=x, Y=y, workers=workers)
    assert (y == 2 * x[which[:, 0]]).all() and program.stats is not None
    found = program.stats.counters["prefetched_tasks"]
    assert found == 38 if workers == 1 else 0 <= int(str(found)) <= 38


def test_an_error_of_the_walk_is_that_of_a_run_without_prefetch() -> None:
    which, x = np.array([[0], [7]], np.int32), np.ones((2, 16, 64), np.float32)
    program = picked.compile("cpu")
    raised = []
    for schedule in (Schedule(), Schedule().prefetch(lambda t: t.i)):
        program.reschedule(schedule)
        with pytest.raises(PtoError) as caught:
            program.run(Which=which, X=x, Y=x.copy(), workers=1)
        raised.append(caught.value.code)
    assert raised[0] == raised[1]


# The target `sim`


def one_core(l2_bytes: int | None = None) -> Device:
    """Return a device with one core of each kind."""
    device = get_device("ascend_910b")
    l2 = device.l2 if l2_bytes is None else replace(device.l2, size=l2_bytes)
    return replace(device, cores=tuple(replace(kind, count=1) for kind in device.cores), l2=l2)


@kernel
def add(x: In[Tile[16, 64, f32]], s: InOut[Tile[16, 64, f32]]):
    pto.store(s, s + x)


@workload
def total(X: Tensor[f32, "n", 16, 64], S: Tensor[f32, 16, 64]):
    for i in P.range("n"):
        add[i](x=X[i], s=S)


def simulated(schedule: Schedule, device: Device, n: int = 40) -> RunStats:
    """Run `total` on a device, check its values, and return the figures."""
    program = total.compile(target="sim", device=device)
    program.reschedule(schedule)
    x, s = np.ones((n, 16, 64), np.float32), np.zeros((16, 64), np.float32)
    program(X=x, S=s)
    assert (s == n).all() and program.stats is not None
    return program.stats


def test_transfers_of_the_next_inputs_overlap_with_the_present_task() -> None:
    """Of two inputs, the cache holds the sum; no earlier task fetches the first row."""
    alone = simulated(Schedule(), one_core())
    fetched = simulated(Schedule().prefetch(lambda t: t.i), one_core())
    assert alone.counters["prefetched_bytes"] == 0
    assert fetched.counters["prefetched_bytes"] == 39 * 16 * 64 * 4
    assert alone.cycles - fetched.cycles == 39 * one_core().l2.miss


def test_a_region_that_another_task_stores_is_not_fetched() -> None:
    """Row i + 1 of Y is stored by its own first task, after the tasks of row i have begun."""

    @workload
    def chain(X: Tensor[f32, "n", 16, 64], Y: Tensor[f32, "n", 16, 64], Z: Tensor[f32, "n", 16, 64]):
        for i in P("n"):
            twice[i](x=X[i], y=Y[i])
            twice[i](x=Y[i], y=Z[i])

    program = chain.compile(target="sim", device=one_core())
    program.reschedule(Schedule().prefetch(lambda t: t.i))
    x = np.random.default_rng(0).random((40, 16, 64), np.float32)
    y, z = np.zeros((2, 40, 16, 64), np.float32)
    program(X=x, Y=y, Z=z)
    assert (z == x * 4).all() and program.stats is not None
    assert program.stats.counters["prefetched_bytes"] == 39 * 16 * 64 * 4


def test_a_device_without_a_cache_refuses() -> None:
    with pytest.raises(UnsupportedByTarget, match="has no cache"):
        simulated(Schedule().prefetch(lambda t: t.i), one_core(l2_bytes=0), 4)
