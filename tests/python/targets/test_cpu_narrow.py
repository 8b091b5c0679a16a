"""Integers of 8 and 16 bits in lanes of their own width: the bits are those of wider lanes."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu import groups
from pto_wsp.targets.cpu.emit import emit_library
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, i8, i16, u8, u16
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

ROWS, COLS = 9, 150
DTYPES = (i8, i16, u8, u16)


def chain(dtype: DType, *, is_wide: bool) -> KernelFunction:
    """Every row that narrow lanes have, on operands in place, in scratch, and read as a row or column."""
    maker = KernelMaker(f"narrow_{dtype}_{is_wide}")
    x, z = (maker.input(name, ROWS, COLS, dtype) for name in "xz")
    total = maker.op("mul", maker.op("add", x, z), maker.op("sub", x, z))
    for op in ("max", "min", "bitwise_and", "bitwise_or", "bitwise_xor"):
        total = maker.op("add", total, maker.op(op, x, z))
    for op in ("adds", "subs", "muls", "maxs", "mins", "bitwise_ands", "bitwise_ors", "bitwise_xors"):
        total = maker.op("sub", maker.op(op, total, scalars=[3]), x)
    for op in ("addc", "subc"):
        total = maker.op(op, total, x, z)
    for op in ("addsc", "subsc"):
        total = maker.op(op, total, x, scalars=[2])
    for op in ("abs", "neg", "bitwise_not", "relu", "mov"):
        total = maker.op("mul", maker.op(op, total), z)
    maker.store(total, "y")
    turned = maker.op("transpose", maker.op("transpose", maker.op("sub", total, x)))
    column, row = maker.op("rowmax", turned), maker.op("colmin", x)
    for op in ("add", "sub", "mul", "max", "min"):
        turned = maker.op(f"rowexpand{op}", turned, column)
        turned = maker.op(f"colexpand{op}", turned, row)
    maker.store(turned, "w")
    maker.store(maker.op("neg", maker.op("adds", column, scalars=[1])), "v")
    return maker.done()


NARROW = {dtype: chain(dtype, is_wide=False) for dtype in DTYPES}
WIDE = {dtype: chain(dtype, is_wide=True) for dtype in DTYPES}


@pytest.fixture(scope="module", params=WIDTHS)
def libraries(
    request: pytest.FixtureRequest, cache: ArtifactCache
) -> tuple[ctypes_abi.Library, ctypes_abi.Library]:
    with vectors_of(request.param), pytest.MonkeyPatch.context() as patch:
        narrow = ctypes_abi.load(CpuTarget().build([*NARROW.values()], cache))
        patch.setattr(groups, "NARROW", frozenset())
        return narrow, ctypes_abi.load(CpuTarget().build([*WIDE.values()], cache))


def test_what_is_narrow_is_computed_so() -> None:
    text = emit_library([*NARROW.values()], 16).text
    assert all(f"Narrow<{kind}>" in text for kind in ("int8_t", "uint8_t", "int16_t", "uint16_t"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (1, 150), (3, 31), (5, 32), (7, 65), (9, 128), (9, 150)], ids=str)
def test_bits_are_those_of_wider_lanes(
    libraries: tuple[ctypes_abi.Library, ctypes_abi.Library], dtype: DType, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(shape[1])
    low, high = dtype.integer_range
    x, z = (rng.integers(low, high, shape, dtype.to_numpy(), endpoint=True) for _ in range(2))
    results = []
    for library, kernel in zip(libraries, (NARROW[dtype], WIDE[dtype]), strict=True):
        out = [np.zeros(size, dtype.to_numpy()) for size in (shape, shape, (shape[0], 1))]
        assert library.call(kernel, [x.copy(), z.copy(), *out]) == 0
        results.append(out)
    for narrow, wide in zip(*results, strict=True):
        np.testing.assert_array_equal(narrow, wide)
