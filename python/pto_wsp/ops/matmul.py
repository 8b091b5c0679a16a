"""Products with a matrix that is packed once: weights of layers, by rows of any number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from pto_wsp.types import MemLayout, bf16, f32, i8, u8
from pto_wsp.types.dtype import DType, dtype_of_numpy
from pto_wsp.types.ggml_blocks import BLOCK_BYTES, from_ggml
from pto_wsp.types.int_words import UnknownWords, from_awq, from_gptq
from pto_wsp.types.quantised import FORMATS, Format, Numbers, pack, quantise, rounded_cols, unpack

TARGET = "cpu"
Activation = Literal["relu", "gelu", "silu"]


class PackedMatrix:
    """A matrix `[k, n]` in panels of columns, the order in which products read it.

    Args:
        matrix: `[k, n]` of f32, f16, bf16 or i8, of numpy or what shares memory by DLPack, in any strides:
            `weight.T` of a layer whose weight is `[n, k]`.
        dtype: element type to store, or the name of a format of `FORMATS`, such as "q8_0"; None: that of
            `matrix`. Products add up in f32 in any case. Floats become i8 by a scale per column, and a format
            has one per group of rows; `k` is a multiple of the format's block. "i4" has a scale per column,
            which is stored per group of the largest format that divides `k`.

    Attributes:
        shape: `(k, n)`.
        dtype: element type or format.
        panels: the memory, `[panels, k, cols]` with as many columns as `pto_wsp.panel_cols` says and zeros
            after column n; of a format `[panels, k / block, bytes]` u8.
        panel_cols: columns of a panel.
        scale: `[1, n]` f32 that products are multiplied by, or None.

    Raises:
        UnusableArray: an array that cannot be read in place.
        WrongDType: no float of 16 or 32 bits and no i8.
        WrongRank: not two dimensions.
        WrongShape: `k` is not a multiple of the format's block.
        WrongValue: no array, `dtype` is none of these, or an element has no number in a format.
    """

    def __init__(self, matrix: Any, dtype: DType | str | None = None) -> None:
        array = as_numpy("matrix", matrix)
        own = dtype_of_numpy(array.dtype)
        if own is None or own not in (*DTYPES, i8):
            raise WrongDType(name="matrix", expected="f32, f16, bf16 or i8", found=array.dtype)
        require_shape("matrix", array, array.shape[:2] if array.ndim >= 2 else (0, 0))
        if isinstance(dtype, str):
            by_column = dtype == BY_COLUMN
            form = _by_column_format(array.shape[0]) if by_column else _format(dtype, QUANTISED)
            self._quantise(array.astype(np.float32), form, by_column)
            return
        stored = own if dtype is None else dtype
        if stored not in (*DTYPES, i8):
            expected = "f32, f16, bf16 or i8 of pto_wsp, or the name of a format"
            raise WrongValue(name="dtype", expected=expected, found=repr(dtype))
        self.shape: tuple[int, int] = (array.shape[0], array.shape[1])
        self.dtype: DType | Format = stored
        self.scale: np.ndarray | None = None
        self.panel_cols = panel_cols(TARGET)
        if stored is i8 and own is not i8:
            array, self.scale = _by_columns(array.astype(np.float32))
        layout = MemLayout.panels(self.panel_cols)
        self.panels = empty(tuple(map(int, layout.physical_dims(self.shape))), stored)
        layout.pack_into(self.panels, array)

    @classmethod
    def from_ggml(cls, blocks: Any, format: str) -> PackedMatrix:
        """Return the matrix that blocks of a GGUF file hold, without loss.

        Args:
            blocks: `[n, bytes]` u8: a row of blocks per column of the matrix, as in the file.
            format: "q8_0", "q4_0", "q4_1", "q4_k" or "q6_k".

        Raises:
            UnusableArray, WrongDType, WrongRank: no array of two dimensions of u8.
            WrongShape: a row is not made of whole blocks.
            WrongValue: none of these formats.
        """
        array, form = as_numpy("blocks", blocks), _format(format, BLOCK_BYTES)
        if array.dtype != np.uint8:
            raise WrongDType(name="blocks", expected=u8, found=array.dtype)
        require_rank("blocks", array, 2)
        size = BLOCK_BYTES[form.name]
        require_shape("blocks", array, (array.shape[0], -(-array.shape[1] // size) * size))
        made = cls.__new__(cls)
        made._pack(from_ggml(array, form))
        return made

    @classmethod
    def from_gptq(
        cls, qweight: Any, qzeros: Any, scales: Any, g_idx: Any = None, *, bits: int = 4, version: int = 1
    ) -> PackedMatrix:
        """Return the matrix that tensors of a GPTQ checkpoint hold, without loss.

        Args:
            qweight: `[k * bits / 32, n]` i32.
            qzeros: `[groups, n * bits / 32]` i32.
            scales: `[groups, n]` of floats that f16 holds; one group has whole columns.
            g_idx: `[k]` i32, the group of each row; None: groups are in order.
            bits: of a number, 4 or 8.
            version: 1 ("gptq") stores zeros minus 1, 2 ("gptq_v2") as they are.

        Raises:
            UnusableArray: an array that cannot be read in place.
            WrongValue: rows in the order of activations, other sizes, types, bits or versions.
        """
        if version not in (1, 2):
            raise WrongValue(name="version", expected="1 or 2", found=version)
        words, zeros = _words("qweight", qweight), _words("qzeros", qzeros)
        numbers, index = as_numpy("scales", scales), None if g_idx is None else as_numpy("g_idx", g_idx)
        return cls._of_words(lambda: from_gptq(words, zeros, numbers, index, bits, adds_one=version == 1))

    @classmethod
    def from_awq(cls, qweight: Any, qzeros: Any, scales: Any) -> PackedMatrix:
        """Return the matrix that tensors of an AWQ checkpoint hold (4 bits, version "gemm"), without loss.

        Args:
            qweight: `[k, n / 8]` i32.
            qzeros: `[groups, n / 8]` i32.
            scales: `[groups, n]` of floats that f16 holds.

        Raises:
            UnusableArray: an array that cannot be read in place.
            WrongValue: other sizes or types.
        """
        words, zeros = _words("qweight", qweight), _words("qzeros", qzeros)
        numbers = as_numpy("scales", scales)
        return cls._of_words(lambda: from_awq(words, zeros, numbers))

    @classmethod
    def _of_words(cls, read: Callable[[], Numbers]) -> PackedMatrix:
        made = cls.__new__(cls)
        try:
            made._pack(read())
        except UnknownWords as error:
            raise WrongValue(name="qweight", expected="a matrix with numbers", found=str(error)) from error
        return made

    def _quantise(self, array: np.ndarray, form: Format, by_column: bool) -> None:
        require_shape("matrix", array, (-(-array.shape[0] // form.block) * form.block, array.shape[1]))
        if array.size == 0:
            raise WrongValue(name="matrix", expected=f"elements, which {form} needs", found=f"{array.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = quantise(array, form, by_column)
        if not np.isfinite(numbers.scales).all() or not np.isfinite(array).all():
            expected = f"elements that {form} holds: finite, and within its scales of f16"
            raise WrongValue(name="matrix", expected=expected, found="others")
        minima = numbers.minima
        if array.any() and not numbers.scales.any() and (minima is None or not minima.any()):
            expected, largest = f"elements that scales of f16 hold ({form})", np.abs(array).max()
            raise WrongValue(name="matrix", expected=expected, found=f"none above {largest:.1e}")
        self._pack(numbers)

    def _pack(self, numbers: Numbers) -> None:
        self.shape = (numbers.q.shape[0], numbers.q.shape[1])
        self.dtype = numbers.format
        self.scale = None
        self.panel_cols = panel_cols(TARGET)
        packed = pack(numbers, self.panel_cols)
        self.panels = empty(packed.shape, u8)
        self.panels[...] = packed

    def unpack(self) -> np.ndarray:
        """Return a new array `[k, n]`: of the stored type, or of f32 where there are scales."""
        k, n = self.shape
        if isinstance(self.dtype, Format):
            panels = [unpack(panel, self.dtype).values() for panel in self.panels]
            return np.concatenate([np.empty((k, 0), np.float32), *panels], axis=1)[:, :n]
        plain = MemLayout.panels(self.panel_cols).unpack(self.panels, n)
        return plain if self.scale is None else plain * self.scale


BY_COLUMN = "i4"
"""Numbers of 4 bits with a scale per column."""

QUANTISED = tuple(form.name for form in FORMATS.values() if not form.level)
"""Formats that `PackedMatrix` makes of floats; the others are read from files."""


def _format(name: str, known: Iterable[str]) -> Format:
    if name not in known:
        expected = "one of " + ", ".join([*known, *([BY_COLUMN] if known is QUANTISED else [])])
        raise WrongValue(name="format", expected=expected, found=repr(name))
    return FORMATS[name]


def _by_column_format(k: int) -> Format:
    """Return the format with the largest groups that divide a column; the least one is refused later."""
    return next(
        (FORMATS[name] for name in ("i4g128", "i4g64") if k % FORMATS[name].block == 0), FORMATS["q4_0"]
    )


def _words(name: str, array: Any) -> np.ndarray:
    found = as_numpy(name, array)
    if found.dtype != np.int32 or found.ndim != 2:
        raise WrongValue(name=name, expected="[rows, words] i32", found=f"{found.shape} {found.dtype}")
    return found


def _by_columns(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest i8 of a matrix [k, n], and the scale of each column [1, n]."""
    scale = np.abs(array).max(axis=0, keepdims=True, initial=0) / np.float32(127)
    if not np.isfinite(scale).all():
        raise WrongValue(name="matrix", expected="finite elements", found="others")
    steps = np.divide(array, scale, out=np.zeros_like(array), where=scale > 0)
    return np.rint(steps).astype(np.int8), scale.astype(np.float32)


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
    x_dtype: DType | None = None,
    out: np.ndarray | None = None,
    workers: int | None = None,
) -> np.ndarray:
    """Return activation(x @ matrix + bias), rounded once to the type of `x`.

    Element (i, j) is one chain of fused multiply-adds in f32 over k in ascending order, from 0 (of bf16 with
    bf16, where the processor has dot products of them, sums of pairs or of 32 terms). A scale of column j
    multiplies it, if the matrix has one; then the bias is added. Its bits depend on row i and column j alone:
    not on the other rows, nor on the workers.

    Args:
        x: `[..., k]` of f32, f16 or bf16. Small floats are widened once per call, but for bf16 with bf16
            where the processor sums pairs.
        matrix: packed before, of any element type.
        bias: `[n]` f32; None: none.
        activation: "relu", "gelu" (by erf) or "silu", done on each tile before it is stored; None: none.
        x_dtype: i8 rounds each 32 elements of a row of `x` to multiples of the largest over 127, and adds
            products of integers in i32; for a matrix in a format. None: `x` as it is.
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
    is_rounded = _is_rounded(x_dtype, matrix)
    is_widened = dtype is not f32 and not is_paired and not is_rounded
    ready = left
    if is_rounded:
        ready = empty((len(left), rounded_cols(k)), u8)
    elif is_widened:
        ready = empty(left.shape, f32)
    is_scaled, row = matrix.scale is not None, added.reshape(1, n)
    scale = row if matrix.scale is None else matrix.scale
    form = MatmulForm(
        dtype, matrix.dtype, activation or "", is_widened, matrix.panel_cols, is_scaled, is_rounded
    )
    run = compiled(form).run
    run(workers=workers, X=left, W=matrix.panels, S=scale, B=row, Y=rows(y), Ready=ready)
    return y


def _is_rounded(x_dtype: DType | None, matrix: PackedMatrix) -> bool:
    """Return whether rows are rounded to i8."""
    if x_dtype is None:
        return False
    if x_dtype is not i8 or not isinstance(matrix.dtype, Format):
        expected = "None, or i8 for a matrix in a format"
        raise WrongValue(name="x_dtype", expected=expected, found=f"{x_dtype!r} for one of {matrix.dtype}")
    return True
