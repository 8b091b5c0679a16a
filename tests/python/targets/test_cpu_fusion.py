"""Fusing changes no bit: a kernel equals its instructions run one by one as kernels of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pto_wsp import In, Out, Scalar, Tensor, Tile, kernel, pto, workload
from pto_wsp.ir.kernel import Instr, KernelFunction
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.c_style.plan import Group, plan
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, bf16, f16, f32, i8, i16, i32, u8, u16
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker
from tests.python.targets.widths import WIDTHS, vectors_of

ROWS, COLS = 33, 75


def softmax(dtype: DType) -> KernelFunction:
    maker = KernelMaker(f"softmax_{dtype}")
    x = maker.input("x", ROWS, COLS, dtype)
    shifted = maker.op("rowexpandsub", x, maker.op("rowmax", x))
    weights = maker.op("exp", shifted)
    maker.store(maker.op("rowexpanddiv", weights, maker.op("rowsum", weights)), "y")
    return maker.done()


def gated(dtype: DType) -> KernelFunction:
    maker = KernelMaker(f"gated_{dtype}")
    x = maker.input("x", ROWS, COLS, dtype)
    gate = maker.op("mul", x, maker.op("sigmoid", x))
    bent = maker.op("tanh", maker.op("adds", maker.op("erf", gate), scalars=[0.3]))
    root = maker.op("rsqrt", maker.op("adds", maker.op("mul", bent, bent), scalars=[1e-3]))
    maker.store(maker.op("add", maker.op("mul", gate, root), x), "y")
    return maker.done()


def normalised(dtype: DType) -> KernelFunction:
    maker = KernelMaker(f"normalised_{dtype}")
    x = maker.input("x", ROWS, COLS, dtype)
    squares = maker.op("rowsum", maker.op("mul", x, x))
    scale = maker.op("rsqrt", maker.op("adds", maker.op("muls", squares, scalars=[1 / COLS]), scalars=[1e-5]))
    column = maker.op("colsum", maker.op("rowexpandmul", x, scale))
    wide = maker.op("colexpand", column, shape=(ROWS, COLS))
    maker.store(maker.op("sub", wide, maker.op("log", maker.op("abs", x))), "y")
    return maker.done()


def joined(dtype: DType) -> KernelFunction:
    """Each operand has extents of its own until a later instruction compares them."""
    maker = KernelMaker(f"joined_{dtype}")
    bent = []
    for name in ("x", "z", "w"):
        tile = maker.input(name, ROWS, COLS, dtype)
        bent.append(maker.op("abs", maker.op("adds", tile, scalars=[0.3])))
    total = maker.op("add", bent[1], bent[2])
    maker.store(maker.op("mul", bent[0], total), "y")
    return maker.done()


def pieces(kernel: KernelFunction) -> list[KernelFunction]:
    """One kernel per instruction."""
    types = dict(kernel.tiles)
    found = []
    for number, instr in enumerate(s for s in kernel.body or () if isinstance(s, Instr)):
        maker = KernelMaker(f"{kernel.name}_{number}")
        tiles = [maker.input(f"i{i}", *types[t].shape, types[t].dtype) for i, t in enumerate(instr.tiles)]
        shape = types[instr.dst].shape if instr.op == "colexpand" else None
        maker.store(maker.op(instr.op, *tiles, scalars=instr.scalars, shape=shape), "o")
        found.append(maker.done())
    return found


KERNELS = [make(t) for make in (softmax, gated, normalised) for t in (f32, bf16, f16)]


@pytest.fixture(scope="module", params=[WIDTHS[0], *WIDTHS[1:][-1:]])
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        every = [
            *KERNELS,
            *map(joined, (f32, bf16)),
            *(piece for kernel in KERNELS for piece in pieces(kernel)),
        ]
        return ctypes_abi.load(CpuTarget().build(every, cache))


def run_pieces(library: ctypes_abi.Library, kernel: KernelFunction, x: np.ndarray) -> np.ndarray:
    """Run a kernel's instructions one by one; every tile but a column or row has the shape of `x`."""
    types, values = dict(kernel.tiles), {"tx": x}
    instructions: Sequence[Instr] = [s for s in kernel.body or () if isinstance(s, Instr)]
    for piece, instr in zip(pieces(kernel), instructions, strict=True):
        rows, cols = types[instr.dst].shape
        shape = (1 if rows == 1 else x.shape[0], 1 if cols == 1 else x.shape[1])
        values[instr.dst] = np.zeros(shape, x.dtype)
        assert library.call(piece, [*(values[t] for t in instr.tiles), values[instr.dst]]) == 0
    return values[instructions[-1].dst]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_fusion_changes_no_bit(library: ctypes_abi.Library, kernel: KernelFunction) -> None:
    rng = np.random.default_rng(5)
    whole_rows = [ROWS] if kernel.name.startswith("normalised") else [ROWS, 1, 8]
    for rows in whole_rows:
        for cols in (COLS, 64, 17) if rows != ROWS or len(whole_rows) > 1 else (COLS,):
            x = (rng.standard_normal((rows, cols)) * 3).astype(kernel.params[0].type.dtype.to_numpy())
            fused = np.zeros_like(x)
            assert library.call(kernel, [x, fused]) == 0
            assert fused.tobytes() == run_pieces(library, kernel, x).tobytes()


