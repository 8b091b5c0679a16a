"""Decode attention with a sliding window and ALiBi: a bias that falls with the distance.

A task is one head of one request. The window begins inside a row, and the kernel reads only the window.
"""

from math import inf, sqrt
from typing import Any

import numpy as np

from pto_wsp import DYN, Dense, In, Out, P, Ragged, Tensor, Tile, f32, kernel, pto, workload

WINDOW, HEADS = 48, 4


@kernel
def attend(q: In[Tile[1, 64, f32]], k: In[Tensor[f32, DYN, 64]], v: In[Tensor[f32, DYN, 64]],
           slope: In[Tile[1, 1, f32]], o: Out[Tile[1, 64, f32]]):
    m, l, acc = pto.full((1, 1), -inf), pto.zeros((1, 1)), pto.zeros((1, 64))
    for r in pto.tiles(k.rows, 32):
        distance = pto.cast(pto.iota((1, r.extent), r.start - k.rows + 1), f32)    # ..., -1, 0
        s = pto.matmul(q, k[r].T) * (1 / sqrt(64)) + distance * slope
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        l, acc, m = l * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / l)


@workload
def decode(kv: Ragged["batch"], Q: Tensor[f32, "batch", HEADS, 1, 64], K: Tensor[f32, "tokens", HEADS, 64],
           V: Tensor[f32, "tokens", HEADS, 64], Slope: Tensor[f32, HEADS, 1, 1],
           O: Tensor[f32, "batch", HEADS, 1, 64]):
    for b, h in P("batch", Dense[HEADS]):
        n = kv[b].extent
        recent = kv[b][(n - WINDOW).max(0) : n]
        attend[b, h](q=Q[b, h], k=K[recent, h], v=V[recent, h], slope=Slope[h], o=O[b, h])


rng = np.random.default_rng(0)
lengths = [100, 7, 48]
q = rng.standard_normal((3, HEADS, 1, 64), np.float32)
k, v = rng.standard_normal((2, sum(lengths), HEADS, 64), np.float32)
slope = (2.0 ** -np.arange(1, HEADS + 1, dtype=np.float32)).reshape(HEADS, 1, 1)
o = np.empty_like(q)
arguments: dict[str, Any] = dict(kv=Ragged.lengths(lengths), Q=q, K=k, V=v, Slope=slope, O=o)
program = decode.compile()
program(**arguments)

for b, stop in enumerate(np.cumsum(lengths)):
    rows = slice(max(stop - WINDOW, stop - lengths[b]), stop)
    distance = np.arange(rows.start - stop + 1, 1)
    scores = q[b] @ k[rows].transpose(1, 2, 0) / 8 + slope * distance
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = weights / weights.sum(axis=2, keepdims=True) @ v[rows].swapaxes(0, 1)
    assert np.allclose(o[b], expected, atol=1e-5)
