"""Loops taken apart into blocks of powers of two, on tiles of several sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import PTOFunctionBuilder, PTOModule
from pto_wsp.errors import CannotExpand
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Element, Expr, Var, add, binary, mul
from pto_wsp.ir.verify import verify
from pto_wsp.passes.expand.expand_loops import expand_loops
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from pto_wsp.types import TensorType, f32, i32
from pto_wsp.types.tile import TileType
from tests.python.passes.running import (
    Arrays,
    count_tasks,
    interpret,
    random_arrays,
    run_on_cpu,
    same,
)
from tests.python.targets.build_kernels import KernelMaker
from tests.slow import mostly_slow

R, C = 4, 8


def norm_kernel() -> k.KernelFunction:
    """o = (x - rowmax(x)) * g: `g` is the same tile in every task."""
    maker = KernelMaker("norm")
    x, g = maker.input("x", R, C, f32), maker.input("g", R, C, f32)
    maker.store(maker.op("mul", maker.op("rowexpandsub", x, maker.op("rowmax", x)), g), "o")
    return maker.done()


def score_kernel() -> k.KernelFunction:
    """s = q @ k.T, in all R x R."""
    maker = KernelMaker("score")
    q, key = maker.input("q", R, C, f32), maker.input("key", R, C, f32)
    maker.store(maker.op("matmul", q, key, trans_b=True), "s")
    return maker.done()


def update_kernel() -> k.KernelFunction:
    """m = max(m, rowmax(s)); a = a + s @ v."""
    maker = KernelMaker("update")
    s, v = maker.input("s", R, R, f32), maker.input("v", R, C, f32)
    m, a = maker.input("m_old", R, 1, f32), maker.input("a_old", R, C, f32)
    maker.store(maker.op("max", m, maker.op("rowmax", s)), "m")
    maker.store(maker.op("matmul_acc", a, s, v), "a")
    return maker.done()


def total_kernel() -> k.KernelFunction:
    """o = the sum of the rows of x."""
    maker = KernelMaker("total")
    maker.store(maker.op("colsum", maker.input("x", R, C, f32)), "o")
    return maker.done()


KERNELS = (norm_kernel(), score_kernel(), update_kernel(), total_kernel())
WHOLE = Range(Const(0), Const(C))


def rows(tensor: str, at: Expr | None, cols: int = C) -> Region:
    """Tile `at` of a tensor, or its first one."""
    start = Const(0) if at is None else mul(at, Const(R))
    return Region(tensor, (Range(start, Const(R)), Range(Const(0), Const(cols))))


def attention_module(levels: dict[int, int], largest: int = 8, smallest: int = 4) -> Module:
    """2 M + 2 M M tasks: norms, attention of every tile to every tile, norms again."""
    i, j = Var("i"), Var("j")

    def loop(var: str, *body: w.Node) -> w.Loop:
        ordered = tuple(sorted(levels.items(), reverse=True))
        return w.Loop("range", var, Var("n"), None, body, None, largest, smallest, ordered)

    score = w.Task("score", (rows("Q", i), rows("K", j), rows("S", i, R)), (i, j))
    olds = (rows("M", i, 1), rows("A", i))
    update = w.Task("update", (rows("S", i, R), rows("V", j), *olds, *olds), (i, j))
    body = (
        loop("h", w.Task("norm", (rows("X", Var("h")), rows("G", None), rows("Q", Var("h"))), (Var("h"),))),
        loop("i", loop("j", score, update)),
        loop("z", w.Task("norm", (rows("A", Var("z")), rows("G", None), rows("Z", Var("z"))), (Var("z"),))),
    )
    tensors = {**dict.fromkeys("XQKVAZ", C), "S": 16 * R, "M": 1}
    params = [w.TensorParam(t, TensorType(f32, ("rows", cols))) for t, cols in tensors.items()]
    params.append(w.TensorParam("G", TensorType(f32, (R, C))))
    workload = w.WorkloadFunction("w", (w.SizeParam("n"), w.SizeParam("rows"), *params), body)
    return verify(Module("m", KERNELS, (workload,), "w"))


def count(module: Module, n: int) -> int:
    return count_tasks(module.entry_workload.body, {"n": n})


def iterations(n: int, smallest: int) -> int:
    """Decision D9: half of what is whole blocks, all of the rest."""
    return (n - n % smallest) // 2 + n % smallest


@pytest.mark.parametrize("smallest", [256, 32, 2])
def test_counts_are_those_of_the_formula(smallest: int) -> None:
    levels = {4096 >> e: 2 * R for e in range(13) if 4096 >> e >= smallest}
    plain = expand_loops(attention_module({}, 4096, smallest))
    larger = expand_loops(attention_module({**levels, 0: R}, 4096, smallest))
    for n in range(2001):
        m = iterations(n, smallest)
        assert count_tasks(plain.entry_workload.body[: blocks_of(smallest)], {"n": n}) == n
        assert count_tasks(larger.entry_workload.body[: blocks_of(smallest)], {"n": n}) == m
        if n % 97 == 0:
            assert count(plain, n) == 2 * n + 2 * n * n
            assert count(larger, n) == 2 * m + 2 * m * m, n


def blocks_of(smallest: int) -> int:
    """Nodes that a loop is taken apart into."""
    return 2 + (4096 // smallest).bit_length() - 1


def arrays_of(module: Module, n: int) -> Arrays:
    arrays = random_arrays(module, {"rows": n * R})
    arrays["A"][:], arrays["M"][:] = 0, -1000
    return arrays


EXPANDED = {
    "blocks": attention_module({}),
    "one size": attention_module({8: 2 * R, 4: 2 * R}),
    "three sizes": attention_module({16: 4 * R, 8: 4 * R, 4: 2 * R, 0: R}, 16),
    "larger rest": attention_module({8: 4 * R, 4: R, 0: 2 * R}),
}


@pytest.mark.parametrize("name", mostly_slow(reversed(EXPANDED), quick=2))
def test_results_are_the_same_to_the_bit(name: str) -> None:
    plain = _without_ranges(attention_module({}))
    expanded = expand_loops(EXPANDED[name])
    program = Program(EXPANDED[name], {}, "cpu") if name == "three sizes" else None
    for n in (0, 1, 6, 13):
        sizes = {"n": n, "rows": n * R}
        wanted, found = arrays_of(plain, n), arrays_of(plain, n)
        assert interpret(plain, wanted, sizes) == 2 * n + 2 * n * n
        assert interpret(expanded, found, sizes) == count(expanded, n)
        results = [t for t in wanted if t != "S"]  # holds what the last tile left, which is a larger one
        same(wanted, found, *results)
        if program is not None:
            on_cpu = arrays_of(plain, n)
            assert run_on_cpu(program, on_cpu, sizes) == count(expanded, n)
            same(found, on_cpu)


def _without_ranges(module: Module) -> Module:
    def plain(node: w.Node) -> w.Node:
        if isinstance(node, w.Loop):
            body = tuple(map(plain, node.body))
            return replace(node, body=body, max_range=None, min_range=None, tile_levels=())
        return node

    workload = module.entry_workload
    return replace(module, workloads=(replace(workload, body=tuple(map(plain, workload.body))),))


def test_before_and_after() -> None:
    module = attention_module({8: 2 * R, 0: R})
    body = (replace(module.entry_workload.body[0], min_range=8, extent=Var("n")),)
    one = replace(module, workloads=(replace(module.entry_workload, body=body),))
    text = str(expand_loops(one))
    assert text.endswith(
        """\
  FOR %h_8:idx, 0:idx, %n // 8 * 4:idx, 1:idx {range}
    CALL @norm_8[%h_8 * 2](%X[%h_8 * 2 * 4 :+ 8, 0 :+ 8], %G[0 :+ 4, 0 :+ 8], %Q[%h_8 * 2 * 4 :+ 8, 0 :+ 8])
  ENDFOR
  FOR %h_rest:idx, 0:idx, %n % 8:idx, 1:idx {range}
    CALL @norm[%n // 8 * 8 + %h_rest](%X[(%n // 8 * 8 + %h_rest) * 4 :+ 4, 0 :+ 8], %G[0 :+ 4, 0 :+ 8], """
        """%Q[(%n // 8 * 8 + %h_rest) * 4 :+ 4, 0 :+ 8])
  ENDFOR
  return
}
"""
    )
    kernel = text[text.index("func @norm_8") : text.index("func @w(")]
    assert "%tx = tload %x[:, :] : !pto.tile<8x8xf32>" in kernel
    assert "%period_4 = trems %period_4, %4 : !pto.tile<1x8xi32>, i64" in kernel
    assert "%tg = mgather %g[:, :], %period_4 : !pto.tile<8x8xf32>" in kernel


