"""What instructions mean, in numpy: the kernel oracle.

Operands are numpy arrays of the valid parts of tiles; inexact rows get them as f64, exact rows in the type
they compute in (f32 for f16 and bf16). The caller rounds the result to the destination's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Attrs = Mapping[str, object]

_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
COMPARE_MODES = tuple(_COMPARE)


def divide(a: Array, b: Array) -> Array:
    """Divide; integers toward zero, x / 0 = 0 (numpy's result), the minimum by -1 wraps."""
    if a.dtype.kind == "f":
        return a / b
    b = np.asarray(b, a.dtype)
    plain = np.where((b == 0) | (b == -1), a.dtype.type(1), b)
    quotient = (a - np.fmod(a, plain)) // plain
    return np.where(b == 0, a.dtype.type(0), np.where(b == -1, np.negative(a), quotient))


def remainder(a: Array, b: Array) -> Array:
    """Remainder of the truncated quotient, with the sign of `a`; integers: x rem 0 = 0."""
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    b = np.asarray(b, a.dtype)
    plain = np.where((b == 0) | (b == -1), a.dtype.type(1), b)
    return np.fmod(a, plain)


def erf(x: Array) -> Array:
    """The error function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def reduce(function: np.ufunc, axis: int, identity: str) -> Callable[[Array, Attrs], Array]:
    """Return the meaning of a reduction along `axis`; nothing reduced gives `zero`, `lowest` or `highest`."""

    def meaning(a: Array, attrs: Attrs) -> Array:
        if a.shape[axis] == 0:
            shape = (a.shape[0], 1) if axis == 1 else (1, a.shape[1])
            return np.full(shape, _identity(identity, a.dtype), a.dtype)
        return function.reduce(a, axis=axis, keepdims=True, dtype=a.dtype)

    return meaning


def _identity(identity: str, dtype: np.dtype) -> float | int:
    if identity == "zero":
        return 0
    if dtype.kind == "f":
        return -math.inf if identity == "lowest" else math.inf
    info = np.iinfo(dtype)
    return int(info.min if identity == "lowest" else info.max)


def compare(a: Array, b: Array, attrs: Attrs) -> Array:
    """Compare by `attrs["mode"]`; a NaN makes every mode but `ne` false."""
    return _COMPARE[str(attrs["mode"])](a, b)


def matmul(a: Array, b: Array, attrs: Attrs) -> Array:
    """Matrix product, of transposes where `trans_a`, `trans_b` ask for them."""
    return (a.T if attrs.get("trans_a") else a) @ (b.T if attrs.get("trans_b") else b)


def convert(a: Array, attrs: Attrs) -> Array:
    """Convert; float to integer rounds toward zero and saturates, NaN becomes 0; integers keep low bits."""
    target = attrs["numpy_dtype"]
    assert isinstance(target, np.dtype)
    if a.dtype.kind == "f" and target.kind in "iu":
        info = np.iinfo(target)
        whole = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0))
        high, low = whole >= float(info.max), whole <= float(info.min)
        inside = np.where(high | low, 0.0, whole).astype(target)
        return np.where(high, target.type(info.max), np.where(low, target.type(info.min), inside))
    return a.astype(target)


def expand(a: Array, attrs: Attrs) -> Array:
    """Repeat a column or row to the valid shape `attrs["valid_shape"]`."""
    shape = attrs["valid_shape"]
    assert isinstance(shape, tuple)
    return np.broadcast_to(a, shape)
