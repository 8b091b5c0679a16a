"""Scalar expressions mean what Python means, or are errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.errors import BadExpression
from pto_wsp.ir.scalar import (
    BINARY_OPS,
    I64_MAX,
    I64_MIN,
    Binary,
    Const,
    Element,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    ceildiv,
    evaluate,
    format_expr,
    read_element,
    substitute,
    walk,
)
from pto_wsp.types.dtype import b1, f32

SCOPE = {"i": 3, "j": -5, "n": 1000}
INTEGER_OPS = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
COMPARE_OPS = ("lt", "le", "gt", "ge", "eq", "ne")


def integers() -> st.SearchStrategy[Expr]:
    leaf = st.one_of(st.builds(Const, st.integers(-100, 100)), st.builds(Var, st.sampled_from(sorted(SCOPE))))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(Binary, st.sampled_from(INTEGER_OPS), inner, inner),
            st.builds(Unary, st.just("neg"), inner),
            st.builds(Select, st.builds(Binary, st.sampled_from(COMPARE_OPS), inner, inner), inner, inner),
        ),
        max_leaves=12,
    )


def python_text(expr: Expr) -> str:
    match expr:
        case Const(value=value):
            return f"({value})"
        case Var(name=name):
            return name
        case Unary(a=a):
            return f"(-{python_text(a)})"
        case Binary(op="min" | "max" as op, a=a, b=b):
            return f"{op}({python_text(a)}, {python_text(b)})"
        case Binary(op=op, a=a, b=b):
            return f"({python_text(a)} {BINARY_OPS[op]} {python_text(b)})"
        case Select(condition=c, then=t, other=o):
            return f"({python_text(t)} if {python_text(c)} else {python_text(o)})"
    raise AssertionError(expr)


@given(integers())
def test_evaluates_as_python_or_is_an_error(expr: Expr) -> None:
    try:
        expected = eval(python_text(expr), {}, dict(SCOPE))
    except ZeroDivisionError:
        expected = None
    try:
        found = evaluate(expr, SCOPE)
    except BadExpression:
        found = None
    if found is not None:
        assert found == expected
    else:
        assert expected is None or any(abs(v) > I64_MAX for v in all_values(expr))


def all_values(expr: Expr) -> list[int]:
    values = []
    for node in walk(expr):
        try:
            values.append(eval(python_text(node), {}, dict(SCOPE)))
        except ZeroDivisionError:
            continue
    return values


@given(integers())
def test_folding_keeps_the_value(expr: Expr) -> None:
    folded = substitute(expr, lambda node: None)
    try:
        expected = evaluate(expr, SCOPE)
    except BadExpression:
        return
    assert evaluate(folded, SCOPE) == expected


@pytest.mark.parametrize(
    ("op", "a", "b"),
    [("add", I64_MAX, 1), ("sub", I64_MIN, 1), ("mul", 2**32, 2**31), ("floordiv", I64_MIN, -1)],
)
def test_overflow_is_an_error(op: str, a: int, b: int) -> None:
    with pytest.raises(BadExpression, match="overflows 64 bits"):
        evaluate(Binary(op, Const(a), Const(b)), {})


def test_negating_the_smallest_value_is_an_error() -> None:
    with pytest.raises(BadExpression, match="overflows"):
        evaluate(Unary("neg", Const(I64_MIN)), {})


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_division_by_zero_is_an_error_and_is_not_folded(op: str) -> None:
    expr = binary(op, Const(1), Const(0))
    with pytest.raises(BadExpression, match="division by zero"):
        evaluate(expr, {})


def test_select_evaluates_the_chosen_arm_alone() -> None:
    guarded = Select(Binary("ne", Var("d"), Const(0)), Binary("floordiv", Const(8), Var("d")), Const(0))
    assert evaluate(guarded, {"d": 0}) == 0
    assert evaluate(guarded, {"d": 2}) == 4


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_ceildiv(n: int, tile: int) -> None:
    assert evaluate(ceildiv(Var("n"), tile), {"n": n}) == -(-n // tile)


def test_types_of_results() -> None:
    assert Binary("lt", Var("i"), Const(1)).dtype is b1
    assert Unary("not", Const(True, b1)).dtype is b1


def test_text() -> None:
    expr = binary("mul", binary("add", Var("i"), Const(1)), binary("min", Var("n"), Const(4)))
    assert format_expr(expr, "%") == "(%i + 1) * min(%n, 4)"
    assert format_expr(binary("sub", Var("a"), binary("sub", Var("b"), Var("c")))) == "a - (b - c)"


def test_elements_of_tensors() -> None:
    class Arrays:
        def extent(self, name, dim):
            raise AssertionError

        def element(self, name, indices, loc):
            return read_element(name, np.array([[1, 2], [3, 4]], np.int32), indices, loc)

    last = Element("t", (Var("i"), Const(1)))
    assert evaluate(binary("add", last, Const(10)), {"i": 1}, Arrays()) == 14
    assert format_expr(last, "%") == "%t[%i, 1]"
    for outside in (2, -1):
        with pytest.raises(BadExpression, match="outside its dimension 0"):
            evaluate(last, {"i": outside}, Arrays())


def test_float_literals_are_f32() -> None:
    assert evaluate(Const(0.1, f32), {}) == float(np.float32(0.1)) != 0.1
    assert evaluate(Const(1e300, f32), {}) == float("inf")


def test_literals_are_equal_as_numbers() -> None:
    nan = float("nan")
    for a, b, is_equal in (
        (Const(0.0, f32), Const(-0.0, f32), False),
        (Const(-0.0, f32), Const(-0.0, f32), True),
        (Const(nan, f32), Const(-nan, f32), True),
        (Const(nan, f32), Const(0.0, f32), False),
        (Const(1), Const(1), True),
        (Const(1), Const(1.0, f32), False),
        (Const(1), Const(True, b1), False),
    ):
        assert (a == b) is is_equal
        assert not is_equal or hash(a) == hash(b)
        assert (Binary("add", a, b) == Binary("add", b, a)) is is_equal
    assert Const(1) != 1
