"""Decode attention with a sliding window and ALiBi: a bias that falls with the distance.

A task is one head of one request. The window begins inside a row, and the kernel reads only the window.
"""

import numpy as np

from pto_wsp import Dense, In, Out, P, Ragged, Tensor, Tile, f32, kernel, pto, workload

WINDOW, HEADS = 48, 4


@kernel
def attend(q: In[Tile[1, 64, f32]], k: In[Tile[WINDOW, 64, f32]], v: In[Tile[WINDOW, 64, f32]],
           slope: In[Tile[1, 1, f32]], o: Out[Tile[1, 64, f32]]):
    distance = pto.cast(pto.iota((1, k.rows), 1 - k.rows), f32)        # ..., -2, -1, 0
    s = pto.matmul(q, k.T) / 8 + distance * slope
    p = pto.exp(s - pto.rowmax(s))
    pto.store(o, pto.matmul(p, v) / pto.rowsum(p))


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
program = decode.compile()
program(kv=Ragged.lengths(lengths), Q=q, K=k, V=v, Slope=slope, O=o)

for b, stop in enumerate(np.cumsum(lengths)):
    rows = slice(max(stop - WINDOW, stop - lengths[b]), stop)
    distance = np.arange(rows.start - stop + 1, 1)
    weights = np.exp(q[b] @ k[rows].transpose(1, 2, 0) / 8 + slope * distance)
    weights /= weights.sum(axis=2, keepdims=True)
    assert np.allclose(o[b], weights @ v[rows].swapaxes(0, 1), atol=1e-5)
