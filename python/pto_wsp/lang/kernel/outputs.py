"""Checks that a kernel stores its outputs on every path and as a whole, and reads none before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pto_wsp.analysis.stored_parts import missing_element
from pto_wsp.errors import OutNotStored, OutPartlyStored, OutRead
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full
from pto_wsp.ir.paths import surely_runs
from pto_wsp.ir.scalar import Expr, Var, walk
from pto_wsp.support.record import record


def check_outputs(
    kernel: k.KernelFunction, callees: Mapping[str, k.KernelFunction] = MappingProxyType({})
) -> None:
    """Raise at the first output that is not stored on every path and as a whole, or that is read before.

    A loop that may run zero times counts for what it stores piece by piece (then there are no pieces), not
    for an output that it stores as a whole. A branch that the number of the call within its task decides
    counts for what either side stores: other calls take the other side.

    Args:
        kernel: a kernel with a body.
        callees: the kernels that it calls.

    Raises:
        OutNotStored, OutRead, OutPartlyStored: see above.
    """
    stored = stored_outputs(kernel, callees)
    for param in kernel.params:
        if param.role != k.OUT:
            continue
        if param.name not in stored:
            raise OutNotStored(kernel=kernel.name, param=param.name, loc=param.loc)
        place = missing_element(kernel, param)
        if place is not None:
            index = ", ".join(map(str, place))
            raise OutPartlyStored(kernel=kernel.name, param=param.name, index=index, loc=param.loc)


def stored_outputs(
    kernel: k.KernelFunction, callees: Mapping[str, k.KernelFunction] = MappingProxyType({})
) -> frozenset[str]:
    """Return the names of the outputs that every path stores.

    Args:
        kernel: a kernel with a body.
        callees: the kernels that it calls, which store their own outputs.

    Raises:
        OutRead: an output is read before.
    """
    outputs = {p.name for p in kernel.params if p.role == k.OUT}
    return _Paths(kernel, outputs, _of_blocks(kernel), callees).after(kernel.body or (), frozenset())


@record
class _Paths:
    """The outputs that paths through a kernel store.

    Attributes:
        of_blocks: scalars that depend on the number of the call within its task.
    """

    kernel: k.KernelFunction
    outputs: set[str]
    of_blocks: set[str]
    callees: Mapping[str, k.KernelFunction]

    def after(self, body: Sequence[k.Stmt], stored: frozenset[str]) -> frozenset[str]:
        """Return the outputs stored after `body`, given those stored before."""
        for stmt in body:
            match stmt:
                case k.Instr() | k.Assign() | k.Print() | k.Assert():
                    pass
                case k.Load(region=region) | k.Prefetch(region=region):
                    if region.tensor in self.outputs - stored:
                        raise OutRead(kernel=self.kernel.name, param=region.tensor, loc=stmt.loc)
                case k.Store(region=region):
                    stored = stored if region.tensor in stored else stored | {region.tensor}
                case k.KernelCall(kernel=name, args=args):
                    pairs = zip(self.callees[name].params, args, strict=True)
                    stored |= {arg for p, arg in pairs if p.role == k.OUT and isinstance(arg, str)}
                case k.If(condition=condition, then=then, other=other):
                    either, or_else = self.after(then, stored), self.after(other, stored)
                    stored = either | or_else if _mentions(condition, self.of_blocks) else either & or_else
                case k.For(body=inner) | k.While(body=inner):
                    after = self.after(inner, stored)
                    stored = after if surely_runs(stmt) else stored | (after - _stored_whole(inner))
        return stored


def _of_blocks(kernel: k.KernelFunction) -> set[str]:
    """Return the scalars whose value depends on the number of the call within its task."""
    found = {k.BLOCK_IDX}
    if not kernel.scalars:
        return found
    assigned = [s for s in k.walk_statements(kernel.body or ()) if isinstance(s, k.Assign)]
    while True:
        more = {s.name for s in assigned if _mentions(s.value, found)} - found
        if not more:
            return found
        found |= more


def _mentions(expr: Expr, names: set[str]) -> bool:
    return any(isinstance(node, Var) and node.name in names for node in walk(expr))


def _stored_whole(body: Sequence[k.Stmt]) -> set[str]:
    stores = (s.region for s in k.walk_statements(tuple(body)) if isinstance(s, k.Store) and s.rows is None)
    return {region.tensor for region in stores if all(isinstance(d, Full) for d in region.dims)}
