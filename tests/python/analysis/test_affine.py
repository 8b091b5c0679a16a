"""Expressions as sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.analysis.affine import difference, linear
from pto_wsp.errors import BadExpression
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.scalar import Binary, Const, Expr, Select, Unary, Var, binary
from tests.generators.drawing import tries

NAMES = "ijn"
OPS = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "bitand")


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Expr:
    choice = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 3))
    if choice < 2:
        return Const(draw(st.integers(-5, 9)))
    if choice < 4:
        return Var(draw(st.sampled_from(NAMES)))
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    if choice == 4:
        return Unary("neg", a)
    if choice == 5:
        return Select(binary("lt", a, Const(2)), a, b)
    return Binary(draw(st.sampled_from(OPS)), a, b)


@tries(200)
@given(expressions(), st.fixed_dictionaries({name: st.integers(-6, 9) for name in NAMES}))
def test_sums_have_the_value_of_their_expression(expr: Expr, scope: dict[str, int]) -> None:
    try:
        value = evaluate(expr, scope)
    except BadExpression:
        return
    total = linear(expr)
    assert total.constant + sum(f * evaluate(term, scope) for term, f in total.terms) == value


def test_factors_of_variables() -> None:
    rows = Binary("add", Binary("mul", Var("i"), Const(32)), Binary("sub", Var("j"), Var("i")))
    assert linear(rows).factor("i") == 31 and linear(rows).factor("n") == 0
    assert linear(rows).without("i") == linear(Var("j"))
    assert linear(Binary("floordiv", Var("i"), Const(2))).factor("i") is None
    assert difference(Binary("add", Var("i"), Const(3)), Var("i")) == 3 and difference(rows, Var("i")) is None
