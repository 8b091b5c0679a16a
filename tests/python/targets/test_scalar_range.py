"""Scalars that meet tiles: inside the range of an integer tile they are exact, outside they end it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pto_wsp.errors import KernelFailed
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import replace
from pto_wsp.targets.base import KernelArtifact
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DTYPES, DType, i8, i32, i64, u16, u32
from tests.python.lang.programs import kernel_of
from tests.python.targets import ctypes_abi

FORMS = {
    "right": "pto.store(y, x + n)",
    "left": "pto.store(y, n - x)",
    "multiple": "pto.store(y, x * n)",
    "largest": "pto.store(y, pto.maximum(x, n))",
    "remainder": "pto.store(y, pto.rem(x, n))",
    "compare": "pto.store(y, pto.where(x < n, x, x))",
    "compare_left": "pto.store(y, pto.where(n <= x, x, x))",
    "select": "pto.store(y, pto.where(x < 1, x, n))",
    "select_left": "pto.store(y, pto.where(x < 1, n, x))",
    "fill": "pto.store(y, pto.full((2, 3), n, {dtype}) + x)",
    "store": "pto.store(y, n)",
    "second_store": "pto.store(y, x)\npto.store(y, x + n)",
    "computed": "pto.store(y, x + (n * 2 - n))",
}
INTEGERS = (i8, u16, i32, u32, i64)


@cache
def make(dtype: DType, form: str) -> KernelFunction:
    body = FORMS[form].format(dtype=dtype)
    tile = f"Tile[2, 3, {dtype}]"
    kernel = kernel_of(f"x: In[{tile}], n: Scalar[i64], y: Out[{tile}]", body)
    return replace(kernel, name=f"{form}_{dtype}")


@pytest.fixture(scope="module")
def artifact(cache: ArtifactCache) -> KernelArtifact:
    return CpuTarget().build([make(dtype, form) for dtype in INTEGERS for form in FORMS], cache)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_scalars_of_integer_tiles(form: str, dtype: DType, artifact: KernelArtifact) -> None:
    kernel = make(dtype, form)
    library = ctypes_abi.load(artifact)
    low, high = dtype.integer_range
    x = np.array([[1, 7 if low == 0 else -7, 3], [low, high, 0]], dtype.to_numpy())
    outside = (
        [] if dtype is i64 else [low - 1, high + 1, 2**40 + 5, -(2**40), 2**62, -(2**63), 2**32, -(2**32)]
    )
    inside = [low if form != "computed" else low // 2, high // 2, 0, high if form != "computed" else 1]
    for n in [*inside, *([-1] if low else [])]:
        found, wanted = np.zeros_like(x), np.zeros_like(x)
        assert library.call(kernel, [x, n, found]) == 0
        run_kernel(kernel, [x, n, wanted])
        assert np.array_equal(found, wanted), n
    for n in outside:
        if form == "computed" and abs(n) > 2**61:
            continue
        found, wanted = np.zeros_like(x), np.zeros_like(x)
        status = library.call(kernel, [x, n, found])
        check = artifact.checks[kernel.name][status - 1]
        assert status > 0 and "beyond the range" in check.text.message
        with pytest.raises(KernelFailed, match=f"beyond the range of {dtype}: found {n}") as caught:
            run_kernel(kernel, [x, n, wanted])
        assert caught.value.loc == check.loc is not None
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_scalars_of_float_tiles_round(dtype: str, cache: ArtifactCache) -> None:
    kernel = kernel_of(
        f"x: In[Tile[1, 2, {dtype}]], n: Scalar[i64], s: Scalar[f32], y: Out[Tile[1, 2, {dtype}]]",
        "pto.store(y, x + n + s)",
    )
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    kind = DTYPES[dtype].to_numpy()
    for n, s in ((2**40 + 5, 0.1), (2049, 1e6), (65519, 0.0), (65520, 0.0), (3, 3e38), (2**62, 3e38)):
        x, found, wanted = np.ones((1, 2), kind), np.zeros((1, 2), kind), np.zeros((1, 2), kind)
        assert library.call(kernel, [x, n, s, found]) == 0
        run_kernel(kernel, [x, n, s, wanted])
        assert found.tobytes() == wanted.tobytes()
        with np.errstate(over="ignore"):
            total = (np.float32(1) + np.float32(n).astype(kind).astype(np.float32)).astype(kind)
            assert wanted[0, 0] == (np.float32(total) + np.float32(s).astype(kind).astype(np.float32)).astype(
                kind
            )
