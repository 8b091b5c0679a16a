"""Operators over one dimension: softmax, norms, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp.errors import WrongShape, WrongValue
from pto_wsp.ops.functional.arrays import floats, like, output, require_rank
from pto_wsp.ops.functional.arrays import rows as matrix
from pto_wsp.ops.functional.family import Family
from pto_wsp.ops.functional.layer_kernels import MAX_K
from pto_wsp.ops.functional.operator import GATES, NORMS, REDUCTIONS, SOFTMAXES, TABLES, operator
from pto_wsp.types import i32
from pto_wsp.types.dtype import DType

Array = np.ndarray


def _dim(array: Array, dim: int) -> int:
    require_rank("x", array, 1)
    if not -array.ndim <= dim < array.ndim:
        expected = f"a dimension from {-array.ndim} to {array.ndim - 1}"
        raise WrongValue(name="dim", expected=expected, found=str(dim))
    return dim % array.ndim


def _along(family: Family, name: str, x: Any, dim: int, out: Array | None, **numbers: float) -> Array:
    """Apply what works on rows along a dimension; another than the last one is moved there and back."""
    array, dtype = floats("x", x)
    dim = _dim(array, dim)
    y = output(out, array.shape, dtype)
    is_last = dim == array.ndim - 1
    source = array if is_last else np.ascontiguousarray(np.moveaxis(array, dim, -1))
    target = y if is_last else np.empty_like(source)
    family.run(dtype, name, X=matrix(source), Y=matrix(target), **numbers)
    if not is_last:
        y[...] = np.moveaxis(target, -1, dim)
    return y


def _reduce(
    family: Family,
    name: str,
    x: Any,
    dim: int,
    keepdim: bool,
    out: Array | None,
    made: DType | None = None,
    **numbers: float,
) -> Array:
    array, dtype = floats("x", x)
    dim = _dim(array, dim)
    source = np.ascontiguousarray(np.moveaxis(array, dim, -1))
    shape = (*array.shape[:dim], *((1,) if keepdim else ()), *array.shape[dim + 1 :])
    y = output(out, shape, made or dtype)
    family.run(dtype, name, X=matrix(source), Y=y.reshape(-1, 1), **numbers)
    return y


@operator("e^x_i / sum_j e^x_j", 12)
def softmax(x: Any, dim: int = -1, *, out: Array | None = None) -> Array:
    """Return the softmax along a dimension."""
    return _along(SOFTMAXES, "softmax", x, dim, out, a=1.0)


@operator("e^-x_i / sum_j e^-x_j", 12)
def softmin(x: Any, dim: int = -1, *, out: Array | None = None) -> Array:
    """Return the softmax of -x along a dimension."""
    return _along(SOFTMAXES, "softmax", x, dim, out, a=-1.0)


@operator("x_i - ln sum_j e^x_j", 4)
def log_softmax(x: Any, dim: int = -1, *, out: Array | None = None) -> Array:
    """Return the logarithm of the softmax along a dimension."""
    return _along(SOFTMAXES, "log_softmax", x, dim, out)


@operator("ln sum_j e^x_j", 4)
def logsumexp(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the logarithm of the sum of exponentials along a dimension."""
    return _reduce(SOFTMAXES, "logsumexp", x, dim, keepdim, out)


# --- norms --------------------------------------------------------------------------------------------------


def _weights(name: str, value: Any, dtype: DType, count: int, default: float) -> Array:
    if value is None:
        return np.full(count, default, dtype.to_numpy())
    return like(name, value, dtype, (count,))


@operator(
    "(x - mean) / sqrt(var + eps) w + b, over the last dimension",
    12,
    "x [..., n], weight [n], bias [n] -> [..., n]",
)
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, out: Array | None = None
) -> Array:
    """Return rows of the last dimension normalised to mean 0 and variance 1, times weight, plus bias."""
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    cols = array.shape[-1]
    y = output(out, array.shape, dtype)
    w = _weights("weight", weight, dtype, cols, 1.0).reshape(1, cols)
    b = _weights("bias", bias, dtype, cols, 0.0).reshape(1, cols)
    NORMS.run(dtype, "layer_norm", X=matrix(array), W=w, B=b, Y=matrix(y), a=eps)
    return y


@operator("x / sqrt(mean(x^2) + eps) w, over the last dimension", 10, "x [..., n], weight [n] -> [..., n]")
def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6, *, out: Array | None = None) -> Array:
    """Return rows of the last dimension divided by their root mean square, times weight."""
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    y = output(out, array.shape, dtype)
    w = _weights("weight", weight, dtype, array.shape[-1], 1.0).reshape(1, -1)
    NORMS.run(dtype, "rms_norm", X=matrix(array), W=w, Y=matrix(y), a=eps)
    return y


@operator(
    "(x - mean) / sqrt(var + eps) w + b, over groups of dimension 1 and all later dimensions",
    16,
    "x [N, C, ...], weight [C], bias [C] -> [N, C, ...]; C is a multiple of num_groups",
)
def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
) -> Array:
    """Return groups of channels normalised to mean 0 and variance 1, times weight, plus bias."""
    array, dtype = floats("x", x)
    require_rank("x", array, 2)
    count, channels = array.shape[:2]
    if num_groups < 1 or channels % num_groups:
        raise WrongShape(dim=1, name="x", expected=f"a multiple of {num_groups}", found=channels)
    y = output(out, array.shape, dtype)
    each = channels // num_groups
    shape = (count, num_groups, each, int(np.prod(array.shape[2:])))
    w = _weights("weight", weight, dtype, channels, 1.0).reshape(num_groups, each, 1)
    b = _weights("bias", bias, dtype, channels, 0.0).reshape(num_groups, each, 1)
    NORMS.run(dtype, "group_norm", X=array.reshape(shape), W=w, B=b, Y=y.reshape(shape), a=eps)
    return y


