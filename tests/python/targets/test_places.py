"""Products of right operands that lie anywhere: bits depend on neither place, nor rows, nor what is valid."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import replace
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DTYPES
from tests.python.lang.programs import kernel_of
from tests.python.targets import ctypes_abi
from tests.python.targets.widths import WIDTHS, vectors_of
from tests.slow import mostly_slow

TERMS, COLS, MOST_ROWS = 150, 128, (8, 130)
"""Enough terms for two blocks of them; few rows read the operand where it lies, many in blocks. Of so
many rows blocks are copied whose rows share few sets of the first cache, as those of COLS columns do."""

ROWS, LENGTHS = (1, 2, 4, 5, 8), (1, 3, 4, 7, 130, 150)
WIDTHS_IN_ELEMENTS = (1, 15, 16, 17, 40, 64, 72, 128)


def product(rows: int, dtype: str, adds: bool) -> KernelFunction:
    """y = a @ b, or y += a @ b."""
    way = "InOut" if adds else "Out"
    a, b, y = f"Tile[{rows}, {TERMS}, f32]", f"Tile[{TERMS}, {COLS}, {dtype}]", f"Tile[{rows}, {COLS}, f32]"
    signature = f"a: In[{a}], b: In[{b}], y: {way}[{y}]"
    body = "pto.store(y, pto.matmul(a, b, acc=y))" if adds else "pto.store(y, pto.matmul(a, b))"
    return replace(kernel_of(signature, body), name=f"places_{rows}_{dtype}_{adds}")


def placed(values: np.ndarray, offset: int, stride: int) -> np.ndarray:
    """Return a copy that begins `offset` elements behind a line, whose rows are `stride` elements apart."""
    size = values.itemsize
    memory = np.zeros(128 + (offset + stride * len(values)) * size, np.uint8)
    start = -memory.ctypes.data % 64 + offset * size
    view = memory[start : start + stride * len(values) * size].view(values.dtype).reshape(-1, stride)
    view[:, : values.shape[1]] = values
    return view[:, : values.shape[1]]


@pytest.mark.parametrize("width", WIDTHS)
def test_bits_do_not_depend_on_the_place(width: str | None, cache: ArtifactCache) -> None:
    kernels = {
        (rows, dtype, adds): product(rows, dtype, adds)
        for rows in MOST_ROWS
        for dtype in ("f32", "bf16")
        for adds in (False, True)
    }
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build(list(kernels.values()), cache))
    rng = np.random.default_rng(0)
    for dtype in ("f32", "bf16"):
        for cols in WIDTHS_IN_ELEMENTS:
            terms = int(rng.choice(LENGTHS))
            a = rng.standard_normal((MOST_ROWS[1], terms), np.float32)
            b = rng.standard_normal((terms, cols)).astype(DTYPES[dtype].to_numpy())
            y = rng.standard_normal((len(a), cols), np.float32)
            for adds in (False, True):
                expected = y.copy()
                assert not library.call(kernels[MOST_ROWS[1], dtype, adds], [a, b, expected])
                exact = a.astype(np.float64) @ b.astype(np.float64) + adds * y.astype(np.float64)
                assert np.abs(expected - exact).max() <= 2e-5 * max(1.0, np.abs(exact).max())
                for most, valid, offset, stride in cases(rng, cols):
                    found = y[:valid].copy()
                    place = placed(b, offset, stride)
                    assert not library.call(kernels[most, dtype, adds], [a[:valid].copy(), place, found])
                    at = f"{terms=} {cols=} {most=} {offset=} {stride=}"
                    np.testing.assert_array_equal(found, expected[:valid], at)


def cases(rng: np.random.Generator, cols: int) -> list[tuple[int, int, int, int]]:
    """Return most rows, valid rows, and where the right operand lies: in whole lines, or not."""
    strides = (cols, 64 if cols <= 64 else COLS, COLS + 4, 2 * COLS)
    return [
        (most, int(rng.choice(ROWS if most == 8 else (*ROWS, 23, 24, 25, 90, 96, 130))), offset, stride)
        for most in MOST_ROWS
        for offset in (0, 4, 8, 5)
        for stride in strides
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", mostly_slow(["bf16", "f32"]))
def test_rows_may_be_one_row_or_go_backwards(width: str | None, dtype: str, cache: ArtifactCache) -> None:
    kernels = [product(rows, dtype, adds=False) for rows in MOST_ROWS]
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build(kernels, cache))
    rng = np.random.default_rng(1)
    b = rng.standard_normal((TERMS, COLS)).astype(DTYPES[dtype].to_numpy())
    for right in (
        np.broadcast_to(b[:1], b.shape),
        b[::-1],
        b[:1, :40],
        np.broadcast_to(b[:1], (TERMS, COLS))[:, :24],
    ):
        a = rng.standard_normal((MOST_ROWS[1], len(right)), np.float32)
        exact = a.astype(np.float64) @ right.astype(np.float64)
        for kernel, most in zip(kernels, MOST_ROWS, strict=True):
            for valid in (1, 3, most):
                found = np.zeros((valid, right.shape[1]), np.float32)
                assert not library.call(kernel, [a[:valid].copy(), right, found])
                assert np.abs(found - exact[:valid]).max() <= 2e-5 * np.abs(exact).max()
