"""Matrix products on the target `cpu`: a row's bits do not depend on what else is valid."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of


def product(m: int, n: int, k: int, left: DType = f32, right: DType = f32, **attrs: bool) -> KernelFunction:
    turned = "".join(key[-1] for key, value in attrs.items() if value)
    maker = KernelMaker(f"mm_{m}_{n}_{k}_{left}_{right}_{turned}")
    a = maker.input("a", *((k, m) if attrs.get("trans_a") else (m, k)), left)
    b = maker.input("b", *((n, k) if attrs.get("trans_b") else (k, n)), right)
    maker.store(maker.op("matmul", a, b, **attrs), "y")
    return maker.done()


def onto_operands() -> KernelFunction:
    """y = (a @ b) @ b and z = a @ (a @ b), each product written onto an operand; w = acc + a @ b, twice."""
    maker = KernelMaker("onto_operands")
    a, b, acc = (maker.input(name, 24, 24, f32) for name in ("a", "b", "c"))
    first = maker.op("matmul", a, b)
    copy = maker.op("mov", first)
    maker.op("matmul", first, b, dst=first)
    maker.store(first, "y")
    maker.op("matmul", a, copy, dst=copy)
    maker.store(copy, "z")
    other = maker.op("matmul_acc", acc, a, b)
    maker.op("matmul_acc", other, a, b, dst=other)
    maker.op("matmul_acc", acc, a, b, dst=b)
    maker.op("add", other, b, dst=other)
    maker.store(other, "w")
    return maker.done()


COLS = 150  # blocks of four vectors, of two, and of one that is not whole, whatever is valid

TALL, FLAT, DEEP = product(40, COLS, 50), product(8, COLS, 50), product(9, 100, 600)
TURNED = [product(40, COLS, 50, trans_a=a, trans_b=b) for a in (False, True) for b in (False, True)]
MIXED = [product(20, 100, 300, left, right) for left, right in ((f32, bf16), (bf16, f32), (bf16, bf16))]
NARROW = [product(20, n, 50) for n in (3, 1)]
ONTO = onto_operands()
ALL = [TALL, FLAT, DEEP, *TURNED[1:], *MIXED, *NARROW, ONTO]


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        return ctypes_abi.load(CpuTarget().build(ALL, cache))


def run(library: ctypes_abi.Library, kernel: KernelFunction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    turned = kernel.name.rsplit("_", 1)[1]
    rows, cols = a.shape["a" in turned], b.shape["b" not in turned]
    out = np.full((rows, cols), np.nan, np.float32)
    assert library.call(kernel, [a, b, out]) == 0
    return out


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kernel", [TALL, FLAT], ids=["copied operand", "operand in place"])
def test_rows_and_columns_do_not_depend_on_each_other(
    library: ctypes_abi.Library, kernel: KernelFunction
) -> None:
    most = kernel.params[0].type.rows
    a, b = normal(1, most, 50), normal(2, 50, COLS)
    whole = run(library, kernel, a, b)
    np.testing.assert_allclose(whole, a.astype(float) @ b, rtol=1e-4, atol=1e-4)
    for m in range(1, most + 1):
        assert run(library, kernel, a[:m], b).tobytes() == whole[:m].tobytes(), m
    for n in range(1, COLS + 1):
        assert run(library, kernel, a, b[:, :n].copy()).tobytes() == whole[:, :n].tobytes(), n


def test_turned_operands_give_the_same_bits(library: ctypes_abi.Library) -> None:
    for m, n, k in ((40, COLS, 50), (17, 33, 9), (40, 65, 50), (1, 1, 1), (0, 5, 5), (5, 5, 0)):
        a, b = normal(3, m, k), normal(4, k, n)
        expected = run(library, TALL, a, b)
        if k == 0:
            assert (expected == 0).all()
        for kernel in TURNED:
            turned = kernel.name.rsplit("_", 1)[1]
            left = a.T.copy() if "a" in turned else a
            right = b.T.copy() if "b" in turned else b
            assert run(library, kernel, left, right).tobytes() == expected.tobytes()


def test_long_sums_are_one_chain(library: ctypes_abi.Library) -> None:
    a, b = normal(5, 9, 600), normal(6, 600, 100)
    whole = run(library, DEEP, a, b)
    np.testing.assert_allclose(whole, a.astype(float) @ b, rtol=1e-4, atol=1e-3)
    for rows, cols in (
        (slice(4, 5), slice(7, 9)),
        (slice(0, 8), slice(64, 100)),
        (slice(2, 9), slice(0, 64)),
    ):
        assert run(library, DEEP, a[rows], b[:, cols].copy()).tobytes() == whole[rows, cols].tobytes()


def test_mixed_types(library: ctypes_abi.Library) -> None:
    for kernel in MIXED:
        left, right = (p.type.dtype.to_numpy() for p in kernel.params[:2])
        a, b = normal(7, 19, 300).astype(left), normal(8, 300, 97).astype(right)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(run(library, kernel, a, b), expected, rtol=1e-4, atol=1e-3)


def test_narrow_products(library: ctypes_abi.Library) -> None:
    for kernel in NARROW:
        a, b = normal(9, 20, 50), normal(10, 50, kernel.params[1].type.cols)
        np.testing.assert_allclose(run(library, kernel, a, b), a.astype(float) @ b, rtol=1e-4, atol=1e-4)


def test_products_onto_their_operands(library: ctypes_abi.Library) -> None:
    a, b, c = normal(11, 24, 24), normal(12, 24, 24), normal(13, 24, 24)
    y, z, w = (np.zeros((24, 24), np.float32) for _ in range(3))
    assert library.call(ONTO, [a, b, c, y, z, w]) == 0
    exact_a, exact_b = a.astype(float), b.astype(float)
    np.testing.assert_allclose(y, exact_a @ exact_b @ exact_b, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(z, exact_a @ (exact_a @ exact_b), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(w, 2 * c + 3 * exact_a @ exact_b, rtol=1e-3, atol=1e-3)
