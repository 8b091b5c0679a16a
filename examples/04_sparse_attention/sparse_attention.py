"""Sparse decode attention: a light indexer scores every token, attention reads only the best 2048 of them.

python examples/04_sparse_attention/sparse_attention.py [--batch N] [--longest N] [--batches N]
"""

import argparse
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import DYN, In, Out, P, Program, Tensor, Tile, f32, i32, kernel, pto, tier, workload

INDEX_HEADS, INDEX_DIM = 16, 64
HEADS, DIM = 16, 128  # query heads; all share one key and value per token
TOP_K = 2048
TOLERANCE = 1e-5  # absolute, against f64: scores and values are of order 1


@kernel
def advance(cached: In[Tile[64, 1, i32]], accepted: In[Tile[64, 1, i32]], lengths: Out[Tile[64, 1, i32]]):
    """What a speculative step has left: the tokens that were there and those that it accepted."""
    pto.store(lengths, cached + accepted)


@kernel
def index_2k(
    q: In[Tile[INDEX_HEADS, INDEX_DIM, f32]],
    weight: In[Tile[INDEX_HEADS, 1, f32]],
    k: In[Tile[2048, INDEX_DIM, f32]],
    picks: Out[Tile[1, TOP_K, i32]],
):
    """No more tokens than TOP_K: all of them, without a look at their scores."""
    pto.store(picks, pto.iota((1, k.rows)))


@kernel
def index_8k(
    q: In[Tile[INDEX_HEADS, INDEX_DIM, f32]],
    weight: In[Tile[INDEX_HEADS, 1, f32]],
    k: In[Tile[8192, INDEX_DIM, f32]],
    picks: Out[Tile[1, TOP_K, i32]],
):
    """Sort the scores of all tokens: sum over index heads of weight * relu(q . k)."""
    scores = pto.colsum(pto.relu(pto.matmul(q, k.T)) * weight)
    pto.store(picks, pto.extract_topk_indices(pto.sort(scores), picks.cols))


@kernel
def index_64k(
    q: In[Tile[INDEX_HEADS, INDEX_DIM, f32]],
    weight: In[Tile[INDEX_HEADS, 1, f32]],
    k: In[Tensor[f32, DYN, INDEX_DIM]],
    picks: Out[Tile[1, TOP_K, i32]],
):
    """Sort the scores of 8192 tokens at a time and merge them into the best so far."""
    best = pto.sort(pto.full((1, TOP_K), -inf))
    for r in pto.tiles(k.rows, 8192):
        scores = pto.colsum(pto.relu(pto.matmul(q, k[r].T)) * weight)
        best = pto.merge(best, pto.sort(scores, pto.iota((1, scores.cols), r.start)), TOP_K)
    pto.store(picks, pto.extract_topk_indices(best, picks.cols))


index = tier("index", (index_2k, 2048), (index_8k, 8192), (index_64k, 65536))


@kernel
def attend(
    q: In[Tile[HEADS, DIM, f32]],
    k: In[Tensor[f32, DYN, DIM]],
    v: In[Tensor[f32, DYN, DIM]],
    picks: In[Tensor[i32, 1, DYN]],
    o: Out[Tile[HEADS, DIM, f32]],
):
    """Attention over the tokens that `picks` names."""
    m, l, acc = pto.full((HEADS, 1), -inf), pto.zeros((HEADS, 1)), pto.zeros((HEADS, DIM))  # noqa: E741
    scaled = q * (1 / sqrt(DIM))
    for r in pto.tiles(picks.cols, 64):
        s = pto.matmul(scaled, pto.gather(k, picks[:, r]).T)
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        l = l * alpha + pto.rowsum(p)  # noqa: E741
        acc = pto.matmul(p, pto.gather(v, picks[:, r]), acc=acc * alpha)
        m = m_new
    pto.store(o, pto.where(l > 0, acc / l, 0.0))


@workload
def sparse_attention(
    Cached: Tensor[i32, "batch", 1],
    Accepted: Tensor[i32, "batch", 1],
    Lengths: Tensor[i32, "batch", 1],
    IndexQ: Tensor[f32, "batch", INDEX_HEADS, INDEX_DIM],
    IndexWeight: Tensor[f32, "batch", INDEX_HEADS, 1],
    IndexK: Tensor[f32, "batch", "longest", INDEX_DIM],
    Q: Tensor[f32, "batch", HEADS, DIM],
    K: Tensor[f32, "batch", "longest", DIM],
    V: Tensor[f32, "batch", "longest", DIM],
    TopK: Tensor[i32, "batch", 1, TOP_K],
    O: Tensor[f32, "batch", HEADS, DIM],  # noqa: E741
):
    """Index and attend; `Lengths` and `TopK` are intermediate, `O` is the result."""
    for rows in P.tiles("batch", 64):
        advance[rows](cached=Cached[rows], accepted=Accepted[rows], lengths=Lengths[rows])
    for b in P("batch"):
        n = Lengths[b, 0]  # written by this run: the walk waits for it, reads it once, and goes on
        picks = TopK[b, :, : n.min(TOP_K)]
        index.at(n)[b](q=IndexQ[b], weight=IndexWeight[b], k=IndexK[b, :n], picks=picks)
        attend[b](q=Q[b], k=K[b, :n], v=V[b, :n], picks=picks, o=O[b])


class Batch(NamedTuple):
    """The arrays of one call, by the names of the workload's parameters."""

    Cached: np.ndarray
    Accepted: np.ndarray
    Lengths: np.ndarray
    IndexQ: np.ndarray
    IndexWeight: np.ndarray
    IndexK: np.ndarray
    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    TopK: np.ndarray
    O: np.ndarray  # noqa: E741


