"""What tasks are ordered by: equal results where what a program states is true, else errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp import (
    Deps,
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Pools,
    Ragged,
    Schedule,
    Session,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    TimingPolicy,
    WindowMode,
    f32,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import EdgesMissing, TimeLimitReached
from pto_wsp.ir.verify import verify
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.compiling import compile_module
from tests.generators.drawing import tries
from tests.generators.workloads import samples
from tests.python.runtime.test_stopped_kernels import counts, spins
from tests.python.schedule.failing import copies, expect_first_failure

DEPS = [
    Deps.infer_tensor_map_exact(),
    Deps.infer_bytes_overlap(),
    Deps.hybrid(),
    Deps.symbolic(),
    Deps.explicit(),
    Deps.explicit(unchecked=True),
    Deps.trust(),
]
WAYS = [
    Schedule(),
    Schedule().dispatch(DispatchPolicy.round_robin(3)).task_graph(window=TaskWindow(2)),
    Schedule().task_graph(start=StartPolicy.after_build()),
]


@kernel
def double(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, x * 2.0)


@kernel
def add(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y * 3.0 + x)


@kernel
def count(x: InOut[Tile[1, 1, i32]]):
    pto.store(x, x + 1)


@workload
def chains(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    """Edges say all that data does: within iterations of P, and by P.seq."""
    for i in P("n"):
        first = double[i](x=X[i : i + 1], y=Y[i : i + 1])
        add[i](x=X[i : i + 1], y=Y[i : i + 1], after=[first])
    for _ in P.seq(2):
        for i in P("n"):
            add[i](x=X[i : i + 1], y=Z[i : i + 1])


@workload
def gap(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], steps: Tensor[i32, 1, 1]):
    """How often the loop runs is what a task makes of it."""
    count(x=steps)
    for _ in P.range(steps[0, 0]):
        for i in P("n"):
            add[i](x=X[i : i + 1], y=Y[i : i + 1])


def arrays(*names: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {name: rng.random((33, 8), np.float32) for name in names}


CHAINS, GAP = chains.compile("cpu"), gap.compile("cpu")


@pytest.mark.parametrize("deps", DEPS, ids=lambda policy: policy.name)
def test_results_are_the_same_where_statements_are_true(deps) -> None:
    expected = arrays("X", "Y", "Z")
    chains.compile("interp")(**expected)
    for way in WAYS:
        CHAINS.reschedule(way.task_graph(deps=deps))
        for workers in (1, 2, 3):
            found = arrays("X", "Y", "Z")
            CHAINS.run(**found, workers=workers, check="hazards")
            for name in found:
                np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_edges_that_are_missing_are_named() -> None:
    GAP.reschedule(Schedule().task_graph(deps=Deps.explicit()))
    values = arrays("X", "Y")
    GAP(**values, steps=np.zeros((1, 1), np.int32))
    with pytest.raises(EdgesMissing) as caught:
        GAP(**values, steps=np.ones((1, 1), np.int32))
    error = caught.value
    assert error.tasks_before == 1 + 2 * 33
    assert error.fields["region"] == "Y[0:1, 0:8]"
    assert "add[i](x=" in (error.loc.source_line() or "") and "add[i](" in (
        error.notes[0][1].source_line() or ""
    )
    GAP.reschedule(Schedule().task_graph(deps=Deps.explicit(unchecked=True)))
    GAP(**values, steps=np.ones((1, 1), np.int32))


@workload
def layers(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    """Each loop reads what the loop before wrote, one row further."""
    for i in P("n"):
        double[i](x=X[i : i + 1], y=Y[i : i + 1])
    for i in P("n"):
        with P.when(i > 0):
            add[i](x=Y[i - 1 : i], y=Z[i : i + 1])


@pytest.mark.parametrize("workers", [2, 4])
def test_symbolic_waits_order_tasks(workers: int) -> None:
    program = layers.task_graph(deps=Deps.symbolic()).compile("cpu")
    for _ in range(20):
        values = arrays("X", "Y", "Z")
        expected = values["Z"].copy()
        expected[1:] = expected[1:] * np.float32(3) + values["X"][:-1] * np.float32(2)
        program(**values, workers=workers)
        assert (values["Z"] == expected).all()
        assert program.stats is not None and program.stats.is_symbolic
    program.run(**arrays("X", "Y", "Z"), workers=workers, trace="full")
    assert not program.stats.is_symbolic
    program.run(**arrays("X", "Y", "Z"), workers=1)
    assert not program.stats.is_symbolic


def why(policies: Schedule, made: Workload = layers, **options: Any) -> str:
    """Return why a run under symbolic waits and other policies did not use them."""
    program = made.compile("cpu")
    program.reschedule(policies.task_graph(deps=Deps.symbolic()))
    program.run(**arrays("X", "Y", "Z"), **{"workers": 2} | options)
    assert program.stats is not None and program.stats.is_symbolic == (not program.stats.why_not_symbolic)
    return program.stats.why_not_symbolic


def test_stats_say_why_waits_were_not_symbolic() -> None:
    by_row, free = Schedule().task_graph, Schedule()
    policies = {
        "dispatch": free.dispatch(DispatchPolicy.round_robin(2)),
        "window": by_row(window=TaskWindow(64, "tasks", WindowMode.ABORT)),
        "ready": free.order_by(lambda t: t.i),
        "start": by_row(start=StartPolicy.after_build()),
        "streams": free.streams(2),
        "interleave": free.interleave(lambda t: t.i, 2),
        "load_balance": free.load_balance(),
        "timing": free.timing(TimingPolicy.batched(4)),
        "concurrent": free.concurrent(lambda t: t.i, max=2),
        "pools": by_row(pools=Pools.custom(lambda t: t.i, [1])),
    }
    for kind, schedule in policies.items():
        assert why(schedule) == f"the policy of `{kind}` decides where or when tasks run"
    assert why(free) == "" == why(free, chains)
    assert why(free, workers=1) == "one worker runs the tasks in program order"
    assert why(free, trace=True) == "the run was traced"
    assert why(free, nested) == "a `P` loop contains a `P.seq` loop of several units"


def test_stats_say_that_the_policy_or_another_run_decides() -> None:
    program = layers.compile("cpu")
    program.run(**arrays("X", "Y", "Z"), workers=2)
    assert program.stats is not None
    assert program.stats.why_not_symbolic == "the policy of `deps` is not `symbolic`"
    interpreted = layers.task_graph(deps=Deps.symbolic()).compile("interp")
    interpreted.run(**arrays("X", "Y", "Z"))
    assert interpreted.stats is not None
    assert interpreted.stats.why_not_symbolic == "the engine did not order the tasks"
    program.reschedule(Schedule().task_graph(deps=Deps.symbolic()))
    values, slow = arrays("X", "Y", "Z"), counts.compile("cpu")
    with Session() as session:
        first = session.launch(slow, X=values["X"], turns=100_000, k=1)
        second = session.launch(program, **values)
    assert not first.waits and second.waits
    assert program.stats.why_not_symbolic == "tasks wait for earlier runs of the session"


@workload
def nested(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    for i in P("n"):
        double[i](x=X[i : i + 1], y=Y[i : i + 1])
        for j in P.seq(3):
            for k in P(2):
                add[i, j, k](x=Y[i : i + 1], y=Z[i : i + 1])


@workload
def paged(table: Tensor[i32, "n"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    """Each row goes to the page of its sequence, which the next sequence may read."""
    for i in P("n"):
        double[i](x=X[i : i + 1], y=Y[i : i + 1])
    for i in P("n"):
        add[i](x=Y[i : i + 1], y=Z[table[i] : table[i] + 1])


@workload
def ragged(rows: Ragged["n"], X: Tensor[f32, "m", 8], Y: Tensor[f32, "m", 8], Z: Tensor[f32, "m", 8]):
    """Rows of sequences, in a sum that follows an edge."""
    for i in P("n"):
        for r in P(rows[i].extent):
            double[i, r](x=X[rows[i]][r : r + 1], y=Y[rows[i]][r : r + 1])
    for i in P("n"):
        for r in P(rows[i].extent):
            first = add[i, r](x=X[rows[i]][r : r + 1], y=Z[0:1])
            add[i, r](x=Y[rows[i]][r : r + 1], y=Y[rows[i]][r : r + 1], after=[first])


MIXED = {
    "paged": (paged, {"table": np.array([5, 5, 0, 7] * 8 + [1], np.int32)}),
    "permuted": (paged, {"table": np.arange(33, dtype=np.int32)[::-1].copy()}),
    "ragged": (ragged, {"rows": Ragged.lengths([3, 0, 20, 1, 9])}),
    "chains": (chains, {}),
}


@pytest.mark.parametrize("name", MIXED)
def test_maps_order_what_waits_would_serialise(name: str) -> None:
    """Waits of other memory stay symbolic, and no worker keeps a record. Elements tell which rows differ."""
    made, decides = MIXED[name]
    program = made.task_graph(deps=Deps.symbolic()).compile("cpu")
    expected = arrays("X", "Y", "Z")
    program.run(**decides, **expected, workers=1)
    for workers in (2, 3, 5):
        for _ in range(5):
            found = arrays("X", "Y", "Z")
            program.run(**decides, **found, workers=workers)
            assert all((found[array] == expected[array]).all() for array in found)
            stats = program.stats
            assert stats is not None and stats.is_symbolic and stats.counters["max_recorded"] == 0
            mapped, symbolic = stats.counters["mapped_accesses"], stats.counters["symbolic_accesses"]
            assert (mapped > 0) == (name == "paged") and symbolic > 0


def test_changed_elements_are_compared_again() -> None:
    program = paged.task_graph(deps=Deps.symbolic()).compile("cpu")
    for name in ("permuted", "paged", "permuted", "paged"):
        expected, found = arrays("X", "Y", "Z"), arrays("X", "Y", "Z")
        program.run(**MIXED[name][1], **expected, workers=1)
        program.run(**MIXED[name][1], **found, workers=3)
        assert (found["Z"] == expected["Z"]).all()
        assert program.stats is not None
        assert (program.stats.counters["mapped_accesses"] == 0) == (name == "permuted")


@tries(40, compiles=True)
@given(st.data())
def test_random_programs_with_symbolic_waits(data: st.DataObject) -> None:
    sample = data.draw(samples())
    note(str(sample.module))
    program = compile_module(verify(sample.module))
    names = [param.name for param in sample.module.entry_workload.params]
    all_values = {**sample.arrays(), "n": sample.sizes["n"]}
    program.reschedule(Schedule().task_graph(deps=Deps.symbolic()))
    results = []
    for workers in (1, 2, 4):
        values = {
            name: np.copy(value) if isinstance(value, np.ndarray) else value
            for name, value in all_values.items()
            if name in names
        }
        program.run(**values, workers=workers)
        results.append([value.tobytes() for value in values.values() if isinstance(value, np.ndarray)])
    assert results[0] == results[1] == results[2]


def test_the_first_failure_ends_a_run_with_symbolic_waits() -> None:
    program = copies.task_graph(deps=Deps.symbolic()).compile("cpu")
    for workers in (1, 2, 4):
        values = arrays("X", "Y", "Z")
        changed = expect_first_failure(program, values, workers=workers)
        # A copy of a row that is complete may have run before the failure.
        assert not changed[[20, 25]].any() and (values["Z"] == values["Y"])[changed, 0].all()


def test_a_run_with_symbolic_waits_can_be_stopped() -> None:
    program = spins.task_graph(deps=Deps.symbolic()).compile("cpu")
    x = np.ones((5, 8), np.float32)
    with pytest.raises(TimeLimitReached):
        program.run(X=x, turns=1, workers=2, time_limit=0.2)
    program.run(X=x, turns=0, workers=2)
    assert (x == 1).all()
