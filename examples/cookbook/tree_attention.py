"""Tree attention: drafted tokens attend to the context and to their ancestors.

A draft is a tree. `ancestors[b, i, j]` is 1 if token j is token i or one of its ancestors.
"""

from math import inf

import numpy as np

from pto_wsp import DYN, In, Out, P, Ragged, Tensor, Tile, f32, i32, kernel, pto, workload


@kernel
def verify(q: In[Tile[8, 64, f32]], k: In[Tensor[f32, DYN, 64]], v: In[Tensor[f32, DYN, 64]],
           dk: In[Tile[8, 64, f32]], dv: In[Tile[8, 64, f32]], tree: In[Tile[8, 8, i32]],
           o: Out[Tile[8, 64, f32]]):
    s = pto.where(tree > 0, pto.matmul(q, dk.T) / 8, -inf)    # the draft itself
    m = pto.rowmax(s)
    p = pto.exp(s - m)
    l, acc = pto.rowsum(p), pto.matmul(p, dv)
    for r in pto.tiles(k.rows, 32):                                        # the context
        s = pto.matmul(q, k[r].T) / 8
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        l, acc, m = l * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / l)


@workload
def verify_drafts(kv: Ragged["batch"], K: Tensor[f32, "tokens", 64], V: Tensor[f32, "tokens", 64],
                  Q: Tensor[f32, "batch", 8, 64], DK: Tensor[f32, "batch", 8, 64],
                  DV: Tensor[f32, "batch", 8, 64], ancestors: Tensor[i32, "batch", 8, 8],
                  O: Tensor[f32, "batch", 8, 64]):
    for b in P("batch"):
        verify[b](q=Q[b], k=K[kv[b]], v=V[kv[b]], dk=DK[b], dv=DV[b], tree=ancestors[b], o=O[b])


rng = np.random.default_rng(0)
lengths, parent = [100, 0, 37], [-1, 0, 0, 1, 1, 2, 3, 3]
tree = np.eye(8, dtype=np.int32)
for i, up in enumerate(parent):
    tree[i] |= tree[up] if up >= 0 else 0
q, dk, dv, o = rng.standard_normal((4, 3, 8, 64), np.float32)
k, v = rng.standard_normal((2, sum(lengths), 64), np.float32)
program = verify_drafts.compile()
program(kv=Ragged.lengths(lengths), K=k, V=v, Q=q, DK=dk, DV=dv, ancestors=np.stack([tree] * 3), O=o)

for b, stop in enumerate(np.cumsum(lengths)):
    rows = slice(stop - lengths[b], stop)
    context, draft = np.exp(q[b] @ k[rows].T / 8), np.exp(q[b] @ dk[b].T / 8) * tree
    total = context.sum(axis=1, keepdims=True) + draft.sum(axis=1, keepdims=True)
    assert np.allclose(o[b], (context @ v[rows] + draft @ dv[b]) / total, atol=1e-5)
