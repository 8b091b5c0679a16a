"""The operator `fuse_tasks`: two tasks become one, whose kernel calls both kernels.

for i in P("n"):                    for i in P("n"):
    scale[i](x=X[i], y=T[i])    ->      scale_shift[i](x=X[i], y=T[i], z=Y[i])
for i in P("n"):
    shift[i](y=T[i], z=Y[i])
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pto_wsp.analysis.accesses.formula import Formula, less
from pto_wsp.analysis.accesses.instances import Instance
from pto_wsp.analysis.accesses.sites import TaskSite, sites
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import WorkloadRenaming
from pto_wsp.ir.scalar import Expr, Var, add
from pto_wsp.prove.conflicts import PairQuestion
from pto_wsp.prove.replay import Replayed, iteration_of
from pto_wsp.restructure.legality import questions_between, require_apart
from pto_wsp.restructure.places import Request, exchange, require_free_order, task_of
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace
from pto_wsp.types.tile import ScalarType


def fuse_tasks(module: Module, first: str, second: str, request: Request) -> Module:
    """Return a module in which a task of the kernel `first` and the next one of `second` are one task.

    Loops around them that follow each other become one, if no tasks conflict that this swaps.
    """
    while True:
        (one, around), (other, around_other) = (task_of(module, name, request) for name in (first, second))
        shared = 0
        while shared < min(len(around), len(around_other)) and around[shared] is around_other[shared]:
            shared += 1
        here, there = (*around, one)[shared], (*around_other, other)[shared]
        _require_neighbours(module, around[:shared], here, there, request)
        if here is one and there is other:
            return _fused(module, one, other, request)
        module = _with_one_loop(module, here, there, request)


def _require_neighbours(
    module: Module, around: Sequence[w.Node], here: w.Node, there: w.Node, request: Request
) -> None:
    blocks = w.blocks(around[-1]) if around else (module.entry_workload.body,)
    for block in blocks:
        for node, after in pairwise(block):
            if node is here and after is there:
                return
    reason = "the second task does not follow the first one: something is between them, or another order"
    raise request.refused(reason, ("the first", here.loc), ("the second", there.loc))


# --- loops that follow each other ---


def _with_one_loop(module: Module, here: w.Node, there: w.Node, request: Request) -> Module:
    if not isinstance(here, w.Loop) or not isinstance(there, w.Loop):
        reason = "the tasks are not in the same number of loops, or one is under a condition"
        raise request.refused(reason, ("the first", here.loc), ("the second", there.loc))
    if _header(here) != _header(there):
        reason = f"the loops `{here.called}` and `{there.called}` do not count alike"
        raise request.refused(reason, ("the first", here.loc), ("the second", there.loc))
    require_free_order(module, (here, there), request)
    found = sites(module)
    one, other = ([site for site in found if _is_in(site, loop)] for loop in (here, there))
    if one and other:
        shared = next(at for at, step in enumerate(one[0].steps) if step is here)
        is_parallel = here.kind == w.PARALLEL
        for apart in [_Later(shared, one[0])] + [_Earlier(shared, one[0])] * is_parallel:
            questions = questions_between(one, other, shared, apart)
            require_apart(module, request, questions, _Crossing(here, there, is_parallel))
    body = WorkloadRenaming(loops={there.var: here.var}).nodes(there.body)
    new = replace(here, body=(*here.body, *body))
    return exchange(module, (here, [new]), (there, []))


def _header(loop: w.Loop) -> tuple[object, ...]:
    return loop.kind, loop.extent, loop.tile, loop.max_range, loop.min_range, loop.tile_levels


def _is_in(site: TaskSite, loop: w.Loop) -> bool:
    return any(around is loop for around in site.loops)


class _Later:
    """The iteration of the first loop comes after that of the second one."""

    def __init__(self, shared: int, site: TaskSite) -> None:
        self.depth = sum(isinstance(step, w.Loop) for step in site.steps[:shared])

    def __call__(self, one: Instance, other: Instance) -> Sequence[Formula]:
        return [less(other.indices[self.depth], one.indices[self.depth])]


class _Earlier(_Later):
    """The iteration of the first loop comes before that of the second one."""

    def __call__(self, one: Instance, other: Instance) -> Sequence[Formula]:
        return [less(one.indices[self.depth], other.indices[self.depth])]


class _Crossing:
    """Two tasks of a call, of one loop each, whose order changes or that no parallel loop may order."""

    def __init__(self, here: w.Loop, there: w.Loop, is_parallel: bool) -> None:
        self.loops = here, there
        self.is_parallel = is_parallel

    def __call__(self, first: Replayed, second: Replayed) -> bool:
        one, other = iteration_of(first.task, self.loops[0]), iteration_of(second.task, self.loops[1])
        if one is None or other is None or one[0] != other[0]:
            return False
        return one[1] > other[1] or (self.is_parallel and one[1] < other[1])


# --- the kernel of both ---


def _fused(module: Module, one: w.Task, other: w.Task, request: Request) -> Module:
    kernels = {kernel.name: kernel for kernel in module.kernels}
    callees = kernels[one.kernel], kernels[other.kernel]
    _require_plain(callees, (one, other), request)
    _require_no_part(module, one, other, request)
    joined = _Joined(request)
    calls = tuple(joined.call(callee, task) for callee, task in zip(callees, (one, other), strict=True))
    name = Fresh(f.name for f in (*module.kernels, *module.workloads)).name(f"{one.kernel}_{other.kernel}")
    kernel = replace(
        callees[0],
        name=name,
        params=tuple(joined.params),
        tiles=(),
        scalars=(),
        body=calls,
        loc=one.loc,
        cost=None,
    )
    task = replace(one, kernel=name, args=tuple(joined.args), cost=_sum(one.cost, other.cost))
    return exchange(replace(module, kernels=(*module.kernels, kernel)), (one, [task]), (other, []))


def _require_plain(callees: Sequence[k.KernelFunction], tasks: Sequence[w.Task], request: Request) -> None:
    for callee, task in zip(callees, tasks, strict=True):
        note = f"`{callee.name}`", callee.loc
        if callee.body is None:
            raise request.refused(f"the body of `{callee.name}` is C++", note)
        if callee.block_dim > 1 or task.workspace is not None:
            raise request.refused(f"`{callee.name}` has several instances, or a workspace", note)
        if task.after or task.label:
            raise request.refused(f"explicit edges name the task of `{callee.name}`", ("the task", task.loc))
    if callees[0].unit != callees[1].unit:
        raise request.refused(
            "the kernels run on cores of different kinds", (callees[1].name, callees[1].loc)
        )


def _require_no_part(module: Module, one: w.Task, other: w.Task, request: Request) -> None:
    """Raise CannotRestructure unless regions of both tasks that share elements are the same."""
    first, second = (next(s for s in sites(module) if s.node is task) for task in (one, other))
    steps = len(first.steps)
    questions = [
        question
        for question in questions_between([first], [second], steps, lambda a, b: [])
        if not _is_same(question)
    ]

    def is_one_iteration(a: Replayed, b: Replayed) -> bool:
        return a.task.node is one and b.task.node is other and a.task.scope == b.task.scope

    problem = "regions of one kernel would share elements with others of it:"
    require_apart(module, request, questions, is_one_iteration, problem)


def _is_same(question: PairQuestion) -> bool:
    first, second = question.first, question.second
    return first.region == second.region and first.param.type == second.param.type


class _Joined:
    """Parameters and arguments of the kernel that calls both: a region of both tasks is one parameter."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.fresh = Fresh()
        self.params: list[k.Param] = []
        self.args: list[Region | Expr] = []

    def call(self, callee: k.KernelFunction, task: w.Task) -> k.KernelCall:
        known = len(self.params)
        given: list[str | Expr] = []
        for param, arg in zip(callee.params, task.args, strict=True):
            at = self._known(param, arg, known)
            if at is None:
                at = len(self.params)
                self.params.append(replace(param, name=self.fresh.name(param.name)))
                self.args.append(arg)
            else:
                self.params[at] = replace(self.params[at], role=_role(self.params[at].role, param.role))
            name = self.params[at].name
            given.append(Var(name, param.type.dtype) if isinstance(param.type, ScalarType) else name)
        return k.KernelCall(callee.name, tuple(given), task.loc)

    def _known(self, param: k.Param, arg: Region | Expr, known: int) -> int | None:
        for at, other in enumerate(self.args[:known]):
            if isinstance(arg, Region) and other == arg and self.params[at].type == param.type:
                return at
        return None


def _role(first: str, second: str) -> str:
    """The role of a region in both kernels, one after the other."""
    return first if first == second else k.INOUT


def _sum(first: Expr | None, second: Expr | None) -> Expr | None:
    return None if first is None or second is None else add(first, second)
