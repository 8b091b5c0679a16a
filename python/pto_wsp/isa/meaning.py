"""What instructions mean, in numpy: the kernel oracle.

Operands are numpy arrays of the valid parts of tiles; inexact rows get them as f64, exact rows in the type
they compute in (f32 for f16 and bf16). The caller rounds the result to the destination's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from pto_wsp.types.quantised import CHUNK, FORMATS, round_rows, rounded_cols, rounded_values, unpack

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

_WHOLE: dict[str, Callable[[Array], Array]] = {
    "rint": np.rint,
    "round": lambda x: np.trunc(x) + np.copysign(np.abs(x - np.trunc(x)) >= 0.5, x),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
}
ROUND_MODES = tuple(_WHOLE)
"""To nearest even, to nearest with ties away from zero, down, up, toward zero."""


class Undefined(Exception):
    """Operands for which an instruction has no meaning; its text says why."""


UNSORTED = "pairs that should be sorted are not"
OUTSIDE = "an index lies outside the rows or columns that it picks from"
PART_OUTSIDE = "the part reaches outside of the tile"
ELEMENT_OUTSIDE = "the element lies outside of the valid part of the tile"
OTHER_DEPTH = "the left operand has not as many columns as the quantised matrix has rows"
PART_OF_BLOCK = "the quantised matrix has fewer columns than the sum"
PART_OF_GROUP = "the rows to quantise are not whole"
OTHER_COUNT = "the tile has not as many elements as its new shape"


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


def shl(a: Array, b: Array) -> Array:
    """Shift left; an amount outside of the type's bits gives 0."""
    inside = _shifts(a, b)
    return np.where(inside, np.left_shift(a, np.where(inside, b, 0)), 0).astype(a.dtype)


def shr(a: Array, b: Array) -> Array:
    """Shift right, copying the sign; an amount outside of the type's bits shifts all of them out."""
    inside = _shifts(a, b)
    gone = np.where(a < 0, -1, 0).astype(a.dtype)
    return np.where(inside, np.right_shift(a, np.where(inside, b, 0)), gone).astype(a.dtype)


def _shifts(a: Array, b: Array) -> Array:
    return (np.asarray(b) >= 0) & (np.asarray(b) < 8 * a.dtype.itemsize)


def prelu(a: Array, slope: Array) -> Array:
    """Multiply what is not above 0 by the slope."""
    return np.where(a > 0, a, a * slope)


