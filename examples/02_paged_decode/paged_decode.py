"""Decode attention over a paged KV cache: 32 query heads share 8 KV heads, sequences of any length.

python examples/02_paged_decode/paged_decode.py [--batch N] [--longest N] [--kv f32|bf16] [--batches N]
"""

import argparse
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import (
    DYN,
    Dense,
    In,
    Out,
    P,
    Program,
    Scalar,
    Tensor,
    Tile,
    bf16,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)

KV_HEADS, GROUP, DIM = 8, 4, 128  # GROUP query heads share one KV head
PAGE = 16  # tokens
CHUNK = 1024  # tokens of a sequence that one task attends to; the same ones whatever else is in the batch
TOLERANCE = 1e-5  # absolute, against f64: scores and values are of order 1


def paged_decode(kv: Any):
    """Return the workload for a cache of element type `kv`, f32 or bf16."""

    @workload
    def decode(
        Lengths: Tensor[i32, "batch"],
        BlockTable: Tensor[i32, "batch", "row_pages"],  # BlockTable[b, i] is the page of tokens PAGE * i ...
        Q: Tensor[f32, "batch", KV_HEADS, GROUP, DIM],
        K: Tensor[kv, "pages", KV_HEADS, PAGE, DIM],
        V: Tensor[kv, "pages", KV_HEADS, PAGE, DIM],
        Parts: Tensor[f32, "batch", KV_HEADS, "chunks", GROUP, DIM],
        PartLSE: Tensor[f32, "batch", KV_HEADS, "chunks", GROUP, 1],
        O: Tensor[f32, "batch", KV_HEADS, GROUP, DIM],  # noqa: E741
        LSE: Tensor[f32, "batch", KV_HEADS, GROUP, 1],
    ):
        """Attend to parts, then merge; `Parts` and `PartLSE` are intermediate, `O` and `LSE` the result."""
        for b, h in P("batch", Dense[KV_HEADS]):
            for part in P.tiles(Lengths[b], CHUNK):  # none, if the sequence is empty
                c = part.start // CHUNK
                attend[b, h, c](
                    q=Q[b, h], table=BlockTable[b], k=K[:, h], v=V[:, h], first_page=part.start // PAGE,
                    tokens=part.extent, o=Parts[b, h, c], lse=PartLSE[b, h, c],
                )  # fmt: skip
            chunks = (Lengths[b] + CHUNK - 1) // CHUNK
            merge[b, h](parts=Parts[b, h, :chunks], part_lse=PartLSE[b, h, :chunks], o=O[b, h], lse=LSE[b, h])

    @kernel
    def attend(
        q: In[Tile[GROUP, DIM, f32]],
        table: In[Tensor[i32, DYN]],
        k: In[Tensor[kv, DYN, PAGE, DIM]],
        v: In[Tensor[kv, DYN, PAGE, DIM]],
        first_page: Scalar[i64],
        tokens: Scalar[i64],
        o: Out[Tile[GROUP, DIM, f32]],
        lse: Out[Tile[GROUP, 1, f32]],
    ):
        """Attention over `tokens` tokens of one sequence; the query heads share what is read of the cache."""
        m, l, acc = pto.full((GROUP, 1), -inf), pto.zeros((GROUP, 1)), pto.zeros((GROUP, DIM))  # noqa: E741
        scaled = q * (1 / sqrt(DIM))
        for i in range((tokens + PAGE - 1) // PAGE):
            page = table[first_page + i]
            for r in pto.tiles(min(tokens - PAGE * i, PAGE), PAGE):  # what is valid of the page
                s = pto.matmul(scaled, k[page, r].T)
                m_new = pto.maximum(m, pto.rowmax(s))
                p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
                l = l * alpha + pto.rowsum(p)  # noqa: E741
                acc = pto.matmul(p, v[page, r], acc=acc * alpha)
                m = m_new
        pto.store(o, acc / l)
        pto.store(lse, m + pto.log(l))

    return decode


@kernel
def merge(
    parts: In[Tensor[f32, DYN, GROUP, DIM]],
    part_lse: In[Tensor[f32, DYN, GROUP, 1]],
    o: Out[Tile[GROUP, DIM, f32]],
    lse: Out[Tile[GROUP, 1, f32]],
):
    """Add up the parts of a sequence in ascending order; without any, the result is 0 and -inf."""
    m, l, acc = pto.full((GROUP, 1), -inf), pto.zeros((GROUP, 1)), pto.zeros((GROUP, DIM))  # noqa: E741
    for c in range(parts.rows):
        m_new = pto.maximum(m, part_lse[c])
        p, alpha = pto.exp(part_lse[c] - m_new), pto.exp(m - m_new)
        l = l * alpha + p  # noqa: E741
        acc = acc * alpha + parts[c] * p
        m = m_new
    pto.store(o, pto.where(l > 0, acc / l, 0.0))
    pto.store(lse, m + pto.log(l))


class Batch(NamedTuple):
    """The arrays of one call, by the names of the workload's parameters."""

    Lengths: np.ndarray
    BlockTable: np.ndarray
    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    Parts: np.ndarray
    PartLSE: np.ndarray
    O: np.ndarray  # noqa: E741
    LSE: np.ndarray


def random_batch(rng: np.random.Generator, lengths: np.ndarray, kv: Any) -> Batch:
    """Scatter the pages of every sequence over the cache; what no sequence owns is -1 or NaN."""
    row_pages = -(-lengths // PAGE)
    total, batch = int(row_pages.sum()) + 3, len(lengths)
    table = np.full((batch, max(row_pages.max(initial=0), 1)), -1, np.int32)
    owned = np.arange(table.shape[1]) < row_pages[:, None]
    table[owned] = rng.permutation(total)[: owned.sum()]
    k, v = (rng.standard_normal((total, KV_HEADS, PAGE, DIM), np.float32) for _ in range(2))
    is_owned = np.isin(np.arange(total), table)
    k[~is_owned] = v[~is_owned] = np.nan
    kv_type, chunks = kv.to_numpy(), max(-(-int(lengths.max(initial=0)) // CHUNK), 1)
    heads = (batch, KV_HEADS)
    return Batch(
        lengths.astype(np.int32), table, rng.standard_normal((*heads, GROUP, DIM), np.float32),
        k.astype(kv_type), v.astype(kv_type),
        np.full((*heads, chunks, GROUP, DIM), np.nan, np.float32),
        np.full((*heads, chunks, GROUP, 1), np.nan, np.float32),
        np.full((*heads, GROUP, DIM), np.nan, np.float32),
        np.full((*heads, GROUP, 1), np.nan, np.float32),
    )  # fmt: skip


def random_lengths(rng: np.random.Generator, batch: int, longest: int) -> np.ndarray:
    """Lengths from 1 to `longest`, short ones as likely as long ones; about one in eight is 0."""
    lengths = np.exp(rng.uniform(0, np.log(longest + 1), batch)).astype(np.int64)
    return np.where(rng.random(batch) < 1 / 8, 0, np.minimum(lengths, longest))


def reference(batch: Batch, number: type[np.floating] = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Return O and LSE as numpy computes them, sequence after sequence."""
    out, lse = np.zeros(batch.O.shape, number), np.full(batch.LSE.shape, -np.inf, number)
    for b, length in enumerate(batch.Lengths):
        if length:
            pages = batch.BlockTable[b, : -(-length // PAGE)]
            k, v = (
                pool[pages].swapaxes(0, 1).reshape(KV_HEADS, -1, DIM)[:, :length].astype(number)
                for pool in (batch.K, batch.V)
            )
            scores = batch.Q[b].astype(number) @ k.swapaxes(1, 2) / number(sqrt(DIM))
            top = scores.max(axis=2, keepdims=True)
            weights = np.exp(scores - top)
            total = weights.sum(axis=2, keepdims=True)
            out[b], lse[b] = weights @ v / total, top + np.log(total)
    return out, lse


def difference(batch: Batch) -> float:
    """Return the largest difference of a batch's result from the reference; NaN counts as infinite."""
    found = 0.0
    for array, expected in zip((batch.O, batch.LSE), reference(batch), strict=True):
        with np.errstate(invalid="ignore"):
            distance = np.where(array == expected, 0.0, np.abs(array - expected))
        found = max(found, float(np.nan_to_num(distance, nan=inf).max(initial=0.0)))
    return found


def run(program: Program, batch: Batch, **options: Any) -> None:
    """Run the program on the arrays of a batch."""
    program.run(**batch._asdict(), **options)


def small_graph() -> str:
    """Draw the task graph of two sequences, of which one is empty."""
    batch = random_batch(np.random.default_rng(0), np.array([CHUNK + 500, 0]), f32)
    return paged_decode(f32).compile(target="interp").task_graph(**batch._asdict()).to_svg()


def main() -> None:
    """Compile once, run on random batches, compare each with numpy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=16, help="sequences per batch")
    parser.add_argument("--longest", type=int, default=16384, help="tokens of the longest sequence")
    parser.add_argument("--kv", choices=["f32", "bf16"], default="f32", help="element type of the cache")
    parser.add_argument("--batches", type=int, default=5, help="number of random batches")
    parser.add_argument("--graph", type=Path, metavar="FILE", help="draw the task graph of a small batch")
    options = parser.parse_args()
    if min(options.batch, options.longest, options.batches) < 1:
        parser.error("sizes are at least 1")
    if options.graph is not None:
        options.graph.write_text(small_graph())
        return
    kv = {"f32": f32, "bf16": bf16}[options.kv]
    program = paged_decode(kv).compile(target="cpu")
    rng = np.random.default_rng(0)
    print(
        f"{KV_HEADS * GROUP} query heads, {KV_HEADS} KV heads of {DIM}, {options.kv} cache, pages of {PAGE}"
    )
    print(
        f"\n  {'sequences':>9} {'tokens':>8} {'longest':>8} {'tasks':>7} {'ms':>8} {'compiles':>9}   off by"
    )
    for _ in range(options.batches):
        batch = random_batch(rng, random_lengths(rng, options.batch, options.longest), kv)
        run(program, batch)
        stats, found = program.stats, difference(batch)
        assert stats is not None
        print(
            f"  {len(batch.Lengths):>5} {batch.Lengths.sum():>8,} {batch.Lengths.max(initial=0):>8,} "
            f"{stats.tasks:>7,} {stats.run_ms:>8.2f} {stats.compiles:>9}   {found:.1e}"
        )
        if not found <= TOLERANCE:
            raise SystemExit(f"differs from numpy by more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
