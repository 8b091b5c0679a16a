"""Products with a matrix that is packed once: weights of layers, by rows of any number."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np

from pto_wsp.errors import WrongDType, WrongValue
from pto_wsp.ops.functional.arrays import (
    DTYPES,
    floats,
    like,
    output,
    require_apart,
    require_rank,
    require_shape,
    rows,
)
from pto_wsp.ops.matmul_program import ACTIVATIONS, MatmulForm, matmul_workload
from pto_wsp.runtime.dlpack import as_numpy
from pto_wsp.runtime.memory import empty
from pto_wsp.runtime.program import Program
from pto_wsp.targets.preferences import panel_cols, sums_pairs
from pto_wsp.types import MemLayout, bf16, f32
from pto_wsp.types.dtype import DType, dtype_of_numpy

TARGET = "cpu"
Activation = Literal["relu", "gelu", "silu"]


class PackedMatrix:
    """A matrix `[k, n]` in panels of columns, the order in which products read it.

    Args:
        matrix: `[k, n]` of f32, f16 or bf16, of numpy or what shares memory by DLPack, in any strides:
            `weight.T` of a layer whose weight is `[n, k]`.
        dtype: element type to store; None: that of `matrix`. Products add up in f32 in any case.

    Attributes:
        shape: `(k, n)`.
        dtype: element type.
        panels: the memory, `[panels, k, cols]` with as many columns as `pto_wsp.panel_cols` says and zeros
            after column n.

    Raises:
        UnusableArray: an array that cannot be read in place.
        WrongDType: no float of 16 or 32 bits.
        WrongRank: not two dimensions.
        WrongValue: no array, or `dtype` is none of these types.
    """

    def __init__(self, matrix: Any, dtype: DType | None = None) -> None:
        array = as_numpy("matrix", matrix)
        own = dtype_of_numpy(array.dtype)
        stored = own if dtype is None else dtype
        if own is None or own not in DTYPES:
            raise WrongDType(name="matrix", expected="f32, f16 or bf16", found=array.dtype)
        if stored is None or stored not in DTYPES:
            raise WrongValue(name="dtype", expected="f32, f16 or bf16 of pto_wsp", found=repr(dtype))
        require_shape("matrix", array, array.shape[:2] if array.ndim >= 2 else (0, 0))
        self.shape: tuple[int, int] = (array.shape[0], array.shape[1])
        self.dtype = stored
        self._cols = panel_cols(TARGET)
        layout = MemLayout.panels(self._cols)
        self.panels = empty(tuple(map(int, layout.physical_dims(self.shape))), stored)
        layout.pack_into(self.panels, array)

    def unpack(self) -> np.ndarray:
        """Return a new array `[k, n]` of the stored type."""
        return MemLayout.panels(self._cols).unpack(self.panels, self.shape[1])


@lru_cache(maxsize=64)
def compiled(form: MatmulForm) -> Program:
    """Return the program of a form: it runs on any sizes."""
    return matmul_workload(form).compile(target=TARGET)


def matmul(
    x: Any,
    matrix: PackedMatrix,
    bias: Any = None,
    *,
    activation: Activation | None = None,
    out: np.ndarray | None = None,
    workers: int | None = None,
) -> np.ndarray:
    """Return activation(x @ matrix + bias), rounded once to the type of `x`.

    Element (i, j) is one chain of fused multiply-adds in f32 over k in ascending order, from 0 (of bf16 with
    bf16, where the processor has dot products of them, sums of pairs or of 32 terms); then the bias is
    added. Its bits depend on row i and column j alone: not on the other rows, nor on the workers.

    Args:
        x: `[..., k]` of f32, f16 or bf16. Small floats are widened once per call, but for bf16 with bf16
            where the processor sums pairs.
        matrix: packed before, of any element type.
        bias: `[n]` f32; None: none.
        activation: "relu", "gelu" (by erf) or "silu", done on each tile before it is stored; None: none.
        out: C-contiguous array `[..., n]` of the type of `x` that takes the result; None: a new one.
        workers: threads; None: all cores.

    Raises:
        WrongDType, WrongRank, WrongShape, WrongValue: arrays that do not fit; nothing has run.
    """
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    if not isinstance(matrix, PackedMatrix):
        raise WrongValue(name="matrix", expected="a PackedMatrix", found=type(matrix).__name__)
    k, n = matrix.shape
    require_shape("x", array, (*array.shape[:-1], k))
    added = np.zeros(n, np.float32) if bias is None else like("bias", bias, f32, (n,))
    if activation is not None and activation not in ACTIVATIONS:
        expected = ", ".join(map(repr, ACTIVATIONS))
        raise WrongValue(name="activation", expected=f"None, {expected}", found=repr(activation))
    require_apart(out, array, added, matrix.panels)
    y = output(out, (*array.shape[:-1], n), dtype)
    left = rows(array)
    is_paired = dtype is bf16 and matrix.dtype is bf16 and sums_pairs(TARGET)
    is_widened = dtype is not f32 and not is_paired
    wide = empty(left.shape, f32) if is_widened else left
    program = compiled(MatmulForm(dtype, matrix.dtype, activation or "", is_widened, matrix.panels.shape[-1]))
    program.run(workers=workers, X=left, W=matrix.panels, B=added.reshape(1, n), Y=rows(y), Wide=wide)
    return y
