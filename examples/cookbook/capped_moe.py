"""Capped mixture of experts: an expert takes at most 20 tokens, the others keep their input.

Positions of a row of `group_by` ascend, so the first 20 tokens of an expert are taken.
"""

import numpy as np

from pto_wsp import In, Out, P, Tensor, Tile, f32, group_by, i32, kernel, pto, workload

CAPACITY = 20


@kernel
def route(x: In[Tile[16, 64, f32]], w: In[Tile[64, 4, f32]], expert: Out[Tile[16, 1, i32]],
          y: Out[Tile[16, 64, f32]]):
    pto.store(expert, pto.rowargmax(pto.matmul(x, w)))
    pto.store(y, pto.load(x))


@kernel
def multiply(x: In[Tile[8, 64, f32]], w: In[Tile[64, 64, f32]], y: Out[Tile[8, 64, f32]]):
    pto.store(y, pto.relu(pto.matmul(x, w)))


@workload
def capped(X: Tensor[f32, "tokens", 64], Router: Tensor[f32, 64, 4], W: Tensor[f32, 4, 64, 64],
           Expert: Tensor[i32, "tokens", 1], Y: Tensor[f32, "tokens", 64]):
    for t in P.tiles("tokens", 16):
        route[t](x=X[t], w=Router, expert=Expert[t], y=Y[t])
    routing = group_by(Expert[:, 0], num_groups=4)
    for e in P(4):
        taken = routing[e][: routing[e].extent.min(CAPACITY)]
        for pick in P.tiles(taken, 8):
            rows = routing.rows(pick)
            multiply[e, pick](x=X[rows], w=W[e], y=Y[rows])


rng = np.random.default_rng(0)
x, router, w = (rng.standard_normal(s, np.float32) for s in ((100, 64), (64, 4), (4, 64, 64)))
y = np.empty_like(x)
program = capped.compile()
program(X=x, Router=router, W=w, Expert=np.empty((100, 1), np.int32), Y=y)

expected, expert = x.copy(), (x @ router).argmax(axis=1)
for e in range(4):
    taken = np.flatnonzero(expert == e)[:CAPACITY]
    expected[taken] = np.maximum(x[taken] @ w[e], 0)
assert np.allclose(y, expected, atol=1e-4)
assert np.bincount(expert).max() > CAPACITY
