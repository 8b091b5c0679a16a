"""The kernels: tiles of 64 x 128 unless said, three of which fit the second cache."""

from __future__ import annotations

from dataclasses import dataclass

from pto_wsp import (
    DenseDyn,
    In,
    Out,
    P,
    Program,
    Tensor,
    Tile,
    bf16,
    f32,
    i8,
    i16,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.types import DType

ROWS, COLS = 64, 128
SIDE = 64
"""Rows and columns of transposed tiles, and of products."""


@kernel
def scale_add(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    pto.store(y, x * 0.5 + z)


@kernel
def clamp(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    pto.store(y, pto.minimum(pto.maximum((x - z) * 0.25, -1.0), 1.0))


@kernel
def leaky(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    pto.store(y, pto.where(x > z, x, x * 0.1))


@kernel
def divide(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    pto.store(y, x / z)


@kernel
def row_sum(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, 1, f32]]):
    pto.store(y, pto.rowsum(x * z))


@kernel
def col_max(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[1, COLS, f32]]):
    pto.store(y, pto.colmax(x * z))


@kernel
def row_argmax(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, 1, i32]]):
    pto.store(y, pto.rowargmax(x + z))


@kernel
def softmax(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    shifted = x + z
    grown = pto.exp(shifted - pto.rowmax(shifted))
    pto.store(y, grown / pto.rowsum(grown))


@kernel
def layer_norm(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    centred = x - pto.rowsum(x) * (1.0 / COLS)
    pto.store(y, centred * pto.rsqrt(pto.rowsum(centred * centred) * (1.0 / COLS) + 1e-5) + z)


@kernel
def transpose(x: In[Tile[SIDE, SIDE, f32]], z: In[Tile[SIDE, SIDE, f32]], y: Out[Tile[SIDE, SIDE, f32]]):
    pto.store(y, pto.transpose(x + z))


@kernel
def product(x: In[Tile[SIDE, SIDE, f32]], z: In[Tile[SIDE, SIDE, f32]], y: Out[Tile[SIDE, SIDE, f32]]):
    pto.store(y, x @ z)


@kernel
def to_bf16(x: In[Tile[ROWS, COLS, f32]], z: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, bf16]]):
    pto.store(y, pto.cast(x + z, bf16))


@kernel
def of_bf16(x: In[Tile[ROWS, COLS, bf16]], z: In[Tile[ROWS, COLS, bf16]], y: Out[Tile[ROWS, COLS, f32]]):
    pto.store(y, pto.cast(x, f32) * pto.cast(z, f32))


@kernel
def of_i8(x: In[Tile[ROWS, COLS, i8]], z: In[Tile[ROWS, COLS, i8]], y: Out[Tile[ROWS, COLS, f32]]):
    pto.store(y, pto.cast(x, f32) * 0.125 + pto.cast(z, f32))


@kernel
def add_i32(x: In[Tile[ROWS, COLS, i32]], z: In[Tile[ROWS, COLS, i32]], y: Out[Tile[ROWS, COLS, i32]]):
    pto.store(y, (x + z) * x)


@kernel
def add_i16(x: In[Tile[ROWS, COLS, i16]], z: In[Tile[ROWS, COLS, i16]], y: Out[Tile[ROWS, COLS, i16]]):
    pto.store(y, x + z)


@kernel
def divide_i32(x: In[Tile[ROWS, COLS, i32]], z: In[Tile[ROWS, COLS, i32]], y: Out[Tile[ROWS, COLS, i32]]):
    pto.store(y, pto.div(x, z))


@dataclass(frozen=True)
class Loop:
    """One row: a kernel, the arrays of its two operands and of its result, and a bound on the difference."""

    kernel: Kernel
    dtype: DType = f32
    shape: tuple[int, int] = (ROWS, COLS)
    out_dtype: DType = f32
    out_shape: tuple[int, int] = (ROWS, COLS)
    tolerance: float = 0.0

    @property
    def name(self) -> str:
        """The kernel's name, and that of the function in `loops.cpp`."""
        return self.kernel.name

    def program(self) -> Program:
        """Return a program that runs the kernel `times` times over the same three arrays."""
        each, given = self.kernel, Tensor[self.dtype, *self.shape]
        made = Tensor[self.out_dtype, *self.out_shape]

        @workload
        def repeat(times: DenseDyn, X: given, Z: given, Y: made):  # pyright: ignore[reportInvalidTypeForm]
            for i in P.range(times):
                each[i](x=X, z=Z, y=Y)

        return repeat.compile(target="cpu")


SQUARE = (SIDE, SIDE)

LOOPS = (
    Loop(scale_add),
    Loop(clamp),
    Loop(leaky),
    Loop(divide),
    Loop(row_sum, out_shape=(ROWS, 1), tolerance=1e-5),
    Loop(col_max, out_shape=(1, COLS)),
    Loop(row_argmax, out_dtype=i32, out_shape=(ROWS, 1)),
    Loop(softmax, tolerance=1e-6),
    Loop(layer_norm, tolerance=1e-5),
    Loop(transpose, shape=SQUARE, out_shape=SQUARE),
    Loop(product, shape=SQUARE, out_shape=SQUARE, tolerance=1e-5),
    Loop(to_bf16, out_dtype=bf16),
    Loop(of_bf16, dtype=bf16),
    Loop(of_i8, dtype=i8),
    Loop(add_i32, dtype=i32, out_dtype=i32),
    Loop(add_i16, dtype=i16, out_dtype=i16),
    Loop(divide_i32, dtype=i32, out_dtype=i32),
)