def one_loop(
    *body: w.Node, kind: str = "range", levels: tuple[tuple[int, int], ...] = ((8, 2 * R),)
) -> Module:
    module = attention_module({})
    loop = w.Loop(kind, "i", Var("n"), None, body, None, 8, None, levels)
    return verify(replace(module, workloads=(replace(module.entry_workload, body=(loop,)),)))


def norm(x: Region, o: Region, g: Region | None = None, **more: object) -> w.Task:
    return w.Task("norm", (x, rows("G", None) if g is None else g, o), **more)


def first_row(tensor: str) -> Region:
    return Region(tensor, (Range(Const(0), Const(1)), WHOLE))


def update(v: Region) -> w.Task:
    state = (rows("M", None, 1), rows("A", None))
    return w.Task("update", (rows("S", Var("i"), R), v, *state, *state))


AT = Var("i")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (one_loop(norm(rows("X", AT), rows("Q", AT)), kind="seq", levels=()), "follow each other"),
        (
            one_loop(norm(rows("X", AT), rows("Q", AT)), levels=((8, 6),)),
            "not a whole number of tiles of 4 rows",
        ),
        (one_loop(norm(rows("X", AT), rows("Q", AT)), levels=((2, 4 * R),)), "a block of 2 iterations"),
        (one_loop(norm(rows("X", None), rows("Q", None))), "no task works on a tile"),
        (
            one_loop(norm(rows("X", AT), rows("Q", AT)), norm(rows("V", None), rows("K", None))),
            "run less often",
        ),
        (one_loop(norm(rows("X", AT), rows("Q", None))), "`Q` would have to grow"),
        (one_loop(norm(rows("X", add(AT, AT)), rows("Q", AT))), "something else than whole tiles"),
        (one_loop(w.Set("v", AT), norm(rows("X", AT), rows("Q", AT))), "a variable would be set"),
        (
            one_loop(w.Cond(binary("lt", AT, Const(3)), (norm(rows("X", AT), rows("Q", AT)),))),
            "control depends",
        ),
        (one_loop(w.Task("total", (rows("X", AT), first_row("Q")))), "`Q` keeps what the last tile"),
        (one_loop(update(rows("V", AT))), "`S` would have to grow"),
    ],
)
def test_refusals(module: Module, reason: str) -> None:
    with pytest.raises(CannotExpand) as caught:
        expand_loops(module)
    assert reason in str(caught.value)


