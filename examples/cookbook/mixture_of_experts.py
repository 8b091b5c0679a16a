"""Mixture of experts: top-1 of 4, and the run decides which expert multiplies which token.

`group_by` sorts the tokens by expert inside the run. An expert without tokens has no tasks.
"""

import numpy as np

from pto_wsp import In, Out, P, Tensor, Tile, f32, group_by, i32, kernel, pto, workload


@kernel
def route(x: In[Tile[16, 64, f32]], w: In[Tile[64, 4, f32]], expert: Out[Tile[16, 1, i32]]):
    pto.store(expert, pto.rowargmax(pto.matmul(x, w)))


@kernel
def multiply(x: In[Tile[16, 64, f32]], w: In[Tile[64, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, pto.relu(pto.matmul(x, w)))


@workload
def moe(X: Tensor[f32, "tokens", 64], Router: Tensor[f32, 64, 4], W: Tensor[f32, 4, 64, 64],
        Expert: Tensor[i32, "tokens", 1], Y: Tensor[f32, "tokens", 64]):
    for t in P.tiles("tokens", 16):
        route[t](x=X[t], w=Router, expert=Expert[t])
    routing = group_by(Expert[:, 0], num_groups=4)
    for e in P(4):
        for pick in P.tiles(routing[e], 16):
            rows = routing.rows(pick)                      # the load gathers, the store scatters
            multiply[e, pick](x=X[rows], w=W[e], y=Y[rows])


rng = np.random.default_rng(0)
x, router, w = (rng.standard_normal(s, np.float32) for s in ((50, 64), (64, 4), (4, 64, 64)))
expert, y = np.empty((50, 1), np.int32), np.empty_like(x)
program = moe.compile()
program(X=x, Router=router, W=w, Expert=expert, Y=y)

assert np.array_equal(expert[:, 0], (x @ router).argmax(axis=1))
assert np.allclose(y, np.maximum(np.einsum("tk,tkn->tn", x, w[expert[:, 0]]), 0), atol=1e-4)
