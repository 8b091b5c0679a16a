"""Kernels of networks in tests."""

from pto_wsp import In, Out, Tensor, Tile, f32, i32, kernel, pto


@kernel
def copy(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]) -> None:
    pto.store(y, x)


@kernel
def checked(x: In[Tile[4, 8, f32]], at: In[Tensor[i32, 1]], y: Out[Tile[4, 8, f32]]) -> None:
    pto.check(at[0] >= 0, "the index is negative")
    pto.store(y, x)
