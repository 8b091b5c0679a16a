"""Memory for large arrays: huge pages where the system gives them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_wsp.errors import OutOfMemory, WrongValue
from pto_wsp.location import caller_location
from pto_wsp.types.dtype import DType

HUGE_PAGE = 2 << 20
"""Bytes of a huge page."""


def empty(shape: int | Sequence[int], dtype: DType) -> np.ndarray:
    """Return an array whose memory lies in huge pages of 2 MiB where the system gives them.

    Large caches that are read in small pieces need fewer translations of addresses. Memory that was never
    written reads as 0. Arrays below a huge page are ordinary ones.

    Args:
        shape: a size, or a size per dimension.
        dtype: element type of tensors.

    Raises:
        WrongValue: a size is not an integer >= 0, or `dtype` is not an element type.
        OutOfMemory: the machine does not have so much.
    """
    if not isinstance(dtype, DType):
        expected = "an element type of `pto_wsp`, such as `f32`"
        raise WrongValue(name="dtype", expected=expected, found=repr(dtype), loc=caller_location())
    kind = dtype.to_numpy()
    sizes = _sizes(shape)
    size = math.prod(sizes) * kind.itemsize
    try:
        return _zeros(sizes, kind, size)
    except (OSError, OverflowError, ValueError, MemoryError):
        shown = "x".join(map(str, sizes))
        raise OutOfMemory(what=f"an array of {shown} {dtype}", size=f"{size} bytes") from None


def _sizes(shape: object) -> tuple[int, ...]:
    """Return sizes as Python's integers."""
    given: Sequence[Any] = shape if isinstance(shape, Sequence) else (shape,)
    for size in given:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            expected = "a size, or a size per dimension: integers >= 0"
            raise WrongValue(name="shape", expected=expected, found=repr(shape), loc=caller_location())
    return tuple(map(int, given))


def _zeros(sizes: tuple[int, ...], kind: np.dtype, size: int) -> np.ndarray:
    if size < HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(sizes, kind)
    memory = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        pass  # a system without huge pages: the array is as good as any other
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    return whole[start : start + size].view(kind).reshape(sizes)
