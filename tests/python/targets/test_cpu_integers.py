"""Quotients and remainders of integers on the target `cpu`: exact for every operand."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.isa.meaning import divide, remainder
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, i8, i16, i32, i64, u8, u16, u32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

ROWS, COLS = 64, 1024
DTYPES = (i8, i16, i32, i64, u8, u16, u32)
MEANINGS = {"div": divide, "rem": remainder}


def quotient(op: str, dtype: DType) -> object:
    maker = KernelMaker(f"{op}_{dtype}")
    a, b = (maker.input(name, ROWS, COLS, dtype) for name in "ab")
    maker.store(maker.op(op, a, b), "y")
    return maker.done()


def operands(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of i8 without exception; of others, where quotients are near whole numbers, and at the ends."""
    low, high = dtype.integer_range
    rng = np.random.default_rng(0)
    if dtype.itemsize == 1:
        a, b = np.meshgrid(np.arange(low, high + 1), np.arange(low, high + 1))
        return _tiled(a, dtype), _tiled(b, dtype)
    ends = [v for v in (*range(-3, 4), *range(low, low + 3), *range(high - 2, high + 1)) if low <= v <= high]
    powers = 2 ** rng.integers(0, 8 * dtype.itemsize - 1, 40000, dtype=np.uint64)
    b = np.maximum(rng.integers(0, powers, dtype=np.uint64), 1).astype(object)
    whole = np.array([int(q) for q in rng.integers(0, high, 40000, dtype=np.uint64)], object) // b * b
    b[::2] *= -1 if low < 0 else 1
    a = np.clip(whole + rng.integers(-1, 2, 40000), low, high)
    corners = np.array([(x, y) for x in ends for y in ends], object)
    return _tiled(np.append(a, corners[:, 0]), dtype), _tiled(np.append(b, corners[:, 1]), dtype)


def _tiled(values: np.ndarray, dtype: DType) -> np.ndarray:
    flat = np.zeros(ROWS * COLS, dtype.to_numpy())
    flat[: values.size] = values.ravel().astype(dtype.to_numpy())
    return flat.reshape(ROWS, COLS)


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        kernels = [quotient(op, dtype) for op in MEANINGS for dtype in DTYPES]
        return ctypes_abi.load(CpuTarget().build(kernels, cache))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", MEANINGS)
def test_every_quotient_is_exact(library: ctypes_abi.Library, op: str, dtype: DType) -> None:
    a, b = operands(dtype)
    found = np.empty_like(a)
    assert library.call(quotient(op, dtype), [a, b, found]) == 0
    expected = MEANINGS[op](a, b)
    wrong = found != expected
    assert not wrong.any(), (a[wrong][:5], b[wrong][:5], found[wrong][:5], expected[wrong][:5])
