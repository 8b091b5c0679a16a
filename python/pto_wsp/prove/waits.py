"""Symbolic waits: for each pair of tasks in the text, which tasks of the first one the second one waits for.

A wait is an expression of the loop variables of the task that waits, so it needs neither maps of regions nor
records. One conflict gives a guess, and a proof shows that no conflict lies outside of the guess.
Where nothing better is proved, the task waits for the whole earlier loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pto_wsp.analysis.accesses.formula import Formula, Linear, differ, every, less, number, some
from pto_wsp.analysis.accesses.instances import Instance, Scene, instances_of, overlap, well_formed
from pto_wsp.analysis.accesses.sites import TaskAccess, TaskSite, common_steps, sites
from pto_wsp.errors import NotYetSupported
from pto_wsp.interp.workload import BoundTask
from pto_wsp.ir import workload as w
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.module import Module
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.prove.solver import Model, Solver, Undecided
from pto_wsp.support.record import record, replace

POINT, PREFIX, ALL = "==", "<=", "all"
MAX_STEPS = 150
"""Of a guess; one that takes longer to prove is dropped, and more is waited for."""
MAX_PROGRAM_STEPS = 3000
"""Of all questions about one program, about ten seconds. Then the rest of its waits are whole loops."""
MAX_DISTANCE = 4
"""Iterations that lie further apart are not guessed."""


@record
class WaitBound:
    """Which iterations of one loop around the first task are waited for.

    Attributes:
        kind: POINT, one; PREFIX, all up to one; ALL, every one that comes earlier.
        loop: the loop around the second task whose iteration the bound counts from; None for a constant.
        offset: what is added to it.
    """

    kind: str
    loop: int | None = None
    offset: int = 0

    def holds(self, iteration: int, second: Sequence[int]) -> bool:
        """Return whether an iteration is waited for by a task in the iterations `second`."""
        bound = self.offset + (0 if self.loop is None else second[self.loop])
        return self.kind == ALL or (iteration == bound if self.kind == POINT else iteration <= bound)


@record
class SymbolicWait:
    """What a task waits for: tasks of an earlier or the same place in the text.

    Attributes:
        first: the task that is waited for.
        second: the task that waits.
        depth: how many loops around both are in the same iteration.
        is_earlier: whether the first task is in an earlier iteration of the loop at `depth`; else it comes
            earlier in the text, in the same iteration of all loops around both.
        bounds: for the loops around the first task from `depth` on.
        is_cut_off: whether the steps of the program were spent before a better wait was sought.
    """

    first: TaskSite
    second: TaskSite
    depth: int
    is_earlier: bool
    bounds: tuple[WaitBound, ...]
    is_cut_off: bool = False

    @property
    def is_point(self) -> bool:
        """Whether one task is waited for, by its own counter."""
        return all(bound.kind == POINT for bound in self.bounds)

    @property
    def is_whole(self) -> bool:
        """Whether nothing better than the whole earlier loop is proved."""
        return any(bound.kind == ALL for bound in self.bounds)

    def covers(self, first: BoundTask, second: BoundTask) -> bool:
        """Return whether a task of a run waits for another one by this wait."""
        if first.node is not self.first.node or second.node is not self.second.node:
            return False
        before = [int(first.scope[loop.var]) for loop in first.loops]
        after = [int(second.scope[loop.var]) for loop in second.loops]
        if before[: self.depth] != after[: self.depth]:
            return False
        if self.is_earlier and before[self.depth] >= after[self.depth]:
            return False
        rest = before[self.depth :]
        return all(bound.holds(at, after) for bound, at in zip(self.bounds, rest, strict=True))

    def __str__(self) -> str:
        """Return `add[i]: counter copy[i]`, or `prefix copy[<= i]` of a wait for many tasks."""
        names = [loop.called for loop in self.second.loops]
        parts = names[: self.depth]
        for at, bound in enumerate(self.bounds):
            earlier = self.is_earlier and at == 0
            parts.append(_bound_text(bound, names, f"< {names[self.depth]}" if earlier else "*"))
        kind = "counter" if self.is_point else "prefix"
        waiting = f"{self.second.node.kernel}[{', '.join(names)}]"
        why = f", undecided after {MAX_PROGRAM_STEPS:,} steps" if self.is_cut_off else ""
        return f"{waiting}: {kind} {self.first.node.kernel}[{', '.join(parts)}]{why}"


def _bound_text(bound: WaitBound, names: Sequence[str], everything: str) -> str:
    if bound.kind == ALL:
        return everything
    text = "" if bound.loop is None else names[bound.loop]
    if bound.loop is None or bound.offset:
        sign = "" if bound.loop is None else " - " if bound.offset < 0 else " + "
        text += f"{sign}{bound.offset if bound.loop is None else abs(bound.offset)}"
    return text if bound.kind == POINT else f"<= {text}"


Derive = Callable[[Module], Sequence[SymbolicWait]]
"""Returns what the tasks of a module wait for: `symbolic_waits`, or a function that keeps its results."""


def inlined(module: Module) -> Module:
    """Return a module without calls of workloads, whose tasks waits refer to.

    Raises:
        CannotInline: a call of a workload cannot be inlined.
    """
    return inline_calls(with_entry_workload(module)).reached


def symbolic_waits(module: Module) -> tuple[SymbolicWait, ...]:
    """Return what the tasks of the entry of a verified module wait for, in the order of the text.

    Two tasks that conflict in some call are ordered by a wait in every call. A pair without a wait never
    conflicts. Tensors of a call are different arrays. The search is bounded by steps, not by time, so every
    machine gives the same waits.

    Raises:
        MissingPackage: islpy is not installed.
        CannotInline: a call of a workload cannot be inlined.
        NotYetSupported: the entry is a network.
    """
    flat = inlined(module)
    if flat.entry_workload.processes:
        detail = "tasks of a network have no program order"
        raise NotYetSupported(
            feature="waits of a network", detail=detail, advice="", loc=flat.entry_workload.loc
        )
    solver, found = Solver(MAX_STEPS, MAX_PROGRAM_STEPS), sites(flat)
    return tuple(
        wait
        for second in found
        for first in found
        if (pairs := _conflicting(first, second))
        for wait in _Waits(flat, solver, first, second, pairs).found()
    )


def _conflicting(first: TaskSite, second: TaskSite) -> list[tuple[TaskAccess, TaskAccess]]:
    return [
        (a, b)
        for a in first.accesses
        for b in second.accesses
        if a.region.tensor == b.region.tensor and (a.is_write or b.is_write)
    ]


class _Waits:
    """The waits of one task for another one."""

    def __init__(
        self,
        module: Module,
        solver: Solver,
        first: TaskSite,
        second: TaskSite,
        pairs: Sequence[tuple[TaskAccess, TaskAccess]],
    ) -> None:
        self.module = module
        self.solver = solver
        self.first = first
        self.second = second
        self.pairs = pairs

    def found(self) -> Iterator[SymbolicWait]:
        """Yield a wait for each way in which the first task can come earlier and conflict."""
        shared = common_steps(self.first, self.second)
        loops = [at for at, step in enumerate(self.first.steps[:shared]) if isinstance(step, w.Loop)]
        for depth, at in enumerate(loops):
            yield from self._case(depth, at, True)
        if self.first.number < self.second.number:
            yield from self._case(len(loops), shared, False)

    def _case(self, depth: int, shared: int, is_earlier: bool) -> Iterator[SymbolicWait]:
        scene = Scene(self.module)
        one, other = instances_of(scene, shared, self.first, self.second)
        goal = self._goal(one, other)
        if is_earlier:
            goal.append(less(one.indices[depth], other.indices[depth]))
        conflict = [*scene.unknowns.facts, *scene.unknowns.lemmas(), *goal]
        everything = SymbolicWait(
            self.first, self.second, depth, is_earlier, (WaitBound(ALL),) * (len(one.indices) - depth)
        )
        try:
            model = self.solver.solve(conflict)
        except Undecided:
            yield replace(everything, is_cut_off=self.solver.is_spent)
            return
        if model is not None:
            guess = _Guess(self.solver, conflict, model, other.indices)
            bounds = tuple(map(guess.bound, one.indices[depth:]))
            is_cut_off = self.solver.is_spent and any(bound.kind == ALL for bound in bounds)
            yield replace(everything, bounds=bounds, is_cut_off=is_cut_off)

    def _goal(self, one: Instance, other: Instance) -> list[Formula]:
        required = [f for access in self.first.accesses for f in well_formed(one, access)]
        required += [f for access in self.second.accesses for f in well_formed(other, access)]
        meets = (overlap(one, a.region, other, b.region) for a, b in self.pairs)
        return [every(*required), some(*meets)]


class _Guess:
    """Bounds for iterations of a conflict, guessed from one of its solutions and proved for all."""

    def __init__(
        self, solver: Solver, conflict: Sequence[Formula], model: Model, second: Sequence[Linear]
    ) -> None:
        self.solver = solver
        self.conflict = conflict
        self.model = model
        self.second = second
        self.is_hard = False

    def bound(self, index: Linear) -> WaitBound:
        """Return the smallest proved bound for one loop around the first task."""
        at = index.at(self.model)
        froms = [*enumerate(self.second), (None, number(0))]
        near = [(loop, base) for loop, base in froms if abs(at - base.at(self.model)) <= MAX_DISTANCE]
        for loop, base in near:
            offset = at - base.at(self.model)
            if self._never(differ(index, base + number(offset))):
                return WaitBound(POINT, loop, offset)
        for loop, base in enumerate(self.second):
            for offset in (-1, 0):
                if self._never(less(base + number(offset), index)):
                    return WaitBound(PREFIX, loop, offset)
        return WaitBound(ALL)

    def _never(self, formula: Formula) -> bool:
        if self.is_hard:
            return False
        try:
            return self.solver.solve([*self.conflict, formula]) is None
        except Undecided:
            self.is_hard = True
            return False
