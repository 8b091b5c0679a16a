"""Schedule operators: results stay the same to the bit, or two tasks that conflict are named."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("islpy")

from pto_wsp import DenseDyn, In, InOut, Out, P, Schedule, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import CannotRestructure, ScheduledPart
from pto_wsp.ir import workload as w
from pto_wsp.lang.workload.workload import Workload
from tests.python.lang.programs import execute
from tests.slow import examples


@kernel
def scale(x: In[Tile[8, 16, f32]], y: Out[Tile[8, 16, f32]]):
    pto.store(y, x * 2.0)


@kernel
def shift(y: In[Tile[8, 16, f32]], z: Out[Tile[8, 16, f32]]):
    pto.store(z, y + 1.0)


@kernel
def gather(x: In[Tile[8, 16, f32]], s: InOut[Tile[8, 16, f32]]):
    pto.store(s, s * 0.5 + x)


@kernel
def centre(x: In[Tile[8, 16, f32]], y: Out[Tile[8, 16, f32]]):
    pto.store(y, x - pto.colsum(x))


@kernel
def mix(x: In[Tile[8, 16, f32]], m: In[Tile[16, 16, f32]], y: Out[Tile[8, 16, f32]]):
    e = pto.exp(x - pto.rowmax(x))
    pto.store(y, pto.matmul(e / pto.rowsum(e), m))


@workload
def two_steps(X: Tensor[f32, "n", 8, 16], T: Tensor[f32, "n", 8, 16], Y: Tensor[f32, "n", 8, 16]):
    for i in P("n"):
        scale[i](x=X[i], y=T[i])
    for j in P("n"):
        shift[j](y=T[j], z=Y[j])


@workload
def turned(X: Tensor[f32, "n", 8, 16], T: Tensor[f32, "n", 8, 16], Y: Tensor[f32, "n", 8, 16], n: DenseDyn):
    for i in P(n):
        scale[i](x=X[i], y=T[i])
    for j in P(n):
        shift[j](y=T[n - 1 - j], z=Y[j])


@workload
def sums(X: Tensor[f32, "n", "m", 8, 16], S: Tensor[f32, "m", 8, 16]):
    for i in P.range("n"):
        for j in P("m"):
            gather[i, j](x=X[i, j], s=S[j])


@workload
def wave(X: Tensor[f32, "n", "m", 8, 16], n: DenseDyn, m: DenseDyn):
    for i in P.range(n - 1):
        for j in P.range(m - 1):
            scale[i, j](x=X[i, j + 1], y=X[i + 1, j])


@workload
def mixed(X: Tensor[f32, "n", 16], M: Tensor[f32, 16, 16], Y: Tensor[f32, "n", 16]):
    for rows in P.tiles("n", 8):
        mix[rows](x=X[rows], m=M, y=Y[rows])


@workload
def centred(X: Tensor[f32, "n", 8, 16], Y: Tensor[f32, "n", 8, 16]):
    for i in P("n"):
        centre[i](x=X[i], y=Y[i])


SHAPES: dict[str, tuple[int, ...]] = {"X": (5, 8, 16), "T": (5, 8, 16), "Y": (5, 8, 16)}
GRID: dict[str, tuple[int, ...]] = {"X": (7, 5, 8, 16), "S": (5, 8, 16)}
ROWS: dict[str, tuple[int, ...]] = {"X": (21, 16), "M": (16, 16), "Y": (21, 16)}


def results(
    work: Workload, shapes: dict[str, tuple[int, ...]], target: str = "cpu"
) -> tuple[int, list[bytes]]:
    """Return the number of tasks of a run, and the bytes of its arrays."""
    draw = np.random.default_rng(0)
    arrays = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    program = work.compile(target)
    program.run(**arrays, workers=2)
    assert program.stats is not None
    return program.stats.tasks, [array.tobytes() for array in arrays.values()]


@pytest.mark.parametrize(
    ("before", "after", "shapes", "tasks"),
    [
        (two_steps, two_steps.fuse_tasks(scale, "shift"), SHAPES, 5),
        (two_steps, two_steps.tile("i", 2).tile("j", 2).fuse_tasks(scale, shift), SHAPES, 5),
        (two_steps, two_steps.split_tasks(scale, 2), SHAPES, 25),
        (two_steps, two_steps.split_tasks(shift, 3), SHAPES, 20),
        (sums, sums.tile("i", 3), GRID, 35),
        (sums, sums.reorder("i", "j"), GRID, 35),
        (sums, sums.tile("i", 3).tile("j", 2).reorder("i_in", "j_tile"), GRID, 35),
        (mixed, mixed.split_tasks(mix, 2), ROWS, 11),
    ],
    ids=lambda value: "-".join(o.name for o in value.operators) if isinstance(value, Workload) else None,
)
def test_results_stay_the_same(
    before: Workload, after: Workload, shapes: dict[str, tuple[int, ...]], tasks: int
) -> None:
    for target in ("interp", "cpu"):
        number, arrays = results(after, shapes, target)
        assert number == tasks and arrays == results(before, shapes, target)[1]


def loops_of(work: Workload) -> list[str]:
    body = work.trace().module.entry_workload.body
    return [node.called for node in w.walk_nodes(body) if isinstance(node, w.Loop)]


def test_loops_have_the_order_that_was_asked_for() -> None:
    assert loops_of(sums.reorder("i", "j")) == ["j", "i"]
    assert loops_of(sums.tile("i", 3)) == ["i_tile", "i_in", "j"]
    assert loops_of(sums.tile("j", 2).reorder("i", "j_tile")) == ["j_tile", "i", "j_in"]
    assert loops_of(two_steps.fuse_tasks(scale, shift)) == ["i"]


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (turned.fuse_tasks(scale, shift), ["with n = 2", "T[1:2", "`shift in iteration j = 0` reads `y`"]),
        (wave.reorder("i", "j"), ["with n = 3, m = 3", "X[1:2, 1:2", "i = 0, j = 1", "i = 1, j = 0"]),
        (centred.split_tasks(centre, 2), ["`colsum` takes all of its rows together"]),
        (mixed.split_tasks(mix, 8), ["larger than that of the new tasks, found [8]"]),
        (mixed.tile("rows", 2), ["`rows` is a loop over tiles already"]),
        (sums.tile("k", 2), ["no loop is called `k`", "known: `i`, `j`"]),
        (
            sums.reorder("j", "i"),
            ["the loop `i` contains `j`", 'name the outer loop first: `reorder("i", "j")`'],
        ),
        (two_steps.tile("i", 2).fuse_tasks(scale, shift), ["do not count alike"]),
        (two_steps.fuse_tasks(shift, scale), ["another order"]),
        (sums.fuse_tasks(gather, "gathr"), ["no task is one of `gathr`", "`gather`"]),
    ],
    ids=lambda value: value.operators[-1].name if isinstance(value, Workload) else None,
)
def test_what_would_change_results_is_refused(work: Workload, words: list[str]) -> None:
    with pytest.raises(CannotRestructure) as caught:
        work.compile("interp")
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert f"work.{work.operators[-1].name}" not in str(caught.value)  # the caret is where it was called


def test_operators_are_part_of_the_schedule() -> None:
    @workload
    def whole(X: Tensor[f32, "n", "m", 8, 16], S: Tensor[f32, "m", 8, 16]):
        sums.tile("i", 2)(X, S)

    with pytest.raises(ScheduledPart):
        whole.compile("interp")
    with pytest.raises(AttributeError, match="workload"):
        Schedule().tile("i", 2)
    named = sums.tile("i", 2).named("other").order_by(lambda t: t.j)
    assert [operator.name for operator in named.operators] == ["tile"] and named.policies != sums.policies


# --- random programs ---

KERNELS = """
from pto_wsp import *

