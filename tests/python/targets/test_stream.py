"""Products that read their right operand where it lies, and prefetches."""

from __future__ import annotations

from itertools import product as product_of

import numpy as np
import pytest

from pto_wsp.errors import DTypeMismatch, FrontendError
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import replace
from pto_wsp.support.text import TextWriter
from pto_wsp.targets.cpu.kernels import CppKernel
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.text import parse
from pto_wsp.types.dtype import DTYPES
from tests.python.lang.programs import kernel_of
from tests.python.targets import ctypes_abi
from tests.python.targets.test_cpu_pairs import PAIRED, needs_gcc
from tests.python.targets.widths import WIDTHS, vectors_of
from tests.slow import mostly_slow

FEW, MANY = (1, 3, 8), (16, 70)


def product(rows: int, dtype: str, turned: bool, picks: bool) -> KernelFunction:
    """y = a @ b or a @ b.T, where rows of b are picked or not; b is also what is needed soon."""
    kind = f"Tensor[{dtype}, DYN, 70]" if picks else f"Tile[70, 70, {dtype}]"
    signature = (
        f"a: In[Tile[{rows}, 70, f32]], b: In[{kind}], n: In[Tile[70, 1, i32]], y: Out[Tile[{rows}, 70, f32]]"
    )
    right = "pto.gather(b, n)" if picks else "pto.load(b)"
    soon = "pto.prefetch(b, n)" if picks else "pto.prefetch(b)"
    kernel = kernel_of(signature, f"{soon}\nr = {right}\npto.store(y, pto.matmul(a, r{'.T' * turned}))")
    return replace(kernel, name=f"product_{rows}_{dtype}_{turned}_{picks}")


FORMS = list(product_of(FEW + MANY, (True, False), (True, False)))


def reads_where_it_lies(kernel: KernelFunction) -> bool:
    return bool(CppKernel(kernel, 16, TextWriter()).memory.windows)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f16"])
def test_products_of_what_lies_anywhere(dtype: str, cache: ArtifactCache) -> None:
    kernels = {(rows, *form): product(rows, dtype, *form) for rows, *form in FORMS}
    library = ctypes_abi.load(CpuTarget().build(list(kernels.values()), cache))
    rng = np.random.default_rng(3)
    for (rows, turned, picks), kernel in kernels.items():
        assert reads_where_it_lies(kernel) == (rows in FEW or turned or picks)
        for count in (0, 1, 15, 16, 17, 70):
            valid = int(rng.integers(1, rows + 1))
            a = rng.standard_normal((valid, 70 if turned else count), np.float32)
            b = rng.standard_normal((90, 70)).astype(DTYPES[dtype].to_numpy())
            n = rng.integers(0, 90, (count, 1)).astype(np.int32)
            chosen = b[n[:, 0]] if picks else b[:count].copy()
            right = chosen.astype(np.float64).T if turned else chosen.astype(np.float64)
            bound = 70 * 2.0**-23 * (np.abs(a) @ np.abs(right)) + 1e-30
            for run in (library.call, lambda kernel, args: run_kernel(kernel, args)):
                y = np.ones((valid, right.shape[1]), np.float32)
                assert not run(kernel, [a, b if picks else chosen, n, y])
                assert (np.abs(y - a.astype(np.float64) @ right) <= bound).all(), (kernel.name, count)


LONG = 300


def onto(cols: int, left: str, right: str, turned: bool) -> KernelFunction:
    """y += a @ b[n] or a @ b[n].T, for up to 8 rows and `LONG` rows of b."""
    terms, sums = (cols, LONG) if turned else (LONG, cols)
    kernel = kernel_of(
        f"a: In[Tile[8, {terms}, {left}]], b: In[Tensor[{right}, DYN, {cols}]], n: In[Tile[{LONG}, 1, i32]],"
        f" y: InOut[Tile[8, {sums}, f32]]",
        f"pto.store(y, pto.matmul(a, pto.gather(b, n){'.T' * turned}, acc=y))",
    )
    return replace(kernel, name=f"onto_{cols}_{left}_{right}_{turned}")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("compiler", [None, pytest.param(PAIRED, marks=needs_gcc, id="pairs")])
