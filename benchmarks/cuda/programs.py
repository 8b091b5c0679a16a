"""Tasks of 32 elements: independent ones, and a chain."""

from __future__ import annotations

from pto_wsp import DenseDyn, InOut, P, Tensor, Tile, f32, kernel, pto, workload


@kernel
def bump(x: InOut[Tile[1, 32, f32]]):
    pto.store(x, x + 1.0)


@workload
def independent(X: Tensor[f32, "n", 32]):
    for i in P("n"):
        bump[i](x=X[i : i + 1])


@workload
def dependent(X: Tensor[f32, 1, 32], k: DenseDyn):
    for i in P.range(k):
        bump[i](x=X)
