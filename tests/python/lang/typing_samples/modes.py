"""Kernels in three modes and their declarations: nothing here may be an error for a type checker."""

from pathlib import Path

import numpy as np

from pto_wsp import (
    DYN,
    Constexpr,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    lookup_kernel,
    pto,
    ptoisa,
    ptoisa_kernel,
    registered_kernels,
    workload,
)


@ptoisa_kernel
def softmax(x: In[Tensor[f32, DYN, 64]], y: Out[Tensor[f32, DYN, 64]]):
    t, m = ptoisa.tile(16, 64, f32), ptoisa.tile(16, 1, f32)
    for r in pto.tiles(x.rows, 16):
        ptoisa.TLOAD(t, x[r])
        ptoisa.TROWMAX(m, t)
        ptoisa.TROWEXPANDSUB(t, t, m)
        ptoisa.TEXP(t, t)
        if t.rows > 3:
            ptoisa.TMULS(t, t, 1.0)
        ptoisa.TSTORE(y[r], t)


@ptoisa_kernel(core="vector", block_dim=2, cost=lambda p: p.x.rows, name="typed_fill_v1")
def fill(x: InOut[Tile[16, 64, f32]], n: Scalar[i64]):
    t = ptoisa.tile(rows=16, cols=64, dtype=f32)
    ptoisa.TEXPANDS(t, pto.block_idx() + pto.block_num() + n, rows=x.rows)
    ptoisa.TSTORE(x, t)


def copied(x: np.ndarray, y: np.ndarray, count: int) -> None:
    y[...] = x


@kernel(
    cpp_src="for (int64_t i = 0; i < count; ++i) y(i, 0) = x(i, 0);",
    cpp_includes=["<cmath>", "mine.hpp"],
    reference=copied,
    workspace=lambda p: p.x.rows * p.x.cols * 4 + p.count,
    core="cube",
    name="typed_copy_v1",
)
def copy(x: In[Tile[16, 1, i32]], y: Out[Tile[16, 1, i32]], count: Constexpr[int] = 3): ...


def of_files(folder: Path):
    @kernel(cpp_body_path=folder / "body.cpp", cost=lambda p: 10)
    def body(x: In[Tensor], y: Out[Tensor]): ...

    @kernel(cpp_tu_path="unit.cpp", block_dim=4)
    def unit(x: In[Tensor], y: Out[Tensor]): ...

    return body, unit


@workload
def mixed(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64], K: Tensor[i32, 16, 1], L: Tensor[i32, 16, 1]):
    for r in P.tiles("n", 16):
        first = softmax[r](x=X[r], y=Y[r])
        fill[r](x=Y[r], n=2, after=[first])
    copy(x=K, y=L)
    lookup_kernel("typed_copy_v1")(x=K, y=L)


print(sorted(registered_kernels()), mixed, of_files)
