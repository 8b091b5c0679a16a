"""The names that functions declare, and functions under other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.scalar import (
    Const,
    Element,
    Expr,
    Extent,
    LoopExtent,
    LoopStart,
    TileElement,
    Var,
    rebuild,
    substitute,
)
from pto_wsp.support.record import replace


def kernel_names(kernel: k.KernelFunction) -> set[str]:
    """Return every name that a kernel declares."""
    loops = (stmt.var for stmt in k.walk_statements(kernel.body or ()) if isinstance(stmt, k.For))
    return {name for name, _ in (*kernel.tiles, *kernel.scalars)} | {p.name for p in kernel.params} | {*loops}


def workload_names(workload: w.WorkloadFunction) -> set[str]:
    """Return every name that a workload declares: parameters, variables, loops and labels."""
    found = {p.name for p in workload.params} | {v for v in workload.variables if isinstance(v, str)}
    for node in w.walk_nodes(workload.body):
        match node:
            case w.Loop(var=var):
                found.add(var)
            case w.Task(label=label):
                found.add(label)
            case w.Send(slot=slot, index=index):
                found |= {slot, index}
            case w.Receive(slot=slot, index=index, scalars=scalars):
                found |= {slot, index, *scalars}
            case w.Cond() | w.Set() | w.Refuse() | w.WorkloadCall() | w.Process() | w.Delay():
                pass
            case _:
                assert_never(node)
    return found


class KernelRenaming:
    """Statements of a kernel with other names.

    Args:
        tiles: new names of tiles.
        views: new names of views.
        targets: new names of scalars that are assigned, loop variables among them.
        values: the replacements of scalars that are read; `targets` go before.
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
        stmt = k.rebuild(k.map_expressions(stmt, self.expr), self.statements)
        match stmt:
            case k.Load(tile=tile) | k.Store(tile=tile):
                return replace(self.moved(stmt), tile=self.tile(tile))
            case k.Prefetch():
                return self.moved(stmt)
            case k.Instr(dst=dst, tiles=tiles):
                return replace(stmt, dst=self.tile(dst), tiles=tuple(map(self.tile, tiles)))
            case k.Assign(name=name):
                return replace(stmt, name=self.targets.get(name, name))
            case k.For(var=var):
                return replace(stmt, var=self.targets.get(var, var))
            case k.KernelCall(args=args):
                return replace(
                    stmt, args=tuple(self.views.get(a, a) if isinstance(a, str) else a for a in args)
                )
            case k.Print(parts=parts):
                return replace(stmt, parts=tuple(self.tile(p) if isinstance(p, str) else p for p in parts))
            case k.If() | k.While() | k.Assert():
                return stmt
            case _:
                assert_never(stmt)

    def moved(self, stmt: k.Move) -> k.Move:
        """Return a transfer with the view and the tile of row numbers renamed."""
        view = stmt.region.tensor
        region = replace(stmt.region, tensor=self.views.get(view, view))
        return replace(stmt, region=region, rows=None if stmt.rows is None else self.tile(stmt.rows))

    def tile(self, name: str) -> str:
        """Return the new name of a tile."""
        return self.tiles.get(name, name)

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
            case Element(name=name):
                return rebuild(replace(node, name=self.views.get(name, name)), self.expr)
            case TileElement(name=name):
                return rebuild(replace(node, name=self.tile(name)), self.expr)
            case _:
                return None


class WorkloadRenaming:
    """Nodes of a workload with other names.

    Args:
        loops: new names of loops.
        values: the replacements of other values that are read: expressions of the new place.
        variables: new names of variables.
        tensors: the replacements of tensors: regions of whole dimensions and indices.
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
        self.values: dict[str, Expr] = {old: Var(new) for old, new in renamed.items()} | {**(values or {})}

    def nodes(self, body: Iterable[w.Node]) -> tuple[w.Node, ...]:
        """Return renamed nodes."""
        return tuple(self.node(node) for node in body)

    def node(self, node: w.Node) -> w.Node:
        """Return a renamed node."""
        node = w.rebuild(w.map_expressions(node, self.expr), self.nodes)
        match node:
            case w.Loop(var=var):
                new = self.loops.get(var, var)
                return replace(node, var=new, name=node.called if node.called != new else "")
            case w.Set(name=name):
                return replace(node, name=self.variables.get(name, name) if isinstance(name, str) else name)
            case w.Task(label=label, after=after):
                labels = {"label": self.label(label), "after": tuple(map(self.label, after))}
                return replace(node, args=self.arguments(node.args), **labels)
            case w.WorkloadCall(args=args):
                return replace(node, args=self.arguments(args))
            case w.Send(channel=channel, slot=slot, index=index):
                names = {"slot": self.variable(slot), "index": self.variable(index)}
                return replace(node, channel=self.ring(channel), **names)
            case w.Receive(channel=channel, slot=slot, index=index):
                scalars = tuple(map(self.variable, node.scalars))
                names = {"slot": self.variable(slot), "index": self.variable(index)}
                return replace(node, channel=self.ring(channel), scalars=scalars, **names)
            case w.Cond() | w.Refuse() | w.Process() | w.Delay():
                return node
            case _:
                assert_never(node)

    def variable(self, name: str) -> str:
        """Return the new name of a variable."""
        return self.variables.get(name, name)

    def ring(self, channel: str) -> str:
        """Return the new name of the tensor that is the ring of a channel."""
        return self.tensors[channel].tensor if channel in self.tensors else channel

    def label(self, label: str) -> str:
        """Return the new label of a task."""
        return self.labels.get(label, label)

    def arguments(self, args: Iterable[Region | Expr]) -> tuple[Region | Expr, ...]:
        """Return arguments whose expressions are renamed, with their regions renamed too."""
        return tuple(self.region(arg) if isinstance(arg, Region) else arg for arg in args)

    def region(self, region: Region) -> Region:
        """Return a region whose expressions are renamed, of the tensor that replaces its own."""
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
            case Index() | Range() | Full() | Rows() | Merged():
                return dim
            case _:
                assert_never(dim)

    def expr(self, expr: Expr) -> Expr:
        """Return a renamed expression."""
        return expr if isinstance(expr, Const) else substitute(expr, self._renamed)

    def _renamed(self, node: Expr) -> Expr | None:
        match node:
            case Var(name=name):
                return self.values.get(name)
            case LoopStart(loop=loop) if loop in self.loops:
                return LoopStart(self.loops[loop])
            case LoopExtent(loop=loop) if loop in self.loops:
                return LoopExtent(self.loops[loop])
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
