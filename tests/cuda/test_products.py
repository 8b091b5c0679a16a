"""Matrix products on the target `cuda`, emulated: which terms are added together, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.base import KernelArtifact
from pto_wsp.targets.cpu.features import resolve_features
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f16, f32
from tests.cuda.emulated import EmulatedCuda
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker

SHAPES = ((1, 3, 32), (4, 64, 128), (16, 8, 16), (17, 9, 33), (70, 75, 40), (130, 96, 20))
"""Rows, columns and terms: parts of blocks, one block, and blocks in which a warp has several."""

TURNS = ((False, False), (True, False), (False, True), (True, True))
"""Whether the operands are transposed."""


def product(rows: int, cols: int, terms: int, dtype: DType, turned: tuple[bool, bool]) -> KernelFunction:
    """Return a kernel that adds a product to a tile."""
    turn_a, turn_b = turned
    name = f"product_{rows}_{cols}_{terms}_{dtype}_{int(turn_a)}{int(turn_b)}"
    maker = KernelMaker(name)
    a = maker.input("a", *((terms, rows) if turn_a else (rows, terms)), dtype)
    b = maker.input("b", *((cols, terms) if turn_b else (terms, cols)), dtype)
    acc = maker.input("acc", rows, cols, f32)
    maker.store(maker.op("matmul_acc", acc, a, b, trans_a=turn_a, trans_b=turn_b), "y")
    return maker.done()


def arrays(kernel: KernelFunction, seed: int) -> list[np.ndarray]:
    """Return operands of a kernel, and an array for its result."""
    rng = np.random.default_rng(seed)
    types = dict(kernel.tiles)
    tiles = [types[name] for name in ("ta", "tb", "tacc")]
    found = [rng.standard_normal((t.rows, t.cols)).astype(t.dtype.to_numpy()) for t in tiles]
    return [*found, np.zeros_like(found[-1])]


def by_blocks_of_terms(a: np.ndarray, b: np.ndarray, acc: np.ndarray) -> np.ndarray:
    """Return acc + a @ b as tensor cores are emulated: 16 terms in f64 at a time, then rounded."""
    total = acc.astype(np.float32)
    wide = [x.astype(np.float64) for x in (a, b)]
    for first in range(0, a.shape[1], 16):
        found = total.astype(np.float64)
        for k in range(first, min(first + 16, a.shape[1])):
            found = found + wide[0][:, k : k + 1] * wide[1][k : k + 1]
        total = found.astype(np.float32)
    return total


def called(artifact: KernelArtifact, kernel: KernelFunction, values: list[np.ndarray]) -> np.ndarray:
    library = ctypes_abi.load(artifact)
    assert library.call(kernel, values) == 0
    return values[-1]


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_products_of_16_bits_add_blocks_of_terms(cache: ArtifactCache, dtype: DType) -> None:
    kernels = [product(*shape, dtype, turned) for turned in TURNS for shape in SHAPES[3:5]]
    kernels += [product(*shape, dtype, TURNS[0]) for shape in (*SHAPES[:3], *SHAPES[5:])]
    artifact = EmulatedCuda().build(kernels, cache)
    for seed, kernel in enumerate(kernels):
        values = arrays(kernel, seed)
        a, b, acc, _ = values
        turn_a, turn_b = kernel.name[-2] == "1", kernel.name[-1] == "1"
        wanted = by_blocks_of_terms(a.T if turn_a else a, b.T if turn_b else b, acc)
        np.testing.assert_array_equal(called(artifact, kernel, values), wanted, err_msg=kernel.name)


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_elements_outside_a_tile_have_no_part(cache: ArtifactCache, dtype: DType) -> None:
    """Scratch begins as NaNs, which must not reach a sum; infinities and NaNs of operands must."""
    kernel = product(3, 5, 7, dtype, (False, False))
    artifact = EmulatedCuda().build([kernel], cache)
    values = arrays(kernel, 1)
    assert np.isfinite(called(artifact, kernel, values)).all()
    values[0][1, 2] = np.inf
    values[1][4, 3] = np.nan
    found = called(artifact, kernel, values)
    assert np.isnan(found[:, 3]).all() and np.isinf(found[1, [0, 1, 2, 4]]).all()
    assert np.isfinite(found[[0, 2]][:, [0, 1, 2, 4]]).all()


def test_products_of_f32_have_the_bits_of_the_cpu(cache: ArtifactCache) -> None:
    """Terms are added in ascending order by fused multiply-adds."""
    if resolve_features().lanes == 4:
        pytest.skip("products of this processor are not fused")
    kernel = product(33, 45, 70, f32, (False, False))
    found = [
        called(t.build([kernel], cache), kernel, arrays(kernel, 5)) for t in (CpuTarget(), EmulatedCuda())
    ]
    np.testing.assert_array_equal(*found)
