"""Conditions, variables, refusals, row sets and edges: what is sound, what is late, how it prints."""

import pytest

from pto_wsp.errors import InvalidIR
from pto_wsp.ir.core import Full, Index, Merged, Range, Region, Rows
from pto_wsp.ir.flush_points import find_late
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Slot, Unary, Var, format_expr
from pto_wsp.ir.verify import verify
from pto_wsp.ir.workload import (
    Cond,
    Loop,
    Node,
    RaggedParam,
    Refuse,
    Set,
    SizeParam,
    SparseParam,
    Task,
    TensorParam,
    WorkloadFunction,
    WorkloadParam,
)
from pto_wsp.support.record import replace
from pto_wsp.types import TensorType, f32, i32, i64
from tests.python.samples import scale_module

NONE, FOUR, FACTOR = Const(0), Const(4), Const(2.0, f32)
PARAMS: tuple[WorkloadParam, ...] = (
    *(SizeParam(name) for name in ("n", "b", "axis.count", "axis.entries")),
    SizeParam("m", value=Binary("mul", Var("n"), Const(2))),
    SparseParam("axis", "b"),
    TensorParam("axis.offsets", TensorType(i64, ("axis.count",))),
    TensorParam("axis.indices", TensorType(i32, ("axis.entries", 1)), None, True, True),
    TensorParam("X", TensorType(f32, ("n", 128))),
    TensorParam("Y", TensorType(f32, ("n", 128))),
    TensorParam("Z", TensorType(f32, (3, "n", 128))),
    TensorParam("lengths", TensorType(i32, ("b",))),
)


def rows_of(tensor: str, start: Expr = NONE, extent: Expr = FOUR) -> Region:
    merged = (Merged(),) if tensor == "Z" else ()
    return Region(tensor, (Rows("axis.indices", start, extent), *merged, Full()))


def task(label: str = "", after: tuple[str, ...] = (), **more: Expr) -> Task:
    return Task("scale", (rows_of("X"), rows_of("Z"), FACTOR), (), None, label, after, **more)


def module(*body: Node, params: tuple[WorkloadParam, ...] = PARAMS) -> Module:
    return Module("m", scale_module().kernels, (WorkloadFunction("w", params, body),), "w")


YES = Binary("le", Element("lengths", (Const(0),)), Const(2048))

