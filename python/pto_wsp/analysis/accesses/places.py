"""The values of expressions at one place of a workload, as sums of unknowns."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from pto_wsp.analysis.accesses.formula import (
    Formula,
    Linear,
    differ,
    equal,
    every,
    less,
    less_equal,
    number,
    opposite,
    some,
    truth,
)
from pto_wsp.analysis.accesses.unknowns import AUXILIARY, OPAQUE, Unknowns
from pto_wsp.ir.scalar import (
    COMPARISONS,
    Binary,
    Const,
    Element,
    Expr,
    LoopExtent,
    LoopStart,
    Name,
    Select,
    Unary,
    format_expr,
    name_of,
)
from pto_wsp.types.dtype import b1

_READINGS = itertools.count(1)


class IterationPlace:
    """A place in a workload, in one iteration of the loops around it.

    Args:
        unknowns: where unknowns are kept.
        late: tensors that tasks write, of which an element can have another value at another place.
        shapes: the sizes of tensors; an element outside them is an error of the run.
        values: what names mean here.

    Attributes:
        required: what has to hold for the expressions that were evaluated here to have values.
    """

    def __init__(
        self,
        unknowns: Unknowns,
        late: frozenset[str],
        shapes: Mapping[str, tuple[Linear, ...]],
        values: Mapping[Name, Linear],
    ) -> None:
        self.unknowns = unknowns
        self.late = late
        self.shapes = shapes
        self.values = dict(values)
        self.required: list[Formula] = []
        self.reading = next(_READINGS)

    def copy(self) -> IterationPlace:
        """Return the place inside it: names that it learns are not known here."""
        return IterationPlace(self.unknowns, self.late, self.shapes, self.values)

    def value(self, expr: Expr) -> Linear:
        """Return the value of an i64 expression."""
        match expr:
            case Const(value=value):
                return number(int(value))
            case Binary():
                return self._binary(expr)
            case Unary(op="neg", a=a):
                return self.value(a).times(-1)
            case Unary(op="i64" | "u64", a=a) if a.dtype.is_integer and a.dtype is not b1:
                return self.value(a)
            case Select():
                return self._select(expr)
            case Element(name=name, indices=indices):
                return self._element(name, tuple(map(self.value, indices)), expr)
            case _:
                name = name_of(expr)
                if name is not None and name in self.values:
                    return self.values[name]
                return self.opaque(expr)

    def opaque(self, expr: Expr) -> Linear:
        """Return an unknown for an expression that no sum describes."""
        return self.unknowns.known(OPAQUE, format_expr(expr), (self.reading, expr))[0]

    def _element(self, name: str, indices: tuple[Linear, ...], expr: Expr) -> Linear:
        for index, size in zip(indices, self.shapes[name], strict=True):
            self.required += [less_equal(number(0), index), less(index, size)]
        reading = self.reading if name in self.late else 0
        return self.unknowns.element(name, indices, format_expr(expr), reading)

    def _binary(self, expr: Binary) -> Linear:
        if expr.dtype is b1 or not expr.dtype.is_integer:
            return self.opaque(expr)
        a, b = self.value(expr.a), self.value(expr.b)
        match expr.op:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return self.unknowns.product(a, b, format_expr(expr))
            case "min":
                return self.unknowns.least(a, b)
            case "max":
                return self.unknowns.least(a.times(-1), b.times(-1)).times(-1)
            case "within":
                self.required += [less_equal(number(0), a), less_equal(a, b)]
                return a
            case _:
                return self._division(expr, a, b.value)

    def _division(self, expr: Binary, a: Linear, b: int | None) -> Linear:
        if b is not None and expr.op in ("floordiv", "mod") and b > 0:
            whole = self.unknowns.quotient(a, b)
            return whole if expr.op == "floordiv" else a - whole.times(b)
        if b is not None and expr.op in ("lshift", "rshift") and 0 <= b < 63:
            return a.times(1 << b) if expr.op == "lshift" else self.unknowns.quotient(a, 1 << b)
        if b is not None and expr.op == "bitand" and b >= 0 and b & (b + 1) == 0:
            return a - self.unknowns.quotient(a, b + 1).times(b + 1)
        return self.unknowns.known(OPAQUE, format_expr(expr), (expr.op, a, self.value(expr.b)))[0]

    def _select(self, expr: Select) -> Linear:
        condition = self.condition(expr.condition)
        then, other = self.value(expr.then), self.value(expr.other)
        found = self.unknowns.new(AUXILIARY, "")
        taken, left = every(condition, equal(found, then)), every(opposite(condition), equal(found, other))
        self.unknowns.facts.append(some(taken, left))
        return found

    def condition(self, expr: Expr) -> Formula:
        """Return a bool expression as a formula."""
        match expr:
            case Const(value=value):
                return truth(bool(value))
            case Unary(op="not", a=a):
                return opposite(self.condition(a))
            case Unary(op="b1", a=a) if a.dtype.is_integer:
                return differ(self.value(a), number(0))
            case Binary(op="and", a=a, b=b):
                return every(self.condition(a), self.condition(b))
            case Binary(op="or", a=a, b=b):
                return some(self.condition(a), self.condition(b))
            case Binary(op=op, a=a, b=b) if op in COMPARISONS and a.dtype.is_integer and a.dtype is not b1:
                return _comparison(op, self.value(a), self.value(b))
            case Select(condition=condition, then=then, other=other):
                chosen = self.condition(condition)
                left = every(opposite(chosen), self.condition(other))
                return some(every(chosen, self.condition(then)), left)
            case Element(name=name, indices=indices):
                return differ(self._element(name, tuple(map(self.value, indices)), expr), number(0))
            case _:
                return differ(self.opaque(expr), number(0))

    def enter_tiles(self, loop: str, index: Linear, tile: int, extent: Linear) -> None:
        """Learn the range of a tiles loop in one iteration: `tile` elements, clipped to the extent."""
        start = index.times(tile)
        self.values[LoopStart(loop)] = start
        self.values[LoopExtent(loop)] = self.unknowns.least(number(tile), extent - start)


def _comparison(op: str, a: Linear, b: Linear) -> Formula:
    match op:
        case "lt":
            return less(a, b)
        case "le":
            return less_equal(a, b)
        case "gt":
            return less(b, a)
        case "ge":
            return less_equal(b, a)
        case "eq":
            return equal(a, b)
        case _:
            return differ(a, b)
