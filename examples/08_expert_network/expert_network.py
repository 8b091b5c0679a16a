"""A mixture of experts as a network: blocks of tokens carry the number of their expert to replicated workers.

The program compares every run with numpy in f64, and simulates one to four replicas.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from pto_wsp import Channel, In, Out, P, Tensor, Tile, f32, i32, kernel, network, process, pto, replicate
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.network_report import NetworkReport
from pto_wsp.simulation import report_of

ROWS, HIDDEN, INNER, EXPERTS = 16, 64, 128, 8
TOLERANCE = 1e-4


class Batch(NamedTuple):
    """Arguments of a run; a block is `ROWS` tokens of one expert."""

    X: np.ndarray
    Expert: np.ndarray
    Gate: np.ndarray
    W1: np.ndarray
    W2: np.ndarray
    Y: np.ndarray


@kernel
def load(x: In[Tile[ROWS, HIDDEN, f32]], y: Out[Tile[ROWS, HIDDEN, f32]]) -> None:
    """Copy a block."""
    pto.store(y, x)


@kernel
def expert(
    x: In[Tile[ROWS, HIDDEN, f32]],
    w1: In[Tile[HIDDEN, INNER, f32]],
    w2: In[Tile[INNER, HIDDEN, f32]],
    y: Out[Tile[ROWS, HIDDEN, f32]],
) -> None:
    """Apply an expert to a block."""
    pto.store(y, pto.matmul(pto.relu(pto.matmul(x, w1)), w2))


@kernel
def weigh(
    x: In[Tile[ROWS, HIDDEN, f32]], gate: In[Tile[ROWS, 1, f32]], y: Out[Tile[ROWS, HIDDEN, f32]]
) -> None:
    """Multiply each token by its gate."""
    pto.store(y, x * gate)


def build(replicas: int) -> Workload:
    """Return the network with a number of expert processes, each of which can apply every expert."""
    blocks = Channel("blocks", Tensor[f32, ROWS, HIDDEN], depth=2 * replicas, scalars=("expert",))
    results = Channel("results", Tensor[f32, ROWS, HIDDEN], depth=2 * replicas)

    @process
    def deal(X: Tensor[f32, "n", ROWS, HIDDEN], Expert: Tensor[i32, "n"]) -> None:
        for b in P("n"):
            with blocks.send(expert=Expert[b]) as token:
                load[b](x=X[b], y=token)

    @process
    def work(W1: Tensor[f32, EXPERTS, HIDDEN, INNER], W2: Tensor[f32, EXPERTS, INNER, HIDDEN]) -> None:
        for token in blocks.receive():
            with results.send() as result:
                e = token.scalars.expert
                expert(x=token, w1=W1[e], w2=W2[e], y=result)

    @process
    def collect(Gate: Tensor[f32, "n", ROWS, 1], Y: Tensor[f32, "n", ROWS, HIDDEN]) -> None:
        for token in results.receive():
            weigh(x=token, gate=Gate[token.index], y=Y[token.index])

    return network(deal, replicate(work, replicas), collect, name="experts")


def random_batch(rng: np.random.Generator, blocks: int) -> Batch:
    """Return random arguments."""
    shapes = ((blocks, ROWS, HIDDEN), (EXPERTS, HIDDEN, INNER), (EXPERTS, INNER, HIDDEN))
    x, w1, w2 = (rng.standard_normal(shape).astype(np.float32) / 8 for shape in shapes)
    gate = rng.random((blocks, ROWS, 1), np.float32)
    return Batch(x, rng.integers(0, EXPERTS, blocks, np.int32), gate, w1, w2, np.empty_like(x))


def expected(batch: Batch) -> np.ndarray:
    """Return the result in f64."""
    x, w1, w2 = (array.astype(np.float64) for array in (batch.X, batch.W1, batch.W2))
    return batch.Gate * (np.maximum(x @ w1[batch.Expert], 0) @ w2[batch.Expert])


def simulate(replicas: int, batch: Batch) -> NetworkReport:
    """Return what the processes do on a simulated device, without values."""
    program = build(replicas).compile(target="sim", device="ascend_910b_seed", values=False)
    program.run(**batch._asdict())
    found = report_of(program).network
    assert found is not None
    return found


def main() -> None:
    """Run and simulate the network with one to four replicas."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    batch = random_batch(np.random.default_rng(0), options.blocks)
    for replicas in (1, 2, 3, 4):
        build(replicas).compile().run(**batch._asdict(), workers=options.workers)
        error = float(np.abs(batch.Y - expected(batch)).max())
        assert error < TOLERANCE, error
        found = simulate(replicas, batch)
        print(f"{replicas} replicas: {found.interval:,.0f} cycles per block, limited by `{found.bottleneck}`")


if __name__ == "__main__":
    main()
