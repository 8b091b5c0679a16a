"""Batched LoRA: requests of one batch share a weight, and each adds the low-rank update of its adapter.

The adapter of a request is an element of an integer tensor, so other requests compile nothing.
"""

import numpy as np

from pto_wsp import In, Out, P, Ragged, Tensor, Tile, f32, i32, kernel, pto, workload


@kernel
def project(x: In[Tile[16, 64, f32]], w: In[Tile[64, 64, f32]], a: In[Tile[64, 8, f32]],
            b: In[Tile[8, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, pto.matmul(pto.matmul(x, a), b, acc=pto.matmul(x, w)))


@workload
def lora(rows: Ragged["batch"], adapter: Tensor[i32, "batch"], X: Tensor[f32, "tokens", 64],
         W: Tensor[f32, 64, 64], A: Tensor[f32, "adapters", 64, 8], B: Tensor[f32, "adapters", 8, 64],
         Y: Tensor[f32, "tokens", 64]):
    for r in P("batch"):
        for t in P.tiles(rows[r], 16):
            tokens = rows[r][t]
            project[r, t](x=X[tokens], w=W, a=A[adapter[r]], b=B[adapter[r]], y=Y[tokens])


rng = np.random.default_rng(0)
lengths, adapter = [40, 1, 17], np.array([2, 0, 2], np.int32)
x, w = rng.standard_normal((58, 64), np.float32), rng.standard_normal((64, 64), np.float32)
a, b = rng.standard_normal((3, 64, 8), np.float32), rng.standard_normal((3, 8, 64), np.float32)
y = np.empty_like(x)
program = lora.compile()
program(rows=Ragged.lengths(lengths), adapter=adapter, X=x, W=w, A=a, B=b, Y=y)

own = np.repeat(adapter, lengths)
expected = x @ w + np.einsum("tk,tkr,trn->tn", x, a[own], b[own], optimize=True)
assert np.allclose(y, expected, rtol=1e-4, atol=1e-3)
