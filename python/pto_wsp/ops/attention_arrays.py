"""The arrays of a batch: checked, and as the workload takes them."""

from __future__ import annotations

import sys
from math import gcd
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from pto_wsp.errors import (
    InvalidPlanParams,
    UnusableArray,
    WrongDType,
    WrongRank,
    WrongShape,
    WrongValue,
)
from pto_wsp.ops.attention_form import AttentionForm
from pto_wsp.planner.config import INT_MAX
from pto_wsp.runtime.dlpack import as_numpy
from pto_wsp.types.dtype import DType


def given_arrays(
    form: AttentionForm, kv_indptr: Any, kv_indices: Any, kv_last_page_len: Any
) -> tuple[Any, ...]:
    """Return the arrays that a cache of this form needs, no more and no fewer."""
    for name, value in (("kv_indices", kv_indices), ("kv_last_page_len", kv_last_page_len)):
        if (value is None) == bool(form.page_size):
            expected, found = (
                ("an array", "none") if form.page_size else ("none: keys are ragged", "an array")
            )
            raise InvalidPlanParams(what=f"the argument {name}", expected=expected, found=found)
    return (kv_indptr, kv_indices, kv_last_page_len) if form.page_size else (kv_indptr,)


def _integers(name: str, values: Any) -> np.ndarray:
    """Return a flat sequence of integers."""
    if hasattr(values, "__dlpack__"):
        array = as_numpy(name, values)
    else:
        try:
            array = np.asarray(values)
        except ValueError:  # nested sequences of different lengths
            array = np.empty((0, 0))
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        found = f"{array.dtype} of rank {array.ndim}"
        raise InvalidPlanParams(what=f"the array {name}", expected="a flat sequence of integers", found=found)
    return array


def _require(is_good: np.ndarray, name: str, values: np.ndarray, expected: str) -> None:
    """Raise an error that names the first element that is not good."""
    if not is_good.all():
        place = int(np.argmin(is_good))
        raise InvalidPlanParams(what=f"{name}[{place}]", expected=expected, found=values[place])


def read_indptr(name: str, values: Any) -> np.ndarray:
    """Return offsets that begin at 0 and do not fall."""
    array = _integers(name, values).astype(np.int64)
    if not array.size:
        raise InvalidPlanParams(what=f"the array {name}", expected="at least one element", found="none")
    _require(array[:1] == 0, name, array, "0")
    _require(array[1:] >= array[:-1], f"{name}[1:]", array[1:], "no less than the element before")
    if array[-1] > INT_MAX:
        raise InvalidPlanParams(what=f"{name}[-1]", expected=f"at most {INT_MAX}", found=array[-1])
    return array


def paged_request(
    page_size: int, kv_indptr: Any, kv_indices: Any, last: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return offsets, pages and lengths."""
    indptr, indices, last = (
        read_indptr("kv_indptr", kv_indptr),
        _integers("kv_indices", kv_indices),
        _integers("kv_last_page_len", last).astype(np.int64),
    )
    counts = np.diff(indptr)
    if indices.size < indptr[-1]:
        raise InvalidPlanParams(
            what="the array kv_indices",
            expected=f"at least kv_indptr[-1] = {indptr[-1]} pages",
            found=indices.size,
        )
    if last.size != counts.size:
        raise InvalidPlanParams(
            what="the array kv_last_page_len", expected=f"{counts.size} elements", found=last.size
        )
    indices = indices[: indptr[-1]]
    if indices.min(initial=0) < 0 or indices.max(initial=0) > INT_MAX:
        _require((indices >= 0) & (indices <= INT_MAX), "kv_indices", indices, f"0..{INT_MAX}")
    is_empty = counts == 0
    _require(is_empty | ((last >= 1) & (last <= page_size)), "kv_last_page_len", last, f"1..{page_size}")
    return indptr, indices.astype(np.int32), np.where(is_empty, 0, (counts - 1) * page_size + last)


def read_array(
    name: str, value: Any, dtype: DType, shape: tuple[int | None, ...], is_written: bool = False
) -> np.ndarray:
    """Return an argument as an array of the same memory, checked against a shape; None is any size."""
    value = as_numpy(name, value)
    if value.dtype != dtype.to_numpy():
        raise WrongDType(name=name, expected=dtype, found=value.dtype)
    if value.ndim != len(shape):
        raise WrongRank(name=name, expected=len(shape), found=value.ndim)
    for dim, (size, found) in enumerate(zip(shape, value.shape, strict=True)):
        if size is not None and size != found:
            raise WrongShape(name=name, dim=dim, expected=size, found=found)
    if not value.flags.aligned or (not value.flags.c_contiguous and min(_steps(value), default=0) < 0):
        reason = (
            f"strides of {value.strides} bytes at {value.ctypes.data:#x}, for elements of {value.itemsize}"
        )
        raise UnusableArray(name=name, reason=reason)
    if is_written and not value.flags.c_contiguous:
        raise WrongValue(name=name, expected="a C-contiguous array", found=f"strides {value.strides}")
    return value


def empty_like(q: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a new array of the library that `q` is of: numpy, or one whose arrays have `new_empty`."""
    if isinstance(q, np.ndarray) or not hasattr(q, "new_empty"):
        return np.empty(shape, getattr(q, "dtype", None) if dtype is None else dtype)
    library = sys.modules[type(q).__module__.partition(".")[0]]
    return q.new_empty(shape) if dtype is None else q.new_empty(shape, dtype=library.float32)


def _steps(array: np.ndarray) -> tuple[int, ...]:
    """Return bytes between neighbours; 0 where there are none, whatever the array says."""
    return tuple(s if n > 1 and array.size else 0 for n, s in zip(array.shape, array.strides, strict=True))


def as_rows(keys: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Return keys and values as rows of `dim` elements, and how many rows lie between neighbours.

    Raises:
        UnusableArray: the elements of a head do not lie side by side, or strides are negative or no multiple
            of an element.
        WrongValue: values lie in memory otherwise than keys do.
    """
    *outer, dim = keys.shape
    itemsize = keys.itemsize
    for name, array in (("k", keys), ("v", values)):
        *steps, last = _steps(array)
        is_split = last != itemsize and dim > 1 and array.size
        if is_split or any(step < 0 or step % itemsize for step in steps):
            reason = f"strides of {array.strides} bytes, for elements of {itemsize}"
            raise UnusableArray(name=name, reason=reason)
    if _steps(keys) != _steps(values):
        raise WrongValue(name="v", expected=f"the strides of `k`, {keys.strides}", found=str(values.strides))
    *strides, _ = _steps(keys)
    unit = gcd(*strides) or dim * itemsize
    steps = [stride // unit for stride in strides]
    count = 1 + sum((n - 1) * step for n, step in zip(outer, steps, strict=True)) if keys.size else 0
    if count > INT_MAX:
        raise UnusableArray(name="k", reason=f"it has {count} rows, and row numbers are 32 bits")
    shape, spacing = (count, dim), (unit, itemsize)
    k, v = (as_strided(array, shape, spacing, writeable=False) for array in (keys, values))
    page_step = steps[0] if len(steps) == 3 else 0
    return {"k": k, "v": v, "page_step": page_step, "slot_step": steps[-2], "head_step": steps[-1]}
