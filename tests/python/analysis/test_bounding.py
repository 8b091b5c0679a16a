"""Extents that tensors need: never smaller than what a walk touches, and no larger where that is simple."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from pto_wsp.analysis.bounding import extent_needed
from pto_wsp.interp.workload import expand
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Range, Region, TileRange
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.scalar import (
    Binary,
    Const,
    Element,
    Expr,
    LoopExtent,
    LoopStart,
    Select,
    Unary,
    Var,
    format_expr,
)
from pto_wsp.types import ScalarType, TensorType, f32, i64
from tests.generators.drawing import DRAWS, Draw, tries

PARAMS = (
    w.SizeParam("n"),
    w.SizeParam("rows"),
    w.ScalarParam("m", ScalarType(i64)),
    w.TensorParam("x", TensorType(f32, ("rows", 8))),
)


def function(*body: w.Node) -> w.WorkloadFunction:
    return w.WorkloadFunction("f", PARAMS, body)


def task(start: Expr, extent: Expr) -> w.Task:
    return w.Task("k", (Region("x", (Range(start, extent), Full())),))


def touched(workload: w.WorkloadFunction, **scope: int) -> int:
    """How far the rows of `x` that the tasks of a run touch reach."""
    ends = [0]
    for found in expand(workload, scope):
        for arg in found.node.args:
            assert isinstance(arg, Region)
            match arg.dims[0]:
                case Range(start=start, extent=extent):
                    ends.append(int(evaluate(start, found.scope)) + int(evaluate(extent, found.scope)))
                case Index(at=at):
                    ends.append(int(evaluate(at, found.scope)) + 1)
                case TileRange(loop=loop):
                    ends.append(int(found.scope[LoopStart(loop)]) + int(found.scope[LoopExtent(loop)]))
                case _:
                    raise AssertionError(arg)
    return max(ends)


def random_expression(rng: Draw, names: list[str], depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        return Var(rng.choice(names)) if rng.random() < 0.7 else Const(rng.randint(-3, 6))
    a, b = (random_expression(rng, names, depth - 1) for _ in range(2))
    op = rng.choice(["add", "add", "sub", "mul", "mul", "min", "max", "mod", "floordiv", "neg", "select"])
    if op in ("mod", "floordiv"):
        return Binary(op, a, Const(rng.randint(1, 4)))
    if op == "neg":
        return Unary("neg", a)
    if op == "select":
        return Select(Binary("lt", a, b), b, a)
    return Binary(op, a, b)


def random_body(rng: Draw, names: list[str], depth: int) -> tuple[w.Node, ...]:
    body: list[w.Node] = []
    for _ in range(rng.randint(1, 2)):
        if depth and rng.random() < 0.7:
            var = f"i{len(names)}"
            extent = rng.choice(
                [Const(rng.randint(0, 3)), Var("n"), Binary("add", Var(rng.choice(names)), Const(1))]
            )
            tile = rng.choice([None, None, 2])
            inner = random_body(rng, [*names, var], depth - 1)
            if tile is not None:
                inner += (w.Task("k", (Region("x", (TileRange(var), Full())),)),)
            body.append(w.Loop("range", var, extent, tile, inner))
        elif depth and rng.random() < 0.3:
            test = Binary("lt", random_expression(rng, names, 1), Const(2))
            body.append(w.Cond(test, random_body(rng, names, depth - 1), random_body(rng, names, depth - 1)))
        else:
            body.append(task(random_expression(rng, names, 3), Const(rng.randint(0, 4))))
    return tuple(body)


def test_no_region_reaches_further() -> None:
    @tries(1200)
    @given(DRAWS)
    def check(draw: Draw) -> None:
        workload = function(*random_body(draw, ["n", "m"], 3))
        needed = extent_needed(workload, "x", 0)
        for n, m in ((0, 0), (1, -2), (3, 2)) if needed is not None else ():
            assert needed is not None
            try:
                found = touched(workload, n=n, m=m)
            except Exception as error:  # a loop of negative extent ends the run with an error
                assert "extent" in str(error)
                continue
            assert evaluate(needed, {"n": n, "m": m}) >= found, (workload, needed, n, m)

    check()


def test_a_third_of_random_regions_is_bounded() -> None:
    workloads = [function(*random_body(random.Random(seed), ["n", "m"], 3)) for seed in range(60)]
    assert sum(extent_needed(workload, "x", 0) is not None for workload in workloads) > 20


@pytest.mark.parametrize(
    ("start", "needed"),
    [
        (Binary("mul", Var("i"), Const(8)), "n * 8"),
        (Binary("add", Binary("mul", Var("i"), Const(8)), Const(16)), "n * 8 + 16"),
        (Binary("sub", Const(24), Binary("mul", Var("i"), Const(8))), "32"),
        (Const(0), "8"),
    ],
)
def test_simple_bounds_are_exact(start: Expr, needed: str) -> None:
    workload = function(w.Loop("range", "i", Var("n"), None, (task(start, Const(8)),)))
    found = extent_needed(workload, "x", 0)
    assert found is not None and format_expr(found) == needed


def test_what_data_decides_has_no_bound() -> None:
    for start in (Element("x", (Const(0), Const(0))), Var("v")):
        workload = function(w.Set("v", Const(1)), task(start, Const(8)))
        assert extent_needed(workload, "x", 0) is None
    assert extent_needed(function(w.WorkloadCall("g", ())), "x", 0) is None
    assert extent_needed(function(), "x", 0) == Const(0)
