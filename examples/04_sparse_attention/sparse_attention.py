"""Sparse decode attention: a light indexer scores every token, attention reads only the best 2048 of them.

python examples/04_sparse_attention/sparse_attention.py [--batch N] [--longest N] [--batches N]
"""

import argparse
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import DYN, In, Out, P, Program, Scalar, Tensor, Tile, f32, i32, i64, kernel, pto, tier, workload

TOP_K = 2048
BLOCK = 2048  # tokens per task of the indexer
RANK = 8192  # tokens per task that finds the best TOP_K of them
SPLIT = 512  # picked tokens per task of attention
STEP = 128  # tokens whose scores are held at a time
GROUP = 32  # heads per task that merges
TOLERANCE = 1e-5  # absolute, against f64: scores and values are of order 1


class Shape(NamedTuple):
    """The sizes of the operator.

    Attributes:
        index_heads: heads of the indexer.
        index_dim: elements of each.
        heads: query heads; all share one latent vector per token.
        key: elements of a latent vector, all of which are its key.
        value: how many of them, from the first on, are its value.
    """

    index_heads: int = 16
    index_dim: int = 64
    heads: int = 16
    key: int = 144
    value: int = 128


@kernel
def advance(cached: In[Tile[64, 1, i32]], accepted: In[Tile[64, 1, i32]], lengths: Out[Tile[64, 1, i32]]):
    """What a speculative step has left: the tokens that were there and those that it accepted."""
    pto.store(lengths, cached + accepted)


def score_kernel(shape: Shape) -> Any:
    """Return the indexer: sum over its heads of weight * relu(q . k) for each token."""
    HEADS, DIM = shape.index_heads, shape.index_dim

    @kernel
    def score(
        q: In[Tile[HEADS, DIM, f32]],
        weight: In[Tile[1, HEADS, f32]],
        k: In[Tile[BLOCK, DIM, f32]],
        scores: Out[Tile[1, BLOCK, f32]],
    ):
        """While the keys of one step are multiplied, those of the next come from memory."""
        queries = pto.transpose(q)
        for r in pto.tiles(k.rows, STEP):
            pto.prefetch(k, pto.minimum(pto.iota((1, STEP), r.start + STEP), k.rows - 1))
            weighted = pto.relu(pto.matmul(k[r], queries)) * weight
            pto.store(scores[:, r], pto.transpose(pto.rowsum(weighted)))

    return score


@kernel
def rank(scores: In[Tensor[f32, 1, DYN]], first: Scalar[i64], ranked: Out[Tile[1, TOP_K, i64]]):
    """The best TOP_K of at least as many tokens, from number `first` on, as sorted pairs."""
    best = pto.sort(scores[:, 0:TOP_K], pto.iota((1, TOP_K), first))
    for r in pto.tiles(scores.cols, TOP_K):
        if r.start > 0:
            numbers = pto.iota((1, r.extent), first + r.start)
            best = pto.merge(best, pto.sort(scores[:, r], numbers), TOP_K)
    pto.store(ranked, best)


@kernel
def select_2k(
    scores: In[Tile[1, TOP_K, f32]], ranked: In[Tensor[i64, DYN, TOP_K]], picks: Out[Tile[1, TOP_K, i32]]
):
    """No more tokens than TOP_K: all of them, without a look at their scores."""
    pto.store(picks, pto.iota((1, scores.cols)))


@kernel
def select_8k(
    scores: In[Tile[1, 8192, f32]], ranked: In[Tensor[i64, DYN, TOP_K]], picks: Out[Tile[1, TOP_K, i32]]
):
    """Sort the scores of all tokens."""
    pto.store(picks, pto.extract_topk_indices(pto.sort(scores), picks.cols))


@kernel
def select_64k(
    scores: In[Tensor[f32, 1, DYN]], ranked: In[Tensor[i64, DYN, TOP_K]], picks: Out[Tile[1, TOP_K, i32]]
):
    """Merge what other tasks have ranked."""
    best = pto.load(ranked[0:1])
    for i in range(1, ranked.rows):
        best = pto.merge(best, ranked[i : i + 1], TOP_K)
    pto.store(picks, pto.extract_topk_indices(best, picks.cols))


select = tier("select", (select_2k, 2048), (select_8k, 8192), (select_64k, 65536))


