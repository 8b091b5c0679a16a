"""Formulas over unknown integers: sums with whole factors, compared with 0, and `and` and `or` of those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from pto_wsp.support.record import record


@record
class Linear:
    """`constant` plus each unknown, by its number, times its factor; unknowns in ascending order."""

    terms: tuple[tuple[int, int], ...]
    constant: int

    def __add__(self, other: Linear) -> Linear:
        return self.plus(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def plus(self, other: Linear, factor: int) -> Linear:
        """Return the sum of this and `factor` times another one."""
        found = dict(self.terms)
        for unknown, value in other.terms:
            found[unknown] = found.get(unknown, 0) + factor * value
        kept = ((unknown, value) for unknown, value in sorted(found.items()) if value)
        return Linear(tuple(kept), self.constant + factor * other.constant)

    def times(self, factor: int) -> Linear:
        """Return a multiple."""
        return number(0).plus(self, factor)

    @property
    def value(self) -> int | None:
        """The number that it is, or None where unknowns are part of it."""
        return None if self.terms else self.constant

    def at(self, model: Mapping[int, int]) -> int:
        """Return the value where `model` gives the unknowns; others are 0."""
        return self.constant + sum(factor * model.get(unknown, 0) for unknown, factor in self.terms)


def number(value: int) -> Linear:
    """Return a constant."""
    return Linear((), value)


@record
class AtLeastZero:
    """`sum` >= 0."""

    sum: Linear


@record
class Zero:
    """`sum` == 0."""

    sum: Linear


@record
class Every:
    """All of `parts` hold."""

    parts: tuple[Formula, ...]


@record
class Some:
    """At least one of `parts` holds."""

    parts: tuple[Formula, ...]


Formula = AtLeastZero | Zero | Every | Some

TRUE, FALSE = Every(()), Some(())


def truth(holds: bool) -> Formula:
    """Return the formula that always or never holds."""
    return TRUE if holds else FALSE


def less_equal(a: Linear, b: Linear) -> Formula:
    """Return `a <= b`."""
    gap = b - a
    return AtLeastZero(gap) if gap.value is None else truth(gap.value >= 0)


def less(a: Linear, b: Linear) -> Formula:
    """Return `a < b`."""
    return less_equal(a + number(1), b)


def equal(a: Linear, b: Linear) -> Formula:
    """Return `a == b`."""
    gap = a - b
    return Zero(gap) if gap.value is None else truth(gap.value == 0)


def differ(a: Linear, b: Linear) -> Formula:
    """Return `a != b`."""
    return some(less(a, b), less(b, a))


def every(*parts: Formula) -> Formula:
    """Return `and`, folded."""
    found: list[Formula] = []
    for part in parts:
        if part == FALSE:
            return FALSE
        found += part.parts if isinstance(part, Every) else (part,)
    return found[0] if len(found) == 1 else Every(tuple(found))


def some(*parts: Formula) -> Formula:
    """Return `or`, folded."""
    found: list[Formula] = []
    for part in parts:
        if part == TRUE:
            return TRUE
        found += part.parts if isinstance(part, Some) else (part,)
    return found[0] if len(found) == 1 else Some(tuple(found))


def opposite(formula: Formula) -> Formula:
    """Return `not`."""
    match formula:
        case AtLeastZero(sum=total):
            return less_equal(total, number(-1))
        case Zero(sum=total):
            return differ(total, number(0))
        case Every(parts=parts):
            return some(*map(opposite, parts))
        case Some(parts=parts):
            return every(*map(opposite, parts))
        case _:
            assert_never(formula)


def holds(formula: Formula, model: Mapping[int, int]) -> bool:
    """Return whether a formula holds where `model` gives the unknowns."""
    match formula:
        case AtLeastZero(sum=total):
            return total.at(model) >= 0
        case Zero(sum=total):
            return total.at(model) == 0
        case Every(parts=parts):
            return all(holds(part, model) for part in parts)
        case Some(parts=parts):
            return any(holds(part, model) for part in parts)
        case _:
            assert_never(formula)


def unknowns_of(formulas: Iterable[Formula]) -> set[int]:
    """Return the numbers of the unknowns that formulas mention."""
    found: set[int] = set()
    for formula in formulas:
        match formula:
            case AtLeastZero(sum=total) | Zero(sum=total):
                found |= {unknown for unknown, _ in total.terms}
            case Every(parts=parts) | Some(parts=parts):
                found |= unknowns_of(parts)
            case _:
                assert_never(formula)
    return found
