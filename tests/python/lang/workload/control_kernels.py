"""Kernels of one element, and workloads of them, for tests of control: programs import all of it."""

# Annotations are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from pto_wsp import In, InOut, P, Scalar, Tensor, Tile, f32, i32, i64, kernel, pto, tier, workload


@kernel
def put(x: InOut[Tile[1, 1, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.5 + v)


@kernel
def bump(x: InOut[Tile[1, 1, i32]], v: Scalar[i64]):
    pto.store(x, pto.where(x + v > 4, x + v - 5, x + v))


@kernel
def mix(x: In[Tile[1, 1, f32]], y: InOut[Tile[1, 1, f32]]):
    pto.store(y, y * 0.5 + x)


@kernel
def twice(x: InOut[Tile[1, 1, f32]], v: Scalar[i64]):
    pto.store(x, x * 0.25 + v + v)


pick = tier("pick", (put, 1), (twice, 3), (put, None))


@workload
def part(Z: Tensor[f32, "k", 1, 1], c: Scalar[i64]):
    for j in P("k"):
        with P.when(j < c):
            put(Z[j], c + j)
        with P.otherwise():
            mix(Z[0], Z[j])


@workload
def change(Z: Tensor[f32, "k", 1, 1], N: Tensor[i32, "k", 1, 1], c):
    for j in P.range(N.shape[0]):
        bump(N[j], 3)
        put(Z[j], c)
