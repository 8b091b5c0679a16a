"""The programs of the case: small tasks, the shape of a LLaMA layer, products and attention of bf16."""

from __future__ import annotations

from math import inf, sqrt

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Scalar,
    Tensor,
    Tile,
    bf16,
    f32,
    group_by,
    i32,
    i64,
    kernel,
    pto,
    workload,
)

LARGE, SMALL = 128, 64
"""Rows of a tile of a product: of a square one, and of one whose rows are grouped."""

COLS, TERMS = 128, 64
"""Columns of a tile of a product, and the terms that a step of it adds."""

EXPERTS = 64

DIM, QUERIES, KEYS = 128, 64, 64
"""Elements of a head, and positions of a prompt in one task, and keys of one step."""


@kernel
def bump(x: InOut[Tile[1, 32, f32]]):
    pto.store(x, x + 1.0)


@kernel
def add(x: In[Tile[1, 32, f32]], y: InOut[Tile[1, 32, f32]]):
    pto.store(y, x + y)


def product_of(rows: int):
    """Return a kernel for products of bf16 with sums of f32, in tiles of some rows. A task has one tile."""

    @kernel
    def product(a: In[Tensor[bf16, DYN, DYN]], b: In[Tensor[bf16, DYN, DYN]], c: Out[Tensor[bf16, DYN, DYN]]):
        for r in pto.tiles(c.rows, rows):
            for n in pto.tiles(c.cols, COLS):
                acc = pto.zeros((r.extent, n.extent))
                for k in pto.tiles(b.rows, TERMS):
                    acc = pto.matmul(a[r, k], b[k, n], acc=acc)
                pto.store(c[r, n], pto.cast(acc, bf16))

    return product


large_product, small_product = product_of(LARGE), product_of(SMALL)


@workload
def independent(X: Tensor[f32, "n", 32]):
    for i in P("n"):
        bump[i](x=X[i : i + 1])


@workload
def dependent(X: Tensor[f32, 1, 32], k: DenseDyn):
    for i in P.range(k):
        bump[i](x=X)


@workload
def layer_shaped(X: Tensor[f32, "n", 32], S: Tensor[f32, "n", 32], Y: Tensor[f32, "n", 32]):
    """The graph of attention over tiles: each pair of tiles adds to a row that later tasks read."""
    for i in P("n"):
        bump[i](x=X[i : i + 1])
    for i in P("n"):
        for j in P.range("n"):
            add[i, j](x=X[j : j + 1], y=S[i : i + 1])
    for i in P("n"):
        add[i](x=S[i : i + 1], y=Y[i : i + 1])


@workload
def gemm(A: Tensor[bf16, "m", "k"], B: Tensor[bf16, "k", "n"], C: Tensor[bf16, "m", "n"]):
    for i in P.tiles("m", LARGE):
        for j in P.tiles("n", COLS):
            large_product[i, j](a=A[i], b=B[:, j], c=C[i, j])


@workload
def grouped(X: Tensor[bf16, "pairs", "k"], Expert: Tensor[i32, "pairs"], W: Tensor[bf16, EXPERTS, "k", "n"],
            Y: Tensor[bf16, "pairs", "n"]):  # fmt: skip
    """A product per expert, over the rows that chose it. The run sorts, gathers and scatters rows."""
    routing = group_by(Expert, num_groups=EXPERTS)
    for e in P(EXPERTS):
        for pick in P.tiles(routing[e], SMALL):
            for j in P.tiles("n", COLS):
                rows = routing.rows(pick)
                small_product[e, pick, j](a=X[rows], b=W[e][:, j], c=Y[rows, j])


@kernel
def attend(q: In[Tile[QUERIES, DIM, bf16]], k: In[Tensor[bf16, DYN, DIM]], v: In[Tensor[bf16, DYN, DIM]],
           o: Out[Tile[QUERIES, DIM, bf16]], first: Scalar[i64]):  # fmt: skip
    """Positions from `first` on attend to the keys before them. Their sums stay in registers."""
    n = q.rows
    m, l, acc = pto.full((n, 1), -inf), pto.zeros((n, 1)), pto.zeros((n, DIM))  # noqa: E741
    mine = pto.transpose(pto.iota((1, n), first))
    for r in pto.tiles(min(k.rows, first + n), KEYS):
        s = pto.matmul(q, k[r].T) * (1 / sqrt(DIM))
        s = pto.where(pto.iota((1, r.extent), r.start) <= pto.rowexpand(mine, r.extent), s, -inf)
        m_new = pto.maximum(m, pto.rowmax(s))
        p, scale = pto.exp(s - m_new), pto.exp(m - m_new)
        l, m = l * scale + pto.rowsum(p), m_new  # noqa: E741
        acc = pto.matmul(pto.cast(p, bf16), v[r], acc=acc * scale)
    pto.store(o, pto.cast(acc / l, bf16))


@workload
def prefill(prompts: Ragged["batch"], Q: Tensor[bf16, "tokens", "heads", DIM],
            K: Tensor[bf16, "tokens", "heads", DIM], V: Tensor[bf16, "tokens", "heads", DIM],
            O: Tensor[bf16, "tokens", "heads", DIM]):  # fmt: skip  # noqa: E741
    """Causal attention of prompts of any lengths."""
    for b, h in P("batch", "heads"):
        rows = prompts[b]
        for t in P.tiles(rows, QUERIES):
            attend[b, h, t](q=Q[rows[t], h], k=K[rows, h], v=V[rows, h], o=O[rows[t], h], first=t.start)
