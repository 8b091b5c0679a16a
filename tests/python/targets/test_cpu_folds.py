"""Rows whose lanes are folded together have the bits of rows that are folded alone."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.groups import MANY_ROWS
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f16, f32, i32, i64, u32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

ROWS, COLS = 45, 37
OPS = ("rowsum", "rowmax", "rowmin")
DTYPES = (f32, bf16, f16, i32, u32, i64)


def folding(op: str, dtype: DType, rows: int) -> KernelFunction:
    maker = KernelMaker(f"{op}_{dtype}_{rows}")
    maker.store(maker.op(op, maker.input("x", rows, COLS, dtype)), "y")
    return maker.done()


def values(dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((ROWS, COLS)) * 100).astype(np.float32)
    if dtype.is_float:
        x[3, 5], x[18, 2], x[18, 30], x[21] = np.nan, np.inf, -np.inf, -0.0
        return x.astype(dtype.to_numpy())
    return np.abs(x).astype(dtype.to_numpy())


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_folded_alike_together_and_alone(width: str | None, cache: ArtifactCache) -> None:
    cases = [
        (dtype, folding(op, dtype, ROWS), folding(op, dtype, MANY_ROWS - 1)) for op in OPS for dtype in DTYPES
    ]
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build([k for case in cases for k in case[1:]], cache))
    for dtype, together, alone in cases:
        x = values(dtype)
        expected = np.zeros((ROWS, 1), x.dtype)
        for row in range(ROWS):
            assert library.call(alone, [x[row : row + 1], expected[row : row + 1]]) == 0
        for rows in (ROWS, 32, 17, 16, 3, 1, 0):
            found = np.zeros((rows, 1), x.dtype)
            assert library.call(together, [x[:rows], found]) == 0
            assert found.tobytes() == expected[:rows].tobytes(), (together.name, rows)
