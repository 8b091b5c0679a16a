"""Sums of products of 16 bits that stay in registers in a loop, on the target `cuda`, emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.lang.kernel.kernel import Kernel
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.base import KernelArtifact
from pto_wsp.targets.cuda import kernels, memory
from pto_wsp.targets.cuda.emit import emit_device_code
from pto_wsp.targets.cuda.sums import MOST_REGISTERS, Shape, part_shape, shape_of
from pto_wsp.types.dtype import DType, bf16, f16, f32
from pto_wsp.types.tile import TileType
from tests.cuda import sum_kernels as k
from tests.cuda import test_products as products
from tests.cuda.emulated import EmulatedCuda, wavefronts
from tests.cuda.test_races import code_of, run_checked
from tests.python.targets import ctypes_abi

SIZES = ((48, 40, 64), (50, 43, 70), (7, 5, 3), (96, 80, 32), (33, 41, 1), (20, 30, 0), (0, 9, 40))
"""Rows, columns and terms: whole tiles, tails, one step, and none."""


@pytest.fixture(scope="module")
def functions() -> dict[Kernel, KernelFunction]:
    return {of: k.kernel_of(of) for of in k.SUMS}


def started(functions: list[KernelFunction]) -> int:
    """Return how many sums the code of kernels keeps in registers while a loop runs."""
    return emit_device_code(functions).text.count(".start(")


@pytest.mark.parametrize("of", k.SUMS, ids=lambda of: of.name)
def test_which_sums_stay_in_registers(functions: dict[Kernel, KernelFunction], of: Kernel) -> None:
    assert started([functions[of]]) == k.SUMS[of]


def called(artifact: KernelArtifact, function: KernelFunction, values: list[np.ndarray]) -> np.ndarray:
    assert ctypes_abi.load(artifact).call(function, values) == 0
    return values[-1]


def test_the_outer_one_of_nested_loops_counts(functions: dict[Kernel, KernelFunction]) -> None:
    lines = emit_device_code([functions[k.nested]]).text.splitlines()
    (place,) = [number for number, line in enumerate(lines) if ".start(" in line]
    assert sum(line.strip().startswith("for (Counter") for line in lines[place:]) == 2


def arrays(function: KernelFunction, size: tuple[int, int, int], seed: int) -> list[np.ndarray]:
    """Return arguments of a kernel of `sum_kernels`."""
    rows, cols, terms = size
    shapes = (rows, terms), (terms, cols)
    if function.name == "turned":
        shapes = (terms, rows), (cols, terms)
    elif function.name == "attention":
        cols, shapes = k.DIM, ((rows, k.DIM), (terms, k.DIM))
    rng = np.random.default_rng(seed)
    dtypes = [view.type.dtype for view in function.views]
    found = []
    for shape, dtype in zip(shapes, dtypes[:2], strict=True):
        assert dtype is not None
        found.append(rng.standard_normal(shape).astype(dtype.to_numpy()))
    return [*found, np.full((rows, cols), np.nan, np.float32)]


def bound_of(of: Kernel) -> float:
    """Return how much results may differ from those of the interpreter."""
    return 2e-2 if of is k.attention else 1e-4  # weights of attention are rounded to bf16


def test_results_have_the_bits_of_sums_in_memory(
    cache: ArtifactCache, functions: dict[Kernel, KernelFunction], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both add blocks of terms in the same order. The interpreter adds in another one."""
    own = EmulatedCuda().build(list(functions.values()), cache)
    monkeypatch.setattr(kernels, "sums_in_registers", lambda kernel: {})
    assert started(list(functions.values())) == 0
    in_memory = EmulatedCuda().build(list(functions.values()), cache)
    for of, function in functions.items():
        for seed, size in enumerate(SIZES):
            if of is k.attention and size[2] == 0:
                continue  # 0 / 0
            what = f"{function.name} {size}"
            found = called(own, function, arrays(function, size, seed))
            wanted = called(in_memory, function, arrays(function, size, seed))
            np.testing.assert_array_equal(found, wanted, err_msg=what)
            values = arrays(function, size, seed)
            run_kernel(function, values)
            np.testing.assert_allclose(found, values[-1], rtol=bound_of(of), atol=bound_of(of), err_msg=what)


