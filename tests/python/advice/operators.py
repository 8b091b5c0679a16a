"""Eight operators as a user writes them from the documentation alone, at sizes of some milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from math import exp2, inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import (
    DYN,
    In,
    InOut,
    MemLayout,
    Out,
    P,
    Ragged,
    Scalar,
    Tensor,
    Tile,
    f32,
    i8,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.lang.workload.workload import Workload

Values = dict[str, Any]
RNG = np.random.default_rng(7)


class Operator(NamedTuple):
    """A workload, and the arguments of a run."""

    workload: Workload
    arguments: Callable[[], Values]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# --- batched LoRA: every request has an adapter of its own ---


@kernel
def lora_down(x: In[Tensor[f32, DYN, 1024]], a: In[Tensor[f32, 1024, 16]], t: Out[Tensor[f32, DYN, 16]]):
    for r in pto.tiles(x.rows, 32):
        acc = pto.zeros((r.extent, 16))
        for k in pto.tiles(1024, 256):
            acc = pto.matmul(x[r, k], a[k], acc=acc)
        pto.store(t[r], acc)


@kernel
def lora_up(t: In[Tensor[f32, DYN, 16]], b: In[Tensor[f32, 16, 1024]], y: InOut[Tensor[f32, DYN, 1024]]):
    for r in pto.tiles(y.rows, 32):
        for c in pto.tiles(1024, 256):
            pto.store(y[r, c], y[r, c] + pto.matmul(t[r], b[:, c]))


@workload
def lora(
    rows: Ragged["batch"],
    Adapter: Tensor[i32, "batch"],
    X: Tensor[f32, "tokens", 1024],
    A: Tensor[f32, "adapters", 1024, 16],
    B: Tensor[f32, "adapters", 16, 1024],
    T: Tensor[f32, "tokens", 16],
    Y: Tensor[f32, "tokens", 1024],
):
    for r in P("batch"):
        lora_down[r](x=X[rows[r]], a=A[Adapter[r]], t=T[rows[r]])
        lora_up[r](t=T[rows[r]], b=B[Adapter[r]], y=Y[rows[r]])


def lora_arguments() -> Values:
    lengths = RNG.integers(8, 32, 64)
    n = int(lengths.sum())
    return dict(
        rows=Ragged.lengths(lengths.tolist()),
        Adapter=RNG.integers(0, 8, 64).astype(np.int32),
        X=normal(n, 1024),
        A=normal(8, 1024, 16),
        B=normal(8, 16, 1024),
        T=np.zeros((n, 16), np.float32),
        Y=normal(n, 1024),
    )


# --- decode attention over the last tokens, with ALiBi ---


@kernel
def windowed(
    q: In[Tile[4, 64, f32]],
    k: In[Tensor[f32, DYN, 64]],
    v: In[Tensor[f32, DYN, 64]],
    slope: Scalar[f32],
    o: Out[Tile[4, 64, f32]],
):
    m, z, acc = pto.full((4, 1), -inf), pto.zeros((4, 1)), pto.zeros((4, 64))
    for r in pto.tiles(k.rows, 64):
        s = pto.matmul(q, k[r].T) * (1 / sqrt(64))
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        z, acc, m = z * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / z * slope)


@workload
def alibi(
    Length: Tensor[i64, "batch"],
    Q: Tensor[f32, "batch", 4, 4, 64],
    K: Tensor[f32, "batch", "most", 4, 64],
    V: Tensor[f32, "batch", "most", 4, 64],
    O: Tensor[f32, "batch", 4, 4, 64],  # noqa: E741
):
    for b in P("batch"):
        for h in P(4):
            n = Length[b]
            first = (n - 512).max(0)
            windowed[b, h](
                q=Q[b, h], k=K[b, first:n, h], v=V[b, first:n, h], slope=float(exp2(-2)), o=O[b, h]
            )


def alibi_arguments() -> Values:
    return dict(
        Length=RNG.integers(300, 900, 24),
        Q=normal(24, 4, 4, 64),
        K=normal(24, 900, 4, 64),
        V=normal(24, 900, 4, 64),
        O=np.zeros((24, 4, 4, 64), np.float32),
    )


# --- gated linear attention: a state per head, chunk after chunk ---


@kernel
def chunk(
    q: In[Tile[64, 64, f32]],
    k: In[Tile[64, 64, f32]],
    v: In[Tile[64, 64, f32]],
    g: In[Tile[64, 64, f32]],
    state: InOut[Tile[64, 64, f32]],
    y: Out[Tile[64, 64, f32]],
):
    gate = pto.exp(g * -0.01)
    inside = pto.matmul(pto.matmul(q, pto.load(k).T), pto.load(v) * gate)
    pto.store(y, inside + pto.matmul(q, state))
    pto.store(state, state * 0.9 + pto.matmul(pto.load(k).T, pto.load(v) * gate))


@workload
def gated(
    Q: Tensor[f32, 8, "n", 64],
    K: Tensor[f32, 8, "n", 64],
    V: Tensor[f32, 8, "n", 64],
    G: Tensor[f32, 8, "n", 64],
    S: Tensor[f32, 8, 64, 64],
    Y: Tensor[f32, 8, "n", 64],
    chunks: Scalar[i64],
):
    for h in P(8):
        for c in P.seq(chunks):
            rows = slice(64 * c, 64 * c + 64)
            chunk[h, c](q=Q[h, rows], k=K[h, rows], v=V[h, rows], g=G[h, rows], state=S[h], y=Y[h, rows])


def gated_arguments() -> Values:
    n = 2048
    return dict(
        **{name: normal(8, n, 64) for name in "QKVG"},
        S=np.zeros((8, 64, 64), np.float32),
        Y=np.zeros((8, n, 64), np.float32),
        chunks=n // 64,
    )


# --- attention of a tree of draft tokens over a shared prefix ---


@kernel
def tree_node(
    q: In[Tile[16, 64, f32]],
    k: In[Tensor[f32, DYN, 64]],
    v: In[Tensor[f32, DYN, 64]],
    mask: In[Tile[16, 16, f32]],
    own_k: In[Tile[16, 64, f32]],
    own_v: In[Tile[16, 64, f32]],
    o: Out[Tile[16, 64, f32]],
):
    s = pto.matmul(q, pto.load(own_k).T) * (1 / sqrt(64)) + mask
    m = pto.rowmax(s)
    p = pto.exp(s - m)
    z, acc = pto.rowsum(p), pto.matmul(p, own_v)
    for r in pto.tiles(k.rows, 64):
        s = pto.matmul(q, k[r].T) * (1 / sqrt(64))
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        z, acc, m = z * alpha + pto.rowsum(p), acc * alpha + pto.matmul(p, v[r]), m_new
    pto.store(o, acc / z)


@workload
def tree(
    prefix: Ragged["batch"],
    Q: Tensor[f32, "batch", 8, 16, 64],
    K: Tensor[f32, "tokens", 8, 64],
    V: Tensor[f32, "tokens", 8, 64],
    Mask: Tensor[f32, 16, 16],
    OwnK: Tensor[f32, "batch", 8, 16, 64],
    OwnV: Tensor[f32, "batch", 8, 16, 64],
    O: Tensor[f32, "batch", 8, 16, 64],  # noqa: E741
):
    for b, h in P("batch", 8):
        tree_node[b, h](
            q=Q[b, h],
            k=K[prefix[b], h],
            v=V[prefix[b], h],
            mask=Mask,
            own_k=OwnK[b, h],
            own_v=OwnV[b, h],
            o=O[b, h],
        )


def tree_arguments() -> Values:
    lengths = RNG.integers(200, 700, 12)
    n = int(lengths.sum())
    return dict(
        prefix=Ragged.lengths(lengths.tolist()),
        Q=normal(12, 8, 16, 64),
        K=normal(n, 8, 64),
        V=normal(n, 8, 64),
        Mask=np.triu(np.full((16, 16), -100, np.float32), 1),
        OwnK=normal(12, 8, 16, 64),
        OwnV=normal(12, 8, 16, 64),
        O=np.zeros((12, 8, 16, 64), np.float32),
    )


# --- top-p: the threshold that keeps a share of the probability, by bisection ---


@kernel
def nucleus(logits: In[Tensor[f32, 1, DYN]], p: Scalar[f32], y: Out[Tensor[f32, 1, DYN]]):
    m = pto.full((1, 1), -inf)
    for c in pto.tiles(logits.cols, 1024):
        m = pto.maximum(m, pto.rowmax(logits[:, c]))
    total = pto.zeros((1, 1))
    for c in pto.tiles(logits.cols, 1024):
        total = total + pto.rowsum(pto.exp(logits[:, c] - m))
    low, high = pto.zeros((1, 1)), pto.full((1, 1), 1.0)
    for _ in range(12):
        middle = (low + high) * 0.5
        kept = pto.zeros((1, 1))
        for c in pto.tiles(logits.cols, 1024):
            share = pto.exp(logits[:, c] - m)
            kept = kept + pto.rowsum(pto.where(share >= middle, share, 0.0))
        enough = kept >= total * p
        low, high = pto.where(enough, middle, low), pto.where(enough, high, middle)
    for c in pto.tiles(logits.cols, 1024):
        share = pto.exp(logits[:, c] - m)
        pto.store(y[:, c], pto.where(share >= low, share, 0.0))


@workload
def top_p(L: Tensor[f32, "batch", "vocab"], Y: Tensor[f32, "batch", "vocab"], p: Scalar[f32]):
    for b in P("batch"):
        nucleus[b](logits=L[b : b + 1], p=p, y=Y[b : b + 1])


def top_p_arguments() -> Values:
    return dict(L=normal(16, 32_000), Y=np.zeros((16, 32_000), np.float32), p=0.9)


# --- int8 weights with a scale per column, packed ---

PANELS = MemLayout.panels(64)


@kernel
def quantised(
    x: In[Tensor[f32, DYN, 1024]],
    w: In[Tensor[i8, 1024, 64]],
    s: In[Tile[1, 64, f32]],
    y: Out[Tile[32, 64, f32]],
):
    for r in pto.tiles(x.rows, 32):
        acc = pto.zeros((r.extent, 64))
        for k in pto.tiles(1024, 256):
            acc = pto.matmul(x[r, k], pto.cast(w[k], f32), acc=acc)
        pto.store(y[r], acc * s)


@workload
def int8_linear(
    X: Tensor[f32, "n", 1024],
    W: Tensor[i8, 1024, 1024, PANELS],
    S: Tensor[f32, 1, 1024],
    Y: Tensor[f32, "n", 1024],
):
    for r in P.tiles("n", 32):
        for c in P.tiles(1024, 64):
            quantised[r, c](x=X[r], w=W[:, c], s=S[:, c], y=Y[r, c])


def int8_arguments() -> Values:
    w = RNG.integers(-127, 127, (1024, 1024)).astype(np.int8)
    return dict(X=normal(96, 1024), W=PANELS.pack(w), S=normal(1, 1024), Y=np.zeros((96, 1024), np.float32))


# --- mixture of experts: tokens of an expert beyond its capacity are dropped ---


@kernel
def expert(
    x: In[Tensor[f32, DYN, 256]], w1: In[Tile[256, 256, f32]], w2: In[Tile[256, 256, f32]],
    y: Out[Tile[32, 256, f32]],
):  # fmt: skip
    for r in pto.tiles(x.rows, 32):
        pto.store(y[r], pto.matmul(pto.maximum(pto.matmul(x[r], w1), 0.0), w2))


@workload
def capped_moe(
    Start: Tensor[i64, "experts"],
    Count: Tensor[i64, "experts"],
    X: Tensor[f32, "tokens", 256],
    W1: Tensor[f32, "experts", 256, 256],
    W2: Tensor[f32, "experts", 256, 256],
    Y: Tensor[f32, "tokens", 256],
    capacity: Scalar[i64],
):
    for e in P("experts"):
        n = Count[e].min(capacity)
        for t in P((n + 31) // 32):
            first = Start[e] + 32 * t
            rows = slice(first, first + (n - 32 * t).min(32))
            expert[e, t](x=X[rows], w1=W1[e], w2=W2[e], y=Y[rows])


def moe_arguments() -> Values:
    count = RNG.integers(20, 120, 16)
    start = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64)
    n = int(count.sum())
    return dict(
        Start=start,
        Count=count,
        X=normal(n, 256),
        W1=normal(16, 256, 256),
        W2=normal(16, 256, 256),
        Y=np.zeros((n, 256), np.float32),
        capacity=64,
    )


# --- decode loop: every step makes the next token's state of all requests ---


@kernel
def mix(x: In[Tile[8, 512, f32]], w: In[Tensor[f32, 512, 64]], y: Out[Tile[8, 64, f32]]):
    acc = pto.zeros((8, 64))
    for k in pto.tiles(512, 256):
        acc = pto.matmul(x[:, k], w[k], acc=acc)
    pto.store(y, pto.tanh(acc))


@workload
def decode_loop(
    X: Tensor[f32, "batch", 8, 512],
    W: Tensor[f32, 512, 512, PANELS],
    Y: Tensor[f32, "batch", 8, 512],
    steps: Scalar[i64],
):
    for s in P.seq(steps):
        for b in P("batch"):
            for c in P.tiles(512, 64):
                mix[s, b, c](x=X[b], w=W[:, c], y=Y[b, :, c])
        for b in P("batch"):
            for c in P.tiles(512, 64):
                mix[s, b, c](x=Y[b], w=W[:, c], y=X[b, :, c])


def decode_arguments() -> Values:
    w = normal(512, 512) / 30
    return dict(X=normal(6, 8, 512), W=PANELS.pack(w), Y=np.zeros((6, 8, 512), np.float32), steps=10)


OPERATORS = {
    "batched LoRA": Operator(lora, lora_arguments),
    "windowed ALiBi decode": Operator(alibi, alibi_arguments),
    "gated linear attention": Operator(gated, gated_arguments),
    "tree attention": Operator(tree, tree_arguments),
    "top-p": Operator(top_p, top_p_arguments),
    "int8 linear": Operator(int8_linear, int8_arguments),
    "capped MoE": Operator(capped_moe, moe_arguments),
    "decode loop": Operator(decode_loop, decode_arguments),
}
