"""Tasks: kernels applied to coordinates and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_wsp.errors import BadHandle, BadOperand, UnknownArgument, did_you_mean
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.lang.kernel.declarations import SpecialisableKernel
from pto_wsp.lang.operands import Scalar, expression, kind_of
from pto_wsp.lang.source import MISSING
from pto_wsp.lang.workload.blocks import OpenBlock, OpenNode, OpenTask
from pto_wsp.lang.workload.broadcast import All, extent_under_all
from pto_wsp.lang.workload.ranges import Span, Stretch
from pto_wsp.lang.workload.tensor import Entry, View
from pto_wsp.lang.workload.trace import WorkloadTrace, current_trace
from pto_wsp.location import Location, keyword_location
from pto_wsp.types.dtype import i64
from pto_wsp.types.tile import ScalarType


class Handle:
    """What a call in a workload made: a task, or the tasks of another workload.

    `after=[handle, ...]` orders a later task explicitly; `combine` and `sequential` take handles too.
    """

    __slots__ = ("block", "loc", "nodes", "tasks", "trace")

    def __init__(
        self, trace: WorkloadTrace, nodes: Sequence[OpenNode], tasks: Sequence[OpenTask], loc: Location | None
    ) -> None:
        self.trace = trace
        self.block: OpenBlock = trace.blocks.innermost
        self.nodes = tuple(nodes)
        self.tasks = tuple(tasks)
        self.loc = loc

    @property
    def is_current(self) -> bool:
        """Whether its tasks are in a block that is still open."""
        if self.block not in self.trace.blocks:
            return False
        return all(any(node is other for other in reversed(self.block.nodes)) for node in self.nodes)


class TaskArguments:
    """What a task is called with: its coordinates, arguments, and the place of the call."""

    def __init__(
        self,
        keys: Sequence[object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        loc: Location | None,
    ) -> None:
        self._keys = keys
        self._args = args
        self._kwargs = kwargs
        self._loc = loc

    def record(self, kernel: SpecialisableKernel) -> Handle:
        """Record a task of a kernel.

        Raises:
            UnknownArgument: an argument too many or too few.
            BadOperand: coordinates that are not integers.
            BadHandle: `after` names what this task cannot wait for.
        """
        trace, loc = current_trace(f"kernel `{kernel.name}`"), self._loc
        given = dict(self._kwargs)
        has_after = any(p.name == "after" for p in kernel.params)
        after = [] if has_after else _earlier(trace, given.pop("after", ()), loc)
        values = _bind(kernel, self._args, given, loc)
        every = [(v.label, e) for v in values.values() if isinstance(v, View) and (e := v.every) is not None]
        if not every and not any(isinstance(key, All) for key in self._keys):
            task = self._task(trace, kernel, self._keys, values, after)
            return Handle(trace, [task], [task], loc)
        extent = extent_under_all(kernel.name, every, loc)
        loop, block = trace.open_loop(w.PARALLEL, "all", extent, None, loc)
        keys = [Scalar(loop.index) if isinstance(key, All) else key for key in self._keys]
        values = {n: v.at_every(loop.index) if isinstance(v, View) else v for n, v in values.items()}
        self._task(trace, kernel, keys, values, after)
        trace.blocks.leave(block)
        return Handle(trace, [loop], [], loc)

    def _task(
        self,
        trace: WorkloadTrace,
        kernel: SpecialisableKernel,
        keys: Sequence[object],
        values: dict[str, object],
        after: list[OpenTask],
    ) -> OpenTask:
        coordinates = tuple(_key(kernel, key, self._loc) for key in keys)
        for param in kernel.params:
            value = values[param.name]
            if isinstance(param.type, ScalarType) and isinstance(value, Entry):
                values[param.name] = Scalar(value.expr)
        task = OpenTask(kernel, values, coordinates, self._loc, after, trace.frame.scope)
        trace.blocks.add(task)
        return task


def _earlier(trace: WorkloadTrace, handles: object, loc: Location | None) -> list[OpenTask]:
    """Return the tasks of the handles given as `after`."""
    if not isinstance(handles, (list, tuple)):
        raise BadHandle(what="after", problem="expected a list of handles", loc=loc)
    found: list[OpenTask] = []
    for handle in handles:
        if not isinstance(handle, Handle):
            raise BadHandle(what="after", problem=f"found {type(handle).__name__}", loc=loc)
        problem = (
            "a handle of another workload"
            if handle.trace is not trace
            else "its loop or branch has ended"
            if not handle.is_current
            else "it names several tasks"
            if not handle.tasks
            else None
        )
        if problem is not None:
            raise BadHandle(what="after", problem=problem, loc=loc, notes=[("made here", handle.loc)])
        found += handle.tasks
    return found


def _key(kernel: SpecialisableKernel, key: object, loc: Location | None) -> Expr:
    if isinstance(key, Span):
        return Var(key.loop)
    expr = expression(key)
    if expr is None or expr.dtype is not i64:
        raise BadOperand(
            op=f"{kernel.name}[...]",
            expected="coordinates: loop variables, ranges or integers",
            found=repr(key) if isinstance(key, Stretch) else kind_of(key),
            loc=loc,
        )
    return expr


def _bind(
    kernel: SpecialisableKernel, args: Sequence[object], kwargs: Mapping[str, object], loc: Location | None
) -> dict[str, object]:
    """Return the arguments of a task by parameter, in the kernel's order."""
    names = [p.name for p in kernel.params]

    def wrong(problem: str, detail: str, advice: str = "", passed: str = "") -> UnknownArgument:
        place = loc and (keyword_location(loc, passed) or loc)
        return UnknownArgument(kernel=kernel.name, problem=problem, detail=detail, advice=advice, loc=place)

    if len(args) > len(names):
        raise wrong(f"takes {len(names)} arguments", f"found {len(args)}")
    values = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise wrong(f"has no parameter `{name}`", "unknown argument", did_you_mean(name, names), name)
        if name in values:
            raise wrong(f"gets `{name}` twice", "given by position and by name", passed=name)
        values[name] = value
    for param in kernel.params:
        if param.name not in values:
            if param.default is MISSING:
                raise wrong(f"needs an argument `{param.name}`", "missing argument", f"add `{param.name}=`")
            values[param.name] = param.default
    return {name: values[name] for name in names}
