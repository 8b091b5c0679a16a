"""What a task waits for on the device, by numbers of tasks in program order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from pto_wsp.analysis.accesses.sites import TaskSite, sites
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Expr, Unary, Var, walk
from pto_wsp.prove.waits import ALL, POINT, SymbolicWait, symbolic_waits
from pto_wsp.support.record import record

LATEST, EARLIER, ITERATIONS = "latest", "earlier", "iterations"


@record
class DeviceWait:
    """Which tasks of a place in the text a task waits for.

    Attributes:
        first: number of the place in the text.
        kind: LATEST, the task that was made last there; EARLIER, all tasks up to that one; ITERATIONS, all
            tasks up to the end of an iteration of the loop at `depth` around that place, which has ended.
        depth: of the loop.
        base: depth of the loop around the task that waits from whose iteration is counted; None for 0.
        offset: what is added to it.
    """

    first: int
    kind: str
    depth: int = 0
    base: int | None = None
    offset: int = 0


def device_waits(module: Module) -> list[list[DeviceWait]]:
    """Return what each task in the text waits for, in the order of the text.

    Nothing is proved without islpy, nor where variables or elements that tasks write decide what runs, for
    proofs then take minutes. A task then waits for all earlier tasks of the places that it may conflict with.

    Args:
        module: without calls of workloads, and not a network.
    """
    found = sites(module)
    waits: list[set[DeviceWait]] = [set() for _ in found]
    if find_spec("islpy") is None or _changes_by_itself(module):
        for second in found:
            waits[second.number] |= {DeviceWait(f, EARLIER) for f in _conflicting(found, second)}
    else:
        for wait in symbolic_waits(module):
            waits[wait.second.number].add(_device_wait(wait, module))
    for second in found:
        waits[second.number] |= {DeviceWait(f, EARLIER) for f in _sharing_row_lists(found, second)}
    return [sorted(each, key=str) for each in waits]


def _changes_by_itself(module: Module) -> bool:
    """Return whether variables, or elements that tasks write, decide what runs."""
    body = module.entry_workload.body
    has_variables = any(isinstance(node, w.Set) for node in w.walk_nodes(body))
    return has_variables or not module.written.isdisjoint(w.deciding_tensors(body))


def _conflicting(found: Sequence[TaskSite], second: TaskSite) -> Iterator[int]:
    for first in found:
        pairs = ((a, b) for a in first.accesses for b in second.accesses)
        if any(a.region.tensor == b.region.tensor and (a.is_write or b.is_write) for a, b in pairs):
            yield first.number


def _sharing_row_lists(found: Sequence[TaskSite], second: TaskSite) -> Iterator[int]:
    """Yield the places whose tasks write a list of rows that the task reads, or read one that it writes."""
    for first in found:
        if _row_lists(first) & _written(second) or _row_lists(second) & _written(first):
            yield first.number


def _row_lists(site: TaskSite) -> set[str]:
    regions = [arg for arg in site.node.args if isinstance(arg, Region)]
    return {dim.indices for region in regions for dim in region.dims if isinstance(dim, Rows)}


def _written(site: TaskSite) -> set[str]:
    return {access.region.tensor for access in site.accesses if access.is_write}


def _device_wait(wait: SymbolicWait, module: Module) -> DeviceWait:
    first, second, depth = wait.first, wait.second, wait.depth
    if wait.is_earlier:
        (bound, *inner) = wait.bounds
        is_previous = bound.kind == POINT and bound.loop == depth and bound.offset == -1 and not inner
        is_last = is_previous and first.number >= second.number
        return DeviceWait(first.number, LATEST if is_last else EARLIER)
    if not wait.bounds:
        return DeviceWait(first.number, LATEST)
    bound = wait.bounds[0]
    if bound.kind == ALL or not is_regular(first.loops[depth], module):
        return DeviceWait(first.number, EARLIER)
    return DeviceWait(first.number, ITERATIONS, depth, bound.loop, bound.offset)


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
