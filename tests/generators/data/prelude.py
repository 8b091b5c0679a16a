"""What all random programs of this folder have: kernels, tiers, workloads that they call, and arguments."""

# Annotations are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

import ml_dtypes
import numpy as np

from pto_wsp import (
    DYN,
    In,
    InOut,
    P,
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    bf16,
    f16,
    f32,
    i32,
    i64,
    kernel,
    pto,
    tier,
    workload,
)


@kernel
def put(x: InOut[Tile[4, 8, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)


@kernel
def twice(x: InOut[Tile[6, 8, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.25 + v + v)


@kernel
def part(x: InOut[Tile[4, 3, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)


@kernel
def mix(x: In[Tile[4, 8, f32]], y: InOut[Tile[4, 8, f32]]):
    pto.store(y, y * 0.5 + x)


@kernel
def page(x: InOut[Tile[2, 4, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)


@kernel
def brain(x: InOut[Tile[4, 8, bf16]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)


@kernel
def half(x: InOut[Tile[4, 8, f16]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)


@kernel
def long(x: InOut[Tile[4, 8, i64]], v: Scalar[i64]):
    pto.store(x, x * 3 + v)


@kernel
def bump(x: InOut[Tile[4, 4, i32]], v: Scalar[i64]):
    pto.store(x, pto.where(x + v > 3, x + v - 4, x + v))


@kernel
def sweeping(x: InOut[Tensor[i32, DYN, 1]], v: Scalar[i64]):
    for r in pto.tiles(x.rows, 64):
        t = pto.load(x[r])
        pto.store(x[r], pto.where(t + v > 3, t + v - 4, t + v))


@kernel
def flip(x: InOut[Tile[1, 4, i32]], last: Scalar[i64]):
    pto.store(x, -x + last)


@kernel
def total(x: In[Tensor[f32, DYN, 8]], y: InOut[Tile[1, 8, f32]]):
    acc = pto.load(y)
    for r in pto.tiles(x.rows, 1):
        acc = acc * 0.5 + pto.colsum(x[r])
    pto.store(y, acc)


@kernel
def named(rows: In[Tensor[i32, DYN, 1]], x: In[Tensor[f32, DYN, 8]], y: InOut[Tile[1, 8, f32]]):
    acc = pto.load(y)
    for i in range(rows.rows):
        acc = acc * 0.5 + pto.load(x[rows[i, 0] : rows[i, 0] + 1])
    pto.store(y, acc)


pick = tier("pick", (put, 1), (twice, 3), (put, None))
low = tier("low", (twice, 0), (put, 2))


@workload
def sub(A: Tensor[f32, "k", 8], L: Tensor[i32, "m", 4], c: Scalar[i64]):
    for j in P.range("k"):
        with P.when(j + L[0, 1] < c):
            put(A[j : j + 1], c + j)
        with P.otherwise(j == 2):
            bump(L[0:1], 1)
        with P.otherwise():
            mix(A[0:1], A[j : j + 1])


@workload
def sweep(rows: Sparse["groups"], A: Tensor[f32, "k", 8], c):
    for g in P("groups"):
        for some in P.tiles(rows[g], 3):
            put(A[rows.rows(some)], c + g)


def lo(a, b):
    if isinstance(a, Scalar):
        return a.min(b)
    return b.min(a) if isinstance(b, Scalar) else min(a, b)


UNREAD = [
    "for never in P(0):",
    "    put(X[0:1], 1)",
    "    twice(X[0:1], 1)",
    "    part(X[0:1, 0:3], 1)",
    "    mix(X[0:1], Y[0:1])",
    "    page(R[0], 1)",
    "    brain(B[0:1], 1)",
    "    half(H[0:1], 1)",
    "    long(G[0:1], 1)",
    "    bump(C, 1)",
    "    flip(T[0:1], 1)",
    "    sweeping(M, 1)",
    "    total(X[0:1], Y[0:1])",
    "    named(routing.rows(routing[0]), X, Y[0:1])",
]
"""A task of each kernel, never made: all programs share one library, but for `group_by`."""

DTYPES = {
    "X": np.float32,
    "Y": np.float32,
    "B": ml_dtypes.bfloat16,
    "H": np.float16,
    "G": np.int64,
}
"""Tensors [n, 8]."""

PARAMS = """X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], B: Tensor[bf16, "n", 8], H: Tensor[f16, "n", 8],
    G: Tensor[i64, "n", 8], Q: Tensor[f32, "n", 2, 8], Z: Tensor[f32, 3, "n", 8], R: Tensor[f32, "p", 2, 4],
    Tk: Tensor[f32, "tokens", 8], C: Tensor[i32, 3, 4], D: Tensor[i32, 3, 4], E: Tensor[i64, 4],
    T: Tensor[i32, 3, 4], K: Tensor[i32, "n", 1], K2: Tensor[i32, "n", 2],
    M: Tensor[i32, 600, 1], kv: Ragged["b"], e: DenseDyn, routing: Sparse["e"], s: Scalar[i64]"""


def random_values(seed: int) -> dict[str, object]:
    """Return arguments for a call, the same for the same seed."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.choice([0, 1, 2, 5, 7, 9], p=[0.02, 0.1, 0.2, 0.28, 0.2, 0.2])), int(rng.integers(1, 5))
    found: dict[str, object] = {}
    for name, dtype in DTYPES.items():
        found[name] = rng.integers(0, 8, (n, 8)).astype(dtype)
    found |= {
        "Q": rng.integers(0, 8, (n, 2, 8)).astype(np.float32),
        "Z": rng.integers(0, 8, (3, n, 8)).astype(np.float32),
        "R": rng.integers(0, 8, (p, 2, 4)).astype(np.float32),
        "C": rng.integers(0, 4, (3, 4)).astype(np.int32),
        "D": rng.integers(0, 4, (3, 4)).astype(np.int32),
        "E": rng.integers(0, 4, 4).astype(np.int64),
        "T": rng.integers(0, p, (3, 4)).astype(np.int32),
        "K": rng.integers(0, 4, (n, 1)).astype(np.int32),
        "K2": rng.integers(0, 4, (n, 2)).astype(np.int32),
        "M": rng.integers(0, 4, (600, 1)).astype(np.int32),
        "s": int(rng.integers(0, 4)),
        "lim": int(rng.integers(0, 4)),
    }
    lengths = rng.integers(0, 4, int(rng.integers(1, 5)))
    found["kv"] = Ragged.lengths(lengths)
    found["Tk"] = rng.integers(0, 8, (int(lengths.sum()) + int(rng.integers(0, 3)), 8)).astype(np.float32)
    experts, spare = int(rng.integers(1, 4)), rng.random() < 0.05
    rows = [
        rng.integers(0, n + spare, 3)
        if rng.random() < 0.05 and n
        else rng.permutation(n)[: rng.integers(0, n + 1)]
        for _ in range(experts)
    ]
    if rng.random() < 0.4:  # rows without a common index
        rows = np.array_split(rng.permutation(n), experts)
    found["routing"] = Sparse.lists([row.tolist() for row in rows])
    return found
