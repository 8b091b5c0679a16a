"""Checks that a kernel stores its outputs on every path, and reads none before."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.errors import OutNotStored, OutRead
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full
from pto_wsp.ir.scalar import Const


def check_outputs(kernel: k.KernelFunction) -> None:
    """Raise at the first output that some path does not store, or that is read before.

    A loop that may run zero times counts for what it stores piece by piece (then there are no pieces), not
    for an output that it stores as a whole.

    Raises:
        OutNotStored, OutRead: see above.
    """
    outputs = {p.name for p in kernel.params if p.role == k.OUT}
    stored = _after(kernel, kernel.body or (), frozenset(), outputs)
    for param in kernel.params:
        if param.name in outputs - stored:
            raise OutNotStored(kernel=kernel.name, param=param.name, loc=param.loc)


def _after(
    kernel: k.KernelFunction, body: Sequence[k.Stmt], stored: frozenset[str], outputs: set[str]
) -> frozenset[str]:
    """Return the outputs stored after `body`, given those stored before."""
    for stmt in body:
        match stmt:
            case k.Load(region=region):
                if region.tensor in outputs - stored:
                    raise OutRead(kernel=kernel.name, param=region.tensor, loc=stmt.loc)
            case k.Store(region=region):
                stored |= {region.tensor}
            case k.If(then=then, other=other):
                stored = _after(kernel, then, stored, outputs) & _after(kernel, other, stored, outputs)
            case k.For(body=inner) | k.While(body=inner):
                after = _after(kernel, inner, stored, outputs)
                stored = after if _surely_runs(stmt) else stored | (after - _stored_whole(inner))
            case _:
                pass
    return stored


def _surely_runs(stmt: k.Stmt) -> bool:
    match stmt:
        case k.For(start=Const(value=start), stop=Const(value=stop)):
            return start < stop
        case _:
            return False


def _stored_whole(body: Sequence[k.Stmt]) -> set[str]:
    stores = (s.region for s in k.walk_statements(tuple(body)) if isinstance(s, k.Store))
    return {region.tensor for region in stores if all(isinstance(d, Full) for d in region.dims)}
