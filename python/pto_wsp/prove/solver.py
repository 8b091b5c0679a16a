"""Whether integers exist for which formulas hold: islpy decides conjunctions, this file the rest.

A formula with `or` is decided as it is needed: the search looks at a solution of the conjunctions so far, and
only an `or` that this solution breaks splits the search.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from pto_wsp.analysis.accesses.formula import (
    AtLeastZero,
    Every,
    Formula,
    Linear,
    Some,
    Zero,
    holds,
    less_equal,
    number,
    unknowns_of,
)
from pto_wsp.errors import MissingPackage

Model = dict[int, int]
"""The value of each unknown by its number."""

MAX_STEPS = 500
"""Enough for every question about the examples that has an answer."""


class Undecided(Exception):
    """A question that takes too many steps."""


def load_isl() -> Any:
    """Return the module islpy.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        return importlib.import_module("islpy")
    except ImportError:
        raise MissingPackage(package="islpy", extra="prove", what="A proof") from None


class Solver:
    """Searches for integers for which formulas hold.

    Args:
        max_steps: conjunctions that one question may ask islpy about.
        budget: conjunctions that all questions together may ask about, or None.
    """

    def __init__(self, max_steps: int = MAX_STEPS, budget: int | None = None) -> None:
        self.isl = load_isl()
        self.max_steps = max_steps
        self.budget = budget
        self.steps = 0

    @property
    def is_spent(self) -> bool:
        """Whether the budget of all questions is spent: no question has an answer any more."""
        return self.budget is not None and self.budget <= 0

    def solve(self, formulas: Iterable[Formula]) -> Model | None:
        """Return a solution, or None if there is none.

        Raises:
            Undecided: the search takes too many steps.
        """
        simple, splits = _split(formulas)
        if splits is None:
            return None
        self.steps = 0
        return self._search(simple, splits)

    def _search(self, simple: Sequence[Formula], splits: Sequence[Some]) -> Model | None:
        self.steps += 1
        if self.steps > self.max_steps or self.is_spent:
            raise Undecided
        if self.budget is not None:
            self.budget -= 1
        model = self._conjunction(simple)
        if model is None:
            return None
        broken = [part for part in splits if not holds(part, model)]
        if not broken:
            return model
        chosen = min(broken, key=lambda part: len(part.parts))
        rest = [part for part in splits if part is not chosen]
        for part in chosen.parts:
            more, inner = _split([part])
            if inner is not None:
                found = self._search([*simple, *more], [*rest, *inner])
                if found is not None:
                    return found
        return None

    def smallest(self, formulas: Sequence[Formula], measure: Linear) -> Model | None:
        """Return a solution for which `measure`, which no solution makes negative, is least."""
        model = self.solve(formulas)
        if model is None:
            return None
        low, high = 0, measure.at(model)
        while low < high:
            middle = (low + high) // 2
            try:
                found = self.solve([*formulas, less_equal(measure, number(middle))])
            except Undecided:
                return model
            if found is None:
                low = middle + 1
            else:
                model, high = found, measure.at(found)
        return model

    def _conjunction(self, simple: Sequence[Formula]) -> Model | None:
        order = sorted(unknowns_of(simple))
        if not order:
            return {} if all(holds(formula, {}) for formula in simple) else None
        isl = self.isl
        point = isl.BasicSet.read_from_str(isl.DEFAULT_CONTEXT, _text(simple, order)).sample_point()
        if point.is_void():
            return None
        kind = isl.dim_type.set
        values = (point.get_coordinate_val(kind, at) for at in range(len(order)))
        return {unknown: value.to_python() for unknown, value in zip(order, values, strict=True)}


def _text(simple: Sequence[Formula], order: Sequence[int]) -> str:
    """Return comparisons as a matrix in the format of PolyLib, which isl reads faster than any other.

    A row is a comparison: 1 for "at least 0", 0 for "equal to 0", the factor of each unknown, the constant.
    """
    column = {unknown: at + 1 for at, unknown in enumerate(order)}
    rows = [f"{len(simple)} {len(order) + 2}"]
    for formula in simple:
        assert isinstance(formula, (Zero, AtLeastZero))
        row = ["0"] * (len(order) + 2)
        row[0] = "1" if isinstance(formula, AtLeastZero) else "0"
        for unknown, factor in formula.sum.terms:
            row[column[unknown]] = str(factor)
        row[-1] = str(formula.sum.constant)
        rows.append(" ".join(row))
    return "\n".join(rows)


def _split(formulas: Iterable[Formula]) -> tuple[list[Formula], list[Some] | None]:
    """Return the comparisons of a conjunction and its parts with `or`; None for those if it cannot hold."""
    simple: list[Formula] = []
    splits: list[Some] = []
    pending = list(formulas)
    while pending:
        match pending.pop():
            case Every(parts=parts):
                pending += parts
            case Some(parts=()):
                return [], None
            case Some(parts=(part,)):
                pending.append(part)
            case Some() as part:
                splits.append(part)
            case part:
                simple.append(part)
    return simple, splits
