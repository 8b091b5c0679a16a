"""Rows of views picked by a tile: gather and scatter, on the target `cpu` and in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.errors import BadOperand, DTypeMismatch, KernelFailed, PtoError, ShapeMismatch
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.printer import print_kernel
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DTYPES
from tests.python.lang.programs import kernel_of
from tests.python.targets import ctypes_abi

COLS = 37
STORED = ("f32", "f16", "bf16", "i64", "b1")


def pick(dtype: str, indices: str = "Tile[1, 9, i32]", cols: str = "DYN") -> KernelFunction:
    """y[i] = x[rows[i]], z[rows[i]] = x[rows[i]]; z has other rows than y."""
    count = 9 if "9" in indices else 1
    signature = (
        f"x: In[Tensor[{dtype}, DYN, {COLS}]], rows: In[{indices}], "
        f"y: Out[Tile[{count}, {COLS}, {dtype}]], z: InOut[Tensor[{dtype}, DYN, {COLS}]]"
    )
    return kernel_of(signature, "t = pto.gather(x, rows)\npto.store(y, t)\npto.scatter(z, rows, t)")


def array(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2 if dtype == "b1" else 100, shape).astype(DTYPES[dtype].to_numpy())


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("indices", ["Tile[1, 9, i32]", "Tile[9, 1, i32]"])
def test_gather_and_scatter(dtype: str, indices: str, cache: ArtifactCache) -> None:
    kernel = pick(dtype, indices)
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    rng = np.random.default_rng(1)
    for n in (1, 2, 50):
        for count in (0, 1, 5, 9):
            numbers = rng.integers(0, n, count).astype(np.int32)
            rows = numbers[None, :] if indices == "Tile[1, 9, i32]" else numbers[:, None]
            x, z = array((n, COLS), dtype, rng), array((n + 3, COLS), dtype, rng)
            expected = z.copy()
            expected[numbers] = x[numbers]
            for run in (lambda args: library.call(kernel, args), lambda args: run_kernel(kernel, args)):
                y, changed = np.zeros((count, COLS), x.dtype), z.copy()
                assert not run([x, np.ascontiguousarray(rows), y, changed])
                assert np.array_equal(y, x[numbers]) and np.array_equal(changed, expected)


def test_rows_of_a_row_set(cache: ArtifactCache) -> None:
    kernel = pick("f32")
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    rng = np.random.default_rng(2)
    x, z = array((40, COLS), "f32", rng), np.zeros((40, COLS), np.float32)
    listed = rng.permutation(40)[:12].astype(np.int32)
    rows = rng.permutation(12)[None, :7].astype(np.int32)
    y = np.zeros((7, COLS), np.float32)
    assert library.call(kernel, [x, rows, y, z], rows={"x": listed, "z": listed}) == 0
    assert np.array_equal(y, x[listed[rows[0]]])
    expected = np.zeros_like(z)
    expected[listed[rows[0]]] = y
    assert np.array_equal(z, expected)


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize(
    "body",
    [
        "pto.store(y, pto.gather(x, rows))",
        "pto.store(y, pto.load(x[0:4, :]))\npto.scatter(y, rows, pto.load(x[0:4, :]))",
    ],
)
def test_rows_outside_of_the_view(bad: int, body: str, cache: ArtifactCache) -> None:
    signature = "x: In[Tensor[f32, 5, 8]], rows: In[Tile[1, 4, i32]], y: Out[Tensor[f32, 4, 8]]"
    kernel = kernel_of(signature, body)
    artifact = CpuTarget().build([kernel], cache)
    x, y = np.ones((5, 8), np.float32), np.zeros((4, 8), np.float32)
    rows = np.array([[0, 1, bad, 2]], np.int32)
    status = ctypes_abi.load(artifact).call(kernel, [x, rows, y])
    check = artifact.checks["k"][status - 1]
    assert status > 0 and check.text.message.startswith("a row outside")
    with pytest.raises(KernelFailed, match=f"row {bad} of") as caught:
        run_kernel(kernel, [x, rows, y])
    assert caught.value.loc == check.loc


def test_of_rows_named_twice_the_last_stays(cache: ArtifactCache) -> None:
    kernel = pick("f32")
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    signature = "x: In[Tile[4, 8, f32]], rows: In[Tile[1, 4, i32]], y: InOut[Tensor[f32, DYN, 8]]"
    kernel = kernel_of(signature, "pto.scatter(y, rows, x)")
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    x, rows = np.arange(32, dtype=np.float32).reshape(4, 8), np.array([[2, 0, 2, 0]], np.int32)
    found, wanted = np.zeros((3, 8), np.float32), np.zeros((3, 8), np.float32)
    library.call(kernel, [x, rows, found])
    run_kernel(kernel, [x, rows, wanted])
    assert np.array_equal(found, wanted) and np.array_equal(found[[2, 0]], x[[2, 3]])


def test_a_scatter_over_what_was_read_in_place(cache: ArtifactCache) -> None:
    signature = "x: InOut[Tensor[f32, 6, 8]], rows: In[Tile[1, 6, i32]]"
    kernel = kernel_of(signature, "t = pto.load(x[:, :])\npto.scatter(x, rows, t)")
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    rng = np.random.default_rng(3)
    for _ in range(5):
        x, rows = array((6, 8), "f32", rng), rng.permutation(6)[None].astype(np.int32)
        found = x.copy()
        library.call(kernel, [found, rows])
        assert np.array_equal(found[rows[0]], x)


def test_computed_row_numbers(cache: ArtifactCache) -> None:
    signature = "x: In[Tensor[f32, DYN, 8]], first: Scalar[i64], y: Out[Tile[4, 8, f32]]"
    body = "rows = pto.iota((1, 4), first) * 2\npto.store(y, pto.gather(x, rows) + pto.gather(x, rows))"
    kernel = kernel_of(signature, body)
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    x, found, wanted = np.arange(160, dtype=np.float32).reshape(20, 8), *np.zeros((2, 4, 8), np.float32)
    for first in (0, 3):
        assert library.call(kernel, [x, first, found]) == 0
        run_kernel(kernel, [x, first, wanted])
        assert np.array_equal(found, 2 * x[2 * first :: 2][:4]) and np.array_equal(found, wanted)
    assert library.call(kernel, [x, 7, found]) > 0


def test_text_and_refusals() -> None:
    text = print_kernel(pick("f32"))
    assert "= mgather %x[:, :], %rows" in text and "mscatter %t, %z[:, :], %rows" in text
    refused: list[tuple[str, str, type[PtoError]]] = [
        ("rows: In[Tile[1, 4, f32]]", "pto.store(y, pto.gather(x, rows))", DTypeMismatch),
        ("rows: In[Tile[2, 4, i32]]", "pto.store(y, pto.gather(x, rows))", ShapeMismatch),
        ("rows: In[Tile[1, 5, i32]]", "pto.store(y, pto.gather(x, rows))", ShapeMismatch),
        ("rows: In[Tile[1, 4, i32]]", "pto.scatter(x, rows, y)", BadOperand),
    ]
    for parameter, body, error in refused:
        with pytest.raises(error):
            kernel_of(f"x: In[Tensor[f32, DYN, 8]], {parameter}, y: Out[Tile[4, 8, f32]]", body)
