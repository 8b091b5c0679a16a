"""Products with quantised matrices on the target `cpu`, against the product with their elements."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f16, f32, u8
from pto_wsp.types.quantised import FORMATS, Format, pack
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of
from tests.python.types.test_quantised import some_numbers
from tests.slow import RUNS_SLOW

N, PANEL = 70, 80
DEPTH = 512


def product(form: Format, rows: int, left: DType = f32, n: int = N, panel: int = PANEL) -> KernelFunction:
    maker = KernelMaker(f"product_{form}_{rows}_{left}_{n}_{panel}")
    acc = maker.input("c", rows, n, f32)
    x = maker.input("a", rows, DEPTH, left)
    w = maker.input("b", DEPTH // form.block, panel * form.column_bytes, u8)
    maker.store(maker.op("matmul_quantised", acc, x, w, format=form.name), "y")
    return maker.done()


def plain(rows: int) -> KernelFunction:
    maker = KernelMaker(f"plain_{rows}")
    acc, x, w = (
        maker.input("c", rows, N, f32),
        maker.input("a", rows, DEPTH, f32),
        maker.input("b", DEPTH, N, f32),
    )
    maker.store(maker.op("matmul_acc", acc, x, w), "y")
    return maker.done()


OFTEN = ("q8_0", "q4_1", "q4_k", "q6_k", "i4g16m", "i8g128")
"""Formats that differ in what code does with them; the others are instances of the same."""

CHOSEN = [form for form in FORMATS.values() if form.name in OFTEN or RUNS_SLOW]
Q4, Q6 = FORMATS["q4_1"], FORMATS["q6_k"]
ROWS = (1, 8, 40)
KERNELS = {(f.name, rows): product(f, rows) for f in CHOSEN for rows in ROWS}
PLAIN = {rows: plain(rows) for rows in ROWS}
LEFT = [product(Q4, rows, left) for left in (f16, bf16) for rows in (1, 40)]
NARROW = [product(Q6, 40, f32, n, panel) for n, panel in ((1, 3), (5, 20), (33, 33))]


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        kernels = [*KERNELS.values(), *PLAIN.values(), *LEFT, *NARROW]
        return ctypes_abi.load(CpuTarget().build(kernels, cache))


@pytest.mark.parametrize("form", CHOSEN, ids=str)
def test_products_have_the_bits_of_those_with_elements(library: ctypes_abi.Library, form: Format) -> None:
    numbers = some_numbers(form, DEPTH // form.block, N, seed=3)
    packed, values = pack(numbers, PANEL), numbers.values()
    rng = np.random.default_rng(4)
    for rows in ROWS:
        for m in {1, rows // 2 + 1, rows}:
            acc, x = (rng.standard_normal((m, k)).astype(np.float32) for k in (N, DEPTH))
            found, expected = (np.full((m, N), np.nan, np.float32) for _ in range(2))
            assert library.call(KERNELS[form.name, rows], [acc, x, packed[0], found]) == 0
            assert library.call(PLAIN[rows], [acc, x, values, expected]) == 0
            assert found.tobytes() == expected.tobytes(), (rows, m)


def near(found: np.ndarray, acc: np.ndarray, x: np.ndarray, values: np.ndarray) -> bool:
    wide = x.astype(np.float64)
    bound = (len(values) / 8 + 5) * 2.0**-23 * (abs(acc) + abs(wide) @ abs(values.astype(np.float64)))
    return bool((abs(found - (acc + wide @ values)) <= bound).all())


def test_small_floats_are_widened(library: ctypes_abi.Library) -> None:
    numbers = some_numbers(Q4, DEPTH // Q4.block, N, seed=5)
    for kernel in LEFT:
        rows, dtype = kernel.params[1].type.rows, kernel.params[1].type.dtype
        rng = np.random.default_rng(6)
        acc = rng.standard_normal((rows, N)).astype(np.float32)
        x = rng.standard_normal((rows, DEPTH)).astype(dtype.to_numpy())
        found = np.full((rows, N), np.nan, np.float32)
        assert library.call(kernel, [acc, x, pack(numbers, PANEL)[0], found]) == 0
        assert near(found, acc, x, numbers.values())


def test_panels_of_any_width_are_read_no_further_than_they_are(library: ctypes_abi.Library) -> None:
    for kernel in NARROW:
        (_, n), (blocks, size) = kernel.params[0].type.shape, kernel.params[2].type.shape
        numbers = some_numbers(Q6, blocks, n, seed=7)
        packed = pack(numbers, size // Q6.column_bytes)[0]
        for m in (1, 3, 9, 40):
            rng = np.random.default_rng(8)
            acc, x = (rng.standard_normal((m, k)).astype(np.float32) for k in (n, DEPTH))
            found = np.full((m, n), np.nan, np.float32)
            assert library.call(kernel, [acc, x, packed, found]) == 0
            assert near(found, acc, x, numbers.values()), (kernel.name, m)
            few = packed[:1]
            assert library.call(kernel, [acc, x[:, : Q6.block].copy(), few, found]) == 0
            assert near(found, acc, x[:, : Q6.block], numbers.values()[: Q6.block]), (kernel.name, m)


def test_operands_that_do_not_fit_are_refused_at_run_time(library: ctypes_abi.Library) -> None:
    kernel = KERNELS["q8_0", 8]
    form = FORMATS["q8_0"]
    acc, out = np.zeros((8, N), np.float32), np.zeros((8, N), np.float32)
    x, w = np.zeros((8, DEPTH), np.float32), np.zeros((DEPTH // 32, PANEL * form.column_bytes), np.uint8)
    assert library.call(kernel, [acc, x, w, out]) == 0
    for bad in ([acc, x[:, :96].copy(), w, out], [acc, x, w[:, : 5 * form.column_bytes].copy(), out]):
        assert library.call(kernel, bad) != 0
