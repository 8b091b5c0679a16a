"""Amounts: sums of products of expressions, sums over the iterations of loops, and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import assert_never

from pto_wsp.ir.evaluate import ExtentReader, evaluate
from pto_wsp.ir.scalar import (
    Binary,
    Const,
    Expr,
    Extent,
    Value,
    Var,
    binary,
    ceildiv,
    format_expr,
    mul,
    substitute,
    walk,
)
from pto_wsp.support.record import record

Factors = tuple[Expr, ...]
"""Factors of a product, in the order of their texts."""


@record
class Product:
    """A number times expressions."""

    number: int | float
    factors: Factors = ()


@record
class Total:
    """The sum of an amount for `var` in `range(start, stop, step)`."""

    var: str
    start: Expr
    stop: Expr
    step: int
    body: Amount


@record
class Alternative:
    """One of two amounts, by a condition."""

    condition: Expr
    then: Amount
    other: Amount


Part = Product | Total | Alternative
Amount = tuple[Part, ...]
"""A sum. No two products in it have the same factors."""


def product_of(number: int | float, *exprs: Expr) -> Amount:
    """Return a number times expressions."""
    factors: list[Expr] = []
    left = [*exprs]
    while left:
        match left.pop():
            case Const(value=value):
                number *= int(value)
            case Binary(op="mul", a=a, b=b):
                left += (a, b)
            case expr:
                factors.append(expr)
    return (Product(number, tuple(sorted(factors, key=format_expr))),) if number else ()


def sum_of(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of amounts."""
    products: dict[Factors, int | float] = {}
    others: list[Part] = []
    for amount in amounts:
        for part in amount:
            if isinstance(part, Product):
                products[part.factors] = products.get(part.factors, 0) + part.number
            else:
                others.append(part)
    return (*(Product(n, factors) for factors, n in products.items() if n), *others)


def scaled(amount: Amount, number: float) -> Amount:
    """Return an amount times a number."""
    found: list[Part] = []
    for part in amount if number else ():
        match part:
            case Product(number=own, factors=factors):
                found.append(Product(own * number, factors))
            case Total(var=var, start=start, stop=stop, step=step, body=body):
                found.append(Total(var, start, stop, step, scaled(body, number)))
            case Alternative(condition=condition, then=then, other=other):
                found.append(Alternative(condition, scaled(then, number), scaled(other, number)))
            case _:
                assert_never(part)
    return (*found,)


def larger_of(one: Amount, other: Amount) -> Amount:
    """Return the larger of two products."""
    (a,), (b,) = one, other
    assert isinstance(a, Product) and isinstance(b, Product)
    left, common = [*b.factors], []
    for factor in a.factors:
        if factor in left:
            left.remove(factor)
            common.append(factor)
    mine = [*a.factors]
    for factor in common:
        mine.remove(factor)
    first, second = (reduce(mul, of, Const(int(n))) for n, of in ((a.number, mine), (b.number, left)))
    return product_of(1, *common, binary("max", first, second))


def total_of(var: str, start: Expr, stop: Expr, step: int, body: Amount) -> Amount:
    """Return the sum of an amount over the iterations of a loop, without the loop where that is possible.

    The extents `min(step, stop - var)` of all iterations add up to the length of the range.
    """
    length = _length(start, stop)
    clipped = binary("min", Const(step), binary("sub", stop, Var(var)))
    found: list[Amount] = []
    left: list[Part] = []
    for part in body:
        inner = [f for f in part.factors if names(f) & {var}] if isinstance(part, Product) else [Var(var)]
        if isinstance(part, Product) and not inner:
            found.append(product_of(part.number, *part.factors, _trips(length, step)))
        elif isinstance(part, Product) and [*inner] == [clipped]:
            outer = [f for f in part.factors if f != clipped]
            found.append(product_of(part.number, *outer, length))
        else:
            left.append(part)
    rest: Amount = (Total(var, start, stop, step, tuple(left)),) if left else ()
    return sum_of((*found, rest))


def _length(start: Expr, stop: Expr) -> Expr:
    """Return how many integers a range has."""
    if start == Const(0) and isinstance(stop, (Extent, Const)):
        return stop if not isinstance(stop, Const) or stop.value > 0 else Const(0)
    return binary("max", binary("sub", stop, start), Const(0))


def _trips(length: Expr, step: int) -> Expr:
    return length if step == 1 else ceildiv(length, step)


def names(expr: Expr) -> set[str]:
    """Return the variables of an expression."""
    return {part.name for part in walk(expr) if isinstance(part, Var)}


def value_of(amount: Amount, scope: Mapping[str, Value], extents: ExtentReader) -> int | float:
    """Return the number that an amount is.

    Args:
        amount: over scalars and extents of views.
        scope: values of scalars.
        extents: answers for the extents of views.

    Raises:
        BadExpression: as `evaluate` raises.
    """
    result: int | float = 0
    for part in amount:
        match part:
            case Product(number=number, factors=factors):
                for factor in factors:
                    number *= int(evaluate(factor, scope, extents))
                result += number
            case Total(var=var, start=start, stop=stop, step=step, body=body):
                first, end = (int(evaluate(bound, scope, extents)) for bound in (start, stop))
                result += sum(value_of(body, {**scope, var: i}, extents) for i in range(first, end, step))
            case Alternative(condition=condition, then=then, other=other):
                chosen = then if evaluate(condition, scope, extents) else other
                result += value_of(chosen, scope, extents)
            case _:
                assert_never(part)
    return result


def _number_text(number: int | float) -> str:
    """Return a number with three decimals, or four digits below 1."""
    if isinstance(number, int) or number.is_integer():
        return str(int(number))
    return f"{number:.4g}" if abs(number) < 1 else f"{number:.3f}".rstrip("0")


def text_of(amount: Amount, rename: Callable[[Expr], Expr | None]) -> str:
    """Return an amount as text: `64 * k.rows + sum(r in range(0, n): 8 * r)`.

    Args:
        amount: what to write.
        rename: returns what replaces a part of an expression, or None.
    """

    def shown(expr: Expr) -> str:
        text = format_expr(substitute(expr, rename))
        return f"({text})" if isinstance(expr, Binary) and expr.op not in ("min", "max") else text

    texts: list[str] = []
    for part in amount:
        match part:
            case Product(number=number, factors=factors):
                number_text = [_number_text(number)] if number != 1 or not factors else []
                texts.append(" * ".join([*number_text, *map(shown, factors)]))
            case Total(var=var, start=start, stop=stop, step=step, body=body):
                steps = f", {step}" if step != 1 else ""
                span = f"{var} in range({shown(start)}, {shown(stop)}{steps})"
                texts.append(f"sum({span}: {text_of(body, rename)})")
            case Alternative(condition=condition, then=then, other=other):
                parts = (shown(condition), text_of(then, rename), text_of(other, rename))
                texts.append(f"select({', '.join(parts)})")
            case _:
                assert_never(part)
    return " + ".join(texts) or "0"
