"""The integers that nothing fixes before a run, and what is known about each.

Elements of arrays and values that no sum describes are unknowns too. Equal ones are one unknown, and
`lemmas` returns what follows for different ones: rows of a ragged axis follow each other, indices made by
`group_by` differ, and a product grows with its factors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from pto_wsp.analysis.accesses.formula import (
    TRUE,
    Formula,
    Linear,
    differ,
    equal,
    every,
    less,
    less_equal,
    number,
    some,
)
from pto_wsp.support.record import record

SIZE, SCALAR, LOOP, ELEMENT, PRODUCT, OPAQUE, AUXILIARY = range(7)
"""What an unknown is. `AUXILIARY` ones follow from others."""


@record
class Unknown:
    """One unknown integer: what it is, and how a reader knows it."""

    kind: int
    text: str


@record
class ElementOf:
    """An element of an array.

    Attributes:
        array: the tensor.
        indices: where.
        reading: of an array that tasks write, the task or loop that reads; 0 where every reading is equal.
    """

    array: str
    indices: tuple[Linear, ...]
    reading: int = 0


@record
class ProductOf:
    """A product of two sums of unknowns."""

    a: Linear
    b: Linear


Meaning = ElementOf | ProductOf | tuple[object, ...]


class Unknowns:
    """The unknowns of one question, and facts about them.

    Args:
        rising: arrays of which no element is below the one before, nor below 0.
        distinct: arrays of which no two elements are equal.

    Attributes:
        table: every unknown, by its number.
        facts: what holds in every run that ends without an error.
        meanings: unknowns by what they are, where equal ones are one.
        limits: what no element of a rising array exceeds.
    """

    def __init__(self, rising: AbstractSet[str], distinct: AbstractSet[str]) -> None:
        self.rising = rising
        self.distinct = distinct
        self.table: list[Unknown] = []
        self.facts: list[Formula] = []
        self.meanings: dict[Meaning, int] = {}
        self.limits: dict[str, Linear] = {}

    def new(self, kind: int, text: str) -> Linear:
        """Return an unknown that nothing is known about."""
        self.table.append(Unknown(kind, text))
        return Linear(((len(self.table) - 1, 1),), 0)

    def known(self, kind: int, text: str, meaning: Meaning) -> tuple[Linear, bool]:
        """Return the unknown of a meaning, and whether it is new."""
        at = self.meanings.get(meaning)
        if at is not None:
            return Linear(((at, 1),), 0), False
        self.meanings[meaning] = len(self.table)
        return self.new(kind, text), True

    def element(self, array: str, indices: Sequence[Linear], text: str, reading: int = 0) -> Linear:
        """Return an element of an array."""
        found, is_new = self.known(ELEMENT, text, ElementOf(array, tuple(indices), reading))
        if is_new and array in self.rising:
            self.facts.append(less_equal(number(0), found))
        if is_new and array in self.limits:
            self.facts.append(less_equal(found, self.limits[array]))
        return found

    def product(self, a: Linear, b: Linear, text: str) -> Linear:
        """Return a product."""
        for one, other in ((a, b), (b, a)):
            if one.value is not None:
                return other.times(one.value)
        if repr(b) < repr(a):
            a, b = b, a
        return self.known(PRODUCT, text, ProductOf(a, b))[0]

    def quotient(self, a: Linear, divisor: int) -> Linear:
        """Return `a // divisor`, of a divisor above 0."""
        if a.value is not None:
            return number(a.value // divisor)
        if a.constant % divisor == 0 and all(factor % divisor == 0 for _, factor in a.terms):
            return Linear(tuple((u, f // divisor) for u, f in a.terms), a.constant // divisor)
        found, is_new = self.known(AUXILIARY, "", ("//", a, divisor))
        if is_new:
            whole = found.times(divisor)
            self.facts += [less_equal(whole, a), less(a, whole + number(divisor))]
        return found

    def least(self, a: Linear, b: Linear) -> Linear:
        """Return the smaller one."""
        gap = (a - b).value
        if gap is not None:
            return a if gap <= 0 else b
        found, is_new = self.known(AUXILIARY, "", ("min", a, b))
        if is_new:
            self.facts += [less_equal(found, a), less_equal(found, b)]
            self.facts.append(some(equal(found, a), equal(found, b)))
        return found

    def lemmas(self) -> list[Formula]:
        """Return what follows for pairs of elements of one array, and of products with a common factor."""
        return [fact for fact in self._pairs() if fact != TRUE]

    def _pairs(self) -> Iterator[Formula]:
        elements: dict[tuple[str, int], list[tuple[ElementOf, int]]] = {}
        products: list[tuple[ProductOf, int]] = []
        for meaning, at in self.meanings.items():
            if isinstance(meaning, ElementOf):
                elements.setdefault((meaning.array, meaning.reading), []).append((meaning, at))
            elif isinstance(meaning, ProductOf):
                products.append((meaning, at))
        for group in elements.values():
            for (a, one), (b, other) in itertools.combinations(group, 2):
                yield self._elements(a, _unknown(one), b, _unknown(other))
        for meaning, at in products:
            yield from _product(meaning, _unknown(at))
        for (a, one), (b, other) in itertools.combinations(products, 2):
            yield from _products(a, _unknown(one), b, _unknown(other))

    def _elements(self, a: ElementOf, one: Linear, b: ElementOf, other: Linear) -> Formula:
        same = every(*map(equal, a.indices, b.indices))
        if a.array in self.rising:
            (i,), (j,) = a.indices, b.indices
            before = every(less(i, j), less_equal(one, other))
            after = every(less(j, i), less_equal(other, one))
            return some(before, every(same, equal(one, other)), after)
        elsewhere = some(*map(differ, a.indices, b.indices))
        if a.array in self.distinct:
            elsewhere = every(elsewhere, differ(one, other))
        return some(every(same, equal(one, other)), elsewhere)


def _unknown(at: int) -> Linear:
    return Linear(((at, 1),), 0)


def _product(product: ProductOf, value: Linear) -> Iterator[Formula]:
    """Yield what holds for a product: its sign, and that it is at least a factor where both are."""
    zero, one = number(0), number(1)
    for a, b in ((product.a, product.b), (product.b, product.a)):
        yield some(
            less(a, zero), less(b, zero), every(equal(a, zero), equal(value, zero)), less_equal(b, value)
        )
    yield some(
        every(less(product.a, zero), less(product.b, zero)),
        every(less_equal(zero, product.a), less_equal(zero, product.b), less_equal(zero, value)),
        every(some(less(product.a, one), less(product.b, one)), less_equal(value, zero)),
    )


def _products(a: ProductOf, one: Linear, b: ProductOf, other: Linear) -> Iterator[Formula]:
    """Yield how two products with a common factor compare: steps of i * n are n apart."""
    for i, n in ((a.a, a.b), (a.b, a.a)):
        for j, m in ((b.a, b.b), (b.b, b.a)):
            if n == m:
                yield some(
                    every(equal(i, j), equal(one, other)),
                    every(less(i, j), some(less(n, number(0)), less_equal(one + n, other))),
                    every(less(j, i), some(less(n, number(0)), less_equal(other + n, one))),
                )
