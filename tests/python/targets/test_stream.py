"""Products of few rows, which read their right operand where it lies, and prefetches."""

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
from pto_wsp.targets import registry
from pto_wsp.targets.cpu.code import KernelCode
from pto_wsp.text import parse
from pto_wsp.types.dtype import DTYPES
from tests.python.lang.programs import kernel_of
from tests.python.targets import ctypes_abi

ROWS = (1, 3, 8)


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


FORMS = list(product_of(ROWS, ("f32", "bf16"), (True, False), (True, False)))


def test_products_of_few_rows(cache: ArtifactCache) -> None:
    kernels = {form: product(*form) for form in FORMS}
    library = ctypes_abi.load(registry.get("cpu").build(list(kernels.values()), cache))
    rng = np.random.default_rng(3)
    for (rows, dtype, turned, picks), kernel in kernels.items():
        assert KernelCode(kernel, 16, TextWriter()).memory.streamed
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


def test_rows_are_the_same_whatever_is_valid(cache: ArtifactCache) -> None:
    kernel = product(8, "f32", True, True)
    library = ctypes_abi.load(registry.get("cpu").build([kernel], cache))
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((8, 70), np.float32), rng.standard_normal((90, 70), np.float32)
    n = rng.permutation(90)[:70].astype(np.int32)[:, None]
    whole = np.zeros((8, 70), np.float32)
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
    library = ctypes_abi.load(registry.get("cpu").build([kernel], cache))
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