def test_sums_onto_others_of_rows_anywhere(
    compiler: str | None, width: str | None, cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = (("bf16", "bf16"),) if compiler else (("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16"))
    kernels = {
        form: onto(form[0], *form[1], form[2]) for form in product_of((24, 90, 217), types, (True, False))
    }
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build(list(kernels.values()), cache))
    rng = np.random.default_rng(8)
    for (cols, (left, right), turned), kernel in kernels.items():
        for rows, count in product_of((1, 2, 3, 8), (0, 3, 9, 37, LONG)):
            a = rng.standard_normal((rows, cols if turned else count)).astype(DTYPES[left].to_numpy())
            b = rng.standard_normal((90, cols)).astype(DTYPES[right].to_numpy())
            n = rng.integers(0, 90, (count, 1)).astype(np.int32)
            exact_a, exact_b = a.astype(np.float64), b[n[:, 0]].astype(np.float64)
            exact_b = exact_b.T if turned else exact_b
            y = rng.standard_normal((rows, exact_b.shape[1]), np.float32)
            expected = y + exact_a @ exact_b
            bound = LONG * 2.0**-23 * (np.abs(y) + np.abs(exact_a) @ np.abs(exact_b)) + 1e-30
            assert library.call(kernel, [a, b, n, y]) == 0
            assert (np.abs(y - expected) <= bound).all(), (kernel.name, rows, count)


def long_product(left: str, right: str, turned: bool) -> KernelFunction:
    """y = a @ b or a @ b.T over up to `LONG` terms, for up to 8 rows."""
    shape = f"70, {LONG}" if turned else f"{LONG}, 70"
    signature = f"a: In[Tile[8, {LONG}, {left}]], b: In[Tile[{shape}, {right}]], y: Out[Tile[8, 70, f32]]"
    kernel = kernel_of(signature, f"pto.store(y, pto.matmul(a, b{'.T' * turned}))")
    return replace(kernel, name=f"long_{left}_{right}_{turned}")


@pytest.mark.parametrize("left", mostly_slow(["bf16", "f32", "f16"]))
@pytest.mark.parametrize("width", WIDTHS)
def test_operands_of_any_two_types(width: str | None, left: str, cache: ArtifactCache) -> None:
    forms = product_of(("f32", "bf16"), (True, False))
    kernels = {form: long_product(left, *form) for form in forms}
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build(list(kernels.values()), cache))
    rng = np.random.default_rng(5)
    for (right, turned), kernel in kernels.items():
        for rows, (terms, cols) in product_of((1, 3, 8), ((LONG, 70), (257, 33), (40, 16), (31, 1))):
            a = rng.standard_normal((rows, terms)).astype(DTYPES[left].to_numpy())
            b = rng.standard_normal((terms, cols)).astype(DTYPES[right].to_numpy())
            y = np.ones((rows, cols), np.float32)
            assert library.call(kernel, [a, np.ascontiguousarray(b.T) if turned else b, y]) == 0
            a, b = a.astype(np.float64), b.astype(np.float64)
            bound = terms * 2.0**-23 * (np.abs(a) @ np.abs(b)) + 1e-30
            assert (np.abs(y - a @ b) <= bound).all(), (kernel.name, rows, terms, cols)


def aligned(shape: tuple[int, int], beyond: int) -> np.ndarray:
    """Return an array that begins so many elements behind the beginning of a line."""
    room = np.empty(shape[0] * shape[1] + 32, np.float32)
    start = -room.ctypes.data % 64 // 4 + beyond
    return room[start : start + shape[0] * shape[1]].reshape(shape)


@pytest.mark.parametrize("width", WIDTHS)
def test_panels_in_sequence(width: str | None, cache: ArtifactCache) -> None:
    """Whole blocks of columns, which may be read in blocks, give the bits of those that are read in rows."""
    signature = "a: In[Tile[8, 200, f32]], b: In[Tile[200, 64, f32]], y: Out[Tile[8, 64, f32]]"
    kernel = kernel_of(signature, "pto.store(y, pto.matmul(a, b))")
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    rng = np.random.default_rng(6)
    for rows, terms, cols in product_of(range(1, 9), (1, 130, 200), (32, 64)):
        a = rng.standard_normal((rows, terms), np.float32)
        b = rng.standard_normal((terms, cols), np.float32)
        results = []
        for beyond in (0, 1):
            right, y = aligned((terms, cols), beyond), np.ones((rows, cols), np.float32)
            right[...] = b
            assert library.call(kernel, [a, right, y]) == 0
            results.append(y)
        bound = terms * 2.0**-23 * (np.abs(a) @ np.abs(b))
        assert (np.abs(results[0] - a.astype(np.float64) @ b) <= bound).all(), (rows, terms, cols)
        assert results[0].tobytes() == results[1].tobytes(), (rows, terms, cols)


