"""Scalar expressions mean what Python means, or are errors."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp.errors import BadExpression
from pto_wsp.ir.evaluate import evaluate, read_element
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
    add,
    binary,
    can_fail,
    ceildiv,
    format_expr,
    mul,
    substitute,
    walk,
)
from pto_wsp.location import Location
from pto_wsp.types.dtype import b1, f32
from tests.slow import examples

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


class Arrays:
    """A tensor `t` of two rows; elements and extents are the only things that expressions ask for."""

    def extent(self, name: str, dim: int) -> int:
        raise AssertionError

    def element(self, name: str, indices: Iterable[int], loc: Location | None) -> int:
        return read_element(name, np.array([[1, 2], [3, 4]], np.int32), indices, loc)


def placed() -> st.SearchStrategy[Expr]:
    """Return expressions whose parts often fail, are neutral or absorb, each part with a place of its own."""
    places = st.builds(Location, st.just("w.py"), st.integers(1, 10**6), st.just(1), st.just(2))
    literals = st.sampled_from([0, 0, 1, 1, -1, 2, 64, I64_MAX, I64_MIN])
    leaf = st.one_of(
        st.builds(Const, literals, loc=places), st.builds(Var, st.sampled_from(sorted(SCOPE)), loc=places)
    )
    numbers = (*INTEGER_OPS, "mul", "mul", "bitand", "bitor", "bitxor", "lshift", "rshift", "within")

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        truths = st.builds(Binary, st.sampled_from(COMPARE_OPS), inner, inner, places)
        both = st.builds(Binary, st.sampled_from(["and", "or"]), truths, truths, places)
        return st.one_of(
            st.builds(Binary, st.sampled_from(numbers), inner, inner, places),
            st.builds(Unary, st.sampled_from(["neg", "invert", "u64"]), inner, places),
            st.builds(Unary, st.just("i64"), both, places),
            st.builds(Element, st.just("t"), st.tuples(inner, inner), places),
            st.builds(Select, truths, inner, inner, places),
        )

    return st.recursive(leaf, grown, max_leaves=12)


def outcome(expr: Expr) -> object:
    try:
        return evaluate(expr, SCOPE, Arrays())
    except BadExpression as error:
        return error.message, error.loc


@settings(max_examples=examples(500))
@given(placed(), st.sampled_from(sorted(SCOPE)))
def test_folding_keeps_the_value_or_the_error_and_its_place(expr: Expr, name: str) -> None:
    assert outcome(substitute(expr, lambda node: None)) == outcome(expr)
    value = Const(SCOPE[name])
    known = substitute(expr, lambda node: value if isinstance(node, Var) and node.name == name else None)
    assert outcome(known) == outcome(expr)


@settings(max_examples=examples(500))
@given(placed())
def test_what_cannot_fail_has_a_value(expr: Expr) -> None:
    assert can_fail(expr) or not isinstance(outcome(expr), tuple)


ELEMENT = Element("t", (Const(5), Const(0)), Location("w.py", 7, 1, 2))


@pytest.mark.parametrize(
    "fails",
    [
        ELEMENT,
        Binary("floordiv", Const(7), Var("zero")),
        Binary("mul", Var("i"), Const(I64_MAX)),
        Binary("lshift", Const(1), Var("j")),
        Binary("within", Var("i"), Const(2)),
        Unary("u64", Var("j")),
        Unary("neg", Const(I64_MIN)),
    ],
)
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_no_operation_drops_an_operand_that_fails(op: str, fails: Expr) -> None:
    scope = {**SCOPE, "zero": 0}
    for a, b in ((fails, Const(0)), (Const(0), fails), (fails, Const(1)), (Const(1), fails), (fails, fails)):
        for expr in (binary(op, a, b), substitute(Binary(op, a, b), lambda node: None)):
            with pytest.raises(BadExpression):
                evaluate(expr, scope, Arrays())
    with pytest.raises(BadExpression):
        evaluate(ceildiv(mul(fails, Const(0)), 4), scope, Arrays())


def test_constructors_keep_the_place() -> None:
    place = Location("w.py", 3, 1, 2)
    n = Var("n")
    made = [binary("mul", n, Const(0), place), binary("add", Const(1), Const(2), place)]
    made += [add(n, n, place), mul(n, n, place), ceildiv(n, 4, place)]
    assert [expr.loc for expr in made] == [place] * 5
    with pytest.raises(BadExpression) as caught:
        evaluate(ceildiv(Const(I64_MAX), 4, place), {})
    assert caught.value.loc == place


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_a_float_that_no_integer_holds_is_an_error(value: float) -> None:
    with pytest.raises(BadExpression, match="overflows 64 bits"):
        evaluate(Unary("i64", Const(value, f32)), {})


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