def erf(x: Array) -> Array:
    """The error function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def gelu(x: Array) -> Array:
    """X times the standard normal distribution function of x."""
    if not x.size:
        return x
    half = np.vectorize(math.erfc, otypes=[np.float64])(-x * math.sqrt(0.5)) / 2
    return np.where(x == -np.inf, -0.0, x * half)


def silu(x: Array) -> Array:
    """X times its sigmoid; the limit at -inf, -0, is reached there."""
    return np.where(x == -np.inf, -0.0, x * sigmoid(x))


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
    """Matrix product, of transposes where `trans_a`, `trans_b` ask for them; of integers in i32."""
    if a.dtype.kind == "i":
        a, b = a.astype(np.int32), b.astype(np.int32)
    return (a.T if attrs.get("trans_a") else a) @ (b.T if attrs.get("trans_b") else b)


def matmul_bias(a: Array, b: Array, bias: Array, attrs: Attrs) -> Array:
    """Matrix product to which a row is added."""
    return matmul(a, b, attrs) + bias


def matmul_quantised(acc: Array, x: Array, w: Array, attrs: Attrs) -> Array:
    """`acc` and the product of rows, rounded or not, with the values of blocks of a quantised matrix."""
    form = FORMATS[str(attrs["format"])]
    if w.shape[1] % form.column_bytes or acc.shape[1] > w.shape[1] // form.column_bytes:
        raise Undefined(PART_OF_BLOCK)
    depth = w.shape[0] * form.block
    if x.shape[1] != (rounded_cols(depth) if x.dtype == np.uint8 else depth):
        raise Undefined(OTHER_DEPTH)
    if x.dtype == np.uint8:
        x = rounded_values(x)
    return acc + x @ unpack(w, form).values()[:, : acc.shape[1]].astype(np.float64)


def quantise(x: Array, attrs: Attrs) -> Array:
    """Rows in groups of integers (`types/quantised.py`)."""
    if rounded_cols(x.shape[1]) != _valid_shape(attrs)[1] or x.shape[1] % CHUNK:
        raise Undefined(PART_OF_GROUP)
    return round_rows(x)


def convert(a: Array, attrs: Attrs) -> Array:
    """Convert; float to integer saturates, NaN becomes 0; integers keep low bits.

    `attrs["rmode"]` says how a float is rounded; where it is absent, toward zero to an integer and to nearest
    even to a float. To the same float type it makes whole numbers.
    """
    target, mode = attrs["numpy_dtype"], attrs.get("rmode")
    assert isinstance(target, np.dtype)
    if a.dtype.kind == "f" and target.kind in "iu":
        info = np.iinfo(target)
        whole = _WHOLE[str(mode or "trunc")](np.nan_to_num(a.astype(np.float64), nan=0.0))
        high, low = whole >= float(info.max), whole <= float(info.min)
        inside = np.where(high | low, 0.0, whole).astype(target)
        return np.where(high, target.type(info.max), np.where(low, target.type(info.min), inside))
    if mode is None:
        return a.astype(target)
    if target == attrs["numpy_source"]:
        return np.copysign(_WHOLE[str(mode)](a), a).astype(target)
    return _narrowed(a, target, str(mode))


def _narrowed(a: Array, target: np.dtype, mode: str) -> Array:
    """Round to a float type of fewer bits, by its neighbours there."""
    nearest = a.astype(target)
    if target.itemsize >= a.dtype.itemsize or mode == "rint":
        return nearest
    bits = np.arange(2**16, dtype=np.uint16).view(target).astype(np.float64)
    grid = np.unique(bits[~np.isnan(bits)])
    exact = a.astype(np.float64)
    known = np.nan_to_num(exact, nan=0.0, posinf=np.inf, neginf=-np.inf)
    below = grid[np.clip(np.searchsorted(grid, known, "right") - 1, 0, None)]
    above = grid[np.clip(np.searchsorted(grid, known, "left"), None, grid.size - 1)]
    inner, outer = np.where(exact < 0, above, below), np.where(exact < 0, below, above)
    is_tie = (np.abs(known - inner) == np.abs(outer - known)) & (inner != outer)
    away = np.where(is_tie, outer, nearest.astype(np.float64))
    found = {"floor": below, "ceil": above, "trunc": inner, "round": away}[mode]
    return np.where(np.isnan(exact), np.nan, np.copysign(found, exact)).astype(target)


def expand(a: Array, attrs: Attrs) -> Array:
    """Repeat a column or row to the valid shape `attrs["valid_shape"]`."""
    return np.broadcast_to(a, _valid_shape(attrs))


def reshape(a: Array, attrs: Attrs) -> Array:
    """The elements in row-major order as another shape, of as many."""
    shape = _valid_shape(attrs)
    if a.size != shape[0] * shape[1]:
        raise Undefined(OTHER_COUNT)
    return a.reshape(shape)


def extract(a: Array, attrs: Attrs) -> Array:
    """The part of the asked shape that starts at `row`, `col`."""
    return a[_part(a, _valid_shape(attrs), attrs)]


def insert(a: Array, b: Array, attrs: Attrs) -> Array:
    """`a` with `b` in the place of its part that starts at `row`, `col`."""
    made = a.copy()
    made[_part(a, b.shape, attrs)] = b
    return made


def setval(a: Array, value: Array, attrs: Attrs) -> Array:
    """`a` with `value` as its element at `row`, `col`."""
    made = a.copy()
    made[_part(a, (1, 1), attrs, ELEMENT_OUTSIDE)] = value
    return made


def _part(a: Array, shape: tuple[int, ...], attrs: Attrs, outside: str = PART_OUTSIDE) -> tuple[slice, slice]:
    first = attrs.get("row", 0), attrs.get("col", 0)
    for start, count, size in zip(first, shape, a.shape, strict=True):
        assert isinstance(start, int)
        if start < 0 or start + count > size:
            raise Undefined(outside)
    rows, cols = (slice(s, s + n) for s, n in zip(first, shape, strict=True))  # pyright: ignore
    return rows, cols


def _valid_shape(attrs: Attrs) -> tuple[int, int]:
    shape = attrs["valid_shape"]
    assert isinstance(shape, tuple) and len(shape) == 2
    return shape


# --- order --------------------------------------------------------------------------------------------------


NO_PAIR = np.int64(np.iinfo(np.int64).min)
"""A pair that represents an absent one: it ranks below all others and reads as -inf and index -1."""

SORT_BLOCK = 32


def pairs(values: Array, indices: Array) -> Array:
    """Return values and indices as i64 pairs: in descending order, values descend, then indices ascend.

    The high half is a key that orders floats as integers (NaN above all numbers, -0 as 0), the low half the
    complement of the index.
    """
    plain = np.where(values == 0, np.float32(0), values.astype(np.float32))
    bits = np.where(np.isnan(plain), np.float32(np.nan), plain).view(np.int32)
    key = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    return (key.astype(np.int64) << 32) | (~indices.astype(np.int32)).view(np.uint32).astype(np.int64)


def _descending(a: Array) -> Array:
    return np.sort(a, axis=1)[:, ::-1]


def sort(values: Array, indices: Array, attrs: Attrs) -> Array:
    """Sort the pairs of each row in descending order."""
    return _descending(pairs(values, indices))


def sort32(values: Array, indices: Array, attrs: Attrs) -> Array:
    """Sort the pairs of each block of 32 columns in descending order."""
    return _sorted_blocks(pairs(values, indices), SORT_BLOCK)


def _sorted_blocks(a: Array, size: int) -> Array:
    blocks = [_descending(a[:, j : j + size]) for j in range(0, a.shape[1], size)]
    return np.concatenate([a[:, :0], *blocks], axis=1)


def mrgsort(a: Array, attrs: Attrs) -> Array:
    """Merge each four neighbouring runs of `attrs["run"]` sorted pairs."""
    run = attrs["run"]
    assert isinstance(run, int)
    _require_sorted(a, run)
    return _sorted_blocks(a, 4 * run)


def merge(a: Array, b: Array, attrs: Attrs) -> Array:
    """Return the first pairs of two sorted rows, as many as `attrs["valid_shape"]` has columns."""
    for operand in (a, b):
        _require_sorted(operand, max(1, operand.shape[1]))
    return _first(_descending(np.concatenate([a, b], axis=1)), attrs, NO_PAIR)


def topk_values(a: Array, attrs: Attrs) -> Array:
    """Return the values of the first pairs."""
    key = (a >> 32).astype(np.int32)
    bits = np.where(key < 0, key ^ np.int32(0x7FFFFFFF), key)
    values = np.where(a == NO_PAIR, np.float32(-np.inf), bits.view(np.float32))
    return _first(values, attrs, np.float32(-np.inf))


def topk_indices(a: Array, attrs: Attrs) -> Array:
    """Return the indices of the first pairs."""
    return _first(~a.astype(np.int32), attrs, np.int32(-1))


def _first(a: Array, attrs: Attrs, rest: np.generic) -> Array:
    shape = _valid_shape(attrs)
    made = np.full(shape, rest, a.dtype)
    made[:, : a.shape[1]] = a[:, : shape[1]]
    return made


def _require_sorted(a: Array, run: int) -> None:
    inside = np.arange(1, max(1, a.shape[1])) % run != 0
    if (np.diff(a.astype(object), axis=1)[:, inside] > 0).any():
        raise Undefined(UNSORTED)


def take(a: Array, indices: Array, attrs: Attrs) -> Array:
    """Pick elements of each row."""
    if ((indices < 0) | (indices >= a.shape[1])).any():
        raise Undefined(OUTSIDE)
    return np.take_along_axis(a, indices, axis=1)


def put(a: Array, values: Array, indices: Array, attrs: Attrs) -> Array:
    """Replace elements of each row; of those named twice the last value stays."""
    if ((indices < 0) | (indices >= a.shape[1])).any():
        raise Undefined(OUTSIDE)
    made = a.copy()
    for j in range(indices.shape[1]):
        made[np.arange(a.shape[0]), indices[:, j]] = values[:, j]
    return made


def argmax(a: Array, attrs: Attrs) -> Array:
    """Return the column of the first largest element of each row, -1 when empty."""
    return _arg(np.argmax, a)


def argmin(a: Array, attrs: Attrs) -> Array:
    """Return the column of the first smallest element of each row, -1 when empty."""
    return _arg(np.argmin, a)


def _arg(function: Callable[..., Array], a: Array) -> Array:
    if a.shape[1] == 0:
        return np.full((a.shape[0], 1), -1)
    return function(a, axis=1)[:, None]
