"""Pictures of who did what: time of workers beside their tasks, and large graphs by call and loop."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    In,
    InOut,
    P,
    ReadyPolicy,
    Schedule,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    f32,
    kernel,
    pto,
    workload,
)
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.drawing import Arrow, Box, Text, to_svg
from pto_wsp.visualize.graph import Graph, graph_drawing
from pto_wsp.visualize.pdf import to_pdf
from pto_wsp.visualize.timeline import REASONS, Timeline, timeline_drawing, total_ns
from tests.golden import Golden

ROWS = np.empty((0, 4), np.int64)


def traced(
    tasks: list[tuple[int, int, int]], stretches: list[tuple[int, int, int]], workers: int
) -> Timeline:
    """Return a run of tasks (worker, start, end)."""
    worker, start, end = np.array(tasks, np.int64).reshape(-1, 3).T
    kernel = np.arange(len(tasks)) % 2
    spans = np.array(stretches, np.int64).reshape(-1, 3)
    return Timeline(["a", "b"], [], kernel, worker, start, end, ROWS, ROWS, ROWS, {}, workers, spans)


def test_the_time_of_a_worker_is_tasks_expanding_and_waiting() -> None:
    random = Random(5)
    for _ in range(50):
        moments = sorted(random.sample(range(1000), 20))
        spans = [(0, moments[i], moments[i + 1]) for i in range(0, 20, 2)]
        tasks = [(0, a + random.randrange(3), b) for _, a, b in spans[::2] if b - a > 3]
        run = traced(tasks, spans, 2)
        is_task, is_work = np.zeros(1000, bool), np.zeros(1000, bool)
        for marks, rows in ((is_task, tasks), (is_work, spans)):
            for _, start, end in rows:
                marks[start:end] = True
        inside = slice(moments[0], moments[-1])
        assert total_ns(run.busy_of(0)) == is_task.sum()
        assert total_ns(run.walking_of(0)) == (is_work & ~is_task).sum()
        assert total_ns(run.waiting_of(0)) == (~is_work & ~is_task)[inside].sum()
        assert total_ns(run.waiting_of(1)) == run.span_ns == moments[-1] - moments[0]


def test_a_timeline_shows_idle_workers_and_time_without_tasks(golden: Golden) -> None:
    tasks = [(0, 1_000, 41_000), (0, 55_000, 90_000), (2, 12_000, 60_000)]
    drawing = timeline_drawing(traced(tasks, [(0, 0, 42_000), (0, 50_000, 90_000), (2, 8_000, 61_000)], 4))
    golden("timeline.svg", to_svg(drawing))
    titles = [shape.title for shape in drawing.shapes if isinstance(shape, Box) and shape.title]
    assert "waits: 90 us" in titles and "expands tasks, finds dependences: 5 us" in titles
    texts = [shape.text for shape in drawing.shapes if isinstance(shape, Text)]
    assert ["worker 0", "worker 1", "worker 2", "worker 3"] == [t for t in texts if t.startswith("worker ")]
    assert to_pdf(drawing).startswith(b"%PDF")


def layers(n: int) -> Graph:
    """Return n steps of a loop: two calls in one nest, a chain in another, and decisions of the last step."""
    names = ["project", "rotate", "update"] * n
    steps = np.arange(n) * 3
    inside = np.stack([steps, steps + 1], axis=1)
    across = np.concatenate([np.stack([steps + i, steps + 2], axis=1) for i in (0, 1)])
    later = np.stack([steps[:-1] + 2, steps[1:]], axis=1)
    chain = np.stack([steps[:-1] + 2, steps[1:] + 2], axis=1)
    last = [(3 * n - 1, 3 * n), (0, 3 * n)]
    calls = [
        CallSite("project", ("s in P.seq(n)", "h in P(8)"), "a.py:3:9", "a.py:2:9"),
        CallSite("rotate", ("s in P.seq(n)", "h in P(8)"), "a.py:4:9", "a.py:2:9"),
        CallSite("update", ("s in P.seq(n)", "b in P(1)"), "a.py:6:9", "a.py:5:9"),
        CallSite("finish", (), "a.py:7:5"),
    ]
    edges = np.concatenate([inside, across, chain, np.array(last)])
    call = np.array([0, 1, 2] * n + [3])
    return Graph([*names, "finish"], [], [4096] * (3 * n + 1), edges, later, calls, call)


def test_a_large_graph_has_a_frame_per_nest_and_arrows_between_and_inside(golden: Golden) -> None:
    drawing = graph_drawing(layers(120))
    golden("grouped.svg", to_svg(drawing))
    texts = [shape.text for shape in drawing.shapes if isinstance(shape, Text)]
    assert {"for s in P.seq(n), h in P(8)", "for s in P.seq(n), b in P(1)"} <= set(texts)
    arrows = [shape for shape in drawing.shapes if isinstance(shape, Arrow)]
    assert [(a.title, a.is_dashed) for a in arrows] == [
        ("120 edges", False),  # project -> rotate
        ("120 edges", False),  # project -> update
        ("1 edge", False),  # project -> finish
        ("120 edges", False),  # rotate -> update
        ("119 edges", False),  # update -> update
        ("1 edge", False),  # update -> finish
        ("119 decisions", True),  # update -> project of the next step
    ]
    inside = [0 <= x <= drawing.width and 0 <= y <= drawing.height for a in arrows for x, y in a.points[::3]]
    assert all(inside) and to_pdf(drawing).startswith(b"%PDF")


def test_a_graph_of_a_kernel_that_depends_on_itself_has_an_arrow_to_itself() -> None:
    pairs = np.stack([np.arange(999), np.arange(1, 1000)], axis=1)
    graph = Graph(["step"] * 1000, [], [], pairs, np.empty((0, 2), np.int64))
    (arrow,) = (shape for shape in graph_drawing(graph).shapes if isinstance(shape, Arrow))
    assert arrow.title == "999 edges"


@kernel
def add(x: In[Tile[1, 8, f32]], total: InOut[Tile[1, 8, f32]]):
    pto.store(total, total + x)


@workload
def sums(X: Tensor[f32, "n", 8], Total: Tensor[f32, 1, 8]):
    for i in P("n"):
        add[i](x=X[i : i + 1], total=Total)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(),
        Schedule().task_graph(ready=ReadyPolicy.fifo(), window=TaskWindow(8)),
        Schedule().task_graph(start=StartPolicy.after_build()),
    ],
    ids=["default", "fifo", "after_build"],
)
def test_workers_run_tasks_while_they_are_at_work(schedule: Schedule) -> None:
    program = sums.compile()
    program.reschedule(schedule)
    arrays: dict[str, Any] = dict(X=np.ones((700, 8), np.float32), Total=np.zeros((1, 8), np.float32))
    for _ in range(3):
        program.run(**arrays, workers=2, trace="full")
        trace = program.trace
        assert trace is not None
        for worker in range(2):
            spans = trace.stretches[trace.stretches[:, 0] == worker, 1:]
            assert (spans[:, 0] <= spans[:, 1]).all() and (spans[1:, 0] >= spans[:-1, 1]).all()
            ran = trace.worker == worker
            at = np.searchsorted(spans[:, 0], trace.start_ns[ran], side="right") - 1
            assert (at >= 0).all() and (trace.end_ns[ran] <= spans[at, 1]).all()


def test_a_chain_of_updates_in_place_is_read_after_write() -> None:
    program = sums.compile()
    program.run(X=np.ones((9, 8), np.float32), Total=np.zeros((1, 8), np.float32), workers=2, trace="full")
    trace = program.trace
    assert trace is not None
    found = [(b, a, REASONS[why], trace.tensors[tensor]) for b, a, why, tensor in trace.dependences.tolist()]
    assert found == [(i, i + 1, "read after write", "Total") for i in range(8)]
    assert trace.num_workers == 2 and set(trace.stretches[:, 0].tolist()) <= {0, 1} and len(trace.stretches)
    timeline = trace.timeline()
    assert timeline.calls[0].loops == ("i in P(n)",) and len(timeline.workers) == 2
    program.run(X=np.ones((9, 8), np.float32), Total=np.zeros((1, 8), np.float32), workers=2, trace=True)
    assert program.trace is not None and not len(program.trace.stretches)
