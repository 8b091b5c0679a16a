"""Loops with several stores, to views that overlap: memory is what the stores one after the other leave.

Extents are constants, so that as much as can shares a loop.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Const, Var, mul
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cpu.target import CpuTarget
from pto_wsp.types.dtype import DType, f32, i16, i64
from pto_wsp.types.tile import ScalarType, ViewType
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.targets import ctypes_abi
from tests.python.targets.build_kernels import KernelMaker, whole
from tests.python.targets.widths import WIDTHS, vectors_of

ROWS, COLS, SPAN = 5, 40, 48
OUTPUTS = ("y", "z", "w")


def random_kernel(seed: int, dtype: DType) -> KernelFunction:
    """Tiles that are made, stored and made anew, in any order; each is stored in the end."""
    draw, maker = random.Random(seed), KernelMaker(f"stores_{seed}_{dtype}")
    tiles = [maker.input("x", ROWS, COLS, dtype)]
    tiles += [maker.op("adds", tiles[0], scalars=[n]) for n in (1, 2)]
    for _ in range(draw.randint(3, 8)):
        tile = draw.choice(tiles)
        match draw.randrange(5):
            case 0 | 1:
                maker.body.append(k.Store(whole(draw.choice(OUTPUTS)), tile))
            case 2:
                maker.op("add", tile, draw.choice(tiles), dst=draw.choice(tiles[1:]))
            case 3:
                maker.op("rowexpandadd", tile, maker.op("rowmax", draw.choice(tiles)), dst=tile)
            case _:
                maker.op("muls", tile, scalars=[2], dst=draw.choice(tiles[1:]))
    for name, tile in zip(draw.sample(OUTPUTS, 3), tiles, strict=True):
        maker.body.append(k.Store(whole(name), tile))
    names = [("x", k.IN), *((name, k.OUT) for name in OUTPUTS)]
    maker.params = [k.Param(name, role, ViewType(dtype, (ROWS, COLS))) for name, role in names]
    return maker.done()


def made_anew() -> KernelFunction:
    """One tile in three versions, each stored, in one loop."""
    maker = KernelMaker("made_anew")
    tile = maker.op("adds", maker.input("x", ROWS, COLS, f32), scalars=[1])
    for name in OUTPUTS:
        maker.store(tile, name)
        maker.op("muls", tile, scalars=[3], dst=tile)
    maker.params = [k.Param(p.name, p.role, ViewType(f32, (ROWS, COLS))) for p in maker.params]
    return maker.done()


def scaled() -> KernelFunction:
    """A sum that is stored twice, and scaled where a product adds to it, in one loop."""
    maker = KernelMaker("scaled")
    x = maker.input("x", ROWS, COLS, f32)
    square = maker.op("expands", shape=(ROWS, ROWS), dtype=f32, scalars=[1])
    total = maker.op("adds", x, scalars=[1])
    maker.op("transpose", total)  # what follows is another loop
    maker.store(total, "y")
    part = maker.op("muls", total, scalars=[3])
    maker.store(total, "z")
    maker.op("matmul_acc", part, square, x, dst=total)
    maker.store(total, "w")
    maker.params = [k.Param(p.name, p.role, ViewType(f32, (ROWS, COLS))) for p in maker.params]
    return maker.done()


KERNELS = [made_anew(), scaled(), *(random_kernel(seed, (f32, i16)[seed % 2]) for seed in range(16))]


@pytest.fixture(scope="module", params=WIDTHS)
def library(request: pytest.FixtureRequest, cache: ArtifactCache) -> ctypes_abi.Library:
    with vectors_of(request.param):
        return ctypes_abi.load(CpuTarget().build([*KERNELS, *TURNED, *LOOPED.values()], cache))


def layouts() -> list[list[tuple[int, int]]]:
    """Rows and columns at which the four views begin in one array."""
    draw = random.Random(0)
    near = [[(draw.randint(0, 3), draw.choice([0, 0, 1, 8])) for _ in range(4)] for _ in range(30)]
    return [[(10 * n, 0) for n in range(4)], [(0, 0)] * 4, [(0, 0), (20, 0), (22, 0), (24, 0)], *near]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_memory_is_what_stores_in_order_leave(library: ctypes_abi.Library, kernel: KernelFunction) -> None:
    dtype = kernel.views[0].type.dtype
    assert dtype is not None
    base = np.random.default_rng(0).integers(-9, 9, (40, SPAN)).astype(dtype.to_numpy())
    for layout in layouts():
        found, wanted = base.copy(), base.copy()
        views = [[a[r : r + ROWS, c : c + COLS] for r, c in layout] for a in (found, wanted)]
        assert library.call(kernel, views[0]) == 0
        run_kernel(kernel, views[1])
        np.testing.assert_array_equal(found, wanted, err_msg=str(layout))


def turned(dtype: DType, *, is_made: bool) -> KernelFunction:
    """y = x.T, of x where it lies or of what is made of it."""
    maker = KernelMaker(f"turned_{dtype}_{is_made}")
    x = maker.input("x", ROWS, COLS, dtype)
    maker.store(maker.op("transpose", maker.op("adds", x, scalars=[1]) if is_made else x), "y")
    return maker.done()


TURNED = [turned(dtype, is_made=is_made) for dtype in (f32, i16, i64) for is_made in (False, True)]


@given(draw=DRAWS)
@tries(220)
def test_transposes_onto_what_they_are_made_of(library: ctypes_abi.Library, draw: Draw) -> None:
    kernel = draw.choice(TURNED)
    dtype = kernel.views[0].type.dtype
    assert dtype is not None
    rows, cols = draw.randint(0, ROWS), draw.choice([0, 1, 8, 19, COLS])
    (r, c), (s, d) = (0, draw.choice([0, 1, 16])), (draw.choice([0, 2, 48]), draw.choice([0, 3, 16, 48]))
    found = np.random.default_rng(0).integers(-9, 9, (96, 96)).astype(dtype.to_numpy())
    wanted = found.copy()
    for memory, run in ((found, library.call), (wanted, run_kernel)):
        assert not run(kernel, [memory[r : r + rows, c : c + cols], memory[s : s + cols, d : d + rows]])
    np.testing.assert_array_equal(found, wanted, err_msg=f"{kernel.name} {c} {s, d} {rows} {cols}")


PARTS = 3


def looped(rank: int, *, reads: bool) -> KernelFunction:
    """x + i, or i alone, to part i of y in a loop, and 3 x to w behind it: the x of before all that."""
    maker = KernelMaker(f"looped_{rank}_{reads}")
    x = maker.input("x", ROWS, COLS, f32)
    before = len(maker.body)
    total = (
        maker.op("adds", x, scalars=[Var("i")])
        if reads
        else maker.op("expands", shape=(ROWS, COLS), dtype=f32, scalars=[Var("i")])
    )
    columns = Range(mul(Var("i"), Const(COLS)), Const(COLS))
    part = (Index(Var("i")), Full(), Full()) if rank == 3 else (Full(), columns)
    maker.body.append(k.Store(Region("y", part), total))
    maker.body[before:] = [k.For("i", Const(0), Const(PARTS), 1, tuple(maker.body[before:]))]
    maker.store(maker.op("muls", x, scalars=[3]), "w")
    shape = (PARTS, ROWS, COLS) if rank == 3 else (None, PARTS * COLS)
    w = ViewType(f32, (ROWS, COLS))
    maker.params = [k.Param("x", k.IN, w), k.Param("y", k.OUT, ViewType(f32, shape)), k.Param("w", k.OUT, w)]
    maker.scalars["i"] = ScalarType(i64)
    return maker.done()


@dataclass(frozen=True)
class Layout:
    """Where x, y and w lie in one array; `rows` of y, if it is a row set."""

    x: tuple[int, int]
    y: tuple[int, int]
    w: tuple[int, int]
    is_cube: bool
    rows: np.ndarray | None

    @classmethod
    def draw(cls, draw: random.Random) -> Layout:
        x, w = ((draw.choice([0, 3, 5, 6, 35]), draw.choice([0, 1, 8, COLS])) for _ in range(2))
        y, kind = (draw.choice([0, 3, 5, 10]), draw.choice([0, 8])), draw.choice(["cube", "flat", "rows"])
        rows = np.array(draw.sample(range(20), ROWS), np.int32) if kind == "rows" else None
        return cls(x, y, w, kind == "cube", rows)

    def views(self, memory: np.ndarray) -> list[np.ndarray]:
        x, w = (memory[r : r + ROWS, c : c + COLS] for r, c in (self.x, self.w))
        row, col = self.y
        if self.is_cube:
            first = row * memory.shape[1] + col
            y = memory.reshape(-1)[first : first + PARTS * ROWS * COLS].reshape(PARTS, ROWS, COLS)
        else:
            count = ROWS if self.rows is None else 20
            y = memory[row : row + count, col : col + PARTS * COLS]
        return [x, y, w]

    def fill(self, memory: np.ndarray, *, reads: bool) -> None:
        """Do what the kernel means."""
        x, y, w = self.views(memory)
        old = x.copy()
        for i in range(PARTS):
            part = old + i if reads else i
            if self.is_cube:
                y[i] = part
            else:
                y[slice(None) if self.rows is None else self.rows, i * COLS : (i + 1) * COLS] = part
        w[...] = old * 3


LOOPED = {(rank, reads): looped(rank, reads=reads) for rank in (2, 3) for reads in (False, True)}


@given(draw=DRAWS, reads=st.booleans())
@tries(1200)
def test_what_is_read_while_a_loop_stores(library: ctypes_abi.Library, draw: Draw, reads: bool) -> None:
    layout = Layout.draw(draw)
    found = np.random.default_rng(0).integers(-9, 9, (40, PARTS * COLS + 8)).astype(np.float32)
    wanted = found.copy()
    layout.fill(wanted, reads=reads)
    rows = {} if layout.rows is None else {"y": layout.rows}
    kernel = LOOPED[2 + layout.is_cube, reads]
    assert library.call(kernel, layout.views(found), rows=rows) == 0
    np.testing.assert_array_equal(found, wanted, err_msg=f"{layout} {kernel.name}")
