"""The tasks in the text of a workload, each with what decides whether and how often it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import assert_never

from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Range, Region, Rows
from pto_wsp.ir.kernel import IN, KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import i32
from pto_wsp.types.tile import ViewType


@record
class TakenBranch:
    """A condition that holds, or that does not hold."""

    node: w.Cond
    is_taken: bool


SiteStep = w.Loop | TakenBranch | w.Set
"""A loop around a task, a condition around it, or an assignment that has run before it."""


@record
class TaskSite:
    """A task in the text of a workload.

    Attributes:
        number: of the tasks in the text, in program order.
        node: the task.
        kernel: its kernel.
        steps: loops and conditions around it, outermost first, and before each what variables are then.
            A variable that is assigned more than once in the workload is in none of them.
    """

    number: int
    node: w.Task
    kernel: KernelFunction
    steps: tuple[SiteStep, ...]

    @property
    def loops(self) -> tuple[w.Loop, ...]:
        """The loops around it, outermost first."""
        return tuple(step for step in self.steps if isinstance(step, w.Loop))

    @property
    def accesses(self) -> tuple[TaskAccess, ...]:
        """What it touches: its arguments in their order, then the lists of rows that they name."""
        lists = (TaskAccess(self, *rows) for access in self.arguments for rows in _lists(access.region))
        return (*self.arguments, *lists)

    @property
    def arguments(self) -> tuple[TaskAccess, ...]:
        """Its arguments that are parts of tensors."""
        pairs = zip(self.kernel.params, self.node.args, strict=True)
        return tuple(TaskAccess(self, p, arg) for p, arg in pairs if isinstance(arg, Region))


@record
class TaskAccess:
    """A part of a tensor that a task touches.

    Attributes:
        site: the task.
        param: the parameter of its kernel. A list of rows has an input of its own.
        region: the part.
    """

    site: TaskSite
    param: Param
    region: Region

    @property
    def is_write(self) -> bool:
        """Whether the task may write it."""
        return self.param.role != IN

    @property
    def loc(self) -> Location | None:
        """Where it is written."""
        return self.region.loc or self.site.node.loc


def _lists(region: Region) -> Iterator[tuple[Param, Region]]:
    """Yield the parts of index arrays whose elements name rows of a region, and parameters for them."""
    for dim in region.dims:
        if isinstance(dim, Rows):
            param = Param(dim.indices, IN, ViewType(i32, (None, 1)))
            yield param, Region(dim.indices, (Range(dim.start, dim.extent), Full()), region.loc)


def sites(module: Module) -> tuple[TaskSite, ...]:
    """Return the tasks of the entry of a module without calls of workloads."""
    kernels = {kernel.name: kernel for kernel in module.kernels}
    body = module.entry_workload.body
    times = Counter(node.name for node in w.walk_nodes(body) if isinstance(node, w.Set))
    once = {name for name, count in times.items() if count == 1}
    found = _tasks(body, (), once)
    return tuple(TaskSite(n, node, kernels[node.kernel], steps) for n, (node, steps) in enumerate(found))


def _tasks(
    body: Sequence[w.Node], steps: tuple[SiteStep, ...], once: set[w.Variable]
) -> Iterator[tuple[w.Task, tuple[SiteStep, ...]]]:
    for node in body:
        match node:
            case w.Task():
                yield node, steps
            case w.Loop():
                yield from _tasks(node.body, (*steps, node), once)
            case w.Cond():
                yield from _tasks(node.then, (*steps, TakenBranch(node, True)), once)
                yield from _tasks(node.other, (*steps, TakenBranch(node, False)), once)
                if any(isinstance(inner, w.Refuse) for inner in node.then):
                    steps = (*steps, TakenBranch(node, False))
                elif any(isinstance(inner, w.Refuse) for inner in node.other):
                    steps = (*steps, TakenBranch(node, True))
            case w.Set(name=name):
                steps = (*steps, node) if name in once else steps
            case w.Refuse() | w.WorkloadCall():
                pass
            case w.Process() | w.Send() | w.Receive() | w.Delay():
                raise AssertionError("tasks of a network have no program order")
            case _:
                assert_never(node)


def common_steps(a: TaskSite, b: TaskSite) -> int:
    """Return how many steps two tasks share: the outermost ones that are the same nodes."""
    shared = 0
    for first, second in zip(a.steps, b.steps, strict=False):
        if not is_same_step(first, second):
            break
        shared += 1
    return shared


def is_same_step(a: SiteStep, b: SiteStep) -> bool:
    """Return whether two steps are the same node of the text, and of a condition the same branch."""
    if isinstance(a, TakenBranch) and isinstance(b, TakenBranch):
        return a.node is b.node and a.is_taken == b.is_taken
    return a is b


def may_conflict(accesses: Sequence[TaskAccess]) -> Iterator[tuple[TaskAccess, TaskAccess]]:
    """Yield each pair of accesses of one tensor of which one writes, an access with itself included."""
    for number, first in enumerate(accesses):
        for second in accesses[number:]:
            if first.region.tensor == second.region.tensor and (first.is_write or second.is_write):
                yield first, second
