"""Arrays of every element type travel through a whole program."""

import numpy as np
import pytest

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, b1, bf16, f16, f32, i32, i64, kernel, pto, workload
from pto_wsp.types import i8, i16, u8, u16, u32

SMALL = [i8, i16, u8, u16, u32]


@pytest.mark.parametrize("dtype", [f32, f16, bf16, i32, i64, b1, *SMALL], ids=str)
@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("n", [0, 1, 8, 21])
def test_copies_are_exact(dtype, target, n):
    @kernel
    def copy(x: In[Tile[8, 24, dtype]], y: Out[Tile[8, 24, dtype]]):
        pto.store(y, x)

    @workload
    def copy_rows(X: Tensor[dtype, "n", 24], Y: Tensor[dtype, "n", 24]):
        for rows in P.tiles("n", 8):
            copy[rows](x=X[rows], y=Y[rows])

    x = np.random.default_rng(n).integers(0, 2, (n, 24)).astype(dtype.to_numpy())
    y = np.zeros_like(x)
    copy_rows.compile(target)(X=x, Y=y)
    assert x.tobytes() == y.tobytes()


def test_mixed_types_meet_in_a_kernel():
    @kernel
    def scale(x: In[Tile[8, 24, bf16]], s: In[Tile[8, 1, i32]], y: Out[Tile[8, 24, f32]]):
        pto.store(y, pto.cast(x, f32) * pto.cast(s, f32))

    @workload
    def scale_rows(X: Tensor[bf16, "n", 24], S: Tensor[i32, "n", 1], Y: Tensor[f32, "n", 24]):
        for rows in P.tiles("n", 8):
            scale[rows](x=X[rows], s=S[rows], y=Y[rows])

    rng = np.random.default_rng(1)
    x = rng.standard_normal((21, 24)).astype(bf16.to_numpy())
    s = rng.integers(-9, 9, (21, 1)).astype(np.int32)
    y = np.zeros((21, 24), np.float32)
    scale_rows.compile()(X=x, S=s, Y=y)
    assert np.array_equal(y, x.astype(np.float32) * s.astype(np.float32))


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_small_integers_are_computed_on_after_a_conversion(dtype, target):
    @kernel
    def double(x: In[Tile[8, 24, dtype]], y: Out[Tile[8, 24, dtype]], z: Out[Tile[8, 24, dtype]]):
        pto.store(y, pto.cast(pto.cast(x, f32) * 2.0, dtype))
        pto.store(z, pto.cast(pto.cast(x, i64) * 2, dtype))

    @workload
    def double_rows(X: Tensor[dtype, "n", 24], Y: Tensor[dtype, "n", 24], Z: Tensor[dtype, "n", 24]):
        for rows in P.tiles("n", 8):
            double[rows](x=X[rows], y=Y[rows], z=Z[rows])

    low, high = dtype.integer_range
    rng = np.random.default_rng(3)
    x = rng.choice([low, low + 1, -1 if low else 1, 0, 5, high - 1, high], (21, 24)).astype(dtype.to_numpy())
    y, z = np.zeros_like(x), np.zeros_like(x)
    double_rows.compile(target)(X=x, Y=y, Z=z)
    wide = x.astype(np.float32).astype(np.float64) * 2
    assert np.array_equal(y, np.clip(wide, low, high).astype(x.dtype))
    assert np.array_equal(z, (x.astype(np.int64) * 2).astype(x.dtype))


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_64_bit_integers_keep_all_bits(target):
    @kernel
    def add(x: In[Tile[8, 24, i64]], n: Scalar[i64], y: Out[Tile[8, 24, i64]], s: Out[Tile[8, 1, i64]]):
        pto.store(y, x + n)
        pto.store(s, pto.rowmax(x) - pto.rowmin(x))

    @workload
    def add_rows(X: Tensor[i64, "n", 24], k: Scalar[i64], Y: Tensor[i64, "n", 24], S: Tensor[i64, "n", 1]):
        for rows in P.tiles("n", 8):
            add[rows](x=X[rows], n=k, y=Y[rows], s=S[rows])

    x = np.random.default_rng(4).integers(-(2**62), 2**62, (21, 24))
    y, s = np.zeros_like(x), np.zeros((21, 1), np.int64)
    add_rows.compile(target)(X=x, k=2**40 + 5, Y=y, S=s)
    assert np.array_equal(y, x + (2**40 + 5))
    assert np.array_equal(s, x.max(1, keepdims=True) - x.min(1, keepdims=True))