def test_extents_are_read_once() -> None:
    """The tensor that holds the extent is written by the loop's own tasks."""
    count_kernel = k.KernelFunction(
        "forget",
        (k.Param("c", k.OUT, TileType(1, 1, i32)),),
        (("t", TileType(1, 1, i32)),),
        (),
        (k.Instr("expands", "t", (), (Const(0),)), k.Store(Region("c", (Full(), Full())), "t")),
    )
    extent = Element("N", (Const(0), Const(0)))
    task = w.Task("forget", (Region("N", (Full(), Full())),))
    loop = w.Loop("range", "i", extent, None, (task,), None, 4, 2)
    params = (w.TensorParam("N", TensorType(i32, (1, 1))),)
    module = verify(Module("m", (count_kernel,), (w.WorkloadFunction("w", params, (loop,)),), "w"))
    for target in ("interp", "cpu"):
        program = Program(module, {}, target)
        for n in range(9):
            program(N=np.array([[n]], np.int32))
            assert program.stats is not None and program.stats.tasks == n


def test_indices_have_no_larger_tiles() -> None:
    module = attention_module({})
    params = (w.SizeParam("n"), w.TensorParam("X", TensorType(f32, ("n", R, C))))
    region = Region("X", (Index(AT), Full(), Full()))
    loop = w.Loop("range", "i", Var("n"), None, (norm(region, region, region),), None, 8, None, ((8, 8),))
    with pytest.raises(CannotExpand, match="cannot be expanded"):
        expand_loops(verify(replace(module, workloads=(w.WorkloadFunction("w", params, (loop,)),))))


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (lambda f: f.adds("u", "t", "dim(t, 0)"), "it asks how large `t` is"),
        (lambda f: f.adds("u", "t", "dim(x, 0)"), "it asks how large `x` is"),
        (
            lambda f: f.mov("u", "t").for_loop("i", 0, "dim(t, 0)").adds("u", "u", 1).end_for(),
            "how large `t` is",
        ),
        (lambda f: f.getval("s", "t").adds("u", "t", "s"), "it reads an element of `t`"),
        (lambda f: f.setval("u", "t", 1.0), "`setval` does not take another extent"),
    ],
)
def test_what_a_larger_tile_would_change_is_refused(
    steps: Callable[[PTOFunctionBuilder], PTOFunctionBuilder], reason: str
) -> None:
    """How large a tile is, and what its first element is, differ between one tile and two."""
    module = PTOModule("m")
    steps(PTOFunctionBuilder("f", module).memref("x").memref("y").tile("t", 4, 8).load("t", "x")).store(
        "y", "u"
    ).build()
    (
        PTOFunctionBuilder("w", module)
        .not_in_core()
        .memref("x")
        .memref("y")
        .scalar("n", i32)
        .for_loop("i", 0, "n", max_range=8, min_range=2, tile_levels={8: 8, 0: 4})
        .call("f", {"x": ("x", "i", 0), "y": ("y", "i", 0)})
        .end_for()
        .build()
    )
    module.set_entry("w")
    with pytest.raises(CannotExpand) as caught:
        expand_loops(verify(module.ir))
    assert reason in str(caught.value)


