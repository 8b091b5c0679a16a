"""Put the bodies of called functions in the places of their calls.

    CALL @double(%x, %y)    ->    %double_t = tload %x[:, :]
                                  ...

Tiles, scalars, loops, variables and labels of the callee get names of their own in the caller; its views and
tensors are those that the call gives. What a call gives as a number is evaluated at the call, once. Callees
stay in the module. Requires a verified module; afterwards no function has calls.
"""

from __future__ import annotations

from graphlib import TopologicalSorter

from pto_wsp.errors import CannotInline
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Region
from pto_wsp.ir.effects import names_in
from pto_wsp.ir.module import Module, called_functions
from pto_wsp.ir.names import KernelRenaming, WorkloadRenaming, kernel_names, workload_names
from pto_wsp.ir.scalar import Const, Element, Expr, Unary, Var, can_fail, name_of, walk
from pto_wsp.support.fresh import Fresh
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import b1, i64
from pto_wsp.types.tile import ScalarType


def inline_calls(module: Module) -> Module:
    """Return `module` without calls of functions.

    Raises:
        CannotInline: a callee cannot replace a call.
    """
    calls = {f.name: called_functions(f) for f in (*module.kernels, *module.workloads)}
    if not any(calls.values()):
        return module
    kernels = {kernel.name: kernel for kernel in module.kernels}
    workloads = {workload.name: workload for workload in module.workloads}
    for name in TopologicalSorter(calls).static_order():
        if not calls[name]:
            continue
        if name in kernels:
            kernels[name] = _KernelInliner(kernels[name], kernels).run()
        else:
            workloads[name] = _WorkloadInliner(workloads[name], workloads).run()
    return replace(module, kernels=tuple(kernels.values()), workloads=tuple(workloads.values()))


