"""Claims about the tasks of a network: each process alone, as a workload.

A send or receive becomes its body. The names of a token are then declared nowhere, so that each may be any
integer. A loop that ends with its channel runs any number of times. So a proof holds for every run, and a
call that breaks a claim may need tokens that never come. Iterations of `P` are compared without buffers,
which the channels order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pto_wsp.analysis.accesses.sites import TaskSite, sites
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import workload_names
from pto_wsp.ir.scalar import Const, Expr, Var, substitute
from pto_wsp.location import Location
from pto_wsp.prove.blocks import instances
from pto_wsp.prove.conflicts import independence
from pto_wsp.prove.finding import REFUTED, UNKNOWN, Finding
from pto_wsp.prove.regions import inside
from pto_wsp.prove.solver import Solver
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace


def tasks_of_processes(network: Module, solver: Solver) -> Iterator[Finding]:
    """Yield findings about independence, regions and instances of the tasks of a network without calls."""
    found: list[TaskSite] = []
    for process in network.entry_workload.processes:
        alone = _Alone(network, process).module
        apart = _without_buffers(alone)
        tasks = sites(alone)
        found += tasks
        findings = (*independence(apart, solver, sites(apart)), *inside(alone, solver, tasks))
        yield from (_about_tokens(finding, process) for finding in findings)
    yield from instances(network, solver, found)


def _about_tokens(finding: Finding, process: w.Process) -> Finding:
    """Return a finding that says how its answer depends on the tokens that a process receives."""
    received = [node for node in w.walk_nodes(process.body) if isinstance(node, w.Receive)]
    if finding.status == REFUTED and received:
        reason = f"it is not known how many tokens of `{received[0].channel}` come"
        return replace(finding, status=UNKNOWN, reason=reason)
    moves = [node for node in w.walk_nodes(process.body) if isinstance(node, (w.Send, w.Receive))]
    names = [name for node in received for name in node.scalars] + [node.index for node in moves]
    of_token = (name for name in names if finding.reason.startswith(f"`{name}` is not a sum"))
    if (name := next(of_token, None)) is None:
        return finding
    return replace(finding, reason=f"`{name}` comes with a token, and each run checks it")


class _Alone:
    """A process of a network as the entry of a module."""

    def __init__(self, network: Module, process: w.Process) -> None:
        entry = network.entry_workload
        self._fresh = Fresh(workload_names(entry))
        self._slots = {
            node.slot for node in w.walk_nodes(process.body) if isinstance(node, (w.Send, w.Receive))
        }
        self._sizes: list[w.SizeParam] = []
        body = tuple(self._block(process.body))
        workload = w.WorkloadFunction(process.name, (*entry.params, *self._sizes), body, process.loc)
        self.module = replace(network, workloads=(workload,), entry=process.name)

    def _block(self, body: Iterable[w.Node]) -> Iterator[w.Node]:
        for node in body:
            yield from self._node(w.map_expressions(node, self._in_first_buffer))

    def _node(self, node: w.Node) -> Iterator[w.Node]:
        match node:
            case w.Send(channel=channel, scalars=scalars, body=body):
                yield from (self._set(channel, scalar, node.loc) for scalar in scalars)
                yield from self._block(body)
            case w.Receive(body=body):
                yield from self._block(body)
            case w.Delay(cycles=cycles):
                yield self._set("cycles", cycles, node.loc)
            case w.Loop(extent=Const(value=w.UNTIL_CLOSED)):
                size = w.SizeParam(self._fresh.name(f"{node.called}_tokens"), loc=node.loc)
                self._sizes.append(size)
                yield replace(node, extent=Var(size.name), body=tuple(self._block(node.body)))
            case _:
                yield w.rebuild(node, self._block)

    def _set(self, stem: str, value: Expr, loc: Location | None) -> w.Set:
        return w.Set(self._fresh.name(stem), value, value.loc or loc)

    def _in_first_buffer(self, expr: Expr) -> Expr:
        """Return an expression with buffer 0 in place of any other: each of them is in its ring."""

        def first(part: Expr) -> Expr | None:
            return Const(0) if isinstance(part, Var) and part.name in self._slots else None

        return substitute(expr, first)


def _without_buffers(module: Module) -> Module:
    """Return a module whose tasks have no arguments that are buffers of channels."""
    entry, fresh = module.entry_workload, Fresh(kernel.name for kernel in module.kernels)
    rings = {tensor.name for tensor in entry.tensors if tensor.channel is not None}
    kernels: dict[tuple[str, tuple[bool, ...]], KernelFunction] = {}

    def kernel_of(task: w.Task, keeps: tuple[bool, ...]) -> KernelFunction:
        key = (task.kernel, keeps)
        if key not in kernels:
            kernel = module.kernel(task.kernel)
            params = tuple(param for param, is_kept in zip(kernel.params, keeps, strict=True) if is_kept)
            is_first = all(name != kernel.name for name, _ in kernels)
            name = kernel.name if is_first else fresh.name(kernel.name)
            kernels[key] = replace(kernel, name=name, params=params)
        return kernels[key]

    def block(body: Iterable[w.Node]) -> Iterator[w.Node]:
        for node in body:
            if isinstance(node, w.Task):
                keeps = tuple(not (isinstance(arg, Region) and arg.tensor in rings) for arg in node.args)
                args = tuple(arg for arg, is_kept in zip(node.args, keeps, strict=True) if is_kept)
                yield replace(node, kernel=kernel_of(node, keeps).name, args=args)
            else:
                yield w.rebuild(node, block)

    body = tuple(block(entry.body))
    return replace(
        module, kernels=tuple(kernels.values()), workloads=(replace(entry, body=body),), entry=entry.name
    )
