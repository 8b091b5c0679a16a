"""The reference meaning of a workload: its tasks, one after another, in program order.

Used as the workload oracle with compiled kernels, and as the target `interp` with numpy
kernels. It loops over tasks in Python and is meant for checking and debugging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from pto_wsp.errors import AssumptionFails, BadExpression, KernelFailed, NegativeAmount, NoTier, RunError
from pto_wsp.interp.regions import ArrayView, RegionPlace, RegionReader, scope_text
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.evaluate import ExtentReader, evaluate, read_element
from pto_wsp.ir.flush_points import Late, find_late, reads_element
from pto_wsp.ir.module import Module
from pto_wsp.ir.rules import call_left
from pto_wsp.ir.scalar import Expr, Name, Value
from pto_wsp.location import Location
from pto_wsp.support.record import record

Scope = dict[Name, Value]
CallKernel = Callable[[str, Sequence["np.ndarray | Value"], int], None]
"""Runs the kernel of a name on views and scalars, with a workspace of this size in bytes."""

NOTHING_LATE = Late(frozenset(), frozenset())


@record
class TensorReader:
    """Answers expressions of a workload from the run's arrays."""

    arrays: Mapping[str, np.ndarray]

    def extent(self, name: str, dim: int) -> int:
        """Return the size of a dimension."""
        return self.arrays[name].shape[dim]

    def element(self, name: str, indices: Iterable[int], loc: Location | None) -> int:
        """Return an element of an integer tensor."""
        return read_element(name, self.arrays[name], indices, loc)


@record
class BoundTask:
    """One task of a run: its node, the values of every variable, and the loops around it, outermost first."""

    node: w.Task
    scope: Mapping[Name, Value]
    loops: tuple[w.Loop, ...]

    @property
    def where(self) -> str:
        """The loop variables, for errors."""
        return scope_text(self.scope, self.loops)


def expand(
    workload: w.WorkloadFunction,
    sizes: Mapping[str, Value],
    reader: ExtentReader | None = None,
    late: Late = NOTHING_LATE,
) -> Iterator[BoundTask]:
    """Yield the tasks of `workload` in program order.

    Elements are read when the walk comes to them, so what the caller does with a task before it asks for the
    next one is seen by the expressions after it.

    Args:
        workload: what to expand.
        sizes: values of its sizes and scalars.
        reader: answers for the elements that its expressions mention.
        late: what is stepped over: late sets, and everything under late control.

    Raises:
        BadExpression, NoTier: an expression of a loop, condition or set has no value, or no tier fits.
    """
    scope: Scope = {**dict.fromkeys(workload.variables, 0), **sizes}
    for task in Walk(scope, reader, late).nodes(workload.body, ()):
        assert isinstance(task, BoundTask)
        yield task


@record
class Blocked:
    """A process that waits, at a send or receive.

    Attributes:
        node: the send or receive.
        reason: for what it waits.
    """

    node: w.Send | w.Receive
    reason: str


Step = BoundTask | Blocked
"""What a walk comes to."""


