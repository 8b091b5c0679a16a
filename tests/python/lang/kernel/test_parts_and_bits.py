"""Functions of kernels that rearrange, round and work on bits: both targets, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp.errors import DTypeMismatch, KernelFailed, PtoError, ShapeMismatch
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.support.record import replace
from pto_wsp.targets.cpu.target import CpuTarget
from tests.python.lang.programs import error_of, kernel_of
from tests.python.targets import ctypes_abi

X = np.arange(24, dtype=np.float32).reshape(4, 6) / 4 - 3
I = np.array([[5, -7, 1 << 30, 0, -1, 64]] * 4, np.int32)  # noqa: E741
ROW, COL = X[:, :1] * 2 + 0.125, X[:1] + 0.5
SIGNATURE = (
    "x: In[Tile[4, 6, f32]], i: In[Tile[4, 6, i32]], row: In[Tile[4, 1, f32]], col: In[Tile[1, 6, f32]], "
    "n: Scalar[i64], y: Out[Tile[{shape}, {dtype}]]"
)

CASES: dict[str, tuple[str, Any]] = {
    "i & 12": ("4, 6, i32", I & 12),
    "(i | 3) ^ i": ("4, 6, i32", (I | 3) ^ I),
    "~i": ("4, 6, i32", ~I),
    "(i << 2) >> 1": ("4, 6, i32", (I << 2) >> 1),
    "1 << (i & 7)": ("4, 6, i32", 1 << (I & 7)),
    "pto.shr(i, 40) + pto.shl(i, -1)": ("4, 6, i32", np.where(I < 0, -1, 0)),
    "pto.where((x > 0) & ~(x > 2), x, 0)": ("4, 6, f32", np.where((X > 0) & ~(X > 2), X, 0)),
    "pto.cast((x > 0) ^ True, f32)": ("4, 6, f32", (X <= 0).astype(np.float32)),
    "pto.addc(x, row, col)": ("4, 6, f32", X + ROW + COL),
    # in f16, 2048 + 0.75 is 2048 and 2049.5 is 2050: the first sum is not rounded to f16
    "pto.cast(pto.addc(pto.cast(x * 0 + 2048, f16), 0.75, pto.cast(x * 0 + 0.75, f16)), f32)": (
        "4, 6, f32",
        np.full((4, 6), 2050),
    ),
    "pto.subc(x, 1.5, x)": ("4, 6, f32", X - 1.5 + X),
    "pto.prelu(x, col)": ("4, 6, f32", np.where(X > 0, X, X * COL)),
    "pto.prelu(x, 0.25)": ("4, 6, f32", np.where(X > 0, X, X * 0.25)),
    "x + row - col * row": ("4, 6, f32", X + ROW - COL * ROW),
    "pto.maximum(x, col) / row": ("4, 6, f32", np.maximum(X, COL) / ROW),
    "pto.reshape(x, (8, 3))": ("8, 3, f32", X.reshape(8, 3)),
    "pto.reshape(x, (x.cols, x.rows))": ("6, 4, f32", X.reshape(6, 4)),
    "pto.reshape(x, (x.rows * 2, 3))": ("8, 3, f32", X.reshape(8, 3)),
    "pto.reshape(x, (4 + x.rows, 3))": ("8, 3, f32", X.reshape(8, 3)),
    "pto.extract(x, (2, 3), 1, n)": ("2, 3, f32", X[1:3, 2:5]),
    "pto.extract(x, (1, 6), row=3)": ("1, 6, f32", X[3:4]),
    "pto.insert(x, pto.full((2, 2), 9.0), n, 4)": (
        "4, 6, f32",
        np.block([[X[:2]], [X[2:, :4], np.full((2, 2), 9)]]),
    ),
    "pto.put(x, row, pto.cast(pto.iota((1, 4)).T, i32))": (
        "4, 6, f32",
        np.where(np.arange(6) == np.arange(4)[:, None], ROW, X),
    ),
    "pto.cast(x, i32, 'floor')": ("4, 6, i32", np.floor(X)),
    "pto.cast(x, i32, rmode='round')": ("4, 6, i32", np.trunc(X + np.copysign(0.5, X))),
    "pto.cast(x, f32, 'ceil')": ("4, 6, f32", np.ceil(X)),
    "pto.matmul_bias(x, x.T, row.T)": ("4, 4, f32", X @ X.T + ROW.T),
    "pto.matmul_bias(x.T, x, col)": ("6, 6, f32", X.T @ X + COL),
}


def make(number: int, expression: str, shape: str) -> KernelFunction:
    rows, cols, dtype = shape.split(", ")
    signature = SIGNATURE.format(shape=f"{rows}, {cols}", dtype=dtype)
    return replace(kernel_of(signature, f"pto.store(y, {expression})"), name=f"k{number}")


KERNELS = {text: make(i, text, shape) for i, (text, (shape, _)) in enumerate(CASES.items())}


@pytest.fixture(scope="module")
def library(cache: ArtifactCache) -> ctypes_abi.Library:
    return ctypes_abi.load(CpuTarget().build(list(KERNELS.values()), cache))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ArtifactCache:
    return ArtifactCache(tmp_path_factory.mktemp("cache") / "own")


@pytest.mark.parametrize("text", CASES)
def test_expression(text: str, library: ctypes_abi.Library) -> None:
    _, expected = CASES[text]
    kernel = KERNELS[text]
    kind = kernel.param("y").type.dtype
    assert kind is not None
    for run in (run_kernel, library.call):
        found = np.zeros(expected.shape, kind.to_numpy())
        run(kernel, [X, I, ROW, COL, 2, found])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "place"), [("pto.extract(x, (2, 3), 1, n)", 4), ("pto.extract(x, (2, 3), 1, n)", -1)]
)
def test_parts_outside_fail(text: str, place: int, library: ctypes_abi.Library) -> None:
    args = [X, I, ROW, COL, place, np.zeros((2, 3), np.float32)]
    assert library.call(KERNELS[text], args) > 0
    with pytest.raises(KernelFailed, match="outside of the tile"):
        run_kernel(KERNELS[text], args)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("x & x", DTypeMismatch),
        ("i & 1.5", DTypeMismatch),
        ("pto.shl(x, 1)", DTypeMismatch),
        ("pto.cast(i, f32, 'floor')", DTypeMismatch),
        ("pto.cast(x, b1, 'floor')", DTypeMismatch),
        ("pto.cast(x, i32, 'up')", PtoError),
        ("pto.reshape(x, (24,))", PtoError),
        ("pto.extract(x, (2, 2), 1.5)", PtoError),
        ("pto.insert(x, i)", DTypeMismatch),
        ("pto.put(x, row, i)", ShapeMismatch),
        ("pto.matmul_bias(x, x.T, col)", ShapeMismatch),
        ("pto.addc(x, i, x)", DTypeMismatch),
        ("x % x", PtoError),
    ],
)
def test_what_does_not_fit_is_refused(expression: str, error: type[PtoError]) -> None:
    signature = SIGNATURE.format(shape="4, 6", dtype="f32")
    found = error_of(f"@kernel\ndef k({signature}):\n    pto.store(y, {expression})\n")
    assert isinstance(found, error) and found.loc is not None
