"""Compute the float arithmetic of a workload before its runs.

The engine evaluates integers. What a workload computes with floats from its symbols alone (`factor * 2.0` as
an argument, `limit > 0.5` as a condition) has one value per run: it becomes a scalar that follows from them.
"""

from __future__ import annotations

from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Expr, Var, can_fail, children, format_expr, substitute, walk
from pto_wsp.support.record import replace
from pto_wsp.types.tile import ScalarType


def settle_floats(module: Module) -> Module:
    """Return `module` with every float subexpression of its entry that follows from symbols made a symbol.

    Only expressions that always have a value are taken, since a run may never reach them.
    """
    workload = module.entry_workload
    expressions = (expr for node in w.walk_nodes(workload.body) for expr in w.node_expressions(node))
    if not any(part.dtype.is_float for expr in expressions for part in walk(expr)):
        return module
    settler = _Settler(workload)
    body = settler.nodes(workload.body)
    if not settler.found:
        return module
    settled = replace(workload, body=body, params=(*workload.params, *settler.found.values()))
    others = tuple(settled if other is workload else other for other in module.workloads)
    return replace(module, workloads=others)


class _Settler:
    def __init__(self, workload: w.WorkloadFunction) -> None:
        self.symbols = {p.name for p in workload.symbols}
        self.found: dict[str, w.ScalarParam] = {}  # by text: 0.0 equals -0.0, but is another number

    def nodes(self, body: tuple[w.Node, ...]) -> tuple[w.Node, ...]:
        return tuple(self.node(node) for node in body)

    def node(self, node: w.Node) -> w.Node:
        node = w.map_expressions(node, lambda expr: substitute(expr, self.settled))
        return w.rebuild(node, self.nodes)

    def settled(self, expr: Expr) -> Expr | None:
        """Return the symbol that replaces `expr`, or None if it must stay."""
        is_float = expr.dtype.is_float or any(part.dtype.is_float for part in walk(expr))
        if isinstance(expr, (Const, Var)) or not is_float or not self.always_has_a_value(expr):
            return None
        text = format_expr(expr)
        if text not in self.found:
            name = f"number.{len(self.found)}"
            self.found[text] = w.ScalarParam(name, ScalarType(expr.dtype), expr.loc, expr)
        return Var(self.found[text].name, expr.dtype, expr.loc)

    def always_has_a_value(self, expr: Expr) -> bool:
        """Whether `expr` follows from symbols, and no step of it can overflow or divide by zero."""
        leaves = (part for part in walk(expr) if not children(part))
        follows = all(isinstance(p, Const) or (isinstance(p, Var) and p.name in self.symbols) for p in leaves)
        return follows and not can_fail(expr)
