"""One question about a workload for all sizes: values for which a formula holds, or that there are none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pto_wsp.analysis.accesses.formula import Formula, Linear, equal, less_equal, number
from pto_wsp.analysis.accesses.instances import Scene
from pto_wsp.analysis.accesses.unknowns import ELEMENT, LOOP, OPAQUE, SIZE, ProductOf
from pto_wsp.prove.solver import Model, Solver, Undecided
from pto_wsp.support.record import record

MAX_FIXED = 4
"""A factor of a product that no sum describes is tried with values up to this one."""


@record
class Answer:
    """What a search found.

    Attributes:
        never: no values exist.
        model: values that a run can have, as far as the formulas know, or None.
        reason: why the search found neither.
    """

    never: bool
    model: Model | None = None
    reason: str = ""


class Question:
    """A formula over the unknowns of a scene.

    Args:
        solver: what decides.
        scene: the workload.
        goal: what to look for, besides the facts of the scene.
    """

    def __init__(self, solver: Solver, scene: Scene, goal: Sequence[Formula]) -> None:
        self.solver = solver
        self.scene = scene
        unknowns = scene.unknowns
        self.formulas = [*unknowns.facts, *unknowns.lemmas(), *goal]
        kinds = {SIZE, LOOP} | {ELEMENT}
        small = tuple(
            (at, 1)
            for at, unknown in enumerate(unknowns.table)
            if unknown.kind in kinds and (unknown.kind != ELEMENT or self._is_rising(at))
        )
        self.measure = Linear(small, 0)

    def _is_rising(self, at: int) -> bool:
        unknowns = self.scene.unknowns
        name = unknowns.table[at].text.split("[")[0]
        return name in unknowns.rising

    def answer(self) -> Answer:
        """Return the smallest values, by the sum of sizes and iterations, or that there are none."""
        try:
            model = self.solver.smallest(self.formulas, self.measure)
            if model is None:
                return Answer(True)
            found = self._with_products(self._with_zeros(model), [])
        except Undecided:
            return Answer(False, reason="the formula has too many cases")
        if found is None:
            return Answer(False, reason=f"`{self._first_product()}` is a product of values of the run")
        return Answer(False, found)

    def _with_zeros(self, model: Model) -> Model:
        """Return values of at most this measure, with 0 for elements of arrays wherever that is possible."""
        fixed = [less_equal(self.measure, number(self.measure.at(model)))]
        for at, unknown in enumerate(self.scene.unknowns.table):
            if unknown.kind == ELEMENT and model.get(at):
                chosen = equal(Linear(((at, 1),), 0), number(0))
                found = self.solver.solve([*self.formulas, *fixed, chosen])
                if found is not None:
                    model = found
                    fixed.append(chosen)
        return model

    def _with_products(self, model: Model, fixed: list[Formula]) -> Model | None:
        """Return values for which products are what their factors say, found by fixing factors."""
        wrong = next(self._wrong_products(model), None)
        if wrong is None:
            return model
        if len(fixed) > 2 * MAX_FIXED:
            return None
        product, value = wrong
        for factor, other in ((product.a, product.b), (product.b, product.a)):
            for tried in dict.fromkeys((factor.at(model), *range(MAX_FIXED + 1))):
                more = [*fixed, equal(factor, number(tried)), equal(value, other.times(tried))]
                found = self.solver.solve([*self.formulas, *more])
                if found is not None:
                    done = self._with_products(found, more)
                    if done is not None:
                        return done
        return None

    def _wrong_products(self, model: Model) -> Iterator[tuple[ProductOf, Linear]]:
        for meaning, at in self.scene.unknowns.meanings.items():
            if isinstance(meaning, ProductOf):
                value = Linear(((at, 1),), 0)
                if meaning.a.at(model) * meaning.b.at(model) != value.at(model):
                    yield meaning, value

    def _first_product(self) -> str:
        unknowns = self.scene.unknowns
        products = (at for meaning, at in unknowns.meanings.items() if isinstance(meaning, ProductOf))
        return unknowns.table[next(products)].text


def opaque_terms(scene: Scene) -> tuple[str, ...]:
    """Return the expressions of a scene that no sum describes, as text."""
    return tuple(dict.fromkeys(u.text for u in scene.unknowns.table if u.kind == OPAQUE))