def scores_module(is_local: bool, levels: dict[int, int] | None) -> PTOModule:
    """For each tile i, over all tiles j: y[i] += rowsum(q[i] @ k[j].T), through scores that a task makes."""
    module = PTOModule("m")
    (
        PTOFunctionBuilder("score", module)
        .memref("q")
        .memref("k")
        .memref("s")
        .tile("a", 4, 8)
        .tile("b", 4, 8)
        .load("a", "q")
        .load("b", "k")
        .matmul("c", "a", "b", trans_b=True)
        .store("s", "c")
        .build()
    )
    (
        PTOFunctionBuilder("total", module)
        .memref("s")
        .memref("y")
        .tile("t", 4, 4)
        .tile("p", 4, 1)
        .load("t", "s")
        .load("p", "y")
        .rowsum("r", "t")
        .add("z", "p", "r")
        .store("y", "z")
        .build()
    )
    builder = (
        PTOFunctionBuilder("w", module).not_in_core().memref("q").memref("k").memref("y").scalar("n", i32)
    )
    builder = builder if is_local else builder.memref("scores")
    for var in "ij":
        builder.for_loop(var, 0, "n", max_range=levels and 8, min_range=levels and 2, tile_levels=levels)
    builder.call("score", {"q": ("q", "i", 0), "k": ("k", "j", 0), "s": ("scores", "i", 0)})
    builder.call("total", {"s": ("scores", "i", 0), "y": ("y", "i", 0)})
    builder.end_for().end_for().build()
    module.set_entry("w")
    return module


def test_what_the_run_makes_grows_with_its_tiles() -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.integers(-3, 4, (20, 8)).astype(np.float32) for _ in range(2))
    for levels, tasks in ((None, 50), ({8: 8, 4: 8, 2: 8, 0: 4}, 18), ({8: 16, 4: 16, 2: 8, 0: 4}, 8)):
        for target in ("interp", "cpu"):
            program = scores_module(True, levels).compile(target)
            y = np.zeros((20, 1), np.float32)
            program(q=q, k=k, y=y, n=5)
            assert np.array_equal(y[:, 0], (q @ k.T).sum(axis=1))
            assert program.stats is not None and program.stats.tasks == tasks
    with pytest.raises(CannotExpand, match="a shape with room"):
        expand_loops(verify(scores_module(False, {8: 8, 0: 4}).ir))


def test_a_tensor_of_the_run_does_not_grow_over_a_mistake() -> None:
    """A task that takes more than there is takes more than there is on larger tiles, too."""
    module = scores_module(True, {8: 8, 4: 8, 2: 8, 0: 4})
    ir = module.ir
    workload = ir.entry_workload
    params = tuple(
        replace(p, type=replace(p.type, dims=(p.type.dims[0], 3)))
        if isinstance(p, w.TensorParam) and p.name == "scores"
        else p
        for p in workload.params
    )
    narrow = replace(workload, params=params, body=tuple(map(_with_constant_ranges, workload.body)))
    expanded = expand_loops(verify(replace(ir, workloads=(narrow,))))
    assert expanded.entry_workload.tensor("scores").type.dims[1] == 3


def _with_constant_ranges(node: w.Node) -> w.Node:
    match node:
        case w.Loop(body=body):
            return replace(node, body=tuple(map(_with_constant_ranges, body)))
        case w.Task(args=args):
            whole = Range(Const(0), Const(4))
            args = (
                replace(a, dims=(a.dims[0], whole)) if isinstance(a, Region) and a.tensor == "scores" else a
                for a in args
            )
            return replace(node, args=tuple(args))
        case _:
            return node