def attention_kernels(shape: Shape) -> tuple[Any, Any]:
    """Return attention over some of the picked tokens, and what puts such parts together.

    The state of a head is a maximum m, a sum of weights l and a weighted sum of values.
    """
    HEADS, KEY, VALUE = shape.heads, shape.key, shape.value

    @kernel
    def attend(
        q: In[Tile[HEADS, KEY, f32]],
        latent: In[Tensor[f32, DYN, KEY]],
        picks: In[Tile[1, SPLIT, i32]],
        part: Out[Tile[HEADS, VALUE, f32]],
        state: Out[Tile[2, HEADS, f32]],
    ):
        """While the values of one step are added up, the tokens of the next come from memory."""
        m, l, acc = pto.full((HEADS, 1), -inf), pto.zeros((HEADS, 1)), pto.zeros((HEADS, VALUE))  # noqa: E741
        scaled = q * (1 / sqrt(KEY))
        for r in pto.tiles(picks.cols, STEP):
            tokens = picks[:, r]
            s = pto.matmul(scaled, pto.gather(latent, tokens).T)
            m_new = pto.maximum(m, pto.rowmax(s))
            p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
            l = l * alpha + pto.rowsum(p)  # noqa: E741
            after = pto.minimum(pto.iota((1, STEP), r.start + STEP), picks.cols - 1)
            pto.prefetch(latent, pto.take(picks, after))
            acc = pto.matmul(p, pto.gather(latent[:, 0:VALUE], tokens), acc=acc * alpha)
            m = m_new
        pto.store(part, acc)
        pto.store(state[0:1], pto.transpose(m))
        pto.store(state[1:2], pto.transpose(l))

    @kernel
    def merge(
        parts: In[Tensor[f32, DYN, DYN, VALUE]],
        states: In[Tensor[f32, DYN, 2, DYN]],
        o: Out[Tile[GROUP, VALUE, f32]],
    ):
        """Fold the parts in their order; without any, the result is 0."""
        m, l, acc = pto.full((o.rows, 1), -1e30), pto.zeros((o.rows, 1)), pto.zeros((o.rows, VALUE))  # noqa: E741
        for i in range(parts.rows):
            for r in pto.tiles(o.rows, GROUP):
                m_part = pto.transpose(states[i, 0:1, r])
                m_new = pto.maximum(m, m_part)
                before, here = pto.exp(m - m_new), pto.exp(m_part - m_new)
                l = l * before + pto.transpose(states[i, 1:2, r]) * here  # noqa: E741
                acc = acc * before + parts[i, r] * here
                m = m_new
        pto.store(o, pto.where(l > 0, acc / l, 0.0))

    return attend, merge


def blocks(n: Any) -> Any:
    """Return how many tasks rank `n` tokens."""
    return (n + (RANK - 1)) // RANK


