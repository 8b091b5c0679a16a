"""What operators do with arrays: element types, matrices of any number of dimensions, outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp.errors import WrongDType, WrongRank, WrongShape, WrongValue
from pto_wsp.runtime.dlpack import as_numpy
from pto_wsp.support.arrays import is_masked
from pto_wsp.types import bf16, f16, f32
from pto_wsp.types.dtype import DType, dtype_of_numpy

DTYPES = (f32, f16, bf16)
"""Element types that operators have."""

WIDE = 256
"""Columns from which a matrix is taken as it is; elements of narrower ones are one long row."""


def floats(name: str, value: Any) -> tuple[np.ndarray, DType]:
    """Return an argument as an array in row-major order, copied where it is not, with its element type.

    Raises:
        WrongDType: its elements are not floats of 16 or 32 bits.
    """
    array = as_array(name, value)
    dtype = dtype_of_numpy(array.dtype)
    if dtype not in DTYPES:
        raise WrongDType(name=name, expected="f32, f16 or bf16", found=array.dtype)
    assert dtype is not None
    return array, dtype


def like(name: str, value: Any, dtype: DType, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return an argument as an array of a known element type, and shape if one is given.

    Raises:
        WrongDType, WrongRank, WrongShape: it has another one.
    """
    array = as_array(name, value)
    if dtype_of_numpy(array.dtype) is not dtype:
        raise WrongDType(name=name, expected=dtype, found=array.dtype)
    if shape is not None:
        require_shape(name, array, shape)
    return array


def as_array(name: str, value: Any) -> np.ndarray:
    """Return an argument as an array in row-major order, copied where it is not."""
    array = np.asarray(value) if isinstance(value, np.generic) else as_numpy(name, value)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def require_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise WrongRank or WrongShape unless an array has a shape."""
    if array.shape == shape:
        return
    if array.ndim != len(shape):
        raise WrongRank(name=name, expected=len(shape), found=array.ndim)
    for dim, (size, found) in enumerate(zip(shape, array.shape, strict=True)):
        if size != found:
            raise WrongShape(dim=dim, name=name, expected=size, found=found)


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return where a result goes: a new array, or the one that is given.

    Raises:
        WrongDType, WrongRank, WrongShape: the given one does not fit.
        WrongValue: it is not a numpy array, or not in row-major order.
    """
    if out is None:
        return np.empty(shape, dtype.to_numpy())
    if not isinstance(out, np.ndarray) or is_masked(out):
        found = "a masked array" if is_masked(out) else type(out).__name__
        raise WrongValue(name="out", expected="a numpy array", found=found)
    if dtype_of_numpy(out.dtype) is not dtype:
        raise WrongDType(name="out", expected=dtype, found=out.dtype)
    require_shape("out", out, shape)
    if not out.flags.c_contiguous:
        raise WrongValue(name="out", expected="an array in row-major order", found=f"strides {out.strides}")
    return out


def require_apart(out: np.ndarray | None, *inputs: np.ndarray) -> None:
    """Raise WrongValue where a result would overwrite what is still to be read."""
    if out is not None and any(np.shares_memory(out, array) for array in inputs):
        raise WrongValue(name="out", expected="memory of its own", found="that of an input")


def flat(array: np.ndarray) -> np.ndarray:
    """Return the elements of an array as a matrix of long rows."""
    if array.ndim and array.shape[-1] >= WIDE:
        return array.reshape(-1, array.shape[-1])
    return array.reshape(1, -1)


def rows(array: np.ndarray) -> np.ndarray:
    """Return an array of at least one dimension as a matrix of its last one's rows."""
    return array.reshape(-1, array.shape[-1]) if array.size else array.reshape(_count(array), array.shape[-1])


def _count(array: np.ndarray) -> int:
    return int(np.prod(array.shape[:-1]))


def require_rank(name: str, array: np.ndarray, least: int) -> None:
    """Raise WrongRank unless an array has at least this number of dimensions."""
    if array.ndim < least:
        raise WrongRank(name=name, expected=f"at least {least}", found=array.ndim)
