"""What a task waits for on the device, by numbers of tasks in program order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

from pto_wsp.analysis.accesses.sites import TaskSite, sites
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Expr, Unary, Var, walk
from pto_wsp.prove.waits import ALL, POINT, Derive, SymbolicWait, WaitBound, symbolic_waits
from pto_wsp.support.record import record

START = "the start of the run"
ENTERED = "the loop was entered"
HERE = "the iteration of the loop began"
BEFORE = "the iteration before it began"
ENDED = "an iteration of the loop ended"
LATEST = "the latest task of a place in the text was made"


@record
class Moment:
    """A moment in the walk, given by the number of the task that came next.

    Attributes:
        kind: START, ENTERED, HERE, BEFORE, ENDED or LATEST.
        number: of the loop, in the order of the text; for LATEST the number of the place.
        base: of ENDED, the depth of the loop around the task that waits whose iteration is meant; None for 0.
        offset: of ENDED, what is added to it.
    """

    kind: str
    number: int = 0
    base: int | None = None
    offset: int = 0


@record
class DeviceWait:
    """A task waits for the tasks that were made between two moments of the walk.

    Attributes:
        since: the first moment.
        until: the second moment.
        is_latest: whether only the last task before `until` is waited for, if it was made after `since`.
    """

    since: Moment
    until: Moment
    is_latest: bool = False


def device_waits(module: Module, derive: Derive = symbolic_waits) -> list[list[DeviceWait]]:
    """Return what each task in the text waits for, in the order of the text.

    Without islpy nothing is proved. A task then waits for all earlier tasks of the places that it may
    conflict with.

    Args:
        module: without calls of workloads, and not a network.
        derive: returns its symbolic waits.
    """
    found = sites(module)
    waits: list[set[DeviceWait]] = [set() for _ in found]
    if find_spec("islpy") is None:
        for second in found:
            waits[second.number].update(_prefix(first) for first in _conflicting(found, second))
    else:
        of = _Waits(module, found)
        for wait in derive(module):
            waits[wait.second.number].add(of.wait(wait))
    return [sorted(each, key=str) for each in waits]


def _prefix(first: int) -> DeviceWait:
    return DeviceWait(Moment(START), Moment(LATEST, first))


def _conflicting(found: Sequence[TaskSite], second: TaskSite) -> Iterator[int]:
    for first in found:
        pairs = ((a, b) for a in first.accesses for b in second.accesses)
        if any(a.region.tensor == b.region.tensor and (a.is_write or b.is_write) for a, b in pairs):
            yield first.number


class _Waits:
    """Turns symbolic waits into moments of the walk."""

    def __init__(self, module: Module, found: Sequence[TaskSite]) -> None:
        self.module = module
        self.found = found
        self.loops = loop_numbers(module.entry_workload)

    def wait(self, wait: SymbolicWait) -> DeviceWait:
        loops = self.found[wait.first.number].loops
        if wait.is_earlier:
            return self._of_earlier_iterations(wait, self.loops[id(loops[wait.depth])])
        latest = Moment(LATEST, wait.first.number)
        if wait.bounds:
            return self._of_earlier_loop(wait.bounds[0], loops[wait.depth], latest)
        shared = loops[: wait.depth]
        since = Moment(HERE, self.loops[id(shared[-1])]) if shared else Moment(START)
        return DeviceWait(since, latest, is_latest=True)

    def _of_earlier_iterations(self, wait: SymbolicWait, loop: int) -> DeviceWait:
        """Return a wait for iterations, before the current one, of a loop around both tasks."""
        bound, *inner = wait.bounds
        first, second = wait.first.number, wait.second.number
        is_previous = bound.kind == POINT and bound.loop == wait.depth and bound.offset == -1
        # Tasks of one place that each wait for the one before complete in order.
        if not inner and (first == second or (first > second and is_previous)):
            return DeviceWait(Moment(ENTERED, loop), Moment(LATEST, first), is_latest=True)
        return DeviceWait(Moment(BEFORE if is_previous else ENTERED, loop), Moment(HERE, loop))

    def _of_earlier_loop(self, bound: WaitBound, loop: w.Loop, latest: Moment) -> DeviceWait:
        """Return a wait for iterations of a loop around the first task alone, which has ended."""
        number = self.loops[id(loop)]
        if bound.kind == ALL or not is_regular(loop, self.module):
            return DeviceWait(Moment(ENTERED, number), latest)
        first, last = (Moment(ENDED, number, bound.loop, bound.offset + more) for more in (0, 1))
        return DeviceWait(first if bound.kind == POINT else Moment(ENTERED, number), last)


def loop_numbers(workload: w.WorkloadFunction) -> Mapping[int, int]:
    """Return the numbers of loops in the order of the text, by their ids."""
    loops = (node for node in w.walk_nodes(workload.body) if isinstance(node, w.Loop))
    return {id(loop): number for number, loop in enumerate(loops)}


def is_regular(loop: w.Loop, module: Module) -> bool:
    """Return whether all iterations of a loop make the same number of tasks."""
    inside = list(w.walk_nodes(loop.body))
    names = {loop.var, *(node.var for node in inside if isinstance(node, w.Loop))}
    symbols = {param.name for param in module.entry_workload.symbols}
    return all(
        isinstance(node, w.Task) or (isinstance(node, w.Loop) and _is_fixed(node.extent, symbols - names))
        for node in inside
    )


def _is_fixed(expr: Expr, symbols: set[str]) -> bool:
    """Return whether an expression depends on sizes alone."""
    return all(
        isinstance(part, Const | Binary | Unary) or (isinstance(part, Var) and part.name in symbols)
        for part in walk(expr)
    )
