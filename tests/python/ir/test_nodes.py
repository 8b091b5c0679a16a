"""Every kind of node has its operands and blocks visited and rebuilt: a new kind needs a sample here."""

from __future__ import annotations

from typing import get_args

import pytest

from pto_wsp.ir import kernel as k
from pto_wsp.ir import scalar as s
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.effects import name_written, names_read
from pto_wsp.ir.names import KernelRenaming, WorkloadRenaming
from pto_wsp.types.dtype import b1, i64

A, B, C = s.Var("a"), s.Var("b"), s.Var("c", b1)
DIMS: tuple[DimSelect, ...] = (Index(A), Range(A, B), TileRange("i"), Full(), Rows("I", A, B), Merged())
BOX = Region("x", (Index(A), Range(A, B)))
STORE = k.Store(BOX, "t")
TASK = w.Task("f", (BOX, A), (A,), workspace=A, cost=B)

EXPRESSIONS = (
    s.Const(1),
    A,
    s.LoopStart("i"),
    s.LoopExtent("i"),
    s.Slot(3),
    s.FlushValue(4, i64),
    s.TaskIndex("b"),
    s.TaskKernel(),
    s.KernelNumber("f"),
    s.ArgExtent("x", 1),
    s.Extent("x", 0),
    s.Element("x", (A, B)),
    s.TileElement("t", (A, B), i64),
    s.Unary("neg", A),
    s.Binary("add", A, B),
    s.Select(C, A, B),
)
STATEMENTS = (
    k.Load("t", BOX, rows="r"),
    STORE,
    k.Prefetch(BOX),
    k.Instr("adds", "t", ("t",), (A,), (("rows", B),)),
    k.Assign("a", B),
    k.Print((k.Words("x"), "t", A)),
    k.Assert(C, "message"),
    k.For("i", A, B, 1, (STORE,)),
    k.If(C, (STORE,), (STORE,)),
    k.While(C, (STORE,)),
    k.KernelCall("f", ("x", A)),
)
NODES = (
    w.Loop(w.RANGE, "i", A, None, (TASK,)),
    TASK,
    w.Cond(C, (TASK,), (TASK,)),
    w.Set("v", A),
    w.Refuse("tier", (1,), A),
    w.WorkloadCall("g", (BOX, A)),
    w.Process("p", (TASK,)),
    w.Send("c", "s", "n", (A, B), (TASK,)),
    w.Receive("c", "s", "n", ("m",), True, (TASK,)),
    w.Delay(A),
)


@pytest.mark.parametrize(
    ("union", "samples"),
    [(s.Expr, EXPRESSIONS), (k.Stmt, STATEMENTS), (w.Node, NODES), (DimSelect, DIMS)],
)
def test_every_kind_has_a_sample(union: object, samples: tuple[object, ...]) -> None:
    assert {type(sample) for sample in samples} == set(get_args(union))


def inside(value: object, kinds: tuple[type, ...]) -> list[object]:
    """Return what of `kinds` the fields of a node hold, in order, without looking at the methods tested."""
    if isinstance(value, kinds):
        return [value]
    if isinstance(value, tuple):
        return [found for item in value for found in inside(item, kinds)]
    if isinstance(value, (Region, *get_args(DimSelect))):
        return [found for item in vars(value).values() for found in inside(item, kinds)]
    return []


def fields(node: object, kinds: tuple[type, ...]) -> list[object]:
    return [found for value in vars(node).values() for found in inside(value, kinds)]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=repr)
def test_expressions(expr: s.Expr) -> None:
    assert [*s.children(expr)] == fields(expr, get_args(s.Expr))
    assert s.rebuild(expr, lambda operand: operand) == expr
    grown = s.rebuild(expr, lambda operand: s.Unary("i64", operand))
    assert [*s.children(grown)] == [s.Unary("i64", operand) for operand in s.children(expr)]


@pytest.mark.parametrize(
    ("module", "node"), [*((k, stmt) for stmt in STATEMENTS), *((w, node) for node in NODES)], ids=repr
)
def test_statements_and_nodes(module, node) -> None:
    of = module.statement_expressions if module is k else module.node_expressions
    blocks, kinds = module.blocks(node), get_args(k.Stmt if module is k else w.Node)
    assert [item for block in blocks for item in block] == fields(node, kinds)
    assert sorted(map(repr, of(node))) == sorted(map(repr, fields(node, get_args(s.Expr))))
    assert module.rebuild(node, lambda block: block) == node
    assert module.map_expressions(node, lambda expr: expr) == node
    assert [*of(module.map_expressions(node, lambda expr: s.Unary("i64", expr)))] == [
        s.Unary("i64", expr) for expr in of(node)
    ]
    empty = module.rebuild(node, lambda block: ())
    assert module.blocks(empty) == tuple(() for _ in blocks)
    assert of(empty) == of(node)


@pytest.mark.parametrize("stmt", STATEMENTS, ids=repr)
def test_renaming_and_effects_know_every_statement(stmt: k.Stmt) -> None:
    names = {name: f"{name}_" for name in ("t", "r")}
    renamed = KernelRenaming(tiles=names, targets={"i": "i_", "a": "a_", "b": "b_", "c": "c_"}).statement(
        stmt
    )
    assert names_read(renamed) - {"x"} == {f"{name}_" for name in names_read(stmt) - {"x"}}
    written = name_written(stmt)
    assert name_written(renamed) == (None if written is None else f"{written}_")


@pytest.mark.parametrize("node", NODES, ids=repr)
def test_renaming_knows_every_node(node: w.Node) -> None:
    renamed = WorkloadRenaming({"i": "j"}, {"a": s.Const(3)}).node(node)
    parts = (
        part for inner in w.walk_nodes((renamed,)) for e in w.node_expressions(inner) for part in s.walk(e)
    )
    assert A not in [*parts]


@pytest.mark.parametrize("dim", DIMS, ids=repr)
def test_regions(dim: DimSelect) -> None:
    region = Region("x", (dim,))
    assert [*region.expressions] == fields(dim, get_args(s.Expr))
    assert region.mapped(lambda expr: expr) == region
    assert region.mapped(lambda expr: s.Const(7)).expressions == (s.Const(7),) * len(region.expressions)
