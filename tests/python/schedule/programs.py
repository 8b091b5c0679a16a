"""Workloads that tests of schedules share."""

from pto_wsp import In, InOut, Out, P, Ragged, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.types import DYN


@kernel
def total(x: In[Tensor[f32, DYN, 8]], y: Out[Tile[1, 8, f32]]):
    acc = pto.zeros((1, 8))
    for r in pto.tiles(x.rows, 4):
        acc = acc + pto.colsum(x[r])
    pto.store(y, acc)


@kernel
def bump(x: InOut[Tile[1, 8, f32]]):
    pto.store(x, x * 2.0 + 1.0)


@workload
def totals(
    rows: Ragged["batch"],
    X: Tensor[f32, "tokens", 4, 8],
    Y: Tensor[f32, "batch", 4, 1, 8],
    Z: Tensor[f32, "batch", 1, 8],
):
    for b in P("batch"):
        for h in P(4):
            total[b, h](x=X[rows[b], h], y=Y[b, h])
    for b in P("batch"):
        bump[b](x=Z[b])
