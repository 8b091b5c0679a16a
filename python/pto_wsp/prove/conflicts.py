"""Claims about pairs of tasks: iterations of `P` are independent, and explicit edges order all conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pto_wsp.analysis.accesses.formula import Formula, less
from pto_wsp.analysis.accesses.instances import Instance, Scene, instances_of, overlap, well_formed
from pto_wsp.analysis.accesses.sites import TaskAccess, TaskSite, may_conflict
from pto_wsp.analysis.accesses.unknowns import ElementOf
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import IN
from pto_wsp.ir.module import Module
from pto_wsp.location import Location
from pto_wsp.prove.counter import CallValues, Judge
from pto_wsp.prove.finding import (
    INDEPENDENT,
    PROVED,
    REFUTED,
    UNKNOWN,
    CounterExample,
    Finding,
    TaskText,
)
from pto_wsp.prove.question import Answer, Question, opaque_terms
from pto_wsp.prove.replay import Replay, Replayed, TouchedBox, iteration_of
from pto_wsp.prove.solver import Solver
from pto_wsp.support.record import record

Apart = Callable[[Instance, Instance], Sequence[Formula]]
"""Which pairs of instances a claim is about."""


@record
class PairQuestion:
    """Whether two accesses conflict, in the instances that a claim is about.

    Attributes:
        first: an access.
        second: another one, or the same.
        shared: outermost steps that both instances have in common.
        apart: formulas for the instances that the claim is about.
    """

    first: TaskAccess
    second: TaskAccess
    shared: int
    apart: Apart

    def ask(self, solver: Solver, module: Module, distinct: frozenset[str]) -> tuple[Answer, Scene]:
        """Return whether the two can conflict, where the elements of some index arrays differ."""
        scene = Scene(module, distinct)
        one, other = instances_of(scene, self.shared, self.first.site, self.second.site)
        goal = [*self.apart(one, other)]
        for instance, access in ((one, self.first), (other, self.second)):
            goal += well_formed(instance, access)
        goal.append(overlap(one, self.first.region, other, self.second.region))
        return Question(solver, scene, goal).answer(), scene


class PairClaim:
    """A claim that no pair of instances conflicts.

    Args:
        module: a module without calls.
        solver: what decides.
        claim: one of the claims of `finding.py`.
        judge: says whether a call breaks the claim.
    """

    def __init__(self, module: Module, solver: Solver, claim: str, judge: Judge) -> None:
        self.module = module
        self.solver = solver
        self.claim = claim
        self.judge = judge

    def decide(self, questions: Iterable[PairQuestion], subject: str, loc: Location | None) -> Finding:
        """Return the answer for all pairs together: the first refutation, else the first unknown answer."""
        unknown: Finding | None = None
        for question in questions:
            finding = self._pair(question, subject)
            if finding is not None and (finding.status == REFUTED or not finding.assume):
                return finding
            unknown = unknown or finding
        return unknown or Finding(self.claim, subject, PROVED, loc)

    def _pair(self, question: PairQuestion, subject: str) -> Finding | None:
        """Return why a pair is not proven, or None if it is."""
        answer, scene = question.ask(self.solver, self.module, frozenset())
        if answer.never:
            return None
        data = _index_arrays(scene)
        if data:
            answer, scene = question.ask(self.solver, self.module, data)
            if answer.never:
                return self._depends_on_data(question, subject, data)
        counter = self._counter(answer, scene)
        loc = question.second.loc
        if counter is not None:
            return Finding(self.claim, subject, REFUTED, loc, counter)
        return Finding(self.claim, subject, UNKNOWN, loc, reason=_reason(answer, scene, question))

    def _counter(self, answer: Answer, scene: Scene) -> CounterExample | None:
        if answer.model is None:
            return None
        return CallValues(self.module, scene, answer.model).counter_example(self.judge)

    def _depends_on_data(self, question: PairQuestion, subject: str, data: frozenset[str]) -> Finding:
        """Return the finding of a claim that holds if the elements of an index array differ."""
        needed = set(data)
        for name in sorted(data):
            fewer = frozenset(needed - {name})
            if fewer and question.ask(self.solver, self.module, fewer)[0].never:
                needed.discard(name)
        answer, scene = question.ask(self.solver, self.module, frozenset())
        counter = self._counter(answer, scene)
        names = sorted(needed)
        reason = f"elements of `{'` and `'.join(names)}` are data, and two of them may be equal"
        assume = tuple(f"assume(distinct({name}))" for name in names)
        return Finding(
            self.claim, subject, UNKNOWN, question.second.loc, counter, reason=reason, assume=assume
        )


def _index_arrays(scene: Scene) -> frozenset[str]:
    """Return the arrays whose elements a question mentions, other than offsets of rows."""
    unknowns = scene.unknowns
    known = unknowns.rising | unknowns.distinct
    meanings = (m for m in unknowns.meanings if isinstance(m, ElementOf))
    return frozenset(m.array for m in meanings if not m.reading and m.array not in known)


def _reason(answer: Answer, scene: Scene, question: PairQuestion) -> str:
    if answer.reason:
        return answer.reason
    late = [m.array for m in scene.unknowns.meanings if isinstance(m, ElementOf) and m.reading]
    if late:
        return f"tasks of the run write `{late[0]}`, which decides what is touched"
    terms = opaque_terms(scene)
    if terms:
        return f"`{terms[0]}` is not a sum of loop variables and sizes"
    return f"no call was found that makes `{question.first.region.tensor}` conflict, nor a proof"


# --- iterations of P ---


def independence(module: Module, solver: Solver, found: Sequence[TaskSite]) -> Iterator[Finding]:
    """Yield a finding per `P` loop: no two iterations touch an element that one of them writes."""
    for loop in w.walk_nodes(module.entry_workload.body):
        if isinstance(loop, w.Loop) and loop.kind == w.PARALLEL:
            inside = [site for site in found if any(around is loop for around in site.loops)]
            claim = PairClaim(module, solver, INDEPENDENT, _iterations_judge(loop))
            yield claim.decide(_loop_questions(loop, inside), f"`P` over `{loop.called}`", loop.loc)


def _loop_questions(loop: w.Loop, inside: Sequence[TaskSite]) -> Iterator[PairQuestion]:
    if not inside:
        return
    shared = next(at for at, step in enumerate(inside[0].steps) if step is loop)
    depth = sum(isinstance(step, w.Loop) for step in inside[0].steps[:shared])

    def earlier(one: Instance, other: Instance) -> Sequence[Formula]:
        return [less(one.indices[depth], other.indices[depth])]

    accesses = [access for site in inside for access in site.accesses]
    for first, second in may_conflict(accesses):
        yield PairQuestion(first, second, shared, earlier)
        if first is not second:
            yield PairQuestion(second, first, shared, earlier)


def _iterations_judge(loop: w.Loop) -> Judge:
    def judge(replay: Replay) -> CounterExample | None:
        if replay.outside is not None:
            return None
        places = [(task, iteration_of(task.task, loop)) for task in replay.tasks]
        inside = [(task, place) for task, place in places if place is not None]
        for at, (second, there) in enumerate(inside):
            for first, here in inside[:at]:
                if here[0] == there[0] and here[1] != there[1]:
                    found = replay.conflict(first, second)
                    if found is not None:
                        return pair_counter(first, second, found)
        return None

    return judge


def pair_counter(
    first: Replayed, second: Replayed, found: tuple[TouchedBox, TouchedBox, str]
) -> CounterExample:
    """Return a counter-example of two tasks that conflict."""
    a, b, region = found
    does = [f"{_verb(box)} `{box.param.name}`" for box in (a, b)]
    texts = tuple(
        TaskText(f"`{task.text}` {what}", box.region.loc or task.task.node.loc)
        for task, what, box in ((first, does[0], a), (second, does[1], b))
    )
    return CounterExample((), (), texts, region, "two tasks touch")


def _verb(box: TouchedBox) -> str:
    return {IN: "reads", "out": "writes"}.get(box.param.role, "reads and writes")