def random_batch(rng: np.random.Generator, lengths: np.ndarray, longest: int) -> Batch:
    """Make sequences of given lengths, some of whose tokens were accepted just now; behind them lies NaN."""
    batch = len(lengths)
    accepted = np.minimum(rng.integers(0, 5, batch), lengths)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal((batch, *shape), np.float32)

    caches = [normal(longest, dim) for dim in (INDEX_DIM, DIM, DIM)]
    for cache in caches:
        for b, length in enumerate(lengths):
            cache[b, length:] = np.nan
    column = (batch, 1)
    return Batch(
        (lengths - accepted).astype(np.int32).reshape(column), accepted.astype(np.int32).reshape(column),
        np.full(column, -1, np.int32), normal(INDEX_HEADS, INDEX_DIM), normal(INDEX_HEADS, 1), caches[0],
        normal(HEADS, DIM), caches[1], caches[2], np.full((batch, 1, TOP_K), -1, np.int32),
        np.full((batch, HEADS, DIM), np.nan, np.float32),
    )  # fmt: skip


def random_lengths(rng: np.random.Generator, batch: int, longest: int) -> np.ndarray:
    """Lengths from 0 to `longest`, short ones as likely as long ones."""
    return np.minimum(np.exp(rng.uniform(0, np.log(longest + 1), batch)).astype(np.int64) - 1, longest)


def index_scores(batch: Batch, b: int, length: int, number: type[np.floating] = np.float64) -> np.ndarray:
    """Return the scores that numpy gives the tokens of a sequence, [length]."""
    q, weight, k = batch.IndexQ[b], batch.IndexWeight[b], batch.IndexK[b, :length]
    dots = q.astype(number) @ k.astype(number).T
    return (np.maximum(dots, 0) * weight.astype(number)).sum(axis=0)


def attention(batch: Batch, b: int, picks: np.ndarray, number: type[np.floating] = np.float64) -> np.ndarray:
    """Return attention of a sequence over the tokens `picks` as numpy computes it, [HEADS, DIM]."""
    q, k, v = batch.Q[b].astype(number), batch.K[b, picks].astype(number), batch.V[b, picks].astype(number)
    scores = q @ k.T / number(sqrt(DIM))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


def reference(batch: Batch, number: type[np.floating] = np.float64) -> np.ndarray:
    """Return O as numpy computes it, sequence after sequence; it selects without sorting."""
    out = np.zeros(batch.O.shape, number)
    for b, length in enumerate((batch.Cached + batch.Accepted)[:, 0]):
        picks = np.arange(length)
        if length > TOP_K:
            picks = np.argpartition(index_scores(batch, b, length, number), length - TOP_K)[-TOP_K:]
        if length:
            out[b] = attention(batch, b, picks, number)
    return out


def difference(batch: Batch) -> float:
    """Return the largest difference of O from attention over the picked tokens; infinite if these are wrong.

    Tokens whose scores differ by no more than rounding may change places.
    """
    found = 0.0
    for b, length in enumerate((batch.Cached + batch.Accepted)[:, 0]):
        count = min(length, TOP_K)
        picks = batch.TopK[b, 0, :count]
        if batch.Lengths[b, 0] != length or len(np.unique(picks)) != count or (picks >= length).any():
            return inf
        if length == 0:
            found = max(found, float(np.abs(batch.O[b]).max()))
            continue
        scores = index_scores(batch, b, length)
        worst = scores[picks].min()
        if length > TOP_K and worst < np.sort(scores)[-TOP_K] - 1e-4:
            return inf
        off = np.abs(batch.O[b] - attention(batch, b, picks)).max()
        found = max(found, float(np.nan_to_num(off, nan=inf)))
    return found


def run(program: Program, batch: Batch, **options: Any) -> None:
    """Run the program on the arrays of a batch."""
    program.run(**batch._asdict(), **options)


def small_graph() -> str:
    """Draw the task graph of three sequences, one for each tier."""
    batch = random_batch(np.random.default_rng(0), np.array([100, 5000, 9000]), 9000)
    return sparse_attention.compile(target="interp").task_graph(**batch._asdict()).to_svg()


def main() -> None:
    """Compile once, run on random batches, compare each with numpy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=4, help="sequences per batch")
    parser.add_argument("--longest", type=int, default=65536, help="tokens of the longest sequence")
    parser.add_argument("--batches", type=int, default=5, help="number of random batches")
    parser.add_argument("--graph", type=Path, metavar="FILE", help="draw the task graph of a small batch")
    options = parser.parse_args()
    if min(options.batch, options.longest, options.batches) < 1:
        parser.error("sizes are at least 1")
    if options.graph is not None:
        options.graph.write_text(small_graph())
        return
    program = sparse_attention.compile(target="cpu")
    rng = np.random.default_rng(0)
    print(f"{INDEX_HEADS} index heads of {INDEX_DIM}, {HEADS} query heads of {DIM}, top {TOP_K}")
    print(f"\n  {'tasks':>6} {'ms':>8} {'compiles':>9} {'off by':>8}   lengths")
    for _ in range(options.batches):
        lengths = random_lengths(rng, options.batch, options.longest)
        batch = random_batch(rng, lengths, options.longest)
        run(program, batch)
        stats, found = program.stats, difference(batch)
        assert stats is not None
        listed = " ".join(f"{n:,}" for n in lengths)
        print(f"  {stats.tasks:>6} {stats.run_ms:>8.2f} {stats.compiles:>9} {found:>8.1e}   {listed}")
        if not found <= TOLERANCE:
            raise SystemExit(f"differs from numpy by more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
