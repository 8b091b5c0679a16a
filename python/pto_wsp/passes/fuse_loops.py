"""Make one loop of two that follow each other and count alike.

    FOR %i, 0, %n, 1                      FOR %i, 0, %n, 1
      %a = tload %x[%i * 8 :+ 8, :]         %a = tload %x[%i * 8 :+ 8, :]
      tstore %a, %y[%i * 8 :+ 8, :]   ->    tstore %a, %y[%i * 8 :+ 8, :]
    ENDFOR                                  %b = tload %y[%i * 8 :+ 8, :]
    FOR %j, 0, %n, 1                        tstore %b, %z[%i * 8 :+ 8, :]
      %b = tload %y[%j * 8 :+ 8, :]       ENDFOR
      tstore %b, %z[%j * 8 :+ 8, :]
    ENDFOR

Iteration i of the second loop then comes before iterations above i of the first, so none of these may write
what that one touches, or touch what it writes: regions are compared as sums over the loop variable. In
workloads only loops of one kind are fused, `parallel` or `range`, and none that choose their tiles, for what
fits larger tiles apart need not fit them together. Elementwise chains inside a kernel's body
are fused by targets. A kernel that fails still fails, but may have stored less, or more, before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pto_wsp.analysis.liveness import names_before
from pto_wsp.analysis.overlap import Access, has_aligned_views, kernel_accesses, never_meet
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.effects import name_written, names_in
from pto_wsp.ir.module import Module
from pto_wsp.ir.names import KernelRenaming, WorkloadRenaming
from pto_wsp.ir.scalar import Element, Name, walk
from pto_wsp.support.record import replace

Item = TypeVar("Item")


def fuse_loops(module: Module) -> Module:
    """Return `module` with every loop fusion that preserves results."""
    kernels = tuple(
        kernel if kernel.body is None else _KernelFusion(module, kernel).run() for kernel in module.kernels
    )
    workloads = tuple(_WorkloadFusion(module, workload).run() for workload in module.workloads)
    return replace(module, kernels=kernels, workloads=workloads)


def _joined(items: Sequence[Item], join: Callable[[Item, Item, Sequence[Item]], Item | None]) -> list[Item]:
    """Join neighbours, where `join(first, second, what follows)` gives the replacement of both."""
    found: list[Item] = []
    for number, item in enumerate(items):
        both = join(found[-1], item, items[number + 1 :]) if found else None
        if both is None:
            found.append(item)
        else:
            found[-1] = both
    return found


def _are_independent(
    first: Sequence[Access], second: Sequence[Access], var: str, step: int, changing: frozenset[Name]
) -> bool:
    """Whether no later iteration of the first loop meets an earlier one of the second."""
    for later in first:
        for earlier in second:
            if not (later.is_write or earlier.is_write):
                continue
            if later.region is None or earlier.region is None:
                return False
            if not never_meet(later.region, earlier.region, var, step, changing):
                return False
    return True


# --- kernels ------------------------------------------------------------------------------------------------


class _KernelFusion:
    def __init__(self, module: Module, kernel: k.KernelFunction) -> None:
        self.kernel = kernel
        self.is_aligned = has_aligned_views(module, kernel)

    def run(self) -> k.KernelFunction:
        return replace(self.kernel, body=self.statements(self.kernel.body or (), frozenset()))

    def statements(self, body: Sequence[k.Stmt], live: frozenset[str]) -> tuple[k.Stmt, ...]:
        """Return fused statements, where the names in `live` are read after them."""

        def join(first: k.Stmt, second: k.Stmt, rest: Sequence[k.Stmt]) -> k.Stmt | None:
            if not (isinstance(first, k.For) and isinstance(second, k.For)):
                return None
            return self.join(first, second, names_before(rest, live))

        def fused(stmt: k.Stmt) -> k.Stmt:
            # What is live at the head of a loop is live at the end of its body too.
            is_loop = isinstance(stmt, (k.For, k.While))
            after = live | names_before((stmt,), live) if is_loop else live
            return k.rebuild(stmt, lambda block: self.statements(block, after))

        return tuple(map(fused, _joined(body, join)))

    def join(self, first: k.For, second: k.For, live: frozenset[str]) -> k.For | None:
        """Return one loop for two, or None where that could change a result."""
        if (first.start, first.stop, first.step) != (second.start, second.stop, second.step):
            return None
        if any(isinstance(s, k.Print) for s in k.walk_statements((*first.body, *second.body))):
            return None  # the lines would come in another order
        names = [{*_written(loop.body)} for loop in (first, second)]
        loops = [
            {s.var for s in k.walk_statements(loop.body) if isinstance(s, k.For)} for loop in (first, second)
        ]
        bounds = (first.start, first.stop)
        reads = any(isinstance(part, Element) for expr in bounds for part in walk(expr))
        if reads or names_in(*bounds) & names[0] or first.var in loops[1]:
            return None
        renamed = KernelRenaming(targets={second.var: first.var}).statements(second.body)
        read = [names_before(body) for body in (first.body, renamed)]
        if names[0] & read[1] or names[1] & read[0] or names[0] & names[1] & live:
            return None
        accesses = [kernel_accesses(body) for body in (first.body, renamed)]
        changing: frozenset[Name] = frozenset().union(*names, *loops)
        if any(access.is_write for found in accesses for access in found) and not (
            self.is_aligned and _are_independent(accesses[0], accesses[1], first.var, first.step, changing)
        ):
            return None
        return replace(first, body=(*first.body, *renamed))


def _written(body: tuple[k.Stmt, ...]) -> list[str]:
    found = (name_written(stmt) for stmt in k.walk_statements(body))
    return [name for name in found if name is not None]


# --- workloads ----------------------------------------------------------------------------------------------


class _WorkloadFusion:
    def __init__(self, module: Module, workload: w.WorkloadFunction) -> None:
        self.module = module
        self.workload = workload
        self.ranks = {tensor.name: len(tensor.type.dims) for tensor in workload.tensors}
        self.local = {tensor.name for tensor in workload.tensors if tensor.is_local}

    def run(self) -> w.WorkloadFunction:
        return replace(self.workload, body=self.nodes(self.workload.body))

    def nodes(self, body: Sequence[w.Node]) -> tuple[w.Node, ...]:
        def join(first: w.Node, second: w.Node, _: Sequence[w.Node]) -> w.Node | None:
            if not (isinstance(first, w.Loop) and isinstance(second, w.Loop)):
                return None
            return self.join(first, second)

        return tuple(w.rebuild(node, self.nodes) for node in _joined(body, join))

    def join(self, first: w.Loop, second: w.Loop) -> w.Loop | None:
        """Return one loop for two, or None where that could change a result."""
        alike = [
            (loop.kind, loop.extent, loop.tile, loop.max_range, loop.min_range) for loop in (first, second)
        ]
        if alike[0] != alike[1] or first.kind == w.SEQUENTIAL or first.tile_levels or second.tile_levels:
            return None
        inside = [*w.walk_nodes(first.body), *w.walk_nodes(second.body)]
        if not all(isinstance(node, (w.Task, w.Loop, w.Cond)) for node in inside):
            return None
        renamed = WorkloadRenaming({second.var: first.var}).nodes(second.body)
        accesses = [self.accesses(body) for body in (first.body, renamed)]
        if self.reads_what_is_written((first, second), accesses[0] + accesses[1]):
            return None
        changing: set[Name] = set()
        for node in inside:
            changing |= {node.var, node.start, node.length} if isinstance(node, w.Loop) else set()
        for name in self.ranks:
            pairs = [[a for a in found if self.may_be(a.tensor, name)] for found in accesses]
            pairs[0] = [a for a in pairs[0] if a.tensor == name]
            if not _are_independent(pairs[0], pairs[1], first.var, 1, frozenset(changing)):
                return None
        return replace(first, body=(*first.body, *renamed))

    def may_be(self, tensor: str, other: str) -> bool:
        """Whether two tensors can be the same array."""
        bound = not {tensor, other} & self.local
        return tensor == other or (bound and self.ranks[tensor] == self.ranks[other])

    def accesses(self, body: tuple[w.Node, ...]) -> list[Access]:
        found: list[Access] = []
        for task in w.tasks(body):
            params = self.module.kernel(task.kernel).params
            for param, arg in zip(params, task.args, strict=True):
                if isinstance(arg, Region):
                    has_rows = any(isinstance(dim, Rows) for dim in arg.dims)
                    found.append(Access(arg.tensor, None if has_rows else arg, param.role != k.IN))
                    rows = (dim.indices for dim in arg.dims if isinstance(dim, Rows))
                    found += [Access(indices, None, False) for indices in rows]
        return found

    def reads_what_is_written(self, loops: tuple[w.Loop, w.Loop], accesses: list[Access]) -> bool:
        """Whether an expression reads an element of a tensor that may be one that a task writes."""
        nodes = [node for loop in loops for node in (loop, *w.walk_nodes(loop.body))]
        parts = [part for node in nodes for expr in w.node_expressions(node) for part in walk(expr)]
        read = {part.name for part in parts if isinstance(part, Element)}
        return any(self.may_be(a.tensor, name) for a in accesses if a.is_write for name in read)
