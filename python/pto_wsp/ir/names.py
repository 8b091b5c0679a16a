"""The names that functions declare, and functions under other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Region, Rows, TileRange
from pto_wsp.ir.scalar import Const, Element, Expr, Extent, TileElement, Var, substitute
from pto_wsp.support.record import replace


def kernel_names(kernel: k.KernelFunction) -> set[str]:
    """Return every name that a kernel declares."""
    loops = (stmt.var for stmt in k.walk_statements(kernel.body or ()) if isinstance(stmt, k.For))
    return {name for name, _ in (*kernel.tiles, *kernel.scalars)} | {p.name for p in kernel.params} | {*loops}


def workload_names(workload: w.WorkloadFunction) -> set[str]:
    """Return every name that a workload declares: parameters, variables, loops and labels."""
    found = {p.name for p in workload.params} | {*workload.variables}
    for node in w.walk_nodes(workload.body):
        match node:
            case w.Loop(var=var):
                found |= {var, node.start, node.length}
            case w.Task(label=label):
                found.add(label)
            case _:
                pass
    return found


class KernelRenaming:
    """Statements of a kernel with other names.

    Args:
        tiles: new names of tiles.
        views: new names of views.
        targets: new names of scalars that are assigned, loop variables among them.
        values: what stands for scalars that are read; `targets` go before.
    """

    def __init__(
        self,
        tiles: Mapping[str, str] | None = None,
        views: Mapping[str, str] | None = None,
        targets: Mapping[str, str] | None = None,
        values: Mapping[str, Expr] | None = None,
    ) -> None:
        self.tiles = tiles or {}
        self.views = views or {}
        self.targets = targets or {}
        self.values = values or {}

    def statements(self, body: Iterable[k.Stmt]) -> tuple[k.Stmt, ...]:
        """Return renamed statements."""
        return tuple(self.statement(stmt) for stmt in body)

    def statement(self, stmt: k.Stmt) -> k.Stmt:
        """Return a renamed statement."""
        match stmt:
            case k.Load() | k.Store():
                rows = None if stmt.rows is None else self.tile(stmt.rows)
                return replace(stmt, tile=self.tile(stmt.tile), region=self.region(stmt.region), rows=rows)
            case k.Prefetch(rows=rows):
                rows = None if rows is None else self.tile(rows)
                return replace(stmt, region=self.region(stmt.region), rows=rows)
            case k.Instr():
                return self.instruction(stmt)
            case k.Assign(name=name, value=value):
                return replace(stmt, name=self.targets.get(name, name), value=self.expr(value))
            case k.For(var=var, start=start, stop=stop, body=body):
                bounds = {"start": self.expr(start), "stop": self.expr(stop)}
                return replace(stmt, var=self.targets.get(var, var), body=self.statements(body), **bounds)
            case k.While(condition=condition, body=body):
                return replace(stmt, condition=self.expr(condition), body=self.statements(body))
            case k.If(condition=condition, then=then, other=other):
                arms = {"then": self.statements(then), "other": self.statements(other)}
                return replace(stmt, condition=self.expr(condition), **arms)
            case k.KernelCall(args=args):
                return replace(stmt, args=tuple(self.argument(arg) for arg in args))

    def instruction(self, instr: k.Instr) -> k.Instr:
        """Return a renamed instruction."""
        attrs = tuple((key, v if isinstance(v, (str, int)) else self.expr(v)) for key, v in instr.attrs)
        tiles = tuple(self.tile(tile) for tile in instr.tiles)
        scalars = tuple(self.expr(scalar) for scalar in instr.scalars)
        return replace(instr, dst=self.tile(instr.dst), tiles=tiles, scalars=scalars, attrs=attrs)

    def tile(self, name: str) -> str:
        """Return the new name of a tile."""
        return self.tiles.get(name, name)

    def region(self, region: Region) -> Region:
        """Return a renamed region."""
        return replace(region.mapped(self.expr), tensor=self.views.get(region.tensor, region.tensor))

    def argument(self, arg: str | Expr) -> str | Expr:
        """Return a renamed argument of a call."""
        return self.views.get(arg, arg) if isinstance(arg, str) else self.expr(arg)

    def expr(self, expr: Expr) -> Expr:
        """Return a renamed expression."""
        return substitute(expr, self._renamed)

    def _renamed(self, node: Expr) -> Expr | None:
        match node:
            case Var(name=name) if name in self.targets:
                return replace(node, name=self.targets[name])
            case Var(name=name):
                return self.values.get(name)
            case Extent(name=name):
                return replace(node, name=self.views.get(name, self.tile(name)))
            case Element(name=name, indices=indices):
                return replace(
                    node, name=self.views.get(name, name), indices=tuple(self.expr(i) for i in indices)
                )
            case TileElement(name=name, indices=indices):
                return replace(node, name=self.tile(name), indices=tuple(map(self.expr, indices)))
            case _:
                return None


class WorkloadRenaming:
    """Nodes of a workload with other names.

    Args:
        loops: new names of loops.
        values: what stands for other values that are read: expressions of the new place.
        variables: new names of variables.
        tensors: what stands for tensors: regions of whole dimensions and indices.
        labels: new labels of tasks.
    """

    def __init__(
        self,
        loops: Mapping[str, str] | None = None,
        values: Mapping[str, Expr] | None = None,
        variables: Mapping[str, str] | None = None,
        tensors: Mapping[str, Region] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.loops = loops or {}
        self.variables = variables or {}
        self.tensors = tensors or {}
        self.labels = labels or {}
        renamed = {**self.variables, **self.loops}
        for old, new in self.loops.items():
            renamed |= {f"{old}.start": f"{new}.start", f"{old}.len": f"{new}.len"}
        self.values: dict[str, Expr] = {old: Var(new) for old, new in renamed.items()} | {**(values or {})}

    def nodes(self, body: Iterable[w.Node]) -> tuple[w.Node, ...]:
        """Return renamed nodes."""
        return tuple(self.node(node) for node in body)

    def node(self, node: w.Node) -> w.Node:
        """Return a renamed node."""
        node = w.map_expressions(node, self.expr)
        match node:
            case w.Loop(var=var, body=body):
                new = self.loops.get(var, var)
                name = node.called if node.called != new else ""
                return replace(node, var=new, body=self.nodes(body), name=name)
            case w.Cond(then=then, other=other):
                return replace(node, then=self.nodes(then), other=self.nodes(other))
            case w.Set(name=name):
                return replace(node, name=self.variables.get(name, name))
            case w.Task(label=label, after=after):
                labels = {"label": self.label(label), "after": tuple(map(self.label, after))}
                return replace(node, args=self.arguments(node.args), **labels)
            case w.WorkloadCall(args=args):
                return replace(node, args=self.arguments(args))
            case _:
                return node

    def label(self, label: str) -> str:
        """Return the new label of a task."""
        return self.labels.get(label, label)

    def arguments(self, args: Iterable[Region | Expr]) -> tuple[Region | Expr, ...]:
        """Return arguments whose expressions are renamed, with their regions renamed too."""
        return tuple(self.region(arg) if isinstance(arg, Region) else arg for arg in args)

    def region(self, region: Region) -> Region:
        """Return a region whose expressions are renamed, of the tensor that stands for its own."""
        dims = tuple(self._dim(dim) for dim in region.dims)
        inside = self.tensors.get(region.tensor)
        if inside is None:
            return region if dims == region.dims else replace(region, dims=dims)
        rest = iter(dims)
        return replace(
            inside, dims=tuple(next(rest) if d == Full() else d for d in inside.dims), loc=region.loc
        )

    def _dim(self, dim: DimSelect) -> DimSelect:
        match dim:
            case TileRange(loop=loop):
                return TileRange(self.loops.get(loop, loop))
            case Rows(indices=indices) if indices in self.tensors:
                return replace(dim, indices=self.tensors[indices].tensor)
            case _:
                return dim

    def expr(self, expr: Expr) -> Expr:
        """Return a renamed expression."""
        return expr if isinstance(expr, Const) else substitute(expr, self._renamed)

    def _renamed(self, node: Expr) -> Expr | None:
        match node:
            case Var(name=name):
                return self.values.get(name)
            case Element(name=name, indices=indices):
                own = tuple(self.expr(index) for index in indices)
                inside = self.tensors.get(name)
                if inside is None:
                    return replace(node, indices=own)
                rest = iter(own)
                whole = tuple(d.at if isinstance(d, Index) else next(rest) for d in inside.dims)
                return replace(node, name=inside.tensor, indices=whole)
            case _:
                return None
