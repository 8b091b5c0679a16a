"""Programs that users of different kinds would write, with their meaning in numpy.

Each is a workload, a function that makes its arguments for a size, one that gives what they become, and how
far they may be from it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import (
    DYN,
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Tensor,
    Tile,
    f32,
    i8,
    i32,
    i64,
    kernel,
    pto,
    symbol_i64,
    workload,
)
from pto_wsp.lang.workload.workload import Workload

Values = dict[str, Any]


class UserProgram(NamedTuple):
    workload: Workload
    arguments: Callable[[np.random.Generator, int], Values]
    expected: Callable[[Values], dict[str, np.ndarray]]
    tolerance: float


PROGRAMS: dict[str, UserProgram] = {}


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


# --- paged KV decode with append (writes the cache, then reads it) ---
@kernel
def put_row(x: In[Tile[1, 32, f32]], page: Out[Tile[1, 32, f32]]):
    pto.store(page, x)


@kernel
def decode_page(
    q: In[Tile[1, 32, f32]],
    k: In[Tile[8, 32, f32]],
    v: In[Tile[8, 32, f32]],
    m: InOut[Tile[1, 1, f32]],
    z: InOut[Tile[1, 1, f32]],
    acc: InOut[Tile[1, 32, f32]],
):
    s = pto.matmul(q, pto.load(k).T)
    m2 = pto.maximum(m, pto.rowmax(s))
    p, a = pto.exp(s - m2), pto.exp(m - m2)
    pto.store(z, z * a + pto.rowsum(p))
    pto.store(acc, acc * a + pto.matmul(p, pto.load(v)))
    pto.store(m, m2)


@kernel
def start(m: Out[Tile[1, 1, f32]], z: Out[Tile[1, 1, f32]], acc: Out[Tile[1, 32, f32]]):
    pto.store(m, pto.full((1, 1), -inf))
    pto.store(z, pto.zeros((1, 1)))
    pto.store(acc, pto.zeros((1, 32)))


@kernel
def finish(z: In[Tile[1, 1, f32]], acc: InOut[Tile[1, 32, f32]]):
    pto.store(acc, acc / z)


PAGE = 8


@workload
def paged_decode(
    Lengths: Tensor[i32, "batch"],
    Table: Tensor[i32, "batch", "most"],
    Q: Tensor[f32, "batch", 32],
    NewK: Tensor[f32, "batch", 32],
    NewV: Tensor[f32, "batch", 32],
    K: Tensor[f32, "pages", PAGE, 32],
    V: Tensor[f32, "pages", PAGE, 32],
    M: Tensor[f32, "batch", 1],
    L: Tensor[f32, "batch", 1],
    Y: Tensor[f32, "batch", 32],
):
    for b in P("batch"):
        n = Lengths[b]
        put_row[b, 0](
            x=NewK[b : b + 1], page=K[Table[b, (n - 1) // PAGE], (n - 1) % PAGE : (n - 1) % PAGE + 1]
        )
        put_row[b, 1](
            x=NewV[b : b + 1], page=V[Table[b, (n - 1) // PAGE], (n - 1) % PAGE : (n - 1) % PAGE + 1]
        )
        start[b](m=M[b : b + 1], z=L[b : b + 1], acc=Y[b : b + 1])
        for t in P.range((n + PAGE - 1) // PAGE):
            page = Table[b, t]
            size = (n - t * PAGE).min(PAGE)
            decode_page[b, t](
                q=Q[b : b + 1],
                k=K[page, :size],
                v=V[page, :size],
                m=M[b : b + 1],
                z=L[b : b + 1],
                acc=Y[b : b + 1],
            )
        finish[b](z=L[b : b + 1], acc=Y[b : b + 1])


def pd_args(rng: np.random.Generator, n: int) -> Values:
    lengths = rng.integers(1, 60, n).astype(np.int32)
    pages = -(-lengths // PAGE)
    total = int(pages.sum()) + 3
    ids = rng.permutation(total)
    table = np.full((n, 9), -7, np.int32)
    at = 0
    for b in range(n):
        table[b, : pages[b]] = ids[at : at + pages[b]]
        at += pages[b]
    return dict(
        Lengths=lengths,
        Table=table,
        Q=normal(rng, n, 32),
        NewK=normal(rng, n, 32),
        NewV=normal(rng, n, 32),
        K=normal(rng, total, PAGE, 32),
        V=normal(rng, total, PAGE, 32),
        M=normal(rng, n, 1),
        L=normal(rng, n, 1),
        Y=normal(rng, n, 32),
    )


def pd_ref(a: Values) -> dict[str, np.ndarray]:
    k, v = a["K"].copy(), a["V"].copy()
    o = np.zeros(a["Y"].shape)
    for b, n in enumerate(a["Lengths"]):
        t = a["Table"][b]
        k[t[(n - 1) // PAGE], (n - 1) % PAGE] = a["NewK"][b]
        v[t[(n - 1) // PAGE], (n - 1) % PAGE] = a["NewV"][b]
        pages = t[: -(-n // PAGE)]
        ks, vs = k[pages].reshape(-1, 32)[:n], v[pages].reshape(-1, 32)[:n]
        s = ks.astype(np.float64) @ a["Q"][b]
        p = np.exp(s - s.max())
        o[b] = (p / p.sum()) @ vs
    return {"Y": o, "K": k, "V": v}


PROGRAMS["paged_decode"] = UserProgram(paged_decode, pd_args, pd_ref, 2e-5)


# --- block-sparse matmul (CSR of 16x16 blocks) ---
@kernel
def mm_block(a: In[Tile[16, 16, f32]], x: In[Tile[16, 48, f32]], y: InOut[Tile[16, 48, f32]]):
    pto.store(y, pto.matmul(a, x, acc=y))


@kernel
def clear(y: Out[Tile[16, 48, f32]]):
    pto.store(y, pto.zeros((y.rows, y.cols)))


@workload
def block_sparse(
    Cols: Tensor[i32, "nnz"],
    A: Tensor[f32, "nnz", 16, 16],
    Ptr: Tensor[i64, "rows_1"],
    X: Tensor[f32, "cols", 16, "m"],
    Y: Tensor[f32, "rows", 16, "m"],
):
    for r in P("rows"):
        for c in P.tiles("m", 48):
            clear[r, c](y=Y[r, :, c])
            for j in P.range(Ptr[r + 1] - Ptr[r]):
                mm_block[r, c, j](a=A[Ptr[r] + j], x=X[Cols[Ptr[r] + j], :, c], y=Y[r, :, c])


def bs_args(rng: np.random.Generator, n: int) -> Values:
    cols = 5
    lists = [sorted(rng.choice(cols, rng.integers(0, cols + 1), replace=False).tolist()) for _ in range(n)]
    nnz = sum(map(len, lists))
    ptr = np.concatenate([[0], np.cumsum([len(z) for z in lists])]).astype(np.int64)
    m = int(rng.integers(1, 130))
    return dict(
        Cols=np.array([c for z in lists for c in z], np.int32),
        A=normal(rng, nnz, 16, 16),
        Ptr=ptr,
        X=normal(rng, cols, 16, m),
        Y=normal(rng, n, 16, m),
        _lists=lists,
    )


def bs_ref(a: Values) -> dict[str, np.ndarray]:
    y = np.zeros(a["Y"].shape)
    k = 0
    for r, z in enumerate(a["_lists"]):
        for c in z:
            y[r] += a["A"][k].astype(np.float64) @ a["X"][c]
            k += 1
    return {"Y": y}


PROGRAMS["block_sparse"] = UserProgram(block_sparse, bs_args, bs_ref, 1e-5)


# --- stencil, Gauss-Seidel like, wavefront dependences in place ---
@kernel
def relax(up: In[Tile[1, 8, f32]], left: In[Tile[8, 1, f32]], x: InOut[Tile[8, 8, f32]]):
    pto.store(x, x * 0.5 + up * 0.25 + left * 0.25)


@workload
def stencil(steps: DenseDyn, X: Tensor[f32, "h", "w"]):
    for s in P.range(steps):
        for i in P.range((symbol_i64("h8")) - 1):
            for j in P.range(symbol_i64("w8") - 1):
                relax[s, i, j](
                    up=X[8 * i + 7 : 8 * i + 8, 8 * j + 8 : 8 * j + 16],
                    left=X[8 * i + 8 : 8 * i + 16, 8 * j + 7 : 8 * j + 8],
                    x=X[8 * i + 8 : 8 * i + 16, 8 * j + 8 : 8 * j + 16],
                )


def st_args(rng: np.random.Generator, n: int) -> Values:
    h, w = 1 + n % 9, 1 + (n * 7) % 11
    return dict(steps=3, h8=h, w8=w, X=rng.standard_normal((8 * h, 8 * w)).astype(np.float32))


def st_ref(a: Values) -> dict[str, np.ndarray]:
    x = a["X"].copy()
    for _ in range(a["steps"]):
        for i in range(1, a["h8"]):
            for j in range(1, a["w8"]):
                x[8 * i : 8 * i + 8, 8 * j : 8 * j + 8] = (
                    x[8 * i : 8 * i + 8, 8 * j : 8 * j + 8] * np.float32(0.5)
                    + x[8 * i - 1 : 8 * i, 8 * j : 8 * j + 8] * np.float32(0.25)
                ) + x[8 * i : 8 * i + 8, 8 * j - 1 : 8 * j] * np.float32(0.25)
    return {"X": x}


PROGRAMS["stencil"] = UserProgram(stencil, st_args, st_ref, 1e-6)


# --- prefix scan of rows, three phases (block sums, scan of them, add) ---
@kernel
def scan_block(x: In[Tile[1, 64, i32]], y: Out[Tile[1, 64, i32]], total: Out[Tile[1, 1, i32]]):
    acc = pto.load(x)
    shift = 1
    while shift < 64:
        idx = pto.iota((1, x.cols), -shift)
        moved = pto.where(idx >= 0, pto.take(acc, pto.maximum(idx, 0)), 0)
        acc = acc + moved
        shift = shift * 2
    pto.store(y, acc)
    pto.store(total, pto.rowsum(x))


@kernel
def add_offset(y: InOut[Tile[1, 64, i32]], offset: In[Tile[1, 1, i32]]):
    pto.store(y, y + offset)


@kernel
def next_offset(before: In[Tile[1, 1, i32]], total: In[Tile[1, 1, i32]], after: Out[Tile[1, 1, i32]]):
    pto.store(after, before + total)


@workload
def prefix_scan(
    blocks: DenseDyn,
    X: Tensor[i32, 1, "n"],
    Y: Tensor[i32, 1, "n"],
    Totals: Tensor[i32, "blocks", 1, 1],
    Offsets: Tensor[i32, "blocks1", 1, 1],
):
    for t in P.tiles("n", 64):
        scan_block[t](x=X[:, t], y=Y[:, t], total=Totals[t.start // 64])
    for b in P.range(blocks):
        next_offset[b](before=Offsets[b], total=Totals[b], after=Offsets[b + 1])
    for t in P.tiles("n", 64):
        add_offset[t](y=Y[:, t], offset=Offsets[t.start // 64])


def ps_args(rng: np.random.Generator, n: int) -> Values:
    b = -(-n // 64)
    off = np.full((b + 1, 1, 1), 99, np.int32)
    off[0] = 0
    return dict(
        X=rng.integers(-50, 50, (1, n)).astype(np.int32),
        Y=np.zeros((1, n), np.int32),
        Totals=np.zeros((b, 1, 1), np.int32),
        Offsets=off,
        blocks=b,
    )


def ps_ref(a: Values) -> dict[str, np.ndarray]:
    return {"Y": np.cumsum(a["X"], axis=1)}


PROGRAMS["prefix_scan"] = UserProgram(prefix_scan, ps_args, ps_ref, 0)


# --- beam step: logits [beams, vocab] + score -> best k of all, new beams copied ---
@kernel
def best_of_beam(
    logits: In[Tensor[f32, 1, DYN]],
    score: In[Tile[1, 1, f32]],
    values: Out[Tile[1, 8, f32]],
    ids: Out[Tile[1, 8, i32]],
    first: Scalar[i64],
):
    best = pto.full((1, 8), -(2**63), i64)
    for s in pto.tiles(logits.cols, 256):
        t = pto.load(logits[:, s]) + score
        best = pto.merge(best, pto.sort(t, pto.iota((1, t.cols), s.start + first)), 8)
    pto.store(values, pto.extract_topk_values(best, 8))
    pto.store(ids, pto.extract_topk_indices(best, 8))


@kernel
def best_of_all(
    values: In[Tensor[f32, 1, DYN]],
    ids: In[Tensor[i32, 1, DYN]],
    score: Out[Tile[1, 8, f32]],
    chosen: Out[Tile[1, 8, i32]],
):
    best = pto.full((1, 8), -(2**63), i64)
    for s in pto.tiles(values.cols, 64):
        best = pto.merge(best, pto.sort(values[:, s], ids[:, s]), 8)
    pto.store(score, pto.extract_topk_values(best, 8))
    pto.store(chosen, pto.extract_topk_indices(best, 8))


@workload
def beam(
    Logits: Tensor[f32, "beams", "vocab"],
    Score: Tensor[f32, "beams", 1],
    Values: Tensor[f32, 1, "beams8"],
    Ids: Tensor[i32, 1, "beams8"],
    NewScore: Tensor[f32, 1, 8],
    Chosen: Tensor[i32, 1, 8],
):
    for b in P("beams"):
        best_of_beam[b](
            logits=Logits[b : b + 1],
            score=Score[b : b + 1],
            values=Values[:, 8 * b : 8 * b + 8],
            ids=Ids[:, 8 * b : 8 * b + 8],
            first=b * Logits.shape[1],
        )
    best_of_all(values=Values, ids=Ids, score=NewScore, chosen=Chosen)


def bm_args(rng: np.random.Generator, n: int) -> Values:
    b = 5
    return dict(
        Logits=normal(rng, b, n),
        Score=normal(rng, b, 1),
        Values=normal(rng, 1, 8 * b),
        Ids=np.zeros((1, 8 * b), np.int32),
        NewScore=normal(rng, 1, 8),
        Chosen=np.zeros((1, 8), np.int32),
    )


def bm_ref(a: Values) -> dict[str, np.ndarray]:
    s = (a["Logits"] + a["Score"]).ravel()
    i = np.argsort(-s, kind="stable")[:8]
    c = np.full(8, -1, np.int64)
    c[: len(i)] = i
    v = np.full(8, -np.inf)
    v[: len(i)] = s[i]
    return {"Chosen": c[None], "NewScore": v[None]}


PROGRAMS["beam"] = UserProgram(beam, bm_args, bm_ref, 0)


# --- int8 quantised matmul: i8 x i8 -> i32 by products in f32 (exact below 2^24), scales per row / column ---
@kernel
def qmm(
    x: In[Tensor[i8, DYN, DYN]],
    w: In[Tensor[i8, DYN, DYN]],
    xs: In[Tensor[f32, DYN, 1]],
    ws: In[Tensor[f32, 1, DYN]],
    y: Out[Tensor[f32, DYN, DYN]],
):
    for r in pto.tiles(y.rows, 32):
        for c in pto.tiles(y.cols, 32):
            acc = pto.zeros((r.extent, c.extent))
            for k in pto.tiles(x.cols, 64):
                acc = pto.matmul(pto.cast(x[r, k], f32), pto.cast(w[k, c], f32), acc=acc)
            pto.store(y[r, c], acc * xs[r] * ws[:, c])


@kernel
def quantise(x: In[Tile[32, 96, f32]], q: Out[Tile[32, 96, i8]], s: Out[Tile[32, 1, f32]]):
    scale = pto.rowmax(pto.abs(x)) / 127.0
    pto.store(s, scale)
    pto.store(q, pto.cast(x / scale, i8, rmode="rint"))


@workload
def int8_matmul(
    X: Tensor[f32, "n", 96],
    Xq: Tensor[i8, "n", 96],
    Xs: Tensor[f32, "n", 1],
    W: Tensor[i8, 96, "m"],
    Ws: Tensor[f32, 1, "m"],
    Y: Tensor[f32, "n", "m"],
):
    for r in P.tiles("n", 32):
        quantise[r](x=X[r], q=Xq[r], s=Xs[r])
        for c in P.tiles("m", 32):
            qmm[r, c](x=Xq[r], w=W[:, c], xs=Xs[r], ws=Ws[:, c], y=Y[r, c])


def q_args(rng: np.random.Generator, n: int) -> Values:
    m = 33
    return dict(
        X=rng.standard_normal((n, 96)).astype(np.float32) + 0.1,
        Xq=np.zeros((n, 96), np.int8),
        Xs=np.zeros((n, 1), np.float32),
        W=rng.integers(-127, 128, (96, m)).astype(np.int8),
        Ws=rng.random((1, m)).astype(np.float32),
        Y=np.zeros((n, m), np.float32),
    )


def q_ref(a: Values) -> dict[str, np.ndarray]:
    s = (np.abs(a["X"]).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
    q = np.rint(a["X"] / s).astype(np.int8)
    y = (q.astype(np.int32) @ a["W"].astype(np.int32)).astype(np.float32) * s * a["Ws"]
    return {"Y": y, "Xq": q}


PROGRAMS["int8_matmul"] = UserProgram(int8_matmul, q_args, q_ref, 1e-6)
