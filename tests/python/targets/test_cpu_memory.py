"""The target `cpu` touches the valid elements of views and nothing else."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const, Var
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, b1, bf16, f32, i32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

PAGE = mmap.PAGESIZE
ROWS, COLS = 20, 70


def guarded(shape: tuple[int, int], dtype: DType, at_end: bool) -> np.ndarray:
    """An array that touches an inaccessible page with its last (or first) byte."""
    kind = dtype.to_numpy()
    size = shape[0] * shape[1] * kind.itemsize
    pages = max(1, -(-size // PAGE))
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, pages + 1):
        assert libc.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, 0) == 0
    offset = (pages + 1) * PAGE - size if at_end else PAGE
    array = np.frombuffer(memory, kind, shape[0] * shape[1], offset).reshape(shape)
    array[...] = 1
    return array


def copies(dtype: DType) -> KernelFunction:
    """Fused in place, and through a copy; whole and by a column."""
    maker = KernelMaker(f"copies_{dtype}")
    x = maker.input("x", ROWS, COLS, dtype)
    maker.store(maker.op("mov", x), "y")
    maker.store(maker.op("transpose", x), "w")
    return maker.done()


def reductions(dtype: DType) -> KernelFunction:
    maker = KernelMaker(f"reductions_{dtype}")
    x = maker.input("x", ROWS, COLS, dtype)
    maker.store(maker.op("rowsum", x), "y")
    maker.store(maker.op("colmax", x), "w")
    return maker.done()


def product(dtype: DType) -> KernelFunction:
    maker = KernelMaker(f"product_{dtype}")
    a, b = maker.input("a", 6, 40, dtype), maker.input("b", 40, COLS, dtype)
    maker.store(maker.op("matmul", a, b), "y")
    maker.store(maker.op("matmul", b, a, trans_a=True, trans_b=True), "w")
    return maker.done()


COPIES = [copies(t) for t in (f32, bf16, i32, b1)]
REDUCTIONS = [reductions(t) for t in (f32, bf16, i32)]
PRODUCTS = [product(t) for t in (f32, bf16)]


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        built = CpuTarget().build([*COPIES, *REDUCTIONS, *PRODUCTS], cache)
        return ctypes_abi.load(built)


@pytest.mark.parametrize("at_end", [True, False], ids=["end", "start"])
@pytest.mark.parametrize("shape", [(20, 70), (1, 1), (3, 17), (7, 31), (20, 16), (2, 65)])
def test_nothing_beyond_arrays_is_touched(
    library: ctypes_abi.Library, shape: tuple[int, int], at_end: bool
) -> None:
    rows, cols = shape
    for kernel in COPIES:
        dtype = kernel.params[0].type.dtype
        x, y, w = (guarded(s, dtype, at_end) for s in (shape, shape, shape[::-1]))
        assert library.call(kernel, [x, y, w]) == 0
    for kernel in REDUCTIONS:
        dtype = kernel.params[0].type.dtype
        x, y, w = (guarded(s, dtype, at_end) for s in (shape, (rows, 1), (1, cols)))
        assert library.call(kernel, [x, y, w]) == 0
        assert (y == cols).all() and (w == 1).all()
    for kernel in PRODUCTS:
        dtype = kernel.params[0].type.dtype
        m = min(rows, 6)
        a, b = guarded((m, rows), dtype, at_end), guarded((rows, cols), dtype, at_end)
        y, w = guarded((m, cols), f32, at_end), guarded((cols, m), f32, at_end)
        assert library.call(kernel, [a, b, y, w]) == 0
        assert (y == rows).all() and (w == rows).all()


def test_gaps_between_rows_stay_as_they_are(library: ctypes_abi.Library) -> None:
    rng = np.random.default_rng(0)
    for kernel in COPIES:
        kind = kernel.params[0].type.dtype.to_numpy()
        for rows, cols in ((20, 70), (3, 17), (1, 5)):
            x = rng.integers(0, 2, (rows, cols)).astype(kind)
            big_y, big_w = np.full((rows + 2, cols + 9), 1, kind), np.full((cols + 2, rows + 9), 1, kind)
            y, w = big_y[1:-1, 4:-5], big_w[1:-1, 4:-5]
            assert library.call(kernel, [x, y, w]) == 0
            assert (y == x).all() and (w == x.T).all()
            y[...], w[...] = 1, 1
            assert (big_y == 1).all() and (big_w == 1).all()


def test_row_lists_gather_and_scatter(library: ctypes_abi.Library) -> None:
    rng = np.random.default_rng(1)
    for kernel in COPIES[:1]:
        source = rng.standard_normal((50, 33)).astype(np.float32)
        picked = np.array([7, 0, 49, 3], np.int32)
        target, turned = np.zeros((30, 33), np.float32), np.zeros((33, 4), np.float32)
        places = np.array([2, 29, 0, 11], np.int32)
        assert library.call(kernel, [source, target, turned], rows={"x": picked, "y": places}) == 0
        expected = np.zeros_like(target)
        expected[places] = source[picked]
        assert np.array_equal(target, expected) and np.array_equal(turned, source[picked].T)


def slices() -> KernelFunction:
    """y[:, 1:10, i] = x[i, :, j : j + 9]: the columns of the target do not lie side by side."""
    cube, tile = ViewType(f32, (None, None, None)), TileType(8, 9, f32)
    source = Region("x", (Index(Var("i")), Full(), Range(Var("j"), Const(9))))
    target = Region("y", (Full(), Range(Const(1), Const(9)), Index(Var("i"))))
    return KernelFunction(
        "slices",
        (
            k.Param("x", k.IN, cube),
            k.Param("y", k.OUT, cube),
            k.Param("i", k.IN, ScalarType(i64)),
            k.Param("j", k.IN, ScalarType(i64)),
        ),
        (("t", tile),),
        (),
        (k.Load("t", source), k.Store(target, "t")),
    )


def test_dimensions_of_higher_ranks_are_dropped(cache: ArtifactCache) -> None:
    kernel = slices()
    library = ctypes_abi.load(CpuTarget().build([kernel], cache))
    x = np.arange(4 * 8 * 30, dtype=np.float32).reshape(4, 8, 30)
    y = np.zeros((8, 12, 5), np.float32)
    assert library.call(kernel, [x, y, 3, 20]) == 0
    expected = np.zeros_like(y)
    expected[:, 1:10, 3] = x[3, :, 20:29]
    assert np.array_equal(y, expected)
    rows = np.array([2, 0], np.int32)
    assert library.call(kernel, [x, y, 1, 0], rows={"x": rows}) == 0
    assert np.array_equal(y[:, 1:10, 1], x[0, :, 0:9])