def weighted(is_small: bool, has_second: bool = False) -> KernelFunction:
    """silu(x) * t, both widened before it is known that they have one shape."""
    dtype = bf16 if is_small else f32
    maker = KernelMaker(f"weighted_{dtype}_{has_second}")
    x, t = maker.input("x", ROWS, COLS, dtype), maker.input("t", ROWS, COLS, dtype)
    gate = maker.op("silu", maker.op("cvt", x, dtype=f32))
    weight = maker.op("abs", maker.op("cvt", t, dtype=f32))
    if has_second:
        maker.store(maker.op("exp", weight), "z")
    maker.store(maker.op("cvt", maker.op("mul", gate, weight), dtype=dtype), "y")
    return maker.done()


def narrowed(source: DType, dtype: DType) -> KernelFunction:
    """Values of a smaller type, and what goes on with them in the same loop."""
    maker = KernelMaker(f"narrowed_{dtype}")
    small = maker.op("cvt", maker.input("x", ROWS, COLS, source), dtype=dtype)
    maker.store(small, "y")
    maker.store(maker.op("cvt", small, dtype=source), "z")
    return maker.done()


NARROWED = [(f32, bf16), (f32, f16), *((i32, dtype) for dtype in (i8, u8, i16, u16))]


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_stored_is_what_the_loop_goes_on_with(cache: ArtifactCache, width: str | None) -> None:
    kernels = [narrowed(*types) for types in NARROWED]
    with vectors_of(width):
        library = ctypes_abi.load(CpuTarget().build(kernels, cache))
    bits = np.random.default_rng(11).integers(0, 2**32, (ROWS, COLS), np.uint32)
    bits[:, ::3] &= 0x807FFFFF  # below the smallest normal number
    bits[:, 1::3] |= 0x7F800000  # NaN and infinity
    bits[::2, 1::6] &= 0xFF800000
    bits[::3] &= 0xFFFF8000  # halfway between two bf16
    for one, (source, dtype) in zip(kernels, NARROWED, strict=True):
        x = bits.view(source.to_numpy())
        y, z = np.zeros(x.shape, dtype.to_numpy()), np.zeros_like(x)
        assert library.call(one, [x, y, z]) == 0
        assert np.array_equal(y.astype(x.dtype), z, equal_nan=dtype.is_float)
        if dtype is bf16:
            even = bits + 0x7FFF + (bits >> 16 & 1)
            assert np.array_equal(y.view(np.uint16), np.where(np.isnan(x), bits | 0x400000, even) >> 16)


def test_operands_that_are_compared_late_share_a_loop() -> None:
    for is_small in (False, True):
        nodes = plan(weighted(is_small))
        assert [type(node) for node in nodes[-1:]] == [Group]
        assert sum(isinstance(node, Group) for node in nodes) == 1