@pytest.mark.parametrize("shared", [0, 4096, 20000])
def test_operands_in_global_memory(
    cache: ArtifactCache,
    functions: dict[Kernel, KernelFunction],
    monkeypatch: pytest.MonkeyPatch,
    shared: int,
) -> None:
    """Operands that do not fit shared memory are read without `ldmatrix`, and give the same bits."""
    some = [functions[of] for of in (k.plain, k.turned, k.gated, k.of_f16, k.large)]
    own = EmulatedCuda().build(some, cache)
    monkeypatch.setattr(memory, "SHARED_BYTES", shared)
    text = emit_device_code(some).text
    assert text.count("GlobalMatrix<") > 0 and (shared == 0) == (text.count("SharedMatrix<") == 0)
    spilled = EmulatedCuda().build(some, cache)
    for function in some:
        for seed, size in enumerate(SIZES):
            found = [called(of, function, arrays(function, size, seed)) for of in (own, spilled)]
            np.testing.assert_array_equal(*found, err_msg=f"{function.name} {size}")


# --- memory -------------------------------------------------------------------------------------------------


def test_memory_of_sums_is_free_in_the_loop(functions: dict[Kernel, KernelFunction]) -> None:
    """A tile of 128 x 128 leaves room for two places of both operands, within what every GPU has."""
    code = emit_device_code([functions[k.large]])
    sums, operands = 128 * 132 * 4, 2 * (128 * 72 + 64 * 136) * 2
    assert code.text.count("+ place * ") == 2
    assert max(sums, operands) <= code.shared_bytes["large"] <= memory.LEAST_SHARED_BYTES < sums + operands


def conflicts(kernels: list[KernelFunction], cache: ArtifactCache) -> tuple[int, int]:
    """Return the groups of 8 rows that products read in shared memory, and the wavefronts that they took."""
    artifact = EmulatedCuda().build(kernels, cache)
    before = wavefronts(artifact)
    for kernel in kernels:
        called(artifact, kernel, products.arrays(kernel, 3))
    groups, taken = (b - a for a, b in zip(before, wavefronts(artifact), strict=True))
    return groups, taken


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_rows_of_operands_are_in_different_banks(
    cache: ArtifactCache, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = ((64, 64, 64), (70, 75, 40), (16, 8, 16), (33, 1, 128))
    kernels = [products.product(*shape, dtype, turned) for turned in products.TURNS for shape in shapes]
    groups, taken = conflicts(kernels, cache)
    assert groups == taken > 1000
    # Rows of 64 elements without a gap are all in the same banks.
    strides = memory.row_strides
    even = {name: stride // 16 * 16 for name, stride in strides(kernels[0]).items()}
    monkeypatch.setattr(memory, "row_strides", lambda kernel: even)
    groups, taken = conflicts(kernels[:1], cache)
    assert taken == 8 * groups > 0


def test_strides_of_tiles() -> None:
    """Tiles of products have an odd number of units of 16 bytes; others are as short as can be."""
    strides = memory.row_strides(products.product(33, 8, 64, bf16, (False, True)))
    assert strides["ta"] == strides["tb"] == 72 and strides["tacc"] == 12
    assert memory.row_strides(products.product(33, 8, 64, f32, (False, True)))["ta"] == 64
    assert memory.row_strides(products.product(1, 1, 64, bf16, (True, False)))["ta"] == 8


@pytest.mark.parametrize(
    ("rows", "cols", "shape"),
    [
        (128, 128, Shape(4, 4, 2)),
        (64, 128, Shape(2, 4, 2)),
        (16, 128, Shape(1, 2, 4)),
        (128, 16, Shape(2, 1, 1)),
        (1, 1, Shape(1, 1, 1)),
        (48, 40, Shape(1, 3, 1)),
    ],
)
def test_shapes(rows: int, cols: int, shape: Shape) -> None:
    assert shape_of(TileType(rows, cols, f32)) == shape


def test_large_tiles_are_added_in_parts() -> None:
    assert shape_of(TileType(256, 256, f32)).registers > MOST_REGISTERS
    assert part_shape(TileType(256, 256, f32)) == Shape(4, 4, 2)
    assert part_shape(TileType(16, 2048, f32)) == Shape(1, 2, 4)


# --- races --------------------------------------------------------------------------------------------------


def test_sums_do_not_race(functions: dict[Kernel, KernelFunction], tmp_path: Path) -> None:
    done = run_checked(list(functions.values()), code_of(list(functions.values())), tmp_path)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.slow
def test_barriers_that_are_left_out_are_found(
    functions: dict[Kernel, KernelFunction], tmp_path: Path
) -> None:
    """Of the last barrier of an iteration and the first one of the next, each is enough."""
    few = [functions[k.of_f16]]
    parts = code_of(few).split("sync();")
    missed = []
    for number in range(len(parts) - 1):
        broken = "sync();".join([*parts[:number], parts[number] + parts[number + 1], *parts[number + 2 :]])
        if "data race" not in run_checked(few, broken, tmp_path).stderr:
            missed.append(number)
    assert missed == [0, len(parts) - 2]