@operator(
    "(x - mean) / sqrt(var + eps) w + b, with a mean and a variance for each index of dimension 1",
    6,
    "x [N, C, ...], running_mean, running_var, weight, bias [C] -> [N, C, ...]",
)
def batch_norm(
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
) -> Array:
    """Return channels (dimension 1) normalised with the given mean and variance, for inference."""
    array, dtype = floats("x", x)
    require_rank("x", array, 2)
    count, channels = array.shape[:2]
    y = output(out, array.shape, dtype)
    shape = (count, channels, int(np.prod(array.shape[2:])))
    given = {
        "Mean": like("running_mean", running_mean, dtype, (channels,)),
        "Var": like("running_var", running_var, dtype, (channels,)),
        "W": _weights("weight", weight, dtype, channels, 1.0),
        "B": _weights("bias", bias, dtype, channels, 0.0),
    }
    columns = {name: value.reshape(channels, 1) for name, value in given.items()}
    GATES.run(dtype, "batch_norm", X=array.reshape(shape), Y=y.reshape(shape), a=eps, **columns)
    return y


@operator("x / max(sqrt(sum(x^2)), eps)", 8)
def normalize(x: Any, dim: int = -1, eps: float = 1e-12, *, out: Array | None = None) -> Array:
    """Return x divided by its Euclidean norm along a dimension."""
    return _along(NORMS, "normalize", x, dim, out, a=eps)


# --- reductions ---------------------------------------------------------------------------------------------


@operator("sum_j x_j", 8)
def sum(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the sum along a dimension."""
    return _reduce(REDUCTIONS, "sum", x, dim, keepdim, out, a=1.0)


@operator("sum_j x_j / n", 8)
def mean(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the mean along a dimension; NaN if the dimension is empty."""
    array, _ = floats("x", x)
    count = array.shape[_dim(array, dim)]
    y = _reduce(REDUCTIONS, "sum", array, dim, keepdim, out, a=1.0 / count if count else 1.0)
    if not count:
        y.fill(np.nan)
    return y


@operator("max_j x_j; -inf where empty", 0)
def amax(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the greatest element along a dimension; NaN if an element is NaN."""
    return _reduce(REDUCTIONS, "amax", x, dim, keepdim, out)


@operator("min_j x_j; inf where empty", 0)
def amin(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the least element along a dimension; NaN if an element is NaN."""
    return _reduce(REDUCTIONS, "amin", x, dim, keepdim, out)


@operator(
    "the lowest j with x_j = max x, as i32; -1 where empty",
    0,
    "x [..., n, ...] -> [..., ...] of i32, or [..., 1, ...] with keepdim=True; n is dimension `dim`",
)
def argmax(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the index of the first greatest element along a dimension; NaN counts as greatest."""
    return _reduce(REDUCTIONS, "argmax", x, dim, keepdim, out, made=i32, a=1.0)


@operator(
    "the lowest j with x_j = min x, as i32; -1 where empty",
    0,
    "x [..., n, ...] -> [..., ...] of i32, or [..., 1, ...] with keepdim=True; n is dimension `dim`",
)
def argmin(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the index of the first least element along a dimension; NaN counts as least."""
    return _reduce(REDUCTIONS, "argmax", x, dim, keepdim, out, made=i32, a=-1.0)


@operator("sum_j (x_j - mean)^2 / (n - correction)", 16)
def var(
    x: Any, dim: int = -1, correction: int = 1, keepdim: bool = False, *, out: Array | None = None
) -> Array:
    """Return the variance along a dimension; NaN if n is at most `correction`."""
    array, _ = floats("x", x)
    count = array.shape[_dim(array, dim)] - correction
    y = _reduce(REDUCTIONS, "var", array, dim, keepdim, out, a=float(max(count, 1)))
    if count <= 0:
        y.fill(np.nan)
    return y


@operator("sqrt(sum_j x_j^2)", 8)
def norm(x: Any, dim: int = -1, keepdim: bool = False, *, out: Array | None = None) -> Array:
    """Return the Euclidean norm along a dimension."""
    return _reduce(REDUCTIONS, "norm", x, dim, keepdim, out)


@operator(
    "the k largest of the last dimension in descending order, and where they are, as i32",
    0,
    "x [..., n] -> values [..., k], indices [..., k] of i32",
)
def topk(x: Any, k: int, *, out: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
    """Return the k greatest elements of each row and their indices; of equal elements the first.

    Raises:
        WrongValue: k is above the row's elements, or above 128.
    """
    array, dtype = floats("x", x)
    require_rank("x", array, 1)
    if not 1 <= k <= min(MAX_K, array.shape[-1]):
        raise WrongValue(name="k", expected=f"1 to {min(MAX_K, array.shape[-1])}", found=str(k))
    shape = (*array.shape[:-1], k)
    values, indices = (None, None) if out is None else out
    values, indices = output(values, shape, dtype), output(indices, shape, i32)
    TABLES.run(dtype, "topk", X=matrix(array), Y=matrix(values), I=matrix(indices))
    return values, indices
