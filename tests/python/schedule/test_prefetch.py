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
from tests.python.schedule.steps import STEPS, bump, run, starts, step

BLOCK = (16, 64)
LARGE = 1 << 18
"""Blocks of 1 GB, which no cache holds. Their memory is zero and is not allocated before a task writes it."""


@kernel
def twice(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, x * 2.0)


@workload
def picked(Which: Tensor[i32, "n", "k"], X: Tensor[f32, "m", 16, 64], Y: Tensor[f32, "n", "k", 16, 64]):
    """Tasks whose inputs an array selects."""
    for i in P("n"):
        for j in P("k"):
            twice[i, j](x=X[Which[i, j]], y=Y[i, j])


def run_picked(
    schedule: Schedule, workers: int, which: np.ndarray, blocks: int = LARGE, expander: str = "bytecode"
) -> dict[str, int]:
    """Run `picked` on inputs of a number of blocks, check its values, and return the counters of prefetch."""
    program = picked.compile("cpu", expander=expander)
    program.reschedule(schedule)
    x, y = np.zeros((blocks, *BLOCK), np.float32), np.zeros((*which.shape, *BLOCK), np.float32)
    chosen = np.unique(which)
    x[chosen] = np.random.default_rng(5).random((len(chosen), *BLOCK), np.float32)
    program.run(Which=which, X=x, Y=y, workers=workers)
    assert (y == 2 * x[which]).all() and program.stats is not None
    return {name: int(str(program.stats.counters[f"prefetched_{name}"])) for name in ("tasks", "bytes")}


ROWS = np.arange(48, dtype=np.int32).reshape(8, 6)
"""Blocks of eight rows of tasks."""


def test_defaults_fetch_nothing() -> None:
    assert run_picked(Schedule(), 1, ROWS) == {"tasks": 0, "bytes": 0}


@pytest.mark.parametrize("expander", ["bytecode", "source"])
@pytest.mark.parametrize("ahead", [1, 3])
def test_inputs_of_the_next_keys_are_fetched(ahead: int, expander: str) -> None:
    """One worker fetches those of every row but the first; several workers do so one at a time."""
    fetching = Schedule().prefetch(lambda t: t.i, ahead)
    most = ROWS[1:].size
    for schedule in (
        fetching,
        fetching.task_graph(start=StartPolicy.after_build()),
        fetching.task_graph(deps=Deps.symbolic()),
        fetching.task_graph(calendar=CalendarPolicy.by_cost()),
    ):
        alone = run_picked(schedule, 1, ROWS, expander=expander)
        assert alone == {"tasks": most, "bytes": most * 16 * 64 * 4}
        assert run_picked(schedule, 4, ROWS, expander=expander)["tasks"] <= most


def test_fetching_orders_nothing() -> None:
    orders = [starts(run(STEPS, s, 1)) for s in (Schedule(), Schedule().prefetch(lambda t: t.i))]
    assert orders[0] == orders[1]


def test_inputs_that_the_caches_hold_are_not_fetched() -> None:
    fetching = Schedule().prefetch(lambda t: t.i)
    assert run_picked(fetching, 1, ROWS, blocks=ROWS.size) == {"tasks": 0, "bytes": 0}


def test_the_same_input_of_the_next_task_is_not_fetched_again() -> None:
    fetched = run_picked(Schedule().prefetch(lambda t: t.i), 1, ROWS // 6)
    assert fetched == {"tasks": ROWS[1:].size, "bytes": 7 * 16 * 64 * 4}


@workload
def chosen(Counts: Tensor[i32, "n", 1, 4], X: Tensor[f32, "m", 1, 8]):
    """Tasks that exist if earlier tasks write a positive number."""
    for i in P("n"):
        step[i](x=Counts[i])
    for i in P("n"):
        with P.when(Counts[i, 0, 0] > 0):
            bump[i](x=X[i])


def test_nothing_is_fetched_past_a_value_that_tasks_write() -> None:
    counts, x = np.zeros((3, 1, 4), np.int32), np.zeros((1 << 25, 1, 8), np.float32)
    program = chosen.compile("cpu")
    program.reschedule(Schedule().prefetch(lambda t: t.i))
    program.run(Counts=counts, X=x, workers=1)
    assert program.stats is not None
    assert (counts == 1).all() and (x[:3] == 1).all()
    assert program.stats.counters["prefetched_tasks"] == 2


def test_an_error_of_the_walk_is_that_of_a_run_without_prefetch() -> None:
    which, y = np.array([[0], [LARGE]], np.int32), np.zeros((2, 1, *BLOCK), np.float32)
    program = picked.compile("cpu")
    raised = []
    for schedule in (Schedule(), Schedule().prefetch(lambda t: t.i)):
        program.reschedule(schedule)
        with pytest.raises(PtoError) as caught:
            program.run(Which=which, X=np.zeros((LARGE, *BLOCK), np.float32), Y=y, workers=1)
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
