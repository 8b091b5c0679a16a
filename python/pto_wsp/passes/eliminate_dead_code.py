"""Remove what nothing needs.

    %t = texp %a : T        ->    (nothing, where %t is not read)
    FOR %i, 0, %n, 1
    ENDFOR

In kernels: results, scalars, loops and choices that nothing reads, and declarations of names that nothing
mentions. In workloads: variables that nothing reads, empty loops and conditions, conditions that are known,
local tensors without a use. Functions that the entry does not lead to. What can end a run with an error
stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.analysis.liveness import names_before
from pto_wsp.analysis.steps import failing
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.effects import leaves_in, name_written, names_in, names_read, tile_written
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, Name, Var, can_fail
from pto_wsp.support.record import replace


def eliminate_dead_code(module: Module) -> Module:
    """Return `module` without what nothing needs."""
    kernels = tuple(kernel if kernel.body is None else _kernel(kernel) for kernel in module.kernels)
    workloads = tuple(map(_workload, module.workloads))
    return replace(module, kernels=kernels, workloads=workloads).reached


# --- kernels ------------------------------------------------------------------------------------------------


def _kernel(kernel: k.KernelFunction) -> k.KernelFunction:
    body = _KernelPruner(kernel).statements(kernel.body or (), frozenset())
    used = {name for stmt in k.walk_statements(body) for name in names_read(stmt)}
    used |= {tile_written(stmt) or "" for stmt in k.walk_statements(body)}
    used |= {stmt.name for stmt in k.walk_statements(body) if isinstance(stmt, k.Assign)}
    return replace(
        kernel,
        body=body,
        tiles=tuple(tile for tile in kernel.tiles if tile[0] in used),
        scalars=tuple(scalar for scalar in kernel.scalars if scalar[0] in used),
    )


class _KernelPruner:
    def __init__(self, kernel: k.KernelFunction) -> None:
        self.failing = failing(kernel)

    def statements(self, body: Sequence[k.Stmt], live: frozenset[str]) -> tuple[k.Stmt, ...]:
        """Return what of `body` is needed, where the names in `live` are read after it."""
        kept: list[k.Stmt] = []
        for stmt in reversed(body):
            needed = self.statement(stmt, live)
            live = names_before(needed, live)
            kept += reversed(needed)
        return tuple(reversed(kept))

    def statement(self, stmt: k.Stmt, live: frozenset[str]) -> tuple[k.Stmt, ...]:
        fails = id(stmt) in self.failing
        match stmt:
            case k.For(start=Const(value=start), stop=Const(value=stop)) if start >= stop:
                return ()
            case k.For(body=body):
                inner = self.loop(body, live)
                return (replace(stmt, body=inner),) if inner or fails else ()
            case k.While(condition=Const(value=False)):
                return ()
            case k.While(condition=condition, body=body):
                return (replace(stmt, body=self.loop(body, live | names_in(condition))),)
            case k.If(condition=Const(value=value), then=then, other=other):
                return self.statements(then if value else other, live)
            case k.If(then=then, other=other):
                arms = self.statements(then, live), self.statements(other, live)
                return (replace(stmt, then=arms[0], other=arms[1]),) if any(arms) or fails else ()
            case k.Store() | k.Prefetch() | k.Print() | k.Assert() | k.KernelCall():
                return (stmt,)
            case _:
                return (stmt,) if fails or name_written(stmt) in live else ()

    def loop(self, body: tuple[k.Stmt, ...], live: frozenset[str]) -> tuple[k.Stmt, ...]:
        """Return the live part of a loop's body: later statements or another iteration need it."""
        while True:
            needed = self.statements(body, live)
            more = live | names_before(needed, live)
            if more == live:
                return needed
            live = more


# --- workloads ----------------------------------------------------------------------------------------------


def _workload(workload: w.WorkloadFunction) -> w.WorkloadFunction:
    sizes = {p.name for p in workload.params if isinstance(p, w.SizeParam)}
    body = workload.body
    while True:
        exprs = [e for node in w.walk_nodes(body) for e in w.node_expressions(node)]
        read = names_in(*exprs)
        pruned = _nodes(body, leaves_in(*exprs), sizes)
        if pruned == body:
            break
        body = pruned
    used = {arg.tensor for arg in _regions(body)} | {
        dim.indices for arg in _regions(body) for dim in arg.dims if isinstance(dim, Rows)
    }
    params = tuple(p for p in workload.params if not _is_unused_local(p, used | read))
    return replace(workload, body=body, params=params)


def _regions(body: tuple[w.Node, ...]) -> list[Region]:
    nodes = (node for node in w.walk_nodes(body) if isinstance(node, (w.Task, w.WorkloadCall)))
    return [arg for node in nodes for arg in node.args if isinstance(arg, Region)]


def _is_unused_local(param: w.WorkloadParam, used: set[str] | frozenset[str]) -> bool:
    return isinstance(param, w.TensorParam) and param.is_local and param.name not in used


def _nodes(body: tuple[w.Node, ...], read: frozenset[Name], sizes: set[str]) -> tuple[w.Node, ...]:
    kept: list[w.Node] = []
    for node in body:
        match node:
            case w.Loop(body=inner):
                node = replace(node, body=_nodes(inner, read, sizes))
                if node.body or not _is_extent(node.extent, sizes):
                    kept += [] if node.extent == Const(0) else [node]
            case w.Cond(condition=Const(value=value)):
                kept += _nodes(node.then if value else node.other, read, sizes)
            case w.Cond(condition=condition):
                then, other = (_nodes(arm, read, sizes) for arm in (node.then, node.other))
                if then or other or can_fail(condition):
                    kept.append(replace(node, then=then, other=other))
            case w.Set(name=name, value=value) if name not in read and not can_fail(value):
                pass
            case _:
                kept.append(node)
    return tuple(kept)


def _is_extent(expr: Expr, sizes: set[str]) -> bool:
    """Whether an extent has a value, and none below 0."""
    return (isinstance(expr, Const) and expr.value >= 0) or (isinstance(expr, Var) and expr.name in sizes)
