"""Task graphs: which tasks wait for which, against a plain comparison of every pair of tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import In, InOut, Out, P, Tensor, Tile, group_by, i32, kernel, pto, workload
from pto_wsp.runtime.task_graph import TaskGraph

RNG = np.random.default_rng(11)


@kernel
def bump(x: InOut[Tile[8, 1, i32]]):
    pto.store(x, x + 1)


@kernel
def put(x: Out[Tile[1, 1, i32]]):
    pto.store(x, pto.full((1, 1), 3, i32))


@workload
def bumps(First: Tensor[i32, "n"], Last: Tensor[i32, "n"], X: Tensor[i32, "m", 1]):
    for i in P.range("n"):
        bump[i](x=X[First[i] : Last[i]])


def closure(count: int, edges: Any) -> np.ndarray:
    """Return which task comes before which, directly or not."""
    reach = np.zeros((count, count), bool)
    for before, after in edges:
        reach[before, after] = True
    for middle in range(count):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("n", [0, 1, 30])
def test_random_overlaps(target: str, n: int) -> None:
    first = RNG.integers(0, 40, n).astype(np.int32)
    last = first + RNG.integers(0, 5, n).astype(np.int32)
    x = np.zeros((45, 1), np.int32)
    graph = bumps.compile(target).task_graph(First=first, Last=last, X=x)
    meets = [(a, b) for b in range(n) for a in range(b) if max(first[a], first[b]) < min(last[a], last[b])]
    assert len(graph.tasks) == n and not graph.decisions
    assert np.array_equal(closure(n, graph.edges), closure(n, meets))
    for edge in graph.edges:
        assert not closure(n, [e for e in graph.edges if e != edge])[edge]
    assert x.sum() == (last - first).sum()


@kernel
def shift(x: In[Tile[8, 1, i32]], y: Out[Tile[8, 1, i32]]):
    pto.store(y, x)


@workload
def shifts(At: Tensor[i32, "n", 4], X: Tensor[i32, "m", 1]):
    for i in P.range("n"):
        shift[i](x=X[At[i, 0] : At[i, 1]], y=X[At[i, 2] : At[i, 3]])


def test_random_reads_and_writes() -> None:
    n = 60
    first = RNG.integers(0, 40, (n, 2))
    at = np.stack([first, first + RNG.integers(1, 6, (n, 1))], 2).reshape(n, 4).astype(np.int32)
    sets = [[set(range(*pair)) for pair in row.reshape(2, 2).tolist()] for row in at]
    graph = shifts.compile("interp").task_graph(At=at, X=np.zeros((46, 1), np.int32))
    meets = [
        (a, b)
        for b, (read, written) in enumerate(sets)
        for a, (others_read, others_written) in enumerate(sets[:b])
        if others_written & (read | written) or others_read & written
    ]
    assert np.array_equal(closure(n, graph.edges), closure(n, meets))


def test_what_was_read_long_ago_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    isin = np.isin
    monkeypatch.setattr(np, "isin", lambda *args: looks.append(1) or isin(*args))
    n = 300
    at = np.tile(np.array([0, 4, 4, 8], np.int32), (n, 1))
    at[1::2] = [4, 8, 0, 4]
    graph = shifts.compile("interp").task_graph(At=at, X=np.zeros((8, 1), np.int32))
    assert graph.edges == tuple((i, i + 1) for i in range(n - 1)) and len(looks) <= 4 * n


@workload
def ordered(X: Tensor[i32, 6, 1]):
    for _ in P.seq(3):
        for j in P(2):
            put[j](x=X[j : j + 1])
    last = put(x=X[4:5])
    put(x=X[5:6], after=[last])


def test_sequences_and_explicit_edges() -> None:
    graph = ordered.compile("interp").task_graph(X=np.zeros((6, 1), np.int32))
    assert [task.label for task in graph.tasks] == ["put[0]", "put[1]"] * 3 + ["put"] * 2
    pairs = {(a, b) for i in (0, 2) for a in (i, i + 1) for b in (i + 2, i + 3)}
    assert set(graph.edges) == pairs | {(6, 7)}


@workload
def decided(Lengths: Tensor[i32, 2, 1], X: Tensor[i32, 4, 1]):
    put[0](x=Lengths[0:1])
    put[1](x=Lengths[1:2])
    for i in P(Lengths[0, 0]):
        put[i](x=X[i : i + 1])
    with P.when(Lengths[1, 0] > 5):
        put[7](x=X[0:1])
    with P.otherwise():
        put[8](x=X[3:4])


def test_what_tasks_have_written_decides() -> None:
    arrays = {"Lengths": np.zeros((2, 1), np.int32), "X": np.zeros((4, 1), np.int32)}
    graph = decided.compile("cpu").task_graph(**arrays)
    assert [task.keys for task in graph.tasks] == [(0,), (1,), (0,), (1,), (2,), (8,)]
    assert set(graph.decisions) == {(0, 2), (0, 3), (0, 4), (1, 5)} and graph.edges == ()


@workload
def grouped(Groups: Tensor[i32, "n"], X: Tensor[i32, "n", 1]):
    routing = group_by(Groups, num_groups=3)
    for g in P(3):
        for pick in P.tiles(routing[g], 8):
            bump[g, pick](x=X[routing.rows(pick)])
    for rows in P.tiles("n", 8):
        bump[rows](x=X[rows])


def test_row_sets_are_exact() -> None:
    groups = np.repeat(np.array([2, 0], np.int32), 8)
    x = np.zeros((16, 1), np.int32)
    graph = grouped.compile("cpu").task_graph(Groups=groups, X=x)
    assert [task.keys for task in graph.tasks[1:]] == [(0, 0), (2, 0), (0,), (1,)]
    assert set(graph.edges) == {(0, 1), (0, 2), (1, 4), (2, 3)}
    assert (x == 2).all()


def test_a_picture_shows_every_task_and_edge() -> None:
    picture = TaskGraph((), (), (), {}).to_svg()
    assert picture.startswith("<svg") and "0 tasks" in picture
    graph = ordered.compile("interp").task_graph(X=np.zeros((6, 1), np.int32))
    picture = graph.to_svg()
    assert picture.count(">put[1]<") == 3 and picture.count("<path") == len(graph.edges)
