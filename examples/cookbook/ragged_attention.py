"""Ragged attention: causal attention of packed sequences, without padding.

A task attends 16 positions of one sequence to the positions before them. Keys are read 32 at a time.
"""

from math import inf

import numpy as np

from pto_wsp import DYN, In, Out, P, Ragged, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload


@kernel
def attend(q: In[Tile[16, 64, f32]], k: In[Tensor[f32, DYN, 64]], v: In[Tensor[f32, DYN, 64]],
           o: Out[Tile[16, 64, f32]], first: Scalar[i64]):
    n = q.rows                                           # the last tile may have fewer than 16
    m, l, acc = pto.full((n, 1), -inf), pto.zeros((n, 1)), pto.zeros((n, 64))
    mine = pto.transpose(pto.iota((1, n), first))      # positions of the queries
    for r in pto.tiles(min(k.rows, first + n), 32):      # later keys are not read
        s = pto.matmul(q, k[r].T) / 8
        s = pto.where(pto.iota((1, r.extent), r.start) <= pto.rowexpand(mine, r.extent), s, -inf)
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        l, acc, m = l * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / l)


@workload
def causal(rows: Ragged["batch"], Q: Tensor[f32, "tokens", 64], K: Tensor[f32, "tokens", 64],
           V: Tensor[f32, "tokens", 64], O: Tensor[f32, "tokens", 64]):
    for b in P("batch"):
        for t in P.tiles(rows[b], 16):
            attend[b, t](q=Q[rows[b][t]], k=K[rows[b]], v=V[rows[b]], o=O[rows[b][t]], first=t.start)


lengths = [70, 5, 0, 33]
q, k, v, o = np.random.default_rng(0).standard_normal((4, sum(lengths), 64), np.float32)
program = causal.compile()
program(rows=Ragged.lengths(lengths), Q=q, K=k, V=v, O=o)

for rows in np.split(np.arange(len(q)), np.cumsum(lengths)):
    weights = np.exp(q[rows] @ k[rows].T / 8) * np.tri(len(rows))
    assert np.allclose(o[rows], weights @ v[rows] / weights.sum(axis=1, keepdims=True), atol=1e-5)
