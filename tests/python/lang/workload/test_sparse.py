"""Sparse axes, row sets and `group_by` while a workload is built: what they make, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    MemLayout,
    Out,
    P,
    Ragged,
    Sparse,
    Tensor,
    Tile,
    errors,
    f32,
    group_by,
    i32,
    kernel,
    pto,
    workload,
)


@kernel
def double(x: In[Tile[4, 8, f32]], y: InOut[Tile[4, 8, f32]]):
    pto.store(y, y + x * 2.0)


@kernel
def take_indices(rows: In[Tensor[i32, DYN, 1]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, pto.zeros((4, 8)))


@kernel
def write_indices(rows: Out[Tile[4, 1, i32]]):
    pto.store(rows, pto.full((4, 1), 0, dtype=i32))


def task_of(body: Callable[..., None]) -> str:
    """Return the last line of the workload that makes a task: how its arguments are written in the IR."""

    @workload
    def made(
        routing: Sparse["experts"],
        X: Tensor[f32, "n", 8],
        Y: Tensor[f32, "experts", "n", 8],
        Pairs: Tensor[f32, "n", 2, 8],
        Keys: Tensor[i32, "n", 2],
    ):
        body(routing, X, Y, Pairs, Keys)

    return [line.strip() for line in str(made.trace().module).splitlines() if "CALL" in line][-1]


def refused(use) -> errors.PtoError:
    @workload
    def wrong(
        n: DenseDyn,
        Keys: Tensor[i32, "n", 2],
        F: Tensor[f32, "n"],
        Part: Tensor[f32, "n", 3, 8],
        Flat: Tensor[f32, "n", 8],
        U,
    ):
        use(n, Keys, F, Part, Flat, U)

    with pytest.raises(errors.PtoError) as caught:
        wrong.trace()
    return caught.value


def test_wrong_uses_are_named() -> None:
    cases = [
        (lambda n, k, f, p, flat, u: group_by(f, 4), errors.BadOperand, "a tensor of integers"),
        (lambda n, k, f, p, flat, u: group_by(k[0:3], 4), errors.BadOperand, "a part of one"),
        (lambda n, k, f, p, flat, u: group_by(k[0, 0], 4), errors.BadOperand, "dimensions"),
        (lambda n, k, f, p, flat, u: group_by(u, 4), errors.BadOperand, "annotated"),
        (lambda n, k, f, p, flat, u: group_by(k, -1), errors.BadOperand, "-1"),
        (lambda n, k, f, p, flat, u: group_by(k, k[0, 0]), errors.BadOperand, "sizes decide"),
        (lambda n, k, f, p, flat, u: p[group_by(k, 4).rows(3)], errors.BadOperand, "P.tiles"),
        (lambda n, k, f, p, flat, u: p[foreign_row(k)], errors.BadOperand, "this axis"),
        (lambda n, k, f, p, flat, u: p[of_row(k)], errors.BadIndex, r"[..., 2, ...]"),
        (lambda n, k, f, p, flat, u: f[of_row(k)], errors.BadIndex, r"[..., 2, ...]"),
        (lambda n, k, f, p, flat, u: flat[0:2, of_row(k[0])], errors.BadIndex, "first index"),
        (lambda n, k, f, p, flat, u: flat[of_row(k[0])][3], errors.BadIndex, "run time"),
        (lambda n, k, f, p, flat, u: flat[2, of_row(k[0])], errors.BadIndex, "first index"),
        (lambda n, k, f, p, flat, u: by_pick(k[0], flat), errors.BadOperand, "routing.rows(pick)"),
        (lambda n, k, f, p, flat, u: of_row(k) + 1, errors.BadOperand, "`.start`, `.stop` or `.extent`"),
        (lambda n, k, f, p, flat, u: list(P(group_by(k, 4)[0])), errors.BadOperand, "P.sel"),
        (lambda n, k, f, p, flat, u: list(P.sel(n)), errors.BadOperand, "a sparse axis"),
    ]
    for use, kind, text in cases:
        error = refused(use)
        assert isinstance(error, kind) and text in str(error), error

    def inside_a_loop(n, k, f, p, flat, u):
        for i in P(n):
            group_by(k, i)

    assert "sizes decide" in str(refused(inside_a_loop))
    with pytest.raises(errors.OutsideWorkload):
        group_by(Tensor(np.zeros(3, np.int32)), 4)


def foreign_row(keys):
    return group_by(keys, 4).rows(group_by(keys, 4)[0])


def in_a_branch(n, keys, part):
    with P.when(n > 3):
        axis = group_by(keys, 4)
    for pick in P.tiles(axis[0], 4):
        double(x=part[axis.rows(pick)], y=part[axis.rows(pick)])


def in_a_loop(n, keys, part):
    for _ in P.range(n):
        axis = group_by(keys, 4)
        row = axis[0]
    for j in P.sel(row):
        double(x=part[j : j + 1], y=part[j : j + 1])


def by_pick(keys, part):
    axis = group_by(keys, 4)
    for pick in P.tiles(axis[0], 4):
        part[pick]


def of_row(keys):
    axis = group_by(keys, 4)
    return axis.rows(axis[0])


def test_what_arguments_become() -> None:
    def whole(routing: Any, X: Any, Y: Any, Pairs: Any, Keys: Any) -> None:
        for pick in P.tiles(routing[1], 4):
            double[pick](x=X[routing.rows(pick)], y=Y[0, routing[1][pick]])

    def behind(routing: Any, X: Any, Y: Any, Pairs: Any, Keys: Any) -> None:
        groups = group_by(Keys, num_groups="experts")
        for pick in P.tiles(groups, 4):
            double[pick](x=Pairs[groups.rows(pick), 2:6], y=Y[routing.rows(routing[0])][:, 0, :])

    def itself(routing: Any, X: Any, Y: Any, Pairs: Any, Keys: Any) -> None:
        take_indices(rows=routing.rows(routing[2]), y=Y[0, 0:4])

    place = "%routing.offsets[1] + %pick.start :+ %pick.len"
    assert task_of(whole) == (
        f"CALL @double[%pick](%X[rows(%routing.indices, {place}), :], %Y[at(0), {place}, :])"
    )
    assert "rows(%groups.indices, %groups.offsets[0] + %pick.start :+ %pick.len), merged, 2 :+ 4]" in task_of(
        behind
    )
    assert "%routing.indices[%routing.offsets[2] :+ " in task_of(itself)


def test_groups_are_used_where_they_have_been_made() -> None:
    def use(body: Callable[..., None]) -> None:
        @workload
        def wrong(n: DenseDyn, Keys: Tensor[i32, "n"], X: Tensor[f32, "n", 8]):
            body(n, Keys, X)

        wrong.trace()

    for body in (in_a_branch, in_a_loop):
        with pytest.raises(errors.UnknownName, match="`axis` is not defined in what comes before") as caught:
            use(body)
        assert caught.value.loc is not None and "axis" in (caught.value.loc.source_line() or "")


def test_row_sets_keep_out_of_panels_and_are_only_read() -> None:
    @workload
    def panelled(routing: Sparse["n"], W: Tensor[f32, "n", 16, MemLayout.panels(8)], Y: Tensor[f32, 4, 8]):
        double(x=W[routing.rows(routing[0]), 0:8], y=Y)

    with pytest.raises(errors.BadIndex, match="row set"):
        panelled.trace()

    @workload
    def overwritten(routing: Sparse["n"]):
        write_indices(rows=routing.rows(routing[0]))

    with pytest.raises(errors.UnknownArgument, match="only read"):
        overwritten.trace()


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_ranges_index_row_sets(target: str) -> None:
    @workload
    def capped(rows: Sparse["m"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
        for b in P("m"):
            kept = rows.rows(rows[b])
            kept = kept[: kept.extent.min(6)]
            for r in P.tiles(kept.extent, 4):
                double(x=X[kept[r]], y=Y[kept[r]])

    x, y = np.random.default_rng(1).random((2, 20, 8), np.float32)
    chosen = [*range(6), 10, 11]
    expected = y.copy()
    expected[chosen] += x[chosen] * 2
    capped.compile(target)(rows=Sparse.lists([list(range(9)), [10, 11]]), X=x, Y=y)
    np.testing.assert_array_equal(y, expected)


@workload
def each_row(rows: Sparse["m"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], m: DenseDyn):
    for b in P(m):
        for pick in P.tiles(rows[b], 4):
            double[b, pick](x=X[rows.rows(pick)], y=Y[rows.rows(pick)])


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_axes_are_arguments_of_workloads_inside_workloads(target: str) -> None:
    @workload
    def outer(routing: Sparse["e"], X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Keys: Tensor[i32, "n"]):
        each_row(rows=routing, X=X, Y=Y, m="e")
        made = group_by(Keys, num_groups=3)
        each_row(rows=made, X=X, Y=Y, m=3)

    x, y = np.arange(80, dtype=np.float32).reshape(10, 8), np.ones((10, 8), np.float32)
    keys = np.array([0, 2, 2, 0, 2, 2, 2, 2, 2, 0], np.int32)
    outer.compile(target)(routing=Sparse.lists([[3, 9], [], [3]]), X=x, Y=y, Keys=keys)
    times = np.ones((10, 1), np.float32)
    times[3], times[9] = 3, 2
    assert np.array_equal(y, 1 + x * 2 * times)


def test_an_axis_of_the_wrong_kind_is_refused() -> None:
    @workload
    def sparse_for_ragged(rows: Ragged["m"], X: Tensor[f32, "n", 8]):
        each_row(rows=rows, X=X, Y=X, m="m")

    with pytest.raises(errors.PtoError, match="a sparse axis"):
        sparse_for_ragged.trace()
    for annotation in (3, "a b", None):

        @workload
        def unnamed(rows: Sparse[annotation]):
            pass

        with pytest.raises(errors.BadAnnotation, match="Sparse"):
            unnamed.trace()