def test_late_comparison_stops_the_kernel_first(cache: ArtifactCache) -> None:
    kernels = [weighted(True), weighted(False), weighted(False, has_second=True)]
    library = ctypes_abi.load(CpuTarget().build(kernels, cache))
    rng = np.random.default_rng(3)
    for one in kernels:
        dtype = one.params[0].type.dtype.to_numpy()
        x, t = (rng.standard_normal((5, 40)).astype(dtype) for _ in range(2))
        outputs = [np.zeros_like(x) for _ in one.params[2:]]
        assert library.call(one, [x, t, *outputs]) == 0
        wide, weight = x.astype(np.float32), np.abs(t.astype(np.float32))
        assert np.allclose(outputs[-1].astype(np.float32), wide / (1 + np.exp(-wide)) * weight, rtol=1e-2)
        for other in ((4, 40), (5, 41), (6, 39)):
            y = np.zeros((5, 40), dtype)
            z = np.zeros(other, np.float32)
            outputs = [z, y] if len(outputs) == 2 else [y]
            assert library.call(one, [x, np.zeros(other, dtype), *outputs]) != 0
            assert not y.any()


def test_a_scalar_that_changes_in_between_has_its_old_value(cache: ArtifactCache) -> None:
    @kernel
    def scaled(x: In[Tile[8, 64, f32]], t: In[Tile[8, 64, f32]], y: Out[Tile[8, 64, f32]], a: Scalar[f32]):
        factor = a
        left = pto.exp(x)
        right = t * factor
        factor = factor + 1.0
        pto.store(y, left * right * factor)

    @workload
    def once(X: Tensor[f32, 8, 64], T: Tensor[f32, 8, 64], Y: Tensor[f32, 8, 64], a: Scalar[f32]):
        scaled(x=X, t=T, y=Y, a=a)

    x, t = (np.random.default_rng(i).random((8, 64), np.float32) for i in range(2))
    y = np.empty_like(x)
    once.compile(target="cpu")(X=x, T=t, Y=y, a=2.0)
    assert np.allclose(y, np.exp(x) * t * 2 * 3, rtol=1e-6)


def test_operands_that_a_later_instruction_compares_share_a_loop() -> None:
    loops = [node for node in plan(joined(f32)) if isinstance(node, Group)]
    assert len(loops) == 1


@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_operands_are_compared_before_the_loop(library: ctypes_abi.Library, dtype: DType) -> None:
    rng = np.random.default_rng(3)
    kernel = joined(dtype)

    def values(rows: int, cols: int) -> np.ndarray:
        return rng.standard_normal((rows, cols)).astype(dtype.to_numpy())

    def bent(value: np.ndarray) -> np.ndarray:
        return np.abs(value + dtype.to_numpy().type(0.3))

    for rows, cols in [(ROWS, COLS), (ROWS, 64), (7, 17), (1, 1), (0, 5), (5, 0)]:
        x, z, w = (values(rows, cols) for _ in range(3))
        y = np.zeros_like(x)
        assert library.call(kernel, [x, z, w, y]) == 0
        assert y.tobytes() == (bent(x) * (bent(z) + bent(w))).tobytes()
    for wrong in range(3):
        operands = [values(*((6, 40) if i == wrong else (6, 41))) for i in range(3)]
        y = np.zeros_like(values(6, 41))
        assert library.call(kernel, [*operands, y]) != 0
        assert not y.any()


def test_rows_behind_each_other_are_one(library: ctypes_abi.Library) -> None:
    """Whether rows lie apart in any of the arrays, and in which, changes nothing."""
    rng = np.random.default_rng(4)
    kernel = joined(f32)
    wide = [rng.standard_normal((9, 80)).astype(np.float32) for _ in range(4)]
    narrow = [np.ascontiguousarray(array[:, :23]) for array in wide]
    expected = None
    for apart in range(16):
        arrays = [wide[i][:, :23] if apart >> i & 1 else narrow[i] for i in range(4)]
        arrays[3][...] = 0
        beside = wide[3][:, 23:].copy()
        assert library.call(kernel, arrays) == 0
        expected = arrays[3].copy() if expected is None else expected
        assert arrays[3].tobytes() == expected.tobytes()
        assert np.array_equal(wide[3][:, 23:], beside)
