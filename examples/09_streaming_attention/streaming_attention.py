"""Streaming attention: pages of K and V flow through stages on cube and vector cores.

Every run is compared with numpy in f64. The simulated device shows how many buffers keep both kinds of cores
busy: `--picture` draws its processes over time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import Channel, In, InOut, Out, P, Tensor, Tile, f32, i32, kernel, network, process, pto
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.network_report import NetworkReport
from pto_wsp.simulation import report_of

HEADS, DIM, PAGE = 16, 64, 128
TOLERANCE = 1e-5  # absolute: values are of order 1


class Batch(NamedTuple):
    """Arguments of a run; `Max` and `Sum` are the state of the stage `soften`."""

    Lengths: np.ndarray
    BlockTable: np.ndarray
    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    Max: np.ndarray
    Sum: np.ndarray
    O: np.ndarray  # noqa: E741


@kernel
def move(x: In[Tile[PAGE, DIM, f32]], y: Out[Tile[PAGE, DIM, f32]]) -> None:
    """Copy the valid rows of a page."""
    pto.store(y, x)


@kernel
def scores(q: In[Tile[HEADS, DIM, f32]], k: In[Tile[PAGE, DIM, f32]], s: Out[Tile[HEADS, PAGE, f32]]) -> None:
    """Multiply queries and keys, on a cube core."""
    pto.store(s, pto.matmul(q, k.T))


@kernel
def begin(largest: Out[Tile[HEADS, 1, f32]], total: Out[Tile[HEADS, 1, f32]]) -> None:
    """Begin a sequence."""
    pto.store(largest, pto.full((HEADS, 1), -1e30))
    pto.store(total, pto.zeros((HEADS, 1)))


@kernel
def soften(
    s: In[Tile[HEADS, PAGE, f32]],
    largest: InOut[Tile[HEADS, 1, f32]],
    total: InOut[Tile[HEADS, 1, f32]],
    p: Out[Tile[HEADS, PAGE, f32]],
    factor: Out[Tile[HEADS, 1, f32]],
) -> None:
    """Update the softmax by a page: its weights, and the factor of all that came before."""
    scaled = s * (1 / sqrt(DIM))
    old = pto.load(largest)
    new = pto.maximum(old, pto.rowmax(scaled))
    weights, ratio = pto.exp(scaled - new), pto.exp(old - new)
    pto.store(largest, new)
    pto.store(total, total * ratio + pto.rowsum(weights))
    pto.store(p, weights)
    pto.store(factor, ratio)


@kernel
def give(x: In[Tile[HEADS, 1, f32]], y: Out[Tile[HEADS, 1, f32]]) -> None:
    """Copy the sums of a sequence."""
    pto.store(y, x)


@kernel
def weigh(p: In[Tile[HEADS, PAGE, f32]], v: In[Tile[PAGE, DIM, f32]], y: Out[Tile[HEADS, DIM, f32]]) -> None:
    """Multiply weights and values, on a cube core."""
    pto.store(y, pto.matmul(p, v))


@kernel
def clear(y: Out[Tile[HEADS, DIM, f32]]) -> None:
    """Begin the result of a sequence."""
    pto.store(y, pto.zeros((HEADS, DIM)))


@kernel
def add(
    part: In[Tile[HEADS, DIM, f32]], factor: In[Tile[HEADS, 1, f32]], y: InOut[Tile[HEADS, DIM, f32]]
) -> None:
    """Add the part of a page."""
    pto.store(y, y * factor + part)


@kernel
def divide(total: In[Tile[HEADS, 1, f32]], y: InOut[Tile[HEADS, DIM, f32]]) -> None:
    """End a sequence."""
    pto.store(y, y / total)


def build(depth: int) -> Workload:
    """Return the network with `depth` buffers per channel."""
    keys = Channel("keys", Tensor[f32, PAGE, DIM], depth=depth)
    values = Channel("values", Tensor[f32, PAGE, DIM], depth=depth)
    products = Channel("products", Tensor[f32, HEADS, PAGE], depth=depth)
    weights = Channel("weights", Tensor[f32, HEADS, PAGE], depth=depth)
    factors = Channel("factors", Tensor[f32, HEADS, 1], depth=depth)
    parts = Channel("parts", Tensor[f32, HEADS, DIM], depth=depth)
    sums = Channel("sums", Tensor[f32, HEADS, 1])

    def each_page(lengths: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the number of each sequence, and its pages."""
        for b in P.range("batch"):
            for page in P.tiles(lengths[b], PAGE, order="range"):
                yield b, page

    def load(lengths: Any, table: Any, cache: Any, channel: Channel) -> None:
        for b, page in each_page(lengths):
            with channel.send() as token:
                move(x=cache[table[b, page.start // PAGE], : page.extent], y=token[: page.extent])

    @process
    def load_keys(
        Lengths: Tensor[i32, "batch"],
        BlockTable: Tensor[i32, "batch", "row_pages"],
        K: Tensor[f32, "pages", PAGE, DIM],
    ) -> None:
        load(Lengths, BlockTable, K, keys)

    @process
    def load_values(
        Lengths: Tensor[i32, "batch"],
        BlockTable: Tensor[i32, "batch", "row_pages"],
        V: Tensor[f32, "pages", PAGE, DIM],
    ) -> None:
        load(Lengths, BlockTable, V, values)

    @process
    def multiply(Lengths: Tensor[i32, "batch"], Q: Tensor[f32, "batch", HEADS, DIM]) -> None:
        for b, page in each_page(Lengths):
            for token in keys.receive(1):
                with products.send() as product:
                    scores[b](q=Q[b], k=token[: page.extent], s=product[:, : page.extent])

    @process
    def soften_pages(
        Lengths: Tensor[i32, "batch"], Max: Tensor[f32, HEADS, 1], Sum: Tensor[f32, HEADS, 1]
    ) -> None:
        for b in P.range("batch"):
            begin(largest=Max, total=Sum)
            for page in P.tiles(Lengths[b], PAGE, order="range"):
                for token in products.receive(1):
                    with weights.send() as weight, factors.send() as factor:
                        soften[b](
                            s=token[:, : page.extent],
                            largest=Max,
                            total=Sum,
                            p=weight[:, : page.extent],
                            factor=factor,
                        )
            with sums.send() as token:
                give(x=Sum, y=token)

    @process
    def weigh_pages(Lengths: Tensor[i32, "batch"]) -> None:
        for b, page in each_page(Lengths):
            for weight in weights.receive(1):
                for value in values.receive(1):
                    with parts.send() as part:
                        weigh[b](p=weight[:, : page.extent], v=value[: page.extent], y=part)

    @process
    def collect(Lengths: Tensor[i32, "batch"], O: Tensor[f32, "batch", HEADS, DIM]) -> None:  # noqa: E741
        for b in P.range("batch"):
            clear(y=O[b])
            for _ in P.tiles(Lengths[b], PAGE, order="range"):
                for part in parts.receive(1):
                    for factor in factors.receive(1):
                        add[b](part=part, factor=factor, y=O[b])
            for total in sums.receive(1):
                divide(total=total, y=O[b])

    stages = load_keys, load_values, multiply, soften_pages, weigh_pages, collect
    return network(*stages, name="streaming_attention")


def random_batch(rng: np.random.Generator, lengths: np.ndarray) -> Batch:
    """Scatter the pages of every sequence over the cache; elements without an owner are NaN."""
    row_pages = -(-lengths // PAGE)
    total, batch = int(row_pages.sum()) + 1, len(lengths)
    table = np.full((batch, int(row_pages.max())), -1, np.int32)
    owned = np.arange(table.shape[1]) < row_pages[:, None]
    table[owned] = rng.permutation(total)[: owned.sum()]
    k, v = (rng.standard_normal((total, PAGE, DIM), np.float32) for _ in range(2))
    k[~np.isin(np.arange(total), table)] = np.nan
    for b, length in enumerate(lengths):
        if length % PAGE:
            last = table[b, row_pages[b] - 1]
            k[last, length % PAGE :] = v[last, length % PAGE :] = np.nan
    q = rng.standard_normal((batch, HEADS, DIM), np.float32)
    largest, total = (np.empty((HEADS, 1), np.float32) for _ in range(2))
    return Batch(lengths.astype(np.int32), table, q, k, v, largest, total, np.empty_like(q))


def expected(batch: Batch) -> np.ndarray:
    """Return the result in f64."""
    found = np.empty(batch.Q.shape)
    for b, length in enumerate(batch.Lengths):
        pages = batch.BlockTable[b, : -(-length // PAGE)]
        k, v = (x[pages].reshape(-1, DIM)[:length].astype(np.float64) for x in (batch.K, batch.V))
        s = batch.Q[b] @ k.T / sqrt(DIM)
        p = np.exp(s - s.max(axis=1, keepdims=True))
        found[b] = p @ v / p.sum(axis=1, keepdims=True)
    return found


def simulate(depth: int, batch: Batch) -> NetworkReport:
    """Return what the processes do on a simulated device, without values."""
    program = build(depth).compile(target="sim", device="ascend_910b_seed", values=False)
    program.run(**batch._asdict())
    found = report_of(program).network
    assert found is not None
    return found


def main() -> None:
    """Run and simulate the network with one to four buffers per channel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--longest", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--picture", metavar="FILE", help="write the simulated network as SVG")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    batch = random_batch(rng, rng.integers(1, options.longest + 1, options.batch))
    for depth in (1, 2, 3, 4):
        build(depth).compile().run(**batch._asdict(), workers=options.workers)
        error = float(np.abs(batch.O - expected(batch)).max())
        assert error < TOLERANCE, error
        found = simulate(depth, batch)
        print(f"depth {depth}: {found.cycles:,.0f} cycles, limited by `{found.bottleneck}`")
    if options.picture:
        simulate(3, batch).save(options.picture)


if __name__ == "__main__":
    main()
