"""Programs whose time on hardware is published.

Annotations are evaluated here, not deferred: those of kernels use the constants of this file.
"""

from math import inf, sqrt

from pto_wsp import DYN, In, Out, P, Tensor, Tile, f16, f32, kernel, pto, workload

ROWS, COLS, INNER = 128, 256, 64
"""Of a tile of the product: rows, columns, and the inner part that is loaded at a time."""

QUERIES, KEYS, DIM = 64, 256, 128
"""Queries of a task of attention, keys of a step, and elements of a head."""


@kernel
def gemm_tile(a: In[Tensor[f16, ROWS, DYN]], b: In[Tensor[f16, DYN, COLS]], c: Out[Tile[ROWS, COLS, f32]]):
    """A tile of the product, over the whole inner dimension."""
    acc = pto.zeros((ROWS, COLS))
    for k in pto.tiles(a.cols, INNER):
        acc = pto.matmul_acc(acc, a[:, k], b[k])
    pto.store(c, acc)


@workload
def gemm(A: Tensor[f16, "m", "k"], B: Tensor[f16, "k", "n"], C: Tensor[f32, "m", "n"]):
    """A @ B."""
    for i in P.tiles("m", ROWS):
        for j in P.tiles("n", COLS):
            gemm_tile[i, j](a=A[i], b=B[:, j], c=C[i, j])


@kernel
def attend(
    q: In[Tile[QUERIES, DIM, f16]],
    k: In[Tensor[f16, DYN, DIM]],
    v: In[Tensor[f16, DYN, DIM]],
    o: Out[Tile[QUERIES, DIM, f32]],
):
    """Flash attention of some queries over all keys."""
    m, l, acc = pto.full((QUERIES, 1), -inf), pto.zeros((QUERIES, 1)), pto.zeros((QUERIES, DIM))  # noqa: E741
    for r in pto.tiles(k.rows, KEYS):
        s = pto.matmul(q, k[r].T) * (1 / sqrt(DIM))
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        l = l * alpha + pto.rowsum(p)  # noqa: E741
        acc = acc * alpha + pto.matmul(pto.cast(p, f16), v[r])
        m = m_new
    pto.store(o, acc / l)


@workload
def flash(
    Q: Tensor[f16, "tokens", DIM], K: Tensor[f16, "tokens", DIM], V: Tensor[f16, "tokens", DIM],
    O: Tensor[f32, "tokens", DIM],  # noqa: E741
):  # fmt: skip
    """Attention of one head, not causal."""
    for r in P.tiles("tokens", QUERIES):
        attend[r](q=Q[r], k=K, v=V, o=O[r])
