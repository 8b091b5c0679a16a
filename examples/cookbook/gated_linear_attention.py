"""Gated linear attention of packed sequences: chunks of 16 tokens in order, with a state per sequence.

S[t] = exp(g[t]) S[t - 1] + k[t]^T v[t] and o[t] = q[t] S[t]. Inside a chunk the sum is a product.
"""

import numpy as np

from pto_wsp import In, InOut, Out, P, Ragged, Tensor, Tile, f32, kernel, pto, workload


@kernel
def chunk(q: In[Tile[16, 32, f32]], k: In[Tile[16, 32, f32]], v: In[Tile[16, 32, f32]],
          g: In[Tile[16, 1, f32]], triangle: In[Tile[16, 16, f32]], s: InOut[Tile[32, 32, f32]],
          o: Out[Tile[16, 32, f32]]):
    ones = pto.extract(triangle, (q.rows, q.rows))
    decay = pto.matmul(ones, g)                                       # sum of the gates up to each token
    total = pto.colmin(decay)                                         # gates are <= 0: the last sum
    ratio = pto.exp(pto.minimum(pto.rowexpand(decay, q.rows) - pto.transpose(decay), 0.0))
    inside = pto.matmul(q, k.T) * ratio * ones                        # earlier tokens of the chunk
    state = pto.load(s)
    pto.store(o, pto.matmul(inside, v, acc=pto.matmul(q * pto.exp(decay), state)))
    pto.store(s, pto.matmul(pto.transpose(k * pto.exp(total - decay)), v, acc=state * pto.exp(total)))


@workload
def scan(rows: Ragged["batch"], Q: Tensor[f32, "tokens", 32], K: Tensor[f32, "tokens", 32],
         V: Tensor[f32, "tokens", 32], G: Tensor[f32, "tokens", 1], Triangle: Tensor[f32, 16, 16],
         S: Tensor[f32, "batch", 32, 32], O: Tensor[f32, "tokens", 32]):
    for b in P("batch"):
        for t in P.tiles(rows[b], 16, order="range"):                 # clipped and in program order
            r = rows[b][t]
            chunk[b, t](q=Q[r], k=K[r], v=V[r], g=G[r], triangle=Triangle, s=S[b], o=O[r])


rng = np.random.default_rng(0)
lengths = [70, 0, 5, 33]
q, k, v = rng.standard_normal((3, sum(lengths), 32), np.float32)
g = np.log(rng.uniform(0.7, 1, (sum(lengths), 1))).astype(np.float32)
s, o, triangle = np.zeros((4, 32, 32), np.float32), np.empty_like(q), np.tri(16, dtype=np.float32)
program = scan.compile()
program(rows=Ragged.lengths(lengths), Q=q, K=k, V=v, G=g, Triangle=triangle, S=s, O=o)

for b, stop in enumerate(np.cumsum(lengths)):
    state = np.zeros((32, 32))
    for t in range(stop - lengths[b], stop):
        state = np.exp(g[t]) * state + np.outer(k[t], v[t])
        assert np.allclose(o[t], q[t] @ state, atol=1e-4)
    assert np.allclose(s[b], state, atol=1e-4)
