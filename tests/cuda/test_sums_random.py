"""Random kernels of products of 16 bits in loops: sums in registers and in memory have equal bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, Extent, Var, binary
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cuda import kernels
from pto_wsp.types.dtype import bf16, f16, f32, i64
from pto_wsp.types.tile import ScalarType, TileType, ViewType
from tests.cuda.emulated import EmulatedCuda
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.targets import ctypes_abi

SIZE = 80
"""Rows and columns of the operands, of which kernels read parts."""

ZERO = Const(0)
SUMS = ("s0", "s1", "s2")


class Maker:
    """Draws a kernel: loops that add products to sums, and sometimes use the sums otherwise."""

    def __init__(self, draw: Draw, name: str) -> None:
        self.draw = draw
        self.name = name
        self.dtype = draw.choice([f16, bf16])
        self.rows, self.cols = draw.choice([5, 16, 33, 48]), draw.choice([3, 16, 40, 64])
        self.tiles = {tile: TileType(self.rows, self.cols, f32) for tile in (*SUMS, "t")}
        self.tiles |= {"r": TileType(1, self.cols, f32), "c": TileType(self.rows, 1, f32)}
        self.loops = 0

    def kernel(self) -> k.KernelFunction:
        view = ViewType(self.dtype, (None, None))
        params = [k.Param(name, k.IN, view) for name in "ab"]
        params += [k.Param("y", k.OUT, ViewType(f32, (None, None))), k.Param("n", k.IN, ScalarType(i64))]
        body: list[k.Stmt] = [self.filled(tile) for tile in (*SUMS, "t", "r", "c")]
        for _ in range(self.draw.randint(1, 3)):
            body.append(self.loop(0))
            body += self.others(self.draw.randint(0, 1))
        body += [k.Instr("add", "t", ("s0", "s1")), k.Instr("add", "t", ("t", "s2"))]
        body.append(k.Store(self.region("y", self.extents[0], self.extents[1]), "t"))
        return k.KernelFunction(self.name, tuple(params), tuple(self.tiles.items()), (), tuple(body))

    @property
    def extents(self) -> tuple[Expr, Expr]:
        rows, cols = (binary("min", Const(n), Extent("y", d)) for d, n in enumerate((self.rows, self.cols)))
        return rows, cols

    def region(self, view: str, rows: Expr, cols: Expr, row: Expr = ZERO, col: Expr = ZERO) -> Region:
        return Region(view, (Range(row, rows), Range(col, cols)))

    def filled(self, tile: str) -> k.Stmt:
        shape = self.tiles[tile]
        extents = zip(("rows", "cols"), self.extents, (shape.rows, shape.cols), strict=True)
        attrs = tuple((name, extent) for name, extent, size in extents if size > 1)
        return k.Instr("expands", tile, (), (Const(self.draw.choice([-0.5, 0.5, 1.0]), f32),), attrs)

    def loop(self, depth: int) -> k.Stmt:
        var, step = f"k{self.loops}", self.draw.choice([8, 16, 24, 32])
        self.loops += 1
        body: list[k.Stmt] = []
        for _ in range(self.draw.randint(1, 3)):
            body += self.statement(var, step, depth)
        return k.For(var, Const(0), Var("n"), step, tuple(body))

    def statement(self, var: str, step: int, depth: int) -> list[k.Stmt]:
        kind = self.draw.randint(0, 9)
        if kind == 0:
            return self.others(1)
        if kind == 1 and depth < 1:
            return [self.loop(depth + 1)]
        if kind == 2:
            condition = binary("lt", Var(var), Const(20))
            return [k.If(condition, tuple(self.products(var, step)), tuple(self.products(var, step)))]
        return self.products(var, step)

    def products(self, var: str, step: int) -> list[k.Stmt]:
        """Add one product to sums, or two in turn, or one to changed sums, with others in between."""
        dst = self.draw.choice(SUMS)
        if self.draw.randint(0, 2):
            return self.product(var, step, dst)
        link = f"l{len(self.tiles)}"
        self.tiles[link] = self.tiles["t"]
        first = self.product(var, step, link, dst)
        if self.draw.randint(0, 1):
            first = [self.changed(link, dst)]
        return [*first, *self.others(self.draw.randint(0, 1)), *self.product(var, step, dst, link)]

    def product(self, var: str, step: int, dst: str, source: str = "") -> list[k.Stmt]:
        turn_a, turn_b = self.draw.randint(0, 1), self.draw.randint(0, 1)
        a, b = f"a{step}_{turn_a}", f"b{step}_{turn_b}"
        self.tiles[a] = TileType(*((step, self.rows) if turn_a else (self.rows, step)), self.dtype)
        self.tiles[b] = TileType(*((self.cols, step) if turn_b else (step, self.cols)), self.dtype)
        terms = binary("min", Const(step), binary("sub", Var("n"), Var(var)))
        rows, cols = self.extents
        places = Var(var), Const(self.draw.randint(0, 3))
        loads = [
            k.Load(a, self.turned("a", turn_a, rows, terms, places)),
            k.Load(b, self.turned("b", not turn_b, cols, terms, places)),
        ]
        source = source or (dst if self.draw.randint(0, 3) else self.draw.choice(SUMS))
        attrs = (("trans_a", bool(turn_a)), ("trans_b", bool(turn_b)))
        op, tiles = ("matmul_acc", (source, a, b)) if self.draw.randint(0, 9) else ("matmul", (a, b))
        return [*loads, k.Instr(op, dst, tiles, (), attrs)]

    def turned(
        self, view: str, is_turned: bool | int, lines: Expr, terms: Expr, places: tuple[Expr, Expr]
    ) -> Region:
        term, line = places
        if is_turned:
            return self.region(view, terms, lines, term, line)
        return self.region(view, lines, terms, line, term)

    def others(self, count: int) -> list[k.Stmt]:
        found: list[k.Stmt] = []
        for _ in range(count):
            one, dst = self.draw.choice(SUMS), self.draw.choice([*SUMS, "t"])
            found.append(self.changed(dst, self.draw.choice([one, dst])))
        return found

    def changed(self, dst: str, source: str) -> k.Stmt:
        """Return an elementwise instruction, by a number, another tile, a row or a column."""
        other = self.draw.choice([*SUMS, "t"])
        return self.draw.choice(
            [
                k.Instr("max", dst, (source, other)),
                k.Instr("add", dst, (source, "t")),
                k.Instr("muls", dst, (source,), (Const(0.5, f32),)),
                k.Instr("rowexpandmul", dst, (source, "c")),
                k.Instr("colexpandmax", dst, (source, "r")),
            ]
        )


@tries(12, compiles=True)
@given(DRAWS)
def test_random_kernels(cache: ArtifactCache, draw: Draw) -> None:
    batch = [Maker(draw, f"k{i}").kernel() for i in range(4)]
    verify(Module("m", tuple(batch)))
    own = ctypes_abi.load(EmulatedCuda().build(batch, cache))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "sums_in_registers", lambda kernel: {})
        patch.setattr(kernels, "add_in_place", lambda kernel: kernel)
        in_memory = ctypes_abi.load(EmulatedCuda().build(batch, cache))
    for kernel in batch:
        for rows, cols, terms in ((64, 64, 64), (37, 61, 45), (2, 1, 5), (48, 64, 0)):
            note(f"{kernel}\n{rows} {cols} {terms}")
            found, wanted, meant = (arguments(kernel, rows, cols, terms) for _ in range(3))
            assert own.call(kernel, found) == in_memory.call(kernel, wanted) == 0
            np.testing.assert_array_equal(found[2], wanted[2])
            run_kernel(kernel, meant)
            np.testing.assert_allclose(found[2], meant[2], rtol=1e-4, atol=1e-3)


def arguments(kernel: k.KernelFunction, rows: int, cols: int, terms: int) -> list:
    rng = np.random.default_rng(rows)
    dtype = kernel.views[0].type.dtype
    assert dtype is not None
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(dtype.to_numpy()) for _ in range(2))
    return [a, b, np.full((rows, cols), np.nan, np.float32), terms]
