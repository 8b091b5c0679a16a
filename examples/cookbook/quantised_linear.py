"""Quantised linear layer: columns of the weight are stored as integers with one scale each.

A task multiplies 32 rows with a panel of 64 columns. Weights are widened as they are read.
"""

import numpy as np

from pto_wsp import In, MemLayout, Out, P, Tensor, Tile, f32, i8, kernel, pto, workload

K, N, COLS = 256, 200, 64


@kernel
def multiply(x: In[Tile[32, K, f32]], w: In[Tile[K, COLS, i8]], scale: In[Tile[1, COLS, f32]],
             y: Out[Tile[32, COLS, f32]]):
    acc = pto.zeros((x.rows, w.cols))
    for k in pto.tiles(K, 64):
        acc = pto.matmul(x[:, k], pto.cast(w[k], f32), acc=acc)
    pto.store(y, acc * scale)


@workload
def linear(X: Tensor[f32, "n", K], W: Tensor[i8, K, N, MemLayout.panels(COLS)], Scale: Tensor[f32, 1, N],
           Y: Tensor[f32, "n", N]):
    for rows in P.tiles("n", 32):
        for columns in P.tiles(N, COLS):
            multiply[rows, columns](x=X[rows], w=W[:, columns], scale=Scale[:, columns], y=Y[rows, columns])


rng = np.random.default_rng(0)
x, weight = rng.standard_normal((50, K), np.float32), rng.standard_normal((K, N), np.float32)
scale = np.abs(weight).max(axis=0, keepdims=True) / 127
packed = MemLayout.panels(COLS).pack(np.rint(weight / scale).astype(np.int8))    # once
y = np.empty((50, N), np.float32)
program = linear.compile()
program(X=x, W=packed, Scale=scale, Y=y)

assert np.allclose(y, x @ (np.rint(weight / scale) * scale), atol=1e-3)
assert np.abs(y - x @ weight).max() < 1.0    # what 8 bits lose
