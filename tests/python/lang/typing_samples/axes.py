"""Ragged and sparse axes as users write them: nothing here may be an error for a type checker."""

import numpy as np

from pto_wsp import (
    DYN,
    Dense,
    DenseDyn,
    In,
    Out,
    P,
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    f32,
    group_by,
    i32,
    i64,
    kernel,
    pto,
    workload,
)


@kernel
def expert(
    x: In[Tensor[f32, DYN, 64]], rows: In[Tensor[i32, DYN, 1]], part: Out[Tile[16, 64, f32]], e: Scalar[i64]
):
    pto.store(part, x[0:16] * 2.0)


@kernel
def double(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, x * 2.0)


@workload
def moe(
    tokens: DenseDyn,
    X: Tensor[f32, "tokens", 64],
    Experts: Tensor[i32, "tokens", 2],
    Part: Tensor[f32, "tokens", 2, 64],
):
    routing = group_by(Experts, num_groups=8)
    for e in P(Dense[8]):
        for pick in P.tiles(routing[e], 16):
            rows = routing.rows(pick)
            expert[e, pick](x=X, rows=rows, part=Part[rows], e=routing[e].extent - pick.start)


@workload
def pages(
    kv: Ragged["batch"],
    table: Sparse["batch"],
    X: Tensor[f32, "n", 64],
    Y: Tensor[f32, "pages", 64],
    lengths: Tensor[i32, "batch"],
):
    for b in P("batch"):
        for part in P.tiles(kv[b], 16):
            double[b, part](x=X[kv[b][part]], y=Y[part])
        for part in P.tiles(lengths[b], 16):
            double[b, part](x=X[kv[b][part]], y=Y[kv.local(b)])
        for page in P.sel(table[b]):
            double[b, page](x=X[page : page + 1], y=Y[page : page + 1])
        double[b](x=X[table.rows(table[b])], y=Y[table[b]])
    for i in P(kv):
        double[i](x=X[i : i + 1], y=Y[i : i + 1])
    for part in P.tiles(kv, 16):
        double[part](x=X[part], y=Y[part])
    for page in P.sel(table):
        double[page](x=X[page : page + 1], y=Y[table.extent - 1 : table.extent])


compiled = pages.compile("cpu")
compiled.set_axis_sizes({"batch": 2})
compiled(
    kv=Ragged.lengths([3, 4]),
    table=Sparse.csr(np.array([0, 1, 2]), [5, 6]),
    X=np.zeros((9, 64), np.float32),
    Y=np.zeros((9, 64), np.float32),
    lengths=np.zeros(2, np.int32),
)
again = pages(table=Sparse.lists([[1], [2, 3]]), kv=Ragged.indptr([0, 1, 2]))
