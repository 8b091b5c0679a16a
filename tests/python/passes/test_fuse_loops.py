"""Two loops made one, where that changes no result."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, Var, add, mul
from pto_wsp.ir.verify import verify
from pto_wsp.passes.fuse_loops import fuse_loops
from pto_wsp.support.record import replace
from pto_wsp.types import TensorType, TileType, ViewType, f32
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.workloads import Sample, samples
from tests.python.passes.running import interpret, same
from tests.python.samples import scale_kernel

TILE = TileType(2, 4, f32)
VIEW = ViewType(f32, (None, None))


def part(view: str, start: Expr, extent: int = 2) -> Region:
    return Region(view, (Range(start, Const(extent)), Full()))


def tile_of(var: str, shift: int = 0, step: int = 2) -> Expr:
    return add(mul(Var(var), Const(step)), Const(shift))


def copy_loop(var: str, source: Region, target: Region, tile: str = "t") -> k.For:
    body = (k.Load(tile, source), k.Instr("adds", tile, (tile,), (Const(1.0, f32),)), k.Store(target, tile))
    return k.For(var, Const(0), Const(4), 1, body)


def kernel(*body: k.Stmt) -> Module:
    params = tuple(k.Param(name, role, VIEW) for name, role in (("x", k.IN), ("y", k.INOUT), ("z", k.INOUT)))
    tiles = (("t", TILE), ("u", TILE), ("sum", TILE))
    return verify(Module("m", (k.KernelFunction("f", params, tiles, (), body),), (), "f"))


def loops_of(module: Module) -> int:
    found = [s for s in k.walk_statements(module.kernels[0].body or ()) if isinstance(s, k.For)]
    return len(found) + sum(isinstance(n, w.Loop) for f in module.workloads for n in w.walk_nodes(f.body))


FIRST = copy_loop("i", part("x", tile_of("i")), part("y", tile_of("i")))


def test_before_and_after() -> None:
    second = copy_loop("j", part("y", tile_of("j")), part("z", tile_of("j")), "u")
    after = str(verify(fuse_loops(kernel(FIRST, second))))
    assert after[after.index("  // Instructions") :] == (
        """\
  // Instructions
  FOR %i:idx, 0:idx, 4:idx, 1:idx
    %t = tload %x[%i * 2 :+ 2, :] : !pto.tile<2x4xf32>
    %t = tadds %t, %1.0 : !pto.tile<2x4xf32>, f32
    tstore %t, %y[%i * 2 :+ 2, :]
    %u = tload %y[%i * 2 :+ 2, :] : !pto.tile<2x4xf32>
    %u = tadds %u, %1.0 : !pto.tile<2x4xf32>, f32
    tstore %u, %z[%i * 2 :+ 2, :]
  ENDFOR
  return
}
"""
    )


ACCUMULATE = k.For(
    "j", Const(0), Const(4), 1, (k.Load("u", part("y", tile_of("j"))), k.Instr("add", "sum", ("sum", "u")))
)
FILL = k.Instr("expands", "sum", (), (Const(0.0, f32),))
KEEP = k.Store(part("z", Const(0)), "sum")


@pytest.mark.parametrize(
    ("body", "is_fused"),
    [
        ((FIRST, copy_loop("j", part("y", tile_of("j", 2)), part("z", tile_of("j")))), False),  # one ahead
        ((FIRST, copy_loop("j", part("y", tile_of("j", -2)), part("z", tile_of("j")))), True),  # one behind
        (
            (FIRST, copy_loop("j", part("y", tile_of("j", 0, 1)), part("z", tile_of("j")))),
            False,
        ),  # other steps
        ((FIRST, replace(copy_loop("j", part("y", tile_of("j")), part("z", tile_of("j"))), step=2)), False),
        ((FIRST, FILL, copy_loop("j", part("y", tile_of("j")), part("z", tile_of("j")))), False),
        ((FILL, FIRST, ACCUMULATE, KEEP), True),
        ((FIRST, copy_loop("j", part("y", Const(0)), part("z", tile_of("j")))), False),
        ((copy_loop("i", part("x", tile_of("i")), part("y", tile_of("i")), "sum"), ACCUMULATE, KEEP), False),
        (
            (
                FIRST,
                copy_loop("j", part("y", tile_of("j")), part("z", tile_of("j"))),
                k.Store(part("y", Const(0)), "t"),
            ),
            False,
        ),
    ],
)
def test_what_is_fused(body: tuple[k.Stmt, ...], is_fused: bool) -> None:
    before = kernel(*body)
    after = verify(fuse_loops(before))
    assert (loops_of(after) < loops_of(before)) == is_fused


def test_views_that_calls_shift_are_not_fused() -> None:
    """A task gives overlapping parts of one tensor: what is written first is read later."""
    second = copy_loop("j", part("y", tile_of("j")), part("z", tile_of("j")), "u")
    module = kernel(FIRST, second)
    rows = [Region("T", (Range(Const(start), Const(8)), Full())) for start in (0, 1, 9)]
    task = w.Task("f", tuple(rows))
    workload = w.WorkloadFunction("w", (w.TensorParam("T", TensorType(f32, (20, 4))),), (task,))
    assert loops_of(fuse_loops(verify(replace(module, workloads=(workload,), entry="w")))) == 2
    apart = replace(task, args=(*rows[:1], Region("U", rows[0].dims), Region("V", rows[0].dims)))
    params = tuple(w.TensorParam(t, TensorType(f32, (20, 4))) for t in "TUV")
    workload = replace(workload, params=params, body=(apart,))
    assert loops_of(fuse_loops(verify(replace(module, workloads=(workload,), entry="w")))) == 1


def random_loop(draw: Draw, var: str) -> k.For:
    body: list[k.Stmt] = []
    for _ in range(draw.randint(1, 4)):
        view, tile = draw.choice("xyz"), draw.choice("tu")
        where = part(
            view, tile_of(var, 2 * draw.randint(0, 1), draw.choice([2, 2, 2, 1])), draw.choice([2, 2, 1])
        )
        choice = draw.random()
        if choice < 0.4 or view == "x":
            body.append(k.Load(tile, part(where.tensor, where.dims[0].start)))  # type: ignore[union-attr]
        elif choice < 0.8:
            body += [k.Instr("expands", tile, (), (Const(draw.randint(0, 9) / 1.0, f32),))] * draw.randint(
                0, 1
            )
            body.append(k.Store(part(view, where.dims[0].start), tile))  # type: ignore[union-attr]
        else:
            body.append(k.Instr("add", tile, (tile, draw.choice("tu"))))
    return k.For(var, Const(0), Const(3), 1, tuple(body))


def two_random_loops(draw: Draw) -> Module:
    return kernel(
        *(k.Instr("expands", t, (), (Const(1.0, f32),)) for t in "tu"),
        random_loop(draw, "i"),
        random_loop(draw, "j"),
        k.Store(part("y", Const(8)), "t"),
    )


def test_random_loops() -> None:
    """Views are different arrays, or two of them, or all three, are one."""

    @tries(900)
    @given(DRAWS)
    def check(draw: Draw) -> None:
        before = two_random_loops(draw)
        after = verify(fuse_loops(before))
        for shared in ((0, 1, 2), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 0)):
            results = []
            for module in (before, after):
                arrays = [
                    np.random.default_rng(n).integers(-5, 5, (10, 4)).astype(np.float32) for n in range(3)
                ]
                run_kernel(module.kernels[0], [arrays[n] for n in shared])
                results.append(arrays)
            assert all((a == b).all() for a, b in zip(*results, strict=True)), f"{before}\n{after}"

    check()


def test_some_random_loops_are_fused() -> None:
    programs = [two_random_loops(random.Random(seed)) for seed in range(60)]
    assert sum(loops_of(fuse_loops(p)) < loops_of(p) for p in programs) > 4


# --- workloads ----------------------------------------------------------------------------------------------


@tries(30)
@given(samples())
def test_random_workloads(sample: Sample) -> None:
    after = verify(fuse_loops(verify(sample.module)))
    wanted, found = sample.arrays(), sample.arrays()
    tasks = interpret(sample.module, wanted, sample.sizes)
    assert interpret(after, found, sample.sizes) == tasks
    same(wanted, found)


def workload(*body: w.Node) -> Module:
    params = (w.SizeParam("n"), *(w.TensorParam(t, TensorType(f32, ("n", 64, 128))) for t in "XYZ"))
    return verify(Module("m", (scale_kernel(),), (w.WorkloadFunction("w", params, body),), "w"))


def scale(var: str, source: str, target: str, shift: int = 0, kind: str = "parallel") -> w.Loop:
    regions = [
        Region(tensor, (Index(add(Var(var), Const(by))), Full(), Full()))
        for tensor, by in ((source, shift), (target, 0))
    ]
    task = w.Task("scale", (*regions, Const(2.0, f32)), (Var(var),))
    return w.Loop(kind, var, Var("n"), None, (task,))


def ranged(
    var: str, source: str, target: str, min_range: int = 2, levels: tuple[tuple[int, int], ...] = ()
) -> w.Loop:
    return replace(scale(var, source, target), max_range=8, min_range=min_range, tile_levels=levels)


@pytest.mark.parametrize(
    ("body", "loops"),
    [
        ((scale("i", "X", "Y"), scale("j", "Y", "Z")), 1),
        ((scale("i", "X", "Y"), scale("j", "Y", "Z"), scale("l", "X", "Z")), 1),
        ((scale("i", "X", "Y"), scale("j", "Y", "Z", 1)), 2),
        ((scale("i", "X", "Y", kind="seq"), scale("j", "Y", "Z", kind="seq")), 2),
        ((scale("i", "X", "Y"), scale("j", "Y", "Z", kind="range")), 2),
        ((ranged("i", "X", "Y"), ranged("j", "Y", "Z")), 1),
        ((ranged("i", "X", "Y"), ranged("j", "Y", "Z", min_range=4)), 2),
        ((ranged("i", "X", "Y", levels=((0, 64),)), ranged("j", "Y", "Z", levels=((0, 64),))), 2),
        ((scale("i", "X", "Y"), w.Set("v", Const(1)), scale("j", "Y", "Z")), 2),
    ],
)
def test_loops_of_workloads(body: tuple[w.Node, ...], loops: int) -> None:
    after = verify(fuse_loops(workload(*body))).entry_workload
    assert sum(isinstance(node, w.Loop) for node in after.body) == loops
