"""Explicit edges: what a handle may be used for, and that what comes after waits."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest

from pto_wsp.errors import PtoError
from pto_wsp.ir import workload as ir
from tests.python.lang.programs import execute, marked

KERNELS = """
@kernel
def put(x: InOut[Tile[4, 8, f32]], v: Scalar[f32] = 1.0):
    pto.store(x, x + v)

@kernel
def other(x: InOut[Tile[4, 8, f32]], after: Scalar[i64]):
    pto.store(x, x + after)
"""
HEAD = """
@workload
def w(n: DenseDyn, X: Tensor[f32, "m", 4, 8]):
"""


def tasks(body: str) -> list[ir.Task]:
    program = execute(KERNELS + HEAD + indent(body, "    "))["w"]
    return [*ir.tasks(program.trace().module.entry_workload.body)]  # pyright: ignore


def edges(body: str) -> list[tuple[int, int]]:
    """Return the pairs (earlier, later) of tasks, numbered in the order of the text."""
    found = tasks(body)
    number = {task.label: i for i, task in enumerate(found) if task.label}
    return [(number[label], i) for i, task in enumerate(found) for label in task.after]


def test_handles_make_edges() -> None:
    body = """
a = put(X[0])
b = put(X[1], after=[a])
for i in P(n):
    c = put[i](X[i], after=(a, b, a))
    with P.when(i < 2):
        put[i](X[i], after=[c, b])
put(X[2], after=[])
"""
    assert edges(body) == [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3)]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_comes_after_waits(workers: int) -> None:
    """Tasks that no data orders: only the edge does, out of a tier and out of the block around."""
    text = f"""{KERNELS}
@kernel
def slow(x: InOut[Tile[4, 8, f32]], v: Scalar[f32] = 1.0):
    for i in range(200):
        pto.store(x, x + v)

choice = tier("choice", (slow, 1), (put, None))

@workload
def w(n: DenseDyn, X: Tensor[f32, "n", 4, 8], Y: Tensor[f32, "n", 4, 8], Z: Tensor[f32, "n", 4, 8]):
    first = slow(X[0])
    for i in P(n):
        second = choice.at(i % 3)[i](Y[i])
        put[i](Z[i], after=[first, second])
"""
    program = execute(text)["w"].compile("cpu")  # pyright: ignore
    x, y, z = (np.zeros((60, 4, 8), np.float32) for _ in range(3))
    program(X=x, Y=y, Z=z, n=60, workers=workers, trace=True)
    events = [*program.trace]
    assert len(events) == 121 and (z == 1).all()
    first = events[0]
    for earlier, later in zip(events[1::2], events[2::2], strict=True):
        assert earlier.keys == later.keys
        assert max(first.end_ns, earlier.end_ns) <= later.start_ns


def test_labels_are_only_where_they_are_used() -> None:
    labels = [task.label for task in tasks("a = put(X[0])\nput(X[1])\nput(X[2], after=[a])")]
    assert [bool(label) for label in labels] == [True, False, False]
    assert len(set(labels) - {""}) == 1


def test_a_parameter_called_after_is_the_kernels() -> None:
    task = tasks("other(X[0], after=3)")[0]
    assert task.after == () and len(task.args) == 2


def test_what_sequential_orders_needs_no_edge() -> None:
    body = """
a = put(X[0])
b = put(X[1], after=[a])
sequential(a, b)
"""
    assert edges(body) == []


@pytest.mark.parametrize(
    ("body", "mark", "found"),
    [
        ("put(X[0], after=3)", None, "expected a list of handles"),
        ("h = put(X[0])\nput(X[1], after=h)", None, "expected a list of handles"),
        ("put(X[0], after=[put])", None, "found Kernel"),
        ("for i in P(n): h = put(X[i])\nput(X[0], after=[h])", "put(X[0], after=[h])", "has ended"),
        ("with P.when(n < 2): h = put(X[0])\nput(X[0], after=[h])", None, "its loop or branch has ended"),
        ("for i in P(n): h = put(X[i])\nfor i in P(n): put(X[i], after=[h])", None, "has ended"),
        ("h = sequential(put(X[0]), put(X[1]))\nput(X[0], after=[h])", None, "names several tasks"),
        ("h = put(X[0])\nsequential(h, put(X[1]))\nput(X[0], after=[h])", None, "has ended"),
        ("h = put(X[ALL])\nput(X[0], after=[h])", None, "names several tasks"),
    ],
)
def test_refusals(body: str, mark: str | None, found: str) -> None:
    with pytest.raises(PtoError) as caught:
        tasks(body)
    text = str(caught.value)
    assert caught.value.code == "bad-handle", text
    assert found in text, text
    assert mark is None or marked(caught.value) == mark, text


def test_a_handle_of_another_workload() -> None:
    text = f"""{KERNELS}
kept = []
@workload
def one(X: Tensor[f32, "m", 4, 8]):
    kept.append(put(X[0]))
@workload
def two(X: Tensor[f32, "m", 4, 8]):
    put(X[0], after=kept)
one.trace()
two.trace()
"""
    with pytest.raises(PtoError) as caught:
        execute(text)
    assert caught.value.code == "bad-handle"
    assert "a handle of another workload" in str(caught.value)
    assert "note: made here" in str(caught.value)
