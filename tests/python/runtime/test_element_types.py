"""Arrays of every element type travel through a whole program."""

import numpy as np
import pytest

from pto_wsp import In, Out, P, Tensor, Tile, b1, bf16, f16, f32, i32, kernel, pto, workload


@pytest.mark.parametrize("dtype", [f32, f16, bf16, i32, b1], ids=str)
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
