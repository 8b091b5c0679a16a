"""What lets two tasks run at the same time, and what keeps them apart, as recorded in a trace."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    Deps,
    DispatchPolicy,
    InOut,
    P,
    Pools,
    Program,
    ReadyPolicy,
    Scalar,
    Schedule,
    Tensor,
    Tile,
    TimingPolicy,
    f32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import EdgesMissing

WAITS_FOR_ANOTHER = """
static std::atomic<int> begun{0};
const int both = (++begun + 1) / 2 * 2;
for (int waited = 0; begun < both && waited < ms; ++waited)
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
"""


@kernel(
    cpp_src=WAITS_FOR_ANOTHER,
    cpp_includes=["<atomic>", "<chrono>", "<thread>"],
    cost=lambda p: 20_000 + 0 * p.x.rows,
)
def meet(x: InOut[Tile[8, 8, f32]], ms: Scalar[i64]): ...


@workload
def halves(X: Tensor[f32, 8, "m"], ms: Scalar[i64]):
    """Two tasks without a common element, whose ranges of bytes overlap."""
    for c in P.tiles("m", 8):
        meet[c](x=X[:, c], ms=ms)


@workload
def alike(X: Tensor[f32, 8, "m"], ms: Scalar[i64]):
    """Two iterations with the same elements."""
    for i in P(2):
        meet[i](x=X[:, 0:8], ms=ms)


@workload
def one_after_the_other(X: Tensor[f32, 8, "m"], ms: Scalar[i64]):
    """The same, with an edge."""
    first = meet[0](x=X[:, 0:8], ms=ms)
    meet[1](x=X[:, 8:16], ms=ms, after=[first])


HALVES, ALIKE, EDGE = (w.compile("cpu") for w in (halves, alike, one_after_the_other))
TWO = Schedule().dispatch(DispatchPolicy.round_robin(2))


def run_together(program: Program, schedule: Schedule, expected: bool) -> bool:
    """Whether the two tasks of a program have run at the same time; each waits for that if it is expected."""
    program.reschedule(schedule)
    program.run(X=np.zeros((8, 16), np.float32), ms=20_000 if expected else 30, workers=2, trace=True)
    assert program.trace is not None
    start, end = program.trace.start_ns, program.trace.end_ns
    assert len(start) == 2
    return bool(start.max() < end.min())


@pytest.mark.parametrize(
    ("deps", "program", "expected"),
    [
        (Deps.infer_tensor_map_exact(), HALVES, True),
        (Deps.infer_tensor_map_exact(), ALIKE, False),
        (Deps.infer_tensor_map_exact(), EDGE, False),
        (Deps.hybrid(), HALVES, True),
        (Deps.hybrid(), ALIKE, False),
        (Deps.hybrid(), EDGE, False),
        (Deps.infer_bytes_overlap(), HALVES, False),
        (Deps.trust(), ALIKE, True),
        (Deps.trust(), EDGE, False),
        (Deps.explicit(), HALVES, True),
        (Deps.explicit(), EDGE, False),
        (Deps.explicit(unchecked=True), ALIKE, True),
        (Deps.explicit(unchecked=True), EDGE, False),
    ],
    ids=str,
)
def test_tasks_wait_as_deps_says(deps: Deps, program: Program, expected: bool) -> None:
    assert run_together(program, TWO.task_graph(deps=deps), expected) == expected


def test_edges_that_are_missing_are_refused() -> None:
    with pytest.raises(EdgesMissing):
        run_together(ALIKE, TWO.task_graph(deps=Deps.explicit()), False)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (TWO, True),
        (TWO.streams(1), False),
        (TWO.stream_by(lambda t: 0), False),
        (TWO.timing(TimingPolicy.batched(1)), False),
        (TWO.task_graph(pools=Pools.custom(lambda t: 0, [1])), False),
        (TWO.task_graph(pools=Pools.single()), True),
    ],
    ids=str,
)
def test_defaults_keep_no_tasks_apart(schedule: Schedule, expected: bool) -> None:
    assert run_together(HALVES, schedule, expected) == expected


@kernel
def bump(x: InOut[Tile[1, 8, f32]]):
    pto.store(x, x + 1.0)


@workload
def rows(X: Tensor[f32, "n", 1, 8]):
    for i in P("n"):
        bump[i](x=X[i])


@pytest.mark.parametrize(
    ("schedule", "recorded"),
    [
        (TWO.task_graph(ready=ReadyPolicy.work_steal()), 0),
        (TWO.task_graph(ready=ReadyPolicy.fifo()), 8),
        (TWO.order_by(lambda t: t.i), 8),
    ],
    ids=str,
)
def test_ready_tasks_run_at_once_unless_an_order_is_asked_for(schedule: Schedule, recorded: int) -> None:
    program = rows.compile("cpu")
    program.reschedule(schedule)
    program.run(X=np.zeros((8, 1, 8), np.float32), workers=1)
    assert program.stats is not None
    found = program.stats.counters["dispatcher_recorded"]
    assert isinstance(found, list) and sum(found) == recorded
