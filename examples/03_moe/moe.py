"""A mixture-of-experts layer: each token goes through 2 of 64 experts, which the same run chooses.

python examples/03_moe/moe.py [--tokens N] [--batches N]
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import (
    DYN,
    Dense,
    DenseDyn,
    In,
    Out,
    P,
    Program,
    Tensor,
    Tile,
    f32,
    group_by,
    i32,
    kernel,
    pto,
    workload,
)

EXPERTS, HIDDEN, INNER = 64, 2048, 256
SLOTS = 2  # experts per token
ROWS = 64  # rows per task
TOLERANCE = 1e-5  # relative to the largest result; numpy computes in f32 as well


@workload
def moe(
    tokens: DenseDyn,
    X: Tensor[f32, "tokens", HIDDEN],
    Router: Tensor[f32, HIDDEN, EXPERTS],
    W1: Tensor[f32, EXPERTS, HIDDEN, INNER],
    W2: Tensor[f32, EXPERTS, INNER, HIDDEN],
    W3: Tensor[f32, EXPERTS, HIDDEN, INNER],
    Y: Tensor[f32, "tokens", HIDDEN],
    Part: Tensor[f32, "tokens", SLOTS, HIDDEN],
    Experts: Tensor[i32, "tokens", SLOTS],
    Gates: Tensor[f32, "tokens", SLOTS],
):
    """Route, group, apply, combine; `Part`, `Experts` and `Gates` are intermediate, `Y` is the result."""
    for t in P.tiles(tokens, ROWS):
        route_top2[t](x=X[t], w=Router, experts=Experts[t], gates=Gates[t])
    routing = group_by(Experts, num_groups=EXPERTS)  # expert -> its (token, slot) pairs, made by this run
    for e in P(Dense[EXPERTS]):
        for pick in P.tiles(routing[e], ROWS):  # an expert without tokens costs nothing
            rows = routing.rows(pick)  # disjoint between picks: experts do not wait for each other
            expert_ffn[e, pick](x=X, rows=rows, w1=W1[e], w3=W3[e], w2=W2[e], part=Part[rows])
    for t in P.tiles(tokens, ROWS):
        combine_top2[t](parts=Part[t], gates=Gates[t], y=Y[t])  # slots are added in slot order


@kernel
def route_top2(
    x: In[Tile[ROWS, HIDDEN, f32]],
    w: In[Tile[HIDDEN, EXPERTS, f32]],
    experts: Out[Tile[ROWS, SLOTS, i32]],
    gates: Out[Tile[ROWS, SLOTS, f32]],
):
    """The two experts with the largest scores, the lower number first among equals, and a softmax of both."""
    best = pto.sort(pto.matmul(x, w))
    top = pto.extract_topk_values(best, SLOTS)
    e = pto.exp(top - pto.rowmax(top))
    pto.store(experts, pto.extract_topk_indices(best, SLOTS))
    pto.store(gates, e / pto.rowsum(e))


@kernel
def expert_ffn(
    x: In[Tensor[f32, DYN, HIDDEN]],
    rows: In[Tile[ROWS, 1, i32]],
    w1: In[Tile[HIDDEN, INNER, f32]],
    w3: In[Tile[HIDDEN, INNER, f32]],
    w2: In[Tile[INNER, HIDDEN, f32]],
    part: Out[Tile[ROWS, HIDDEN, f32]],
):
    """part[i] = (silu(t @ w1) * (t @ w3)) @ w2, where t is the token of (token, slot) pair rows[i]."""
    t = pto.gather(x, pto.div(rows, SLOTS))
    gate = pto.matmul(t, w1)
    inner = gate * pto.sigmoid(gate) * pto.matmul(t, w3)
    pto.store(part, pto.matmul(inner, w2))


@kernel
def combine_top2(
    parts: In[Tensor[f32, DYN, SLOTS, HIDDEN]],
    gates: In[Tile[ROWS, SLOTS, f32]],
    y: Out[Tile[ROWS, HIDDEN, f32]],
):
    """Add gate * part of all slots, in slot order."""
    for r in pto.tiles(y.rows, 8):
        pto.store(y[r], parts[r, 0] * gates[r, 0:1] + parts[r, 1] * gates[r, 1:2])


class Weights(NamedTuple):
    """What stays from batch to batch."""

    Router: np.ndarray
    W1: np.ndarray
    W2: np.ndarray
    W3: np.ndarray


class Batch(NamedTuple):
    """The arrays of one call: what comes in, what the run makes on the way, and the result."""

    X: np.ndarray
    Experts: np.ndarray
    Gates: np.ndarray
    Part: np.ndarray
    Y: np.ndarray


def random_weights(rng: np.random.Generator) -> Weights:
    """Return weights that keep values of order 1."""

    def matrix(rows: int, *shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) / np.float32(rows**0.5)

    return Weights(
        matrix(HIDDEN, HIDDEN, EXPERTS),
        matrix(HIDDEN, EXPERTS, HIDDEN, INNER),
        matrix(INNER, EXPERTS, INNER, HIDDEN),
        matrix(HIDDEN, EXPERTS, HIDDEN, INNER),
    )


def random_batch(rng: np.random.Generator, tokens: int, weights: Weights) -> Batch:
    """Make tokens that like one or two experts: the k-th favourite of a random order with weight 1 / k."""
    share = 1 / np.arange(1, EXPERTS + 1)
    liked = rng.permutation(EXPERTS)[rng.choice(EXPERTS, (tokens, SLOTS), p=share / share.sum())]
    x = rng.standard_normal((tokens, HIDDEN), np.float32)
    x += 4 * weights.Router.T[liked[:, 0]] + 3 * weights.Router.T[liked[:, 1]]
    return Batch(
        x,
        np.full((tokens, SLOTS), -1, np.int32),
        np.full((tokens, SLOTS), np.nan, np.float32),
        np.full((tokens, SLOTS, HIDDEN), np.nan, np.float32),
        np.full((tokens, HIDDEN), np.nan, np.float32),
    )


def routed(batch: Batch, weights: Weights) -> np.ndarray:
    """Return the experts that numpy chooses for each token, [tokens, SLOTS]."""
    return np.argsort(-(batch.X @ weights.Router), axis=1, kind="stable")[:, :SLOTS]


def reference(batch: Batch, weights: Weights, experts: np.ndarray) -> np.ndarray:
    """Return Y as numpy computes it for given experts [tokens, SLOTS], expert after expert."""
    scores = np.take_along_axis(batch.X @ weights.Router, experts, axis=1)
    gates = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    gates /= gates.sum(axis=1, keepdims=True)
    parts = np.empty((*experts.shape, HIDDEN), np.float32)
    for e in range(EXPERTS):
        at = np.nonzero(experts == e)
        if len(at[0]):
            x = batch.X[at[0]]
            gate = x @ weights.W1[e]
            parts[at] = (gate / (1 + np.exp(-gate)) * (x @ weights.W3[e])) @ weights.W2[e]
    return (parts * gates[:, :, None]).sum(axis=1)


def difference(batch: Batch, weights: Weights) -> float:
    """Return how far Y is from the reference, relative to its largest element; NaN counts as infinite.

    Where the scores of two experts differ by no more than rounding, either choice is right.
    """
    scores = batch.X.astype(np.float64) @ weights.Router.astype(np.float64)
    chosen = np.take_along_axis(scores, batch.Experts.clip(0, EXPERTS - 1), axis=1)
    best = -np.sort(-scores, axis=1)[:, :SLOTS]
    is_right = (np.abs(chosen - best) <= 1e-4).all() and (batch.Experts[:, 0] != batch.Experts[:, 1]).all()
    if not is_right:
        return np.inf
    expected = reference(batch, weights, batch.Experts)
    off = np.abs(batch.Y - expected).max(initial=0.0) / max(np.abs(expected).max(initial=0.0), 1e-9)
    return float(np.nan_to_num(off, nan=np.inf))


def run(program: Program, batch: Batch, weights: Weights, **options: Any) -> None:
    """Run the program on the arrays of a batch."""
    program.run(tokens=len(batch.X), **batch._asdict(), **weights._asdict(), **options)


def small_graph() -> str:
    """Draw the task graph of nine tokens."""
    random = np.random.default_rng(0)
    weights = random_weights(random)
    batch = random_batch(random, 9, weights)
    return moe.compile(target="interp").task_graph(**batch._asdict(), **weights._asdict()).to_svg()


def main() -> None:
    """Compile once, run on random batches, compare each with numpy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2000, help="most tokens of a batch")
    parser.add_argument("--batches", type=int, default=5, help="number of random batches")
    parser.add_argument("--graph", type=Path, metavar="FILE", help="draw the task graph of a small batch")
    options = parser.parse_args()
    if min(options.tokens, options.batches) < 1:
        parser.error("sizes are at least 1")
    if options.graph is not None:
        options.graph.write_text(small_graph())
        return
    program = moe.compile(target="cpu")
    rng = np.random.default_rng(0)
    weights = random_weights(rng)
    print(f"{EXPERTS} experts, top {SLOTS}, hidden {HIDDEN}, inner {INNER}")
    print(f"\n  {'tokens':>7} {'busy experts':>13} {'tasks':>6} {'ms':>8} {'compiles':>9}   off by")
    for _ in range(options.batches):
        batch = random_batch(rng, int(rng.integers(0, options.tokens + 1)), weights)
        run(program, batch, weights)
        stats, found = program.stats, difference(batch, weights)
        assert stats is not None
        print(
            f"  {len(batch.X):>7,} {len(np.unique(batch.Experts)):>13} {stats.tasks:>6,} "
            f"{stats.run_ms:>8.2f} {stats.compiles:>9}   {found:.1e}"
        )
        if not found <= TOLERANCE:
            raise SystemExit(f"differs from numpy by more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