class Walk:
    """A place in the program order of a workload or process."""

    def __init__(self, scope: Scope, reader: ExtentReader | None, late: Late) -> None:
        self.scope = scope
        self.reader = reader
        self.late = late
        self.is_closed = False  # the loop around a receive ends

    def nodes(self, body: Sequence[w.Node], loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        """Walk nodes inside of loops."""
        for node in body:
            match node:
                case w.Task():
                    yield BoundTask(node, dict(self.scope), loops)
                case _ if self.late.has(*w.node_expressions(node)):
                    continue
                case w.Loop():
                    yield from self.loop(node, loops)
                case w.Cond(condition=condition, then=then, other=other):
                    yield from self.nodes(then if self.value(condition, loops) else other, loops)
                case w.Set(name=name, value=value):
                    self.scope[name] = int(self.value(value, loops))
                case w.Refuse():
                    raise refused(node, int(self.value(node.size, loops)), scope_text(self.scope, loops))
                case w.Process() | w.Send() | w.Receive() | w.Delay():
                    yield from self.move(node, loops)
                case w.WorkloadCall(workload=name, loc=loc):
                    raise call_left(name, loc)

    def move(self, node: w.NetworkNode, loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        """Walk what networks alone have."""
        raise NotImplementedError

    def loop(self, loop: w.Loop, loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        """Walk a loop."""
        extent = int(self.value(loop.extent, loops))
        if extent < 0:
            raise negative_extent(loop, extent, scope_text(self.scope, loops))
        for i in range(extent if loop.tile is None else -(-extent // loop.tile)):
            self.scope[loop.var] = i
            if loop.tile is not None:
                self.scope[loop.start] = i * loop.tile
                self.scope[loop.length] = min(loop.tile, extent - i * loop.tile)
            yield from self.nodes(loop.body, (*loops, loop))
            if self.is_closed:
                self.is_closed = False
                return

    def value(self, expr: Expr, loops: tuple[w.Loop, ...]) -> Value:
        """Evaluate an expression."""
        try:
            return evaluate(expr, self.scope, self.reader)
        except BadExpression as error:
            raise error.in_iteration(scope_text(self.scope, loops)) from None


def negative_extent(loop: w.Loop, extent: int, where: str) -> BadExpression:
    """Return the error of a loop over a negative number of elements; `where` shows the loops around it."""
    reason = f"the axis of `{loop.called}` has extent {extent}"
    hint = "for a loop without iterations, end the extent at 0: `P(extent.max(0))`"
    return BadExpression(reason=reason, loc=loop.loc, hint=hint).in_iteration(where)


def refused(node: w.Refuse, size: int, where: str) -> NoTier | AssumptionFails:
    """Return the error of a size that no tier takes, or of an assumption that does not hold."""
    if node.assumption:
        return AssumptionFails(condition=node.assumption, where=where, loc=node.loc)
    tiers = ", ".join(map(str, node.bounds)) or "any number"
    hint = "a size is 0 or more" if size < 0 else None
    return NoTier(tier=node.tier, size=size, tiers=tiers, loc=node.loc, hint=hint)


def run_workload(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, Value],
    call: CallKernel,
    seen: Callable[[BoundTask], None] | None = None,
    poll: Callable[[], None] = lambda: None,
) -> int:
    """Run the entry workload of `module` in program order and return the number of tasks.

    Args:
        module: a verified module.
        arrays: an array per tensor of the entry, written in place.
        sizes: values of its sizes and scalars.
        call: runs a kernel.
        seen: called with each task before it runs.
        poll: called for each task, when it is checked and when it runs; an exception in it ends the run.

    Raises:
        RunError: a region, row set, expression or size is wrong: before the first task what is not late
            (`ir/flush_points.py`), the rest at its place in program order.
    """
    run = TaskRunner(module, arrays, find_late(module.entry_workload, module.written), call, poll, seen)
    for task in expand(module.entry_workload, sizes, run.reader, run.late):
        poll()
        run.arguments(task, run.late)
    done = 0
    tasks = expand(module.entry_workload, sizes, run.reader)
    while True:
        try:
            task = next(tasks, None)
        except RunError as error:
            raise error.found_late(done) from None
        if task is None:
            return done
        run.task(task, done)
        done += 1


def task_text(number: int, where: str, scalars: str) -> str:
    """Return where a kernel failed: its task, the iteration of that, and scalars of the kernel, if any."""
    return f"in task {number}{where}" + (f", {scalars}" if scalars else "")


def _failed_in(error: KernelFailed, task: BoundTask, number: int) -> KernelFailed:
    """Return the failure of a kernel with its task."""
    fields = error.fields
    return KernelFailed(
        kernel=fields["kernel"],
        reason=fields["reason"],
        detail=task_text(number, task.where, str(fields["detail"])),
        loc=error.loc or task.node.loc,
        notes=[("the task was made here", task.node.loc)] if error.loc else [],
        hint=error.help,
    )


_Arguments = tuple[list[ArrayView], "list[np.ndarray | Value]", int]
"""Views to write back, arguments, and bytes of workspace."""


@contextmanager
def _placed(task: BoundTask) -> Iterator[None]:
    """Let an expression without a value name the iteration of a task."""
    try:
        yield
    except BadExpression as error:
        raise error.in_iteration(task.where) from None


class TaskRunner:
    """One run: what its tasks get, and running them."""

    def __init__(
        self,
        module: Module,
        arrays: Mapping[str, np.ndarray],
        late: Late,
        call: CallKernel,
        poll: Callable[[], None],
        seen: Callable[[BoundTask], None] | None = None,
    ) -> None:
        self.call = call
        self.poll = poll
        self.seen = seen
        self.kernels = {kernel.name: kernel for kernel in module.kernels}
        self.late = late
        self.reader = TensorReader(arrays)
        distinct = frozenset(t.name for t in module.entry_workload.tensors if t.is_distinct and t.is_local)
        rings = frozenset(t.name for t in module.entry_workload.tensors if t.hidden_dims)
        self.regions = RegionReader(arrays, self.reader, distinct, rings)

    def task(self, task: BoundTask, number: int) -> None:
        """Run a task, the one of that number in its program order."""
        try:
            views, args, workspace = self.late_arguments(task)
        except RunError as error:
            raise error.found_late(number) from None
        if self.seen is not None:
            self.seen(task)
        self.poll()
        try:
            self.call(task.node.kernel, args, workspace)
        except KernelFailed as error:
            raise _failed_in(error, task, number) from None
        for view in views:
            view.write_back()

    def late_arguments(self, task: BoundTask) -> _Arguments:
        """Return what `arguments` returns, after evaluating what reads elements that tasks write."""
        for expr in w.node_expressions(task.node):
            if reads_element(expr, self.late.written):
                with _placed(task):
                    evaluate(expr, task.scope, self.reader)
        return self.arguments(task, NOTHING_LATE)

    def arguments(self, task: BoundTask, late: Late) -> _Arguments:
        """Return the views to write back, the arguments and the workspace of a task, in bytes.

        Scalars come first, then regions, then amounts, each checked unless it is late.
        """
        with _placed(task):
            return self._arguments(task, late)

    def _arguments(self, task: BoundTask, late: Late) -> _Arguments:
        node = task.node
        kernel = self.kernels[node.kernel]
        pairs = list(zip(kernel.params, node.args, strict=True))
        values: dict[str, np.ndarray | Value] = {}
        for param, arg in pairs:
            if not isinstance(arg, Region) and not late.has(arg):
                values[param.name] = evaluate(arg, task.scope, self.reader)
        views: list[ArrayView] = []
        for param, arg in pairs:
            if not isinstance(arg, Region) or late.region(arg):
                continue
            place = RegionPlace(kernel, param, task.scope, task.loops, arg.loc or node.loc)
            view = self.regions.view(arg, place, knows_rows=not late.indices(arg))
            values[param.name] = view.array
            if param.role != "in":
                views.append(view)
        workspace = self._amount(task, node.workspace, "workspace", late)
        self._amount(task, node.cost, "cost", late)
        return views, [values[p.name] for p in kernel.params if p.name in values], workspace

    def _amount(self, task: BoundTask, expr: Expr | None, what: str, late: Late) -> int:
        if expr is None or late.has(expr):
            return 0
        found = int(evaluate(expr, task.scope, self.reader))
        if found < 0:
            kernel = task.node.kernel
            raise NegativeAmount(what=what, kernel=kernel, found=found, where=task.where, loc=task.node.loc)
        return found