@pytest.mark.parametrize(
    "body",
    [
        "r = pto.gather(b, n)\npto.store(y, pto.matmul(a, r) + pto.matmul(a * 2, r))",
        "r = pto.gather(b, n)\npto.store(y, pto.matmul(a, r) + pto.rowmax(r.T))",
        "r = pto.gather(b, n)\ns = pto.matmul(r, r)\npto.store(y, pto.matmul(s, a))",
        "r = pto.gather(b, n)\ns = a * 0\nfor i in range(3):\n s = pto.matmul(a, r, acc=s)\npto.store(y, s)",
        "pto.store(y, pto.matmul(a, pto.gather(b, n).T, acc=a))",
        "r = b[0:70]\npto.store(b[0:70], a)\npto.store(y, pto.matmul(a, r.T))",
    ],
)
def test_other_uses_of_what_is_a_right_operand(body: str, cache: ArtifactCache) -> None:
    signature = (
        "a: In[Tile[70, 70, f32]], b: InOut[Tensor[f32, DYN, 70]], n: In[Tile[70, 1, i32]],"
        " y: Out[Tile[70, 70, f32]]"
    )
    kernel = kernel_of(signature, body)
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((70, 70), np.float32), rng.standard_normal((90, 70), np.float32)
    n = rng.permutation(90)[:70].astype(np.int32)[:, None]
    found, expected = np.zeros((70, 70), np.float32), np.zeros((70, 70), np.float32)
    assert library.call(kernel, [a, b.copy(), n, found]) == 0
    run_kernel(kernel, [a, b.copy(), n, expected])
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("turned", "columns"), [(False, 12), (True, 12), (True, 1)])
def test_products_of_few_columns(turned: bool, columns: int, cache: ArtifactCache) -> None:
    width, count = (40, columns) if turned else (columns, 40)
    kernel = kernel_of(
        f"a: In[Tile[70, 40, f32]], b: In[Tensor[f32, DYN, {width}]], n: In[Tile[{count}, 1, i32]],"
        f" y: Out[Tile[70, {columns}, f32]]",
        f"pto.store(y, pto.matmul(a, pto.gather(b, n){'.T' * turned}))",
    )
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((70, 40), np.float32), rng.standard_normal((90, width), np.float32)
    n = rng.permutation(90)[:count].astype(np.int32)[:, None]
    y = np.zeros((70, columns), np.float32)
    assert reads_where_it_lies(kernel) and library.call(kernel, [a, b, n, y]) == 0
    expected = a @ (b[n[:, 0]].T if turned else b[n[:, 0]])
    assert np.abs(y - expected).max() <= 1e-4


@pytest.mark.parametrize("most", [8, 70])
def test_rows_are_the_same_whatever_is_valid(most: int, cache: ArtifactCache) -> None:
    kernel = product(most, "f32", True, True)
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((most, 70), np.float32), rng.standard_normal((90, 70), np.float32)
    n = rng.permutation(90)[:70].astype(np.int32)[:, None]
    whole = np.zeros((most, 70), np.float32)
    assert library.call(kernel, [a, b, n, whole]) == 0
    for rows, count in ((1, 70), (3, 9), (8, 33)):
        part = np.zeros((rows, count), np.float32)
        assert library.call(kernel, [a[:rows].copy(), b, n[:count].copy(), part]) == 0
        assert np.array_equal(part, whole[:rows, :count])


def test_a_prefetch_outside_fails_as_a_load_does(cache: ArtifactCache) -> None:
    signature = "x: In[Tensor[f32, DYN, 4, 8]], at: Scalar[i64], y: Out[Tile[4, 8, f32]]"
    kernel = kernel_of(signature, "pto.prefetch(x[at])\npto.store(y, pto.load(x[0]))")
    text = str(Module("m", (kernel,)))
    assert "tprefetch %x[at(%at), :, :]" in text and parse(text) == Module("m", (kernel,))
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    x, y = np.ones((9, 4, 8), np.float32), np.zeros((4, 8), np.float32)
    assert library.call(kernel, [x, 8, y]) == 0 and y.all()
    assert library.call(kernel, [x, 9, y]) != 0
    run_kernel(kernel, [x, 8, y])
    with pytest.raises(Exception, match="outside"):
        run_kernel(kernel, [x, 9, y])


@pytest.mark.parametrize(
    ("body", "error"),
    [("pto.prefetch(x, y)", DTypeMismatch), ("t = pto.load(x)\npto.prefetch(t)", FrontendError)],
)
def test_prefetch_takes_views_and_row_numbers(body: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        kernel_of(
            "x: In[Tile[4, 8, f32]], y: In[Tile[4, 1, f32]], z: Out[Tile[4, 8, f32]]",
            body + "\npto.store(z, x)",
        )
