"""Decode loop: requests join and leave, and each owns a slot of the cache.

A step appends a token to each request, then attends to all of its tokens. One program serves all steps.
"""

import numpy as np

from pto_wsp import In, Out, P, Ragged, Tensor, Tile, f32, i32, kernel, pto, workload

SLOTS, MOST = 4, 64


@kernel
def append(token: In[Tile[1, 64, f32]], cache: Out[Tile[1, 64, f32]]):
    pto.store(cache, pto.load(token))


@kernel
def attend(q: In[Tile[1, 64, f32]], k: In[Tile[MOST, 64, f32]], v: In[Tile[MOST, 64, f32]],
           o: Out[Tile[1, 64, f32]]):
    s = pto.matmul(q, k.T) / 8                     # as many columns as the request has tokens
    p = pto.exp(s - pto.rowmax(s))
    pto.store(o, pto.matmul(p, v) / pto.rowsum(p))


@workload
def step(kv: Ragged["batch"], slot: Tensor[i32, "batch"], Q: Tensor[f32, "batch", 64],
         NewK: Tensor[f32, "batch", 64], NewV: Tensor[f32, "batch", 64], K: Tensor[f32, SLOTS, MOST, 64],
         V: Tensor[f32, SLOTS, MOST, 64], O: Tensor[f32, "batch", 64]):
    for b in P("batch"):
        last, one = kv[b].extent - 1, slice(b, b + 1)
        append[b, 0](token=NewK[one], cache=K[slot[b], last : last + 1])
        append[b, 1](token=NewV[one], cache=V[slot[b], last : last + 1])
        attend[b](q=Q[one], k=K[slot[b], kv.local(b)], v=V[slot[b], kv.local(b)], o=O[one])


rng = np.random.default_rng(0)
program = step.compile()
k, v = np.zeros((2, SLOTS, MOST, 64), np.float32)
running: dict[int, int] = {}                                                  # slot -> tokens
for _ in range(30):
    running = {s: n + 1 for s, n in running.items() if rng.random() > 0.1}    # some leave
    if len(running) < SLOTS:                                                  # one joins
        running[min(set(range(SLOTS)) - running.keys())] = 1
    slots, lengths = np.array([*running], np.int32), Ragged.lengths([*running.values()])
    q, new_k, new_v, o = rng.standard_normal((4, len(slots), 64), np.float32)
    program(kv=lengths, slot=slots, Q=q, NewK=new_k, NewV=new_v, K=k, V=v, O=o)
    for b, (s, n) in enumerate(running.items()):
        assert np.array_equal(k[s, n - 1], new_k[b])
        weights = np.exp(k[s, :n] @ q[b] / 8)
        assert np.allclose(o[b], weights @ v[s, :n] / weights.sum(), atol=1e-5)
assert program.stats is not None and program.stats.compiles == 0
