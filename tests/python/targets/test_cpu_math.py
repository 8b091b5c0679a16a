"""Transcendental rows of the target `cpu` over all floats, against f64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pto_wsp.isa.meaning import gelu, sigmoid, silu
from pto_wsp.isa.table import TABLE
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import f32
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

MEANINGS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": sigmoid,
    "silu": silu,
    "gelu": gelu,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
ROWS, COLS = 64, 1024
EDGES = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    88.72283,
    88.72284,
    -87.33,
    -103.97,
    -104.0,
    4.0,
    -1.0,
    -110.0,
    *np.array([0xBC80D528, 0xBD035A34, 0xBD86ED75, 0xBE0EB11C, 0xBEAAC51E], np.uint32).view(np.float32),
]
"""The last ones are where roundings of gelu added up to more than its bound, a few floats in a million."""


def sweep() -> np.ndarray:
    """Floats of every exponent and sign, more of them where the functions bend, and the edges."""
    bits = np.arange(0, 2**32, 48611, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.array([*np.linspace(-14, 14, 90001), *EDGES], np.float32)
    values = np.concatenate([bits, near])
    padded = np.full(-(-values.size // (ROWS * COLS)) * ROWS * COLS, 0.5, np.float32)
    padded[: values.size] = values
    return padded.reshape(-1, ROWS, COLS)


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        return ctypes_abi.load(CpuTarget().build([unary(op) for op in MEANINGS], cache))


def unary(op: str) -> object:
    maker = KernelMaker(op)
    maker.store(maker.op(op, maker.input("x", ROWS, COLS, f32)), "y")
    return maker.done()


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    with np.errstate(all="ignore"):
        return {op: meaning(sweep().astype(np.float64)) for op, meaning in MEANINGS.items()}


@pytest.mark.parametrize("op", MEANINGS)
def test_error_over_all_floats(library: ctypes_abi.Library, expected: dict[str, np.ndarray], op: str) -> None:
    values = sweep()
    found = np.empty_like(values)
    for x, y in zip(values, found, strict=True):
        assert library.call(unary(op), [x, y]) == 0
    exact = expected[op]
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    assert same[~finite].all(), values[~finite & ~same][:5]
    assert (np.signbit(found) == np.signbit(exact))[exact == 0].all()
    ulp = np.spacing(np.maximum(np.abs(rounded), np.float32(2.0**-126))).astype(np.float64)
    with np.errstate(all="ignore"):
        distance = np.abs(found - exact)
        error = np.where(finite, distance / ulp, 0)
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert error.max() <= TABLE[op].bound.amount, (values[worst], found[worst], exact[worst])
    # Results too small to be normal are rounded to a multiple of the smallest number, of a product (gelu) of
    # several factors by its bound.
    tiny = finite & (np.abs(rounded) < 2.0**-126)
    assert (distance[tiny] <= 2.0**-149).all() or op == "gelu"
