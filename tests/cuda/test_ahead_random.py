"""Random kernels whose loops load tiles ahead, on the target `cuda`, emulated, and in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, Var, binary
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cuda import ahead
from pto_wsp.types.dtype import DType, bf16, f32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType
from tests.cuda.emulated import EmulatedCuda
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.targets import ctypes_abi

SIZE = 56
"""Rows and columns of the operands, of which kernels read parts."""

ENDS = (0, 3, 8, 13, 20, 31, 48)
"""Where loops end: from no iteration to six of 8 rows, or twelve of 4, with tails."""

SUMS = ("rows", "cols", "all")


class Maker:
    """Draws a kernel: loops that add parts of `a`, `b` and `c` to sums, and sometimes load in place."""

    def __init__(self, draw: Draw, name: str) -> None:
        self.draw = draw
        self.name = name
        self.height, self.width = draw.choice([1, 5, 16]), draw.choice([1, 4, 7, 32])
        shapes = (self.height, 1), (1, self.width), (self.height, self.width)
        self.sums = {tile: TileType(*shape, f32) for tile, shape in zip(SUMS, shapes, strict=True)}
        self.tiles = dict(self.sums)
        self.count = 0

    def kernel(self) -> k.KernelFunction:
        """Return the kernel."""
        params = [k.Param(name, k.IN, ViewType(f32, (None, None))) for name in "ab"]
        params.append(k.Param("c", k.IN, ViewType(bf16, (None, None))))
        params += [k.Param(f"y_{tile}", k.OUT, kind) for tile, kind in self.sums.items()]
        params += [k.Param(name, k.IN, ScalarType(i64)) for name in ("n", "first")]
        body: list[k.Stmt] = [
            k.Instr(
                "expands",
                tile,
                (),
                (Const(1.0, f32),),
                (("rows", Const(kind.rows)), ("cols", Const(kind.cols))),
            )
            for tile, kind in self.sums.items()
        ]
        for _ in range(self.draw.randint(1, 3)):
            body.append(self.loop(is_outer=self.draw.randint(0, 2) == 0))
        body += [k.Store(Region(f"y_{tile}", (Full(), Full())), tile) for tile in self.sums]
        scalars = (("at", ScalarType(i64)),)
        return k.KernelFunction(self.name, tuple(params), tuple(self.tiles.items()), scalars, tuple(body))

    def fresh(self, stem: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{stem}{self.count}"

    def loop(self, *, is_outer: bool) -> k.For:
        """Return a loop: of loops, or of statements that load."""
        var = self.fresh("i")
        start, stop = self.draw.choice(
            [(Const(0), Var("n")), (Var("first"), Var("n")), (Const(4), Const(20))]
        )
        if is_outer:
            inner = [self.loop(is_outer=False) for _ in range(self.draw.randint(1, 2))]
            return k.For(var, start, stop, 16, tuple(inner))
        step = self.draw.choice([4, 8])
        extent = binary("min", Const(step), binary("sub", stop, Var(var)))
        body = [k.Assign("at", binary("add", Var(var), Const(0)))]
        for _ in range(self.draw.randint(1, 3)):
            kind = self.draw.choice([self.column_sums, self.row_sums, self.products])
            place = Var("at") if self.draw.randint(0, 7) == 0 else Var(var)
            body += kind(place, step, extent)
        return k.For(var, start, stop, step, tuple(body))

    def loaded(self, view: str, shape: tuple[int, int], dtype: DType, *ranges: Range) -> tuple[k.Load, str]:
        """Return a load of a new tile, and the tile."""
        tile = self.fresh("t")
        self.tiles[tile] = TileType(*shape, dtype)
        return k.Load(tile, Region(view, ranges)), tile

    def some(self, size: int) -> Range:
        """Return a part of a dimension that every kernel has, of which not all begin at 16 bytes."""
        return Range(Const(self.draw.randint(0, 4)), Const(size))

    def changed(self, tile: str) -> list[k.Stmt]:
        """Return an instruction that sometimes changes a tile after it was loaded."""
        return [] if self.draw.randint(0, 4) else [k.Instr("muls", tile, (tile,), (Const(2.0, f32),))]

    def column_sums(self, place: Expr, step: int, extent: Expr) -> list[k.Stmt]:
        """Return statements that add sums of columns of rows of `a`."""
        rows, total = Range(place, extent), self.fresh("s")
        load, tile = self.loaded("a", (step, self.width), f32, rows, self.some(self.width))
        self.tiles[total] = self.sums["cols"]
        add = [k.Instr("colsum", total, (tile,)), k.Instr("add", "cols", ("cols", total))]
        return [load, *self.changed(tile), *add]

    def row_sums(self, place: Expr, step: int, extent: Expr) -> list[k.Stmt]:
        """Return statements that add sums of rows of columns of `b`."""
        cols, total = Range(place, extent), self.fresh("s")
        load, tile = self.loaded("b", (self.height, step), f32, self.some(self.height), cols)
        self.tiles[total] = self.sums["rows"]
        add = [k.Instr("rowsum", total, (tile,)), k.Instr("add", "rows", ("rows", total))]
        return [load, *self.changed(tile), *add]

    def products(self, place: Expr, step: int, extent: Expr) -> list[k.Stmt]:
        """Return statements that add a product of f32, or of bf16."""
        (left, right), dtype = self.draw.choice([(("b", "a"), f32), (("c", "c"), bf16)])
        terms = Range(place, extent)
        first, a = self.loaded(left, (self.height, step), dtype, self.some(self.height), terms)
        second, b = self.loaded(right, (step, self.width), dtype, terms, self.some(self.width))
        return [first, second, k.Instr("matmul_acc", "all", ("all", a, b))]


@tries(15, compiles=True)
@given(DRAWS)
def test_random_kernels(cache: ArtifactCache, draw: Draw) -> None:
    """All sums are exact, so that the interpreter has the same bits."""
    batch = [Maker(draw, f"k{i}").kernel() for i in range(5)]
    verify(Module("m", tuple(batch)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MOST_STAGES", draw.choice([4, 4, 3, 2]))
        library = ctypes_abi.load(EmulatedCuda().build(batch, cache))
    for kernel in batch:
        for end in ENDS:
            note(f"{kernel}\n{end}")
            found, wanted = (arguments(kernel, end) for _ in range(2))
            assert library.call(kernel, found) == 0
            run_kernel(kernel, wanted)
            for one, other in zip(found[3:6], wanted[3:6], strict=True):
                np.testing.assert_array_equal(one, other)


def arguments(kernel: k.KernelFunction, end: int) -> list:
    """Return small whole numbers as operands, results without a value, and the ends of loops."""
    rng = np.random.default_rng(end)
    parts = [rng.integers(-2, 3, (SIZE, SIZE)) for _ in range(3)]
    operands = [part.astype(of.to_numpy()) for part, of in zip(parts, (f32, f32, bf16), strict=True)]
    shapes = [(p.type.rows, p.type.cols) for p in kernel.views[3:] if isinstance(p.type, TileType)]
    return [*operands, *(np.full(shape, np.nan, np.float32) for shape in shapes), end, end % 5]
