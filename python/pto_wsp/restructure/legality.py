"""Whether tasks may change their order: the questions of `prove`, about the pairs that an operator swaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pto_wsp.analysis.accesses.sites import TaskAccess, TaskSite, may_conflict
from pto_wsp.ir.module import Module
from pto_wsp.location import Location
from pto_wsp.prove.conflicts import Apart, PairClaim, PairQuestion, pair_counter
from pto_wsp.prove.finding import PROVED, REFUTED, CounterExample
from pto_wsp.prove.replay import Replay, Replayed
from pto_wsp.prove.solver import Solver
from pto_wsp.restructure.places import Request

ORDER = "order"
"""The claim that no two tasks conflict that an operator brings into another order."""


def require_apart(
    module: Module,
    request: Request,
    questions: Iterable[PairQuestion],
    is_asked: Callable[[Replayed, Replayed], bool],
    problem: str = "it swaps two tasks that touch",
) -> None:
    """Raise CannotRestructure unless no pair of the questions conflicts, for all sizes and index arrays.

    Args:
        module: a module without calls.
        request: the operator.
        questions: pairs of accesses.
        is_asked: whether the questions are about two tasks of a call, the earlier one first.
        problem: what the operator does to two tasks that conflict, before the region.
    """

    def judge(replay: Replay) -> CounterExample | None:
        pairs = ((a, b) for at, b in enumerate(replay.tasks) for a in replay.tasks[:at] if is_asked(a, b))
        for first, second in pairs if replay.outside is None else ():
            found = replay.conflict(first, second)
            if found is not None:
                return pair_counter(first, second, found)
        return None

    claim = PairClaim(module, Solver(), ORDER, judge)
    finding = claim.decide(questions, request.text, request.loc)
    notes = [] if finding.counter is None else _places(finding.counter)
    if finding.status == REFUTED and finding.counter is not None:
        raise request.refused(_sentence(finding.counter, problem), *notes)
    if finding.status != PROVED:
        reason = f"it is not known whether two of its tasks conflict: {finding.reason}"
        hint = f"state {finding.advice}" if finding.assume else "keep the order as it is written"
        raise request.refused(reason, *(notes or [("this region", finding.loc)]), hint=hint)


def _sentence(counter: CounterExample, problem: str) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in (*counter.sizes, *counter.arrays))
    given = f"with {values}, " if values else ""
    return f"{given}{problem} {counter.region}"


def _places(counter: CounterExample) -> list[tuple[str, Location | None]]:
    return [(task.text, task.loc) for task in counter.tasks]


def questions_within(found: Sequence[TaskSite], shared: int, apart: Apart) -> Iterator[PairQuestion]:
    """Yield the pairs of accesses of some tasks, each in both roles."""
    for first, second in may_conflict([access for site in found for access in site.accesses]):
        yield PairQuestion(first, second, shared, apart)
        if first is not second:
            yield PairQuestion(second, first, shared, apart)


def questions_between(
    one: Sequence[TaskSite], other: Sequence[TaskSite], shared: int, apart: Apart
) -> Iterator[PairQuestion]:
    """Yield the pairs of accesses of which one is of a task in `one` and one of a task in `other`."""

    def accesses(found: Sequence[TaskSite]) -> list[TaskAccess]:
        return [access for site in found for access in site.accesses]

    for first in accesses(one):
        for second in accesses(other):
            is_write = first.is_write or second.is_write
            if is_write and first.region.tensor == second.region.tensor:
                yield PairQuestion(first, second, shared, apart)