@kernel
def first(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y * 0.5 + x)

@kernel
def second(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, x * 3.0 - y)

@workload
def w(A: Tensor[f32, 9, 9, 1, 8], B: Tensor[f32, 9, 9, 1, 8], n: DenseDyn, m: DenseDyn):
"""


def random_source(draw: random.Random) -> str:
    """A workload of two kernels in nested loops, or in two nests; its indices lie in the tensors."""

    def place(outer: str, inner: str) -> str:
        options = [outer, inner, "0", f"{outer} + 1", f"{outer} + {inner}", f"3 - {outer}"]
        return f"{draw.choice('AB')}[{draw.choice(options)}, {draw.choice(options)}]"

    def task(name: str, outer: str, inner: str) -> str:
        return f"{name}[{outer}, {inner}](x={place(outer, inner)}, y={place(outer, inner)})"

    kinds = [draw.choice(["P", "P.range", "P.seq"]) for _ in range(2)]
    head = [f"    for i in {kinds[0]}(n):", f"        for j in {kinds[1]}(m):"]
    body = [f"            {task('first', 'i', 'j')}"]
    if draw.random() < 0.5:
        body.append(f"            {task('second', 'i', 'j')}")
    else:
        body += [f"    for k in {kinds[0]}(n):", f"        for l in {kinds[1]}(m):"]
        body.append(f"            {task('second', 'k', 'l')}")
    return KERNELS + "\n".join(head + body)


def changed(work: Workload, draw: random.Random) -> Workload:
    choice = draw.randrange(4)
    if choice == 0:
        return work.reorder("i", "j")
    if choice == 1:
        return work.fuse_tasks("first", "second")
    if choice == 2:
        return work.tile("i", 2).tile("j", 3).reorder("i_in", "j_tile")
    return work.fuse_tasks("first", "second").reorder("i", "j")


def test_what_is_accepted_has_the_same_results() -> None:
    draw = random.Random(7)
    accepted = 0
    count = examples(120)
    for _ in range(count):
        work = execute(random_source(draw))["w"]
        other = changed(work, draw)
        try:
            program = other.compile("interp")
        except CannotRestructure:
            continue
        accepted += 1
        plain = work.compile("interp")
        for n, m in ((4, 4), (1, 4), (3, 2)):
            found, wanted = (
                {
                    name: np.random.default_rng(n).standard_normal((9, 9, 1, 8)).astype(np.float32)
                    for name in "AB"
                }
                for _ in range(2)
            )
            sizes: dict[str, Any] = {"n": n, "m": m}
            program.run(**found, **sizes)
            plain.run(**wanted, **sizes)
            assert all(found[name].tobytes() == wanted[name].tobytes() for name in "AB")
    assert count // 8 <= accepted < count
