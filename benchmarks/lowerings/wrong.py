"""Eight families of wrong programs, five each: what a proof refutes for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_wsp import (
    DYN,
    Channel,
    DenseDyn,
    Deps,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Tensor,
    Tile,
    assume,
    distinct,
    f32,
    i32,
    kernel,
    network,
    process,
    pto,
    workload,
)
from pto_wsp.lang.workload.workload import Workload

Index = Callable[..., Any]


@kernel
def copy(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    """Return x."""
    pto.store(y, x)


@kernel
def add(x: In[Tile[4, 8, f32]], y: InOut[Tile[4, 8, f32]]):
    """Return x + y."""
    pto.store(y, x + y)


def transposed(write: Index, read: Index) -> Workload:
    """Tasks of one iteration read what those of another write."""

    @workload
    def grid(X: Tensor[f32, "n", "n", 4, 8], Y: Tensor[f32, "n", "n", 4, 8], Z: Tensor[f32, "n", "n", 4, 8]):
        for i, j in P("n", "n"):
            copy[i, j](x=X[i, j], y=write(Y, i, j))
            copy[i, j](x=read(Y, i, j), y=Z[i, j])

    return grid


TRANSPOSED = (
    transposed(lambda t, i, j: t[i, j], lambda t, i, j: t[j, i]),
    transposed(lambda t, i, j: t[j, i], lambda t, i, j: t[i, j]),
    transposed(lambda t, i, j: t[i, j], lambda t, i, j: t[j, j]),
    transposed(lambda t, i, j: t[i, j, 0:2], lambda t, i, j: t[j, i, 1:3]),
    transposed(lambda t, i, j: t[i, j, 2:4, 0:4], lambda t, i, j: t[j, i, 3:4, 2:6]),
)


def tiled(rows: Index) -> Workload:
    """Tiles that touch their neighbours."""

    @workload
    def tiles(X: Tensor[f32, 4, 8], Y: Tensor[f32, "m", 8], n: DenseDyn):
        for i in P(n):
            add[i](x=X, y=rows(Y, i))

    return tiles


TAILS = (
    tiled(lambda t, i: t[3 * i : 3 * i + 4]),
    tiled(lambda t, i: t[4 * i - i // 2 : 4 * i - i // 2 + 4]),
    tiled(lambda t, i: t[2 * i : 2 * i + 3]),
    tiled(lambda t, i: t[(4 * i - 1).max(0) : (4 * i - 1).max(0) + 4]),
    tiled(lambda t, i: t[4 * (i // 2) : 4 * (i // 2) + 4]),
)


def unordered(second: Index, third: Index) -> Workload:
    """Three tasks of an iteration that edges alone order; one edge is missing."""

    @workload
    def edges(X: Tensor[f32, "n", 4, 8], Y: Tensor[f32, "n", 4, 8], Z: Tensor[f32, "n", 4, 8]):
        for i in P("n"):
            first = copy[i](x=X[i], y=Y[i])
            other = second(i, X, Y, Z, first)
            third(i, X, Y, Z, first, other)

    return edges.task_graph(deps=Deps.explicit())


EDGES = (
    unordered(
        lambda i, x, y, z, first: add[i](x=y[i], y=z[i]),
        lambda i, x, y, z, first, other: add[i](x=z[i], y=y[i], after=[other, first]),
    ),
    unordered(
        lambda i, x, y, z, first: add[i](x=y[i], y=z[i], after=[first]),
        lambda i, x, y, z, first, other: add[i](x=z[i], y=x[i], after=[first]),
    ),
    unordered(
        lambda i, x, y, z, first: add[i](x=x[i], y=z[i]),
        lambda i, x, y, z, first, other: add[i](x=z[i], y=y[i], after=[first]),
    ),
    unordered(
        lambda i, x, y, z, first: add[i](x=y[i], y=y[i]),
        lambda i, x, y, z, first, other: copy[i](x=y[i], y=z[i], after=[other]),
    ),
    unordered(
        lambda i, x, y, z, first: add[i](x=y[i], y=z[i], after=[first]),
        lambda i, x, y, z, first, other: copy[i](x=z[i], y=z[i]),
    ),
)


@kernel(block_dim=4)
def next_row(y: Out[Tensor[f32, DYN, 8]]):
    """Fill an own tile and the next one."""
    for r in pto.tiles(y.rows, 4):
        if r.start // 4 == pto.block_idx() or r.start // 4 == pto.block_idx() + 1:
            pto.store(y[r], pto.full((r.extent, 8), 1.0))


@kernel(block_dim=4)
def every_row(y: Out[Tensor[f32, DYN, 8]]):
    """Fill every tile."""
    for r in pto.tiles(y.rows, 4):
        pto.store(y[r], pto.full((r.extent, 8), 1.0))


@kernel(block_dim=4)
def pairs_of_rows(y: Out[Tensor[f32, DYN, 8]]):
    """Fill what two instances share."""
    for r in pto.tiles(y.rows, 4):
        if r.start // 8 == pto.block_idx() // 2:
            pto.store(y[r], pto.full((r.extent, 8), 1.0))


@kernel(block_dim=4)
def first_rows(y: Out[Tensor[f32, DYN, 8]]):
    """Fill all tiles before an own one."""
    for r in pto.tiles(y.rows, 4):
        if r.start < 4 * pto.block_idx():
            pto.store(y[r], pto.full((r.extent, 8), 1.0))


@kernel(block_dim=4)
def shared_end(y: Out[Tensor[f32, DYN, 8]]):
    """Fill an own tile, and every tile of the end."""
    for r in pto.tiles(y.rows, 4):
        if r.start // 4 == pto.block_idx() or r.start > 16:
            pto.store(y[r], pto.full((r.extent, 8), 1.0))


def split(fill: Any) -> Workload:
    """One task whose instances overlap."""

    @workload
    def blocks(Y: Tensor[f32, "n", 8]):
        fill(y=Y)

    return blocks


INSTANCES = tuple(map(split, (next_row, every_row, pairs_of_rows, first_rows, shared_end)))


def rows_of(row: Index) -> Workload:
    """Rows of a ragged axis that do not exist."""

    @workload
    def ragged(kv: Ragged["batch"], K: Tensor[f32, "tokens", 8], Y: Tensor[f32, "batch", 4, 8]):
        for b in P("batch"):
            at = row(b)
            for r in P.tiles(kv[at], 4):
                add[b, r](x=K[kv[at]][r], y=Y[b, 0 : r.extent])

    return ragged


RAGGED = (
    rows_of(lambda b: b + 1),
    rows_of(lambda b: b - 1),
    rows_of(lambda b: 2 * b),
    rows_of(lambda b: b + 2),
    rows_of(lambda b: 3 - b),
)


def paged(first: Index, second: Index) -> Workload:
    """Requests that write one page, though all pages of the table differ."""

    @workload
    def pages(table: Tensor[i32, "pages"], X: Tensor[f32, "batch", 4, 8], Cache: Tensor[f32, "all", 4, 8]):
        assume(distinct(table))
        for b in P("batch"):
            copy[b](x=X[b], y=Cache[table[first(b)]])
            copy[b](x=X[b], y=Cache[table[second(b)]])

    return pages


PAGES = (
    paged(lambda b: b, lambda b: b + 1),
    paged(lambda b: b // 2, lambda b: b // 2),
    paged(lambda b: b, lambda b: 2 * b),
    paged(lambda b: b % 2, lambda b: b % 2),
    paged(lambda b: 2 * b, lambda b: 2 * b + 2),
)


def fused(read: Index) -> Workload:
    """Two loops, of which the second reads what a later iteration of the first writes."""

    @workload
    def steps(X: Tensor[f32, "n", 4, 8], T: Tensor[f32, "n", 4, 8], Y: Tensor[f32, "n", 4, 8], n: DenseDyn):
        for i in P(n):
            copy[i](x=X[i], y=T[i])
        for j in P(n):
            read(T, Y, n, j)

    return steps.fuse_tasks(copy, add)


FUSED = (
    fused(lambda t, y, n, j: add[j](x=t[n - 1 - j], y=y[j])),
    fused(lambda t, y, n, j: add[j](x=t[(j + 1).min(n - 1)], y=y[j])),
    fused(lambda t, y, n, j: add[j](x=t[n - 1], y=y[j])),
    fused(lambda t, y, n, j: add[j](x=y[j], y=t[n - 1 - j])),
    fused(lambda t, y, n, j: add[j](x=t[(2 * j).min(n - 1)], y=y[j])),
)


def stages(there_depth: int, back_depth: int) -> Workload:
    """A stage that sends tokens ahead before it receives any, and more than all buffers take."""
    there = Channel("there", Tensor[f32, 4, 8], depth=there_depth)
    back = Channel("back", Tensor[f32, 4, 8], depth=back_depth)

    @process
    def sender(X: Tensor[f32, "m", 4, 8], Y: Tensor[f32, "m", 4, 8], n: DenseDyn):
        for i in P.range(n):
            with there.send() as token:
                copy[i](x=X[i], y=token)
        for token in back.receive(n):  # pyright: ignore[reportArgumentType]
            copy(x=token, y=Y[token.index])

    @process
    def other():
        for token in there.receive():
            with back.send() as result:
                copy(x=token, y=result)

    return network(sender, other)


CHANNELS = tuple(stages(*depths) for depths in ((1, 1), (2, 2), (1, 4), (3, 1), (0, 2)))

FAMILIES: dict[str, tuple[Workload, ...]] = {
    "transposed index": TRANSPOSED,
    "tail off by one": TAILS,
    "missing `after=`": EDGES,
    "overlapping `block_dim`": INSTANCES,
    "ragged end": RAGGED,
    "aliased pages": PAGES,
    "illegal fusion": FUSED,
    "channel too small": CHANNELS,
}
