"""Loops and tasks of a workload by the names that users give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pto_wsp.errors import CannotRestructure, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import LoopExtent, LoopStart, Var, walk
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace


@record
class Request:
    """An operator as it was called.

    Attributes:
        text: the call: `reorder("i", "j")`.
        loc: where it was called.
    """

    text: str
    loc: Location | None

    def refused(
        self, reason: str, *notes: tuple[str, Location | None], hint: str | None = None
    ) -> CannotRestructure:
        """Return the error."""
        return CannotRestructure(operator=self.text, reason=reason, loc=self.loc, notes=notes, hint=hint)


def with_body(module: Module, body: Iterable[w.Node]) -> Module:
    """Return a module whose entry has another body."""
    entry = module.entry_workload
    changed = replace(entry, body=tuple(body))
    return replace(module, workloads=tuple(changed if f is entry else f for f in module.workloads))


def exchange(module: Module, *changes: tuple[w.Node, Sequence[w.Node]]) -> Module:
    """Return a module in whose entry some nodes, at any depth, are exchanged for others."""

    def changed(body: Iterable[w.Node]) -> Iterator[w.Node]:
        for node in body:
            new = next((new for old, new in changes if old is node), None)
            if new is None:
                yield w.rebuild(node, changed)
            else:
                yield from new

    return with_body(module, changed(module.entry_workload.body))


def loop_called(module: Module, name: str, request: Request) -> w.Loop:
    """Return the loop whose variable a user calls `name`, or raise CannotRestructure."""
    loops = [node for node in w.walk_nodes(module.entry_workload.body) if isinstance(node, w.Loop)]
    found = [loop for loop in loops if name in (loop.called, loop.var)]
    if len(found) == 1:
        return found[0]
    if found:
        notes = [(f"a loop `{name}`", loop.loc) for loop in found]
        hint = "give the loops variables of different names"
        raise request.refused(f"{len(found)} loops are called `{name}`", *notes, hint=hint)
    hint = did_you_mean(name, {loop.called for loop in loops})
    raise request.refused(f"no loop is called `{name}`", hint=hint or "name the variable of a loop")


def task_of(module: Module, kernel: str, request: Request) -> tuple[w.Task, tuple[w.Node, ...]]:
    """Return the task of a kernel, and the nodes around it, outermost first; or raise CannotRestructure."""
    tasks = [*_tasks(module.entry_workload.body, ())]
    found = [(task, around) for task, around in tasks if task.kernel == kernel]
    if len(found) == 1:
        return found[0]
    if found:
        notes = [(f"a task of `{kernel}`", task.loc) for task, _ in found]
        reason = f"the workload has {len(found)} tasks of `{kernel}`"
        raise request.refused(reason, *notes, hint="write a kernel of another name for one of them")
    hint = did_you_mean(kernel, {task.kernel for task, _ in tasks})
    raise request.refused(f"no task is one of `{kernel}`", hint=hint or "name a kernel of the workload")


def _tasks(body: Iterable[w.Node], around: tuple[w.Node, ...]) -> Iterator[tuple[w.Task, tuple[w.Node, ...]]]:
    for node in body:
        if isinstance(node, w.Task):
            yield node, around
        for block in w.blocks(node):
            yield from _tasks(block, (*around, node))


def mentions(node: w.Node, loop: w.Loop) -> bool:
    """Return whether an expression of a node itself depends on the iteration of a loop."""
    parts = (part for expr in w.node_expressions(node) for part in walk(expr))
    return any(
        (isinstance(part, Var) and part.name == loop.var)
        or (isinstance(part, (LoopStart, LoopExtent)) and part.loop == loop.var)
        for part in parts
    )


def require_free_order(module: Module, body: tuple[w.Node, ...], request: Request) -> None:
    """Raise CannotRestructure if the order of the tasks in `body` decides more than what they write."""
    for node in w.walk_nodes(body):
        here = "here", node.loc
        if isinstance(node, w.Set):
            raise request.refused("the loops assign a variable", here)
        if isinstance(node, w.Refuse):
            raise request.refused("the loops contain a check that can end the run", here)
        if isinstance(node, w.Task) and (node.after or node.label):
            raise request.refused("the loops contain explicit edges", here)
    decides = sorted(with_body(module, body).written & w.deciding_tensors(body))
    if decides:
        raise request.refused(f"tasks of the loops write `{decides[0]}`, which decides what the loops do")
