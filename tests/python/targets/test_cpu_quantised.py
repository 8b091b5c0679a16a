"""Products with quantised matrices on the target `cpu`, against the product with their elements."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f16, f32, u8
from pto_wsp.types.quantised import (
    CHUNK,
    FORMATS,
    ROUNDED,
    Format,
    Numbers,
    pack,
    round_rows,
    rounded_cols,
    rounded_values,
    unpack,
)
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


OFTEN = ("q8_0", "q4_1", "q4_k", "q6_k", "i4g16m", "i8g128", "i4g128z", "i8g32z")
"""Formats that differ in what code does with them; the others are instances of the same."""

CHOSEN = [form for form in FORMATS.values() if form.name in OFTEN or RUNS_SLOW]
Q4, Q6 = FORMATS["q4_1"], FORMATS["q6_k"]
ROWS = (1, 8, 40)
KERNELS = {(f.name, rows): product(f, rows) for f in CHOSEN for rows in ROWS}
PLAIN = {rows: plain(rows) for rows in ROWS}
LEFT = [product(Q4, rows, left) for left in (f16, bf16) for rows in (1, 40)]
NARROW = [product(Q6, 40, f32, n, panel) for n, panel in ((1, 3), (5, 20), (33, 33))]


def rounded(form: Format, rows: int) -> KernelFunction:
    """y = c + quantise(a) @ b, and z = quantise(a)."""
    maker = KernelMaker(f"rounded_{form}_{rows}")
    acc, x = maker.input("c", rows, N, f32), maker.input("a", rows, DEPTH, f32)
    w = maker.input("b", DEPTH // form.block, PANEL * form.column_bytes, u8)
    q = maker.op("quantise", x, shape=(rows, rounded_cols(DEPTH)))
    maker.store(maker.op("matmul_quantised", acc, q, w, format=form.name), "y")
    maker.store(q, "z")
    return maker.done()


ROUNDED_KERNELS = {(f.name, rows): rounded(f, rows) for f in CHOSEN for rows in (1, 40)}


def forms_of(width: str | None) -> list[Format]:
    """Return the formats that are tested with a width: all with that of this machine."""
    return [form for form in CHOSEN if width is None or form.name in OFTEN]


FORMS_OF_WIDTHS = pytest.mark.parametrize(
    ("library", "form"),
    [
        pytest.param(width, form, id=f"{param.id}-{form}")
        for param in WIDTHS
        for width in param.values
        for form in forms_of(width)
    ],
    indirect=["library"],
)


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        names = {form.name for form in forms_of(request.param)}
        by_form = [made[key] for made in (KERNELS, ROUNDED_KERNELS) for key in made if key[0] in names]
        kernels = [*by_form, *PLAIN.values(), *LEFT, *NARROW]
        return ctypes_abi.load(CpuTarget().build(kernels, cache))


@FORMS_OF_WIDTHS
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


def special_rows(m: int) -> np.ndarray:
    """Return rows with groups of zeros, of tiny and of huge elements, and with halves to round."""
    x = np.random.default_rng(9).standard_normal((m, DEPTH)).astype(np.float32)
    x[0, :CHUNK], x[0, CHUNK : 2 * CHUNK] = 0, np.float32(1e-35)
    x[0, 2 * CHUNK : 3 * CHUNK] = np.float32(1e30)
    x[0, 3 * CHUNK : 4 * CHUNK] = np.arange(CHUNK) * 0.5 - 8
    x[0, 3 * CHUNK] = 127
    return x


@FORMS_OF_WIDTHS
def test_rounded_rows_are_multiplied_as_integers(library: ctypes_abi.Library, form: Format) -> None:
    numbers = some_numbers(form, DEPTH // form.block, N, seed=10)
    packed, values = pack(numbers, PANEL)[0], numbers.values()
    for rows, m in ((1, 1), (40, 1), (40, 3), (40, 40)):
        acc, x = np.random.default_rng(11).standard_normal((m, N)).astype(np.float32), special_rows(m)
        found = np.full((m, N), np.nan, np.float32)
        groups = np.zeros((m, rounded_cols(DEPTH)), np.uint8)
        assert library.call(ROUNDED_KERNELS[form.name, rows], [acc, x, packed, found, groups]) == 0
        assert np.array_equal(groups, round_rows(x))
        assert near(found, acc, rounded_values(groups), values), (rows, m)
        assert found.tobytes() == by_definition(acc, groups, unpack(packed, form))[:, :N].tobytes()


def by_definition(acc: np.ndarray, groups: np.ndarray, numbers: Numbers) -> np.ndarray:
    """Return the sum as its definition rounds it: integers, then one fma per group, another per minimum."""
    form, of = numbers.format, groups.view(ROUNDED)
    part = min(form.group, CHUNK)
    total = np.pad(acc, ((0, 0), (0, PANEL - N))).astype(np.float32)
    for first in range(0, DEPTH, part):
        chunk, group = first // CHUNK, first // form.group
        q = of["q"][:, chunk, first % CHUNK : first % CHUNK + part].astype(np.int64)
        zero = form.zero if numbers.zeros is None else numbers.zeros[group].astype(np.int64)
        dots = q @ (numbers.q[first : first + part].astype(np.int64) - zero)
        step = of["step"][:, chunk, None]
        total = fma(step * numbers.scales[group], dots.astype(np.float32), total)
        if numbers.minima is not None:
            sums = q.sum(axis=1, keepdims=True).astype(np.float32)
            total = fma(numbers.minima[group], step * sums, total)
    return total


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a * b + c rounded once: exactly multiplied in f64, and added there with rounding to odd."""
    product = a.astype(np.float64) * b
    total = product + c
    rest = (product - (total - c)) + (c - (total - (total - c)))
    bits = total.view(np.int64)
    is_inexact, is_even = np.isfinite(total) & (rest != 0), (bits & 1) == 0
    away = (rest > 0) == (total > 0)
    odd = np.where(is_inexact & is_even, bits + np.where(away, 1, -1), bits)
    return odd.view(np.float64).astype(np.float32)


def test_rows_that_are_not_finite_give_nan(library: ctypes_abi.Library) -> None:
    form = FORMATS["q8_0"]
    numbers = some_numbers(form, DEPTH // form.block, N)
    for bad in (np.inf, -np.inf, np.nan):
        x, acc = special_rows(3), np.zeros((3, N), np.float32)
        x[1, 77] = bad
        found, groups = np.zeros((3, N), np.float32), np.zeros((3, rounded_cols(DEPTH)), np.uint8)
        call = [acc, x, pack(numbers, PANEL)[0], found, groups]
        assert library.call(ROUNDED_KERNELS["q8_0", 40], call) == 0
        assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()
        assert np.array_equal(groups, round_rows(x))


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
