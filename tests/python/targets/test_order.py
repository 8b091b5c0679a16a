"""Sorting, merging and picking in kernels as they are written: on the target `cpu` and in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.errors import BadOperand, DTypeMismatch, KernelFailed, PtoError, ShapeMismatch
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.isa.meaning import NO_PAIR, pairs, topk_indices, topk_values
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import tries
from tests.python.lang.programs import kernel_of
from tests.python.targets import ctypes_abi
from tests.python.targets.widths import WIDTHS, vectors_of

K, TILE = 40, 128
WHOLE_ROWS = "p = pto.sort(t, ids)"
BLOCKS = "p = pto.mrgsort(pto.sort32(t, ids), 32)"
TOPK = """
    best = pto.full((3, {k}), -2**63, i64)
    for s in pto.tiles(x.cols, {tile}):
        t = x[:, s]
        ids = pto.iota((3, t.cols), s.start)
        {sorting}
        best = pto.merge(best, p, {k})
    pto.store(values, pto.extract_topk_values(best, {k}))
    pto.store(indices, pto.extract_topk_indices(best, {k}))
"""


def ranked(row: np.ndarray) -> np.ndarray:
    """Indices by descending value, NaN first, equal ones in order."""
    return np.array(
        sorted(range(len(row)), key=lambda i: (not np.isnan(row[i]), -np.nan_to_num(row[i]), i)), int
    )


@pytest.fixture(scope="module", params=WIDTHS)
def topk(request: pytest.FixtureRequest, cache: ArtifactCache) -> tuple[list, ctypes_abi.Library]:
    signature = f"x: In[Tensor[f32, 3, DYN]], values: Out[Tile[3, {K}, f32]], indices: Out[Tile[3, {K}, i32]]"
    kernels = []
    for name, sorting in (("whole", WHOLE_ROWS), ("blocks", BLOCKS)):
        text = TOPK.format(k=K, tile=TILE, sorting=sorting).replace("\n    ", "\n")
        kernels.append(kernel_of(signature, text))
        object.__setattr__(kernels[-1], "name", name)
    with vectors_of(request.param):
        return kernels, ctypes_abi.load(CpuTarget().build(kernels, cache))


@tries(40)
@given(st.integers(0, 5 * TILE), st.sampled_from([2, 5, 1000]), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_running_top_k(topk: tuple, n: int, distinct: int, special: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.integers(0, distinct, (3, n)) - distinct // 2).astype(np.float32) / 8
    if special:
        odd = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-45, 3e38], np.float32)
        x = np.where(rng.random(x.shape) < 0.3, rng.choice(odd, x.shape), x)
    kernels, library = topk
    count = min(n, K)
    for kernel in kernels:
        values, indices = np.zeros((3, K), np.float32), np.zeros((3, K), np.int32)
        assert library.call(kernel, [x, values, indices]) == 0
        for row in range(3):
            order = ranked(x[row])[:K]
            assert np.array_equal(indices[row, :count], order)
            assert np.array_equal(values[row, :count], x[row, order], equal_nan=True)
        assert (indices[:, count:] == -1).all() and (values[:, count:] == -np.inf).all()
    wanted = np.zeros((3, K), np.float32), np.zeros((3, K), np.int32)
    run_kernel(kernels[1], [x, *wanted])
    assert np.array_equal(wanted[0], values, equal_nan=True) and np.array_equal(wanted[1], indices)


def test_pairs_order_as_they_say() -> None:
    values = np.array([np.nan, np.inf, 3e38, 1.0, 1e-45, 0.0, -0.0, -1e-45, -1.0, -3e38, -np.inf], np.float32)
    made = pairs(values[None], np.arange(len(values), dtype=np.int32)[None])[0]
    assert (np.diff(made.astype(object)) < 0).all() and made[-1] > NO_PAIR
    attrs = {"valid_shape": (1, len(values))}
    assert np.array_equal(topk_values(made[None], attrs)[0], values, equal_nan=True)
    assert np.array_equal(topk_indices(made[None], attrs)[0], np.arange(len(values)))
    assert pairs(values[3:4], np.array([-1]))[0] < pairs(values[3:4], np.array([2**31 - 1]))[0]


FAILING = {
    "merge": (
        "p: In[Tile[2, 8, i64]], y: Out[Tile[2, 12, i64]]",
        "pto.store(y, pto.merge(p, p, 12))",
        "sorted",
    ),
    "mrgsort": (
        "p: In[Tile[2, 8, i64]], y: Out[Tile[2, 8, i64]]",
        "pto.store(y, pto.mrgsort(p, 4))",
        "sorted",
    ),
    "take": (
        "p: In[Tile[2, 8, i32]], y: Out[Tile[2, 8, i32]]",
        "pto.store(y, pto.take(pto.iota((2, 5)), p))",
        "outside",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_operands_without_a_meaning(name: str, cache: ArtifactCache) -> None:
    signature, body, message = FAILING[name]
    kernel = kernel_of(signature, body)
    artifact = CpuTarget().build([kernel], cache)
    library = ctypes_abi.load(artifact)
    dtype = kernel.views[0].type.dtype.to_numpy()
    good = np.tile(np.array([4, 3, 2, 0, 4, 3, 1, 0], dtype), (2, 1))
    if name == "merge":
        good = np.sort(good)[:, ::-1].copy()
    found, wanted = (np.zeros(kernel.views[1].type.shape, dtype) for _ in range(2))
    assert library.call(kernel, [good, found]) == 0
    run_kernel(kernel, [good, wanted])
    assert np.array_equal(found, wanted)
    for row, col in np.ndindex(2, 8):
        p = good.copy()
        p[row, col] = -9 if col == 0 or (name, col) == ("mrgsort", 4) else 9
        status = library.call(kernel, [p, found])
        check = artifact.checks["k"][status - 1]
        assert status > 0 and message in check.text.message
        with pytest.raises(KernelFailed, match=message) as caught:
            run_kernel(kernel, [p, wanted])
        assert caught.value.loc == check.loc


def test_carried_tiles_are_overwritten_safely(cache: ArtifactCache) -> None:
    signature = "x: In[Tile[2, 64, f32]], y: Out[Tile[2, 64, i64]], z: Out[Tile[2, 64, i32]]"
    body = """
        p = pto.sort32(x)
        idx = pto.extract_topk_indices(p, 64)
        for i in range(2):
            p = pto.mrgsort(p, 16)
            idx = pto.take(idx, pto.rowexpand(pto.rowargmax(x), 64))
        pto.store(y, p)
        pto.store(z, idx)
    """
    kernel = kernel_of(signature, body)
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    found = np.zeros((2, 64), np.int64), np.zeros((2, 64), np.int32)
    wanted = np.zeros((2, 64), np.int64), np.zeros((2, 64), np.int32)
    assert library.call(kernel, [x, *found]) == 0
    run_kernel(kernel, [x, *wanted])
    assert np.array_equal(found[0], wanted[0]) and np.array_equal(found[1], wanted[1])


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("pto.store(y, pto.sort(y))", PtoError),
        ("pto.store(y, pto.sort(i))", DTypeMismatch),
        ("pto.store(y, pto.sort(x, x))", DTypeMismatch),
        ("pto.store(y, pto.sort(x, pto.iota((1, 8))))", ShapeMismatch),
        ("pto.store(y, pto.mrgsort(pto.sort(x), 0))", BadOperand),
        ("pto.store(y, pto.merge(pto.sort(x), x))", DTypeMismatch),
        ("pto.store(i, pto.extract_topk_indices(pto.sort(x), x.rows * 0))", BadOperand),
        ("pto.store(i, pto.extract_topk_indices(x, 8))", DTypeMismatch),
        ("pto.store(i, pto.iota((2, 8), 0.5))", DTypeMismatch),
        ("pto.store(i, pto.iota((2, 8), 2**31))", DTypeMismatch),
        ("pto.store(i, pto.iota((2, 8), dtype=f32))", DTypeMismatch),
        ("pto.store(i, pto.take(i, x))", DTypeMismatch),
    ],
)
def test_what_is_refused(body: str, error: type[PtoError]) -> None:
    signature = "x: In[Tile[2, 8, f32]], y: InOut[Tile[2, 8, i64]], i: InOut[Tile[2, 8, i32]]"
    with pytest.raises(error):
        kernel_of(signature, body)
