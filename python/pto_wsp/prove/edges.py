"""The claim that explicit edges order all conflicts: `after=` and `P.seq`, under `Deps.explicit()`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pto_wsp.analysis.accesses.formula import Formula, less
from pto_wsp.analysis.accesses.instances import Instance
from pto_wsp.analysis.accesses.sites import TakenBranch, TaskSite, common_steps, is_same_step, may_conflict
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.prove.conflicts import PairClaim, PairQuestion, pair_counter
from pto_wsp.prove.finding import EDGES, CounterExample, Finding
from pto_wsp.prove.replay import Replay, Replayed
from pto_wsp.prove.solver import Solver
from pto_wsp.support.record import record


def has_explicit_edges(module: Module) -> bool:
    """Return whether the schedule of a module orders tasks by explicit edges alone."""
    return any(d.kind == "deps" and d.name.startswith("explicit") for d in module.schedule)


def edges(module: Module, solver: Solver, found: Sequence[TaskSite]) -> Iterator[Finding]:
    """Yield a finding per task in the text: edges order every earlier task that conflicts."""
    if not has_explicit_edges(module):
        return
    order = _Order(tuple(found))
    claim = PairClaim(module, solver, EDGES, _edges_judge)
    for site in found:
        questions = (q for other in found for q in _questions(other, site, order))
        yield claim.decide(questions, f"`{site.node.kernel}`", site.node.loc)


@record
class _Order:
    """Which tasks edges order."""

    found: tuple[TaskSite, ...]

    def follows(self, first: TaskSite, second: TaskSite) -> bool:
        """Whether edges lead from one task to another one in one iteration of all loops around the first."""
        return first is second or self._leads(first, second, first, second)

    def _leads(self, at: TaskSite, to: TaskSite, first: TaskSite, second: TaskSite) -> bool:
        nexts = [s for s in self.found if at.node.label in s.node.after and s.number > at.number]
        return bool(at.node.label) and any(
            s is to or (_surely_made(s, first, second) and self._leads(s, to, first, second)) for s in nexts
        )

    def is_carried(self, first: TaskSite, second: TaskSite, depth: int) -> bool:
        """Whether edges lead from every iteration of a loop to all later ones, from one task to another."""
        for last in self.found:
            loops = last.loops
            if not last.node.label or len(loops) != depth + 1 or loops[depth] is not first.loops[depth]:
                continue
            for begin in self.found:
                is_back = last.node.label in begin.node.after and begin.number <= last.number
                chain = is_back and self.follows(begin, last) and self.follows(first, last)
                if chain and self.follows(begin, second) and all(map(_is_plain, (last, begin))):
                    return True
        return False


def _is_plain(site: TaskSite) -> bool:
    return not any(isinstance(step, TakenBranch) for step in site.steps)


def _surely_made(site: TaskSite, first: TaskSite, second: TaskSite) -> bool:
    """Whether a task is made wherever two others are, in the loops that it shares with them."""
    known = (*first.steps, *second.steps)
    own = [step for step in site.steps if isinstance(step, TakenBranch)]
    return all(any(is_same_step(step, other) for other in known) for step in own)


def _questions(first: TaskSite, second: TaskSite, order: _Order) -> Iterator[PairQuestion]:
    """Yield the pairs of accesses of two tasks, for each way in which the first can come earlier."""
    pairs = [
        (a, b) if a.site is first else (b, a)
        for a, b in may_conflict([*first.accesses, *(second.accesses if first is not second else ())])
        if {a.site.number, b.site.number} == {first.number, second.number}
    ]
    if first is second:
        pairs += [(b, a) for a, b in pairs if a is not b]
    shared = common_steps(first, second)
    loops = [at for at, step in enumerate(first.steps[:shared]) if isinstance(step, w.Loop)]
    for depth, at in enumerate(loops):
        loop = first.steps[at]
        assert isinstance(loop, w.Loop)
        if loop.kind != w.SEQUENTIAL and not order.is_carried(first, second, depth):
            yield from (PairQuestion(a, b, at, _Earlier(depth)) for a, b in pairs)
    if first.number < second.number and not order.follows(first, second):
        yield from (PairQuestion(a, b, shared, _anything) for a, b in pairs)


@record
class _Earlier:
    """The first of two instances is in an earlier iteration of the loop at `depth`."""

    depth: int

    def __call__(self, one: Instance, other: Instance) -> Sequence[Formula]:
        return [less(one.indices[self.depth], other.indices[self.depth])]


def _anything(one: Instance, other: Instance) -> Sequence[Formula]:
    return []


def _edges_judge(replay: Replay) -> CounterExample | None:
    if replay.outside is not None:
        return None
    latest: dict[str, int] = {}
    before: list[int] = []  # bit i of entry j: edges order task i before task j
    for number, task in enumerate(replay.tasks):
        earlier = [latest[label] for label in task.task.node.after if label in latest]
        earlier += [at for at in range(number) if _steps_apart(replay.tasks[at], task)]
        mask = 0
        for at in earlier:
            mask |= before[at] | 1 << at
        before.append(mask)
        if task.task.node.label:
            latest[task.task.node.label] = number
        for at in range(number):
            found = None if mask >> at & 1 else replay.conflict(replay.tasks[at], task)
            if found is not None:
                return pair_counter(replay.tasks[at], task, found)
    return None


def _steps_apart(first: Replayed, second: Replayed) -> bool:
    """Whether a `P.seq` loop completes the first task before the second begins."""
    for a, b in zip(first.task.loops, second.task.loops, strict=False):
        if a is not b:
            return False
        if first.task.scope[a.var] != second.task.scope[a.var]:
            return a.kind == w.SEQUENTIAL
    return False