SOUND: dict[str, tuple[Node, ...]] = {
    "nested conditions": (Cond(YES, (Cond(Unary("not", YES), (task(),)),), (task(),)),),
    "variables and slots": (Set(Slot(255), YES), Set("tier.0", Slot(255))),
    "row sets": (task(),),
    "edges": (task("a"), Loop("seq", "i", Const(3), None, (task("c", ("a",)), task("", ("a", "c"))))),
    "amounts": (task(workspace=Var("n"), cost=Const(100)),),
    "refusal": (Refuse("fill", (16, 64), Var("n")), Refuse("fill", (), Var("m"))),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound(name: str) -> None:
    found = module(*SOUND[name])
    assert verify(found) is found


def region_task(*dims: object, tensor: str = "Z") -> Task:
    return Task("scale", (rows_of("X"), Region(tensor, dims), FACTOR))


ROWS = Rows("axis.indices", Const(0), Const(1))
MISTAKES: dict[str, tuple[tuple[Node, ...], str]] = {
    "condition": ((Cond(Var("n"), ()),), "a condition is a truth value"),
    "slot": ((Set(Slot(256), Const(0)),), "there is no slot 256"),
    "slot with zeros": ((Set("slot.07", Const(0)),), "not a slot"),
    "variable of a size": ((Set("n", Const(0)),), "declared twice"),
    "variable of a loop": ((Set("i", Const(0)), Loop("seq", "i", Const(1), None, ())), "declared twice"),
    "float variable": ((Set("x", FACTOR),), "is an integer"),
    "unset variable": ((Cond(Binary("lt", Var("x"), Const(1)), ()),), "`x` is not declared"),
    "bounds": ((Refuse("fill", (64, 16), Var("n")),), "ascend"),
    "later label": ((task("", ("a",)), task("a")), "labels no task before"),
    "label of an ended loop": (
        (Loop("seq", "i", Const(1), None, (task("a"),)), task("", ("a",))),
        "labels no task before",
    ),
    "label of a branch": ((Cond(YES, (task("a"),), (task("", ("a",)),)),), "labels no task before"),
    "label twice": ((task("a"), task("a")), "given twice"),
    "workspace": ((task(workspace=YES),), "an integer is needed"),
    "rows behind": ((region_task(Full(), ROWS, Index(Const(0))),), "first dimension"),
    "only rows": ((region_task(ROWS, tensor="Y"),), "expected 2 dimensions of `Y`, found 1"),
    "merged alone": ((region_task(Full(), Merged(), Full()),), "follows a row set"),
    "merged late": ((region_task(ROWS, Index(Const(0)), Merged()),), "takes 2 dimensions"),
    "indices": ((region_task(Rows("X", Const(0), Const(1)), Merged(), Full()),), "not a column of i32"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    body, message = MISTAKES[name]
    with pytest.raises(InvalidIR, match=message):
        verify(module(*body))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((SizeParam("p", value=Var("q")), SizeParam("q", value=Var("p"))), "follows from itself"),
        ((SizeParam("p", 3, value=Var("n")),), "two values"),
        ((SizeParam("p", value=Element("lengths", (Const(0),))),), "more than sizes"),
        ((TensorParam("T", TensorType(f32, (3, 1)), is_distinct=True),), "does not hold integers"),
        ((TensorParam("T", TensorType(i64, ("n",)), axis="kv"),), "cannot hold offsets"),
        ((TensorParam("T", TensorType(i32, ("n",)), None, True, axis="kv"),), "cannot hold offsets"),
        ((RaggedParam("kv", "b"),), "not what its axis needs"),
        ((SparseParam("kv", "nobody"),), "`nobody` is not declared"),
    ],
)
def test_mistakes_in_parameters(change: tuple[WorkloadParam, ...], message: str) -> None:
    with pytest.raises(InvalidIR, match=message):
        verify(module(params=(*PARAMS, *change)))


def test_text() -> None:
    part = rows_of("X", Var("i"), Var("n"))
    body = (
        Set(Slot(1), Unary("u64", Element("lengths", (Const(0),)))),
        Loop(
            "seq", "i", Var("m"), None, (replace(task("a", workspace=Var("n")), args=(part, part, FACTOR)),)
        ),
        Cond(YES, (task("b", ("c", "d"), cost=Const(5)),), (Refuse('a "b"', (1, 2), Var("n")),)),
    )
    lines = str(module(*body)).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("func @w"))
    for text in ("%m: index := %n * 2", "%axis: sparse<%b>", 'gm,"axis.entries"x1,i32> {local, distinct}'):
        assert text in lines[at]
    assert lines[at + 1 : -2] == [
        "  %slot.1 = u64(%lengths[0]) : i64",
        "  FOR %i:idx, 0:idx, %m:idx, 1:idx {seq}",
        "    CALL @scale(%X[rows(%axis.indices, %i :+ %n), :], %X[rows(%axis.indices, %i :+ %n), :], 2.0)"
        " {label = a, workspace = %n}",
        "  ENDFOR",
        "  IF %lengths[0] <= 2048:u1",
        "    CALL @scale(%X[rows(%axis.indices, 0 :+ 4), :], %Z[rows(%axis.indices, 0 :+ 4), merged, :], 2.0)"
        " {label = b, after = [c, d], cost = 5}",
        "  ELSE",
        '    REFUSE "a \\"b\\"", %n:idx {bounds = [1, 2]}',
        "  ENDIF",
    ]


def test_text_of_expressions_groups_as_it_evaluates() -> None:
    a, b, c = Var("a"), Var("b"), Var("c")
    pairs = {
        Binary("bitand", Binary("bitor", a, b), c): "(a | b) & c",
        Binary("bitor", a, Binary("bitand", b, c)): "a | b & c",
        Binary("lshift", Binary("add", a, b), c): "a + b << c",
        Binary("add", a, Binary("lshift", b, c)): "a + (b << c)",
        Binary("lt", Binary("lt", a, b), c): "(a < b) < c",
        Binary("lt", Binary("bitxor", a, b), c): "a ^ b < c",
        Unary("neg", Const(5)): "-(5)",
        Unary("neg", Binary("mul", a, b)): "-(a * b)",
        Unary("invert", Binary("add", a, b)): "invert(a + b)",
    }
    assert {format_expr(expr): text for expr, text in pairs.items()} == {t: t for t in pairs.values()}


def test_what_is_late() -> None:
    written = frozenset({"lengths"})
    read = Element("lengths", (Const(0),))
    body = (
        Set("a", Const(1)),
        Loop("seq", "i", Const(2), None, (Set("b", Var("c")), Set("c", read))),
        Cond(Binary("lt", Var("b"), Const(1)), (Set("d", Const(0)),), (Set("e", Const(0)),)),
        Loop("seq", "j", read, None, (Set("f", Const(0)),)),
        Set("g", Var("a")),
    )
    late = find_late(WorkloadFunction("w", PARAMS, body), written)
    assert late.variables == {"b", "c", "d", "e", "f"}
    assert late.has(Binary("add", Var("a"), Var("f"))) and not late.has(Var("a"), Var("g"))
    assert late.region(Region("X", (Range(read, Const(1)), Full()))) and not late.region(rows_of("X"))
    assert not find_late(WorkloadFunction("w", PARAMS, body), frozenset()).variables