def sparse_attention(shape: Shape) -> Any:
    """Return the workload of the operator."""
    INDEX_HEADS, INDEX_DIM, HEADS, KEY, VALUE = shape
    score = score_kernel(shape)
    attend, merge = attention_kernels(shape)

    @workload
    def sparse_attention(
        Cached: Tensor[i32, "batch", 1],
        Accepted: Tensor[i32, "batch", 1],
        Lengths: Tensor[i32, "batch", 1],
        IndexQ: Tensor[f32, "batch", INDEX_HEADS, INDEX_DIM],
        IndexWeight: Tensor[f32, "batch", 1, INDEX_HEADS],
        IndexK: Tensor[f32, "batch", "longest", INDEX_DIM],
        Q: Tensor[f32, "batch", HEADS, KEY],
        Latent: Tensor[f32, "batch", "longest", KEY],
        Scores: Tensor[f32, "batch", 1, "longest"],
        Ranked: Tensor[i64, "batch", "blocks", TOP_K],
        TopK: Tensor[i32, "batch", 1, TOP_K],
        Part: Tensor[f32, "batch", TOP_K // SPLIT, HEADS, VALUE],
        State: Tensor[f32, "batch", TOP_K // SPLIT, 2, HEADS],
        O: Tensor[f32, "batch", HEADS, VALUE],  # noqa: E741
    ):
        """Index, select, attend; `O` is the result, the five before it and `Lengths` are intermediate."""
        for rows in P.tiles("batch", 64):
            advance[rows](cached=Cached[rows], accepted=Accepted[rows], lengths=Lengths[rows])
        for b in P("batch"):
            n = Lengths[b, 0]  # written by this run: the walk waits for it, reads it once, and goes on
            with P.when(n > TOP_K):
                for t in P.tiles(n, BLOCK):
                    score[b, t](q=IndexQ[b], weight=IndexWeight[b], k=IndexK[b, t], scores=Scores[b, :, t])
            with P.when(n > RANK):
                for i in P(blocks(n)):  # of nearly the same length, so that each has TOP_K tokens
                    start, end = i * n // blocks(n), (i + 1) * n // blocks(n)
                    rank[b, i](scores=Scores[b, :, start:end], first=start, ranked=Ranked[b, i : i + 1])
        for b in P("batch"):
            n = Lengths[b, 0]
            count = n.min(TOP_K)
            select.at(n)[b](scores=Scores[b, :, :n], ranked=Ranked[b, : blocks(n)], picks=TopK[b, :, :count])
            for t in P.tiles(count, SPLIT):
                i = t.start // SPLIT
                attend[b, i](
                    q=Q[b], latent=Latent[b, :n], picks=TopK[b, :, t], part=Part[b, i], state=State[b, i]
                )
            parts = slice(0, (count + (SPLIT - 1)) // SPLIT)
            for g in P.tiles(HEADS, GROUP):
                merge[b, g](parts=Part[b, parts, g], states=State[b, parts, :, g], o=O[b, g])

    return sparse_attention


class Batch(NamedTuple):
    """The arrays of one call, by the names of the workload's parameters."""

    Cached: np.ndarray
    Accepted: np.ndarray
    Lengths: np.ndarray
    IndexQ: np.ndarray
    IndexWeight: np.ndarray
    IndexK: np.ndarray
    Q: np.ndarray
    Latent: np.ndarray
    Scores: np.ndarray
    Ranked: np.ndarray
    TopK: np.ndarray
    Part: np.ndarray
    State: np.ndarray
    O: np.ndarray  # noqa: E741


def random_batch(rng: np.random.Generator, shape: Shape, lengths: np.ndarray, longest: int) -> Batch:
    """Make sequences of given lengths, some of whose tokens were accepted just now; NaN follows them."""
    batch, splits, index = len(lengths), TOP_K // SPLIT, (shape.index_heads, shape.index_dim)
    accepted = np.minimum(rng.integers(0, 5, batch), lengths)

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal((batch, *dims), np.float32)

    def unwritten(*dims: int) -> np.ndarray:
        return np.full((batch, *dims), np.nan, np.float32)

    caches = [normal(longest, dim) for dim in (shape.index_dim, shape.key)]
    for cache in caches:
        for b, length in enumerate(lengths):
            cache[b, length:] = np.nan
    column = (batch, 1)
    return Batch(
        (lengths - accepted).astype(np.int32).reshape(column), accepted.astype(np.int32).reshape(column),
        np.full(column, -1, np.int32), normal(*index), normal(1, index[0]),
        caches[0], normal(shape.heads, shape.key), caches[1], unwritten(1, longest),
        np.full((batch, -(-longest // RANK), TOP_K), -1, np.int64),
        np.full((batch, 1, TOP_K), -1, np.int32), unwritten(splits, shape.heads, shape.value),
        unwritten(splits, 2, shape.heads), unwritten(shape.heads, shape.value),
    )  # fmt: skip


def random_lengths(rng: np.random.Generator, batch: int, longest: int) -> np.ndarray:
    """Lengths from 0 to `longest`, short ones as likely as long ones."""
    return np.minimum(np.exp(rng.uniform(0, np.log(longest + 1), batch)).astype(np.int64) - 1, longest)


def index_scores(batch: Batch, b: int, length: int, number: type[np.floating] = np.float64) -> np.ndarray:
    """Return the scores that numpy gives the tokens of a sequence, [length]."""
    q, weight, k = batch.IndexQ[b], batch.IndexWeight[b], batch.IndexK[b, :length]
    dots = q.astype(number) @ k.astype(number).T
    return weight[0].astype(number) @ np.maximum(dots, 0)


def attention(batch: Batch, b: int, picks: np.ndarray, number: type[np.floating] = np.float64) -> np.ndarray:
    """Return attention of a sequence over the tokens `picks` as numpy computes it, [heads, value]."""
    q, latent = batch.Q[b].astype(number), batch.Latent[b, picks].astype(number)
    scores = q @ latent.T / number(sqrt(q.shape[1]))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ latent[:, : batch.O.shape[2]]


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
    batch = random_batch(np.random.default_rng(0), Shape(), np.array([100, 5000, 9000]), 9000)
    return sparse_attention(Shape()).compile(target="interp").task_graph(**batch._asdict()).to_svg()


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
    shape = Shape()
    program = sparse_attention(shape).compile(target="cpu")
    rng = np.random.default_rng(0)
    heads = f"{shape.index_heads} index heads of {shape.index_dim}, {shape.heads} query heads of {shape.key}"
    print(f"{heads}, top {TOP_K}")
    print(f"\n  {'tasks':>6} {'ms':>8} {'compiles':>9} {'off by':>8}   lengths")
    for _ in range(options.batches):
        lengths = random_lengths(rng, options.batch, options.longest)
        batch = random_batch(rng, shape, lengths, options.longest)
        run(program, batch)
        stats, found = program.stats, difference(batch)
        assert stats is not None
        listed = " ".join(f"{n:,}" for n in lengths)
        print(f"  {stats.tasks:>6} {stats.run_ms:>8.2f} {stats.compiles:>9} {found:>8.1e}   {listed}")
        if not found <= TOLERANCE:
            raise SystemExit(f"differs from numpy by more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
