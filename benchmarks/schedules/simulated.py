"""Gains of directives in simulated time, on the workload that specification 001 claims them for.

64 requests, lengths lognormal(ln 1500, 1.2) clipped to 128 .. 16,384; 32 query and 8 key heads of 128; one
task per query head and stage; kernels by tiers of 2K, 8K and 64K. No kernel is called.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import Row
from pto_wsp import (
    DYN,
    In,
    Out,
    P,
    Program,
    Ragged,
    Schedule,
    Tensor,
    Tile,
    combine,
    f32,
    kernel,
    pto,
    sequential,
    stage,
    tier,
    workload,
)

DEVICE = "ascend_910b_seed"
REQUESTS, HEADS, KEY_HEADS, DIM = 64, 32, 8, 128
STEP = 64
"""Keys that a task holds at a time."""

TIERS = {"2k": 2048, "8k": 8192, "64k": 65536}


def _index_kernel(tier_name: str) -> Any:
    @kernel(name=f"index_{tier_name}")
    def index(
        q: In[Tile[1, DIM, f32]], k: In[Tensor[f32, DYN, DIM]], s: Out[Tile[1, DIM, f32]]
    ):  # a vector core sums keys up
        total = pto.zeros((1, DIM))
        for r in pto.tiles(k.rows, STEP):
            total = total + pto.colsum(pto.load(k[r]) * pto.load(q))
        pto.store(s, total)

    return index


def _attend_kernel(tier_name: str) -> Any:
    @kernel(name=f"attend_{tier_name}")
    def attend(
        s: In[Tile[1, DIM, f32]], k: In[Tensor[f32, DYN, DIM]], v: In[Tensor[f32, DYN, DIM]],
        o: Out[Tile[1, DIM, f32]],
    ):  # fmt: skip
        total = pto.zeros((1, DIM))
        for r in pto.tiles(k.rows, STEP):
            weights = pto.exp(pto.rowsum(pto.load(k[r]) * pto.load(s)))
            total = total + pto.colsum(pto.load(v[r]) * weights)
        pto.store(o, total)

    return attend


_INDEX = {name: _index_kernel(name) for name in TIERS}
_ATTEND = {name: _attend_kernel(name) for name in TIERS}
_index = tier("index", *((_INDEX[name], most) for name, most in TIERS.items()))
_attend = tier("attend", *((_ATTEND[name], most) for name, most in TIERS.items()))


@workload
def index_graph(
    kv: Ragged["batch"],
    Q: Tensor[f32, "batch", HEADS, 1, DIM],
    K: Tensor[f32, KEY_HEADS, "tokens", DIM],
    S: Tensor[f32, "batch", HEADS, 1, DIM],
):
    """Index, a task per query head."""
    for b in P("batch"):
        for h in P(HEADS):
            keys = K[h // (HEADS // KEY_HEADS), kv[b]]
            _index.at(kv[b].extent)[b, h](q=Q[b, h], k=keys, s=S[b, h])


@workload
def attend_graph(
    kv: Ragged["batch"],
    K: Tensor[f32, KEY_HEADS, "tokens", DIM],
    V: Tensor[f32, KEY_HEADS, "tokens", DIM],
    S: Tensor[f32, "batch", HEADS, 1, DIM],
    O: Tensor[f32, "batch", HEADS, 1, DIM],  # noqa: E741
):
    """Attend, a task per query head."""
    for b in P("batch"):
        for h in P(HEADS):
            g = h // (HEADS // KEY_HEADS)
            _attend.at(kv[b].extent)[b, h](s=S[b, h], k=K[g, kv[b]], v=V[g, kv[b]], o=O[b, h])


def lengths(seed: int = 0) -> np.ndarray:
    """Return the lengths of the requests."""
    drawn = np.random.default_rng(seed).lognormal(np.log(1500), 1.2, REQUESTS)
    return np.clip(drawn, 128, 16384).astype(np.int64)


def time_us(program: Program, schedule: Schedule, arguments: dict[str, Any]) -> float:
    """Return the simulated time of a run."""
    program.reschedule(schedule)
    program.run(**arguments)
    assert program.stats is not None
    return program.stats.time_us


def rows() -> list[Row]:
    """Return the rows."""
    counts = lengths()
    heads = np.empty((REQUESTS, HEADS, 1, DIM), np.float32)
    keys = np.empty((KEY_HEADS, int(counts.sum()), DIM), np.float32)  # touched by no kernel
    arguments = {"kv": Ragged.lengths(counts), "Q": heads, "K": keys, "V": np.empty_like(keys)}
    arguments |= {"S": np.empty_like(heads), "O": np.empty_like(heads)}
    both = combine(index_graph, attend_graph).compile("sim", device=DEVICE, values=False)
    apart = sequential(index_graph, attend_graph).compile("sim", device=DEVICE, values=False)
    stages = stage(*_INDEX.values(), cores=1), stage(*_ATTEND.values(), cores=2)
    batch_local = Schedule().order_by(lambda t: t.b, lambda t: t.kernel)
    default = time_us(both, Schedule(), arguments)
    task_major = time_us(both, Schedule().order_by(lambda t: t.kernel, lambda t: t.b), arguments)
    gains = {
        "locality_sim_gain": task_major / time_us(both, batch_local, arguments),
        "pipeline_sim_gain": default / time_us(both, Schedule().pipeline(*stages), arguments),
        "overlap_sim_gain": time_us(apart, Schedule(), arguments) / default,
    }
    return [Row(name, gain, "x") for name, gain in gains.items()]