class _KernelInliner:
    def __init__(self, kernel: k.KernelFunction, callees: dict[str, k.KernelFunction]) -> None:
        self.kernel = kernel
        self.callees = callees
        self.fresh = Fresh(kernel_names(kernel))
        self.tiles = list(kernel.tiles)
        self.scalars = list(kernel.scalars)

    def run(self) -> k.KernelFunction:
        body = self.statements(self.kernel.body or ())
        return replace(self.kernel, tiles=tuple(self.tiles), scalars=tuple(self.scalars), body=body)

    def statements(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        found: list[k.Stmt] = []
        for stmt in body:
            if isinstance(stmt, k.KernelCall):
                found += self.call(stmt)
            else:
                found.append(k.rebuild(stmt, self.statements))
        return tuple(found)

    def call(self, call: k.KernelCall) -> tuple[k.Stmt, ...]:
        """Return the statements of the callee, those that give its scalars their values first."""
        callee = self.callees[call.kernel]
        statements = tuple(k.walk_statements(callee.body or ()))
        assigned = {stmt.name for stmt in statements if isinstance(stmt, k.Assign)}
        tiles = {name: self.fresh.name(f"{callee.name}_{name}") for name, _ in callee.tiles}
        self.tiles += [(tiles[name], kind) for name, kind in callee.tiles]
        targets = {name: self.scalar(callee, name, kind) for name, kind in callee.scalars}
        loops = {stmt.var for stmt in statements if isinstance(stmt, k.For)}
        targets |= {name: self.fresh.name(f"{callee.name}_{name}") for name in sorted(loops)}
        views: dict[str, str] = {}
        values: dict[str, Expr] = {}
        first: list[k.Stmt] = []
        for param, arg in zip(callee.params, call.args, strict=True):
            if isinstance(arg, str):
                views[param.name] = arg
            elif isinstance(arg, (Const, Var)) and param.name not in assigned:
                values[param.name] = arg
            else:
                assert isinstance(param.type, ScalarType)
                targets[param.name] = self.scalar(callee, param.name, param.type)
                first.append(k.Assign(targets[param.name], arg, call.loc))
        body = KernelRenaming(tiles, views, targets, values).statements(callee.body or ())
        return (*first, *body)

    def scalar(self, callee: k.KernelFunction, name: str, kind: ScalarType) -> str:
        new = self.fresh.name(f"{callee.name}_{name}")
        self.scalars.append((new, kind))
        return new


class _WorkloadInliner:
    def __init__(self, workload: w.WorkloadFunction, callees: dict[str, w.WorkloadFunction]) -> None:
        self.workload = workload
        self.callees = callees
        self.fresh = Fresh(workload_names(workload))
        self.params = list(workload.params)
        self.sizes = {p.name for p in workload.params if isinstance(p, w.SizeParam)}
        self.numbers = {
            p.name
            for p in workload.symbols
            if isinstance(p, w.ScalarParam) and p.value is None and p.type.dtype is i64
        }

    def run(self) -> w.WorkloadFunction:
        body = self.nodes(self.workload.body)
        return replace(self.workload, params=tuple(self.params), body=body)

    def nodes(self, body: tuple[w.Node, ...]) -> tuple[w.Node, ...]:
        found: list[w.Node] = []
        for node in body:
            if isinstance(node, w.WorkloadCall):
                found += _Expansion(self, node, self.callees[node.workload]).nodes()
            else:
                found.append(w.rebuild(node, self.nodes))
        return tuple(found)


class _Expansion:
    """One call: the replacement of each name of the callee."""

    def __init__(self, caller: _WorkloadInliner, call: w.WorkloadCall, callee: w.WorkloadFunction) -> None:
        self.caller = caller
        self.call = call
        self.callee = callee
        self.tensors: dict[str, Region] = {}
        self.values: dict[str, Expr] = {}
        self.first: list[w.Node] = []
        inside = [expr for node in w.walk_nodes(callee.body) for expr in w.node_expressions(node)]
        self.mentioned = names_in(*inside)

    def nodes(self) -> tuple[w.Node, ...]:
        """Return the nodes of the callee, those that give its variables their values first."""
        fresh = self.caller.fresh
        given = dict(zip((p.name for p in self.callee.open_params), self.call.args, strict=True))
        for param in self.callee.params:
            arg = given.get(param.name)
            if isinstance(arg, Region):
                assert isinstance(param, w.TensorParam)
                self.tensor(param, arg)
            elif arg is not None:
                self.values[param.name] = self.number(param.name, arg)
        self.derive()
        variables = {v: fresh.name(v) for v in self.callee.variables if isinstance(v, str)}
        self.first += [w.Set(new, Const(0), self.call.loc) for new in variables.values()]
        inside = [*w.walk_nodes(self.callee.body)]
        loops = {node.var: fresh.name(node.var) for node in inside if isinstance(node, w.Loop)}
        tasks = [node for node in inside if isinstance(node, w.Task) and node.label]
        labels = {task.label: fresh.name(task.label) for task in tasks}
        renaming = WorkloadRenaming(loops, self.values, variables, self.tensors, labels)
        return (*self.first, *renaming.nodes(self.callee.body))

    def refuse(self, reason: str) -> CannotInline:
        return CannotInline(callee=self.callee.name, reason=reason, loc=self.call.loc)

    def tensor(self, param: w.TensorParam, region: Region) -> None:
        """Replace a tensor by a region, and the tensor's sizes by those of the region."""
        self.tensors[param.name] = region
        outer = next(p for p in self.caller.params if p.name == region.tensor)
        assert isinstance(outer, w.TensorParam)
        if param.is_distinct and not outer.is_distinct:
            reason = f"its tensor `{param.name}` has to be distinct, and that of the call need not"
            raise self.refuse(reason)
        for dim, at in zip(param.type.dims, region.kept, strict=True):
            size = outer.type.dims[at]
            if isinstance(dim, int) and dim != size:
                raise self.refuse(f"`{param.name}` has {dim} in a dimension where the call gives {size}")
            if isinstance(dim, str):
                value = Const(size) if isinstance(size, int) else Var(size)
                known = self.values.setdefault(dim, value)
                if known != value:
                    raise self.refuse(f"its size `{dim}` is more than one size of the call")

    def number(self, name: str, value: Expr) -> Expr:
        """Return the replacement of a size or scalar: its `value` at the call."""
        if not self.can_change(value):
            if can_fail(value) and name not in self.mentioned:
                self.first.append(w.Set(self.caller.fresh.name(name), value, self.call.loc))
            return value
        if value.dtype not in (i64, b1):
            raise self.refuse(f"what it is given for `{name}` can change while it runs")
        variable = self.caller.fresh.name(name)
        self.first.append(w.Set(variable, value, self.call.loc))
        return Var(variable) if value.dtype is i64 else Unary("b1", Var(variable))

    def can_change(self, value: Expr) -> bool:
        """Whether nodes after the call can give `value` another value."""
        variables = set(self.caller.workload.variables) | set(self.callee.variables)
        return any(isinstance(part, Element) or name_of(part) in variables for part in walk(value))

    def derive(self) -> None:
        """Find the replacements of sizes and scalars that follow from others, and of local tensors."""
        pending = [p for p in self.callee.symbols if p.value is not None]
        while pending:
            ready = [p for p in pending if p.name in self.values or self.is_known(p.value)]
            for param in ready:
                assert param.value is not None
                if param.name in self.values:
                    continue  # a dimension of a tensor that the call gives
                self.values[param.name] = WorkloadRenaming(values=self.values).expr(param.value)
            pending = [p for p in pending if p not in ready]
        for tensor in self.callee.tensors:
            if tensor.is_local:
                dims = tuple(d if isinstance(d, int) else self.dimension(tensor, d) for d in tensor.type.dims)
                name = self.caller.fresh.name(tensor.name)
                self.caller.params.append(replace(tensor, name=name, type=replace(tensor.type, dims=dims)))
                self.tensors[tensor.name] = Region(name, (Full(),) * len(dims), self.call.loc)

    def is_known(self, value: Expr | None) -> bool:
        assert value is not None
        return all(part.name in self.values for part in walk(value) if isinstance(part, Var))

    def dimension(self, tensor: w.TensorParam, size: str) -> int | str:
        """Return a dimension of a local tensor as one of the caller's."""
        value = self.values[size]
        if isinstance(value, Const):
            return int(value.value)
        if isinstance(value, Var) and value.name in self.caller.sizes:
            return value.name
        known = self.caller.sizes | self.caller.numbers
        sound = all(
            part.name in known if isinstance(part, Var) else not isinstance(part, Element)
            for part in walk(value)
        )
        if not sound:
            raise self.refuse(f"the size of its tensor `{tensor.name}` differs between calls")
        name = self.caller.fresh.name(size)
        self.caller.params.append(w.SizeParam(name, None, self.call.loc, value))
        self.caller.sizes.add(name)
        return name
