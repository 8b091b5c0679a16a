"""More of the surface: nothing here may be an error for a type checker."""

from pto_wsp import (
    DYN,
    Constexpr,
    DenseDyn,
    In,
    InOut,
    MemLayout,
    Out,
    P,
    Scalar,
    Tensor,
    Tile,
    f32,
    i64,
    kernel,
    pto,
    workload,
)


@kernel
def mix(
    x: In[Tensor[f32, DYN, 64]],
    y: InOut[Tile[16, 64, f32]],
    z: Out[Tensor],
    n: Scalar[i64],
    factor: Scalar[f32],
    BLOCK: Constexpr[int] = 16,
):
    total = pto.zeros((y.rows, 64))
    for r in pto.tiles(x.rows, BLOCK):
        total += 2 / (1 - x[r] * factor) + factor * x[r]
    for i in range(n):
        if i % 2 == 0 and n > 3:
            total = -abs(total) - y
    while n > 4:
        n = n - 1
    pto.store(y, pto.where(total >= y, total, pto.cast(y, f32)))
    pto.store(z[0:16, 0:64], total @ total.T)


@workload
def program(
    batch: DenseDyn, X: Tensor[f32, "batch", "n", 64], Y: Tensor[f32, "batch", 16, 64], Z, s: Scalar[f32]
):
    for b, h in P(batch, 4):
        for i in P.seq("n"):
            mix[b, h](x=X[b, i : i + 2], y=Y[b], z=Z[b], n=b // 2 + i, factor=s * 2)
    for rows in P.tiles("n", 16):
        mix[rows](x=X[0, rows], y=Y[3], z=Z, n=rows.start, factor=1.0, BLOCK=8)


@kernel
def whole(x: In[Tile[16, 64, f32]], w: In[Tensor[f32, 4, 64, 32]], y: Out[Tile[16, 128, f32]]):
    for i in range(4):
        pto.store(y[:, i * 32 : i * 32 + 32], pto.matmul(x, w[i]))


@workload
def packed(
    X: Tensor[f32, "m", 64], W: Tensor[f32, 6, 64, 128, MemLayout.panels(32)], Y: Tensor[f32, "m", 128]
):
    for rows in P.tiles("m", 16):
        for columns in P.tiles(128, 32):
            mix[rows, columns](x=X[rows], y=W[0, :, columns], z=Y, n=rows.start, factor=1.0)
        whole[rows](x=X[rows], w=W[1].panels, y=Y[rows])
