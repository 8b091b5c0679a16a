"""`prove`: what holds for every size, shape and index array that the types of a workload allow."""

from __future__ import annotations

from pto_wsp.analysis.accesses.sites import is_network, sites
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.module import Module
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.prove.blocks import instances
from pto_wsp.prove.conflicts import independence
from pto_wsp.prove.edges import edges
from pto_wsp.prove.finding import INDEPENDENT, UNKNOWN, Finding, Proof
from pto_wsp.prove.regions import inside
from pto_wsp.prove.solver import Solver


def prove(module: Module) -> Proof:
    """Return what is proved, refuted and unknown about the entry of a verified module.

    A proof is about calls whose tensors are different arrays, and that no other error ends.

    Raises:
        MissingPackage: islpy is not installed.
        CannotInline: a call of a workload cannot be inlined.
    """
    flat = inline_calls(with_entry_workload(module)).reached
    if is_network(flat):
        loc = flat.entry_workload.loc
        reason = "it is a network, and proofs do not follow channels yet"
        return Proof(flat.entry, (Finding(INDEPENDENT, f"`{flat.entry}`", UNKNOWN, loc, reason=reason),))
    solver, found = Solver(), sites(flat)
    findings = (
        *independence(flat, solver, found),
        *edges(flat, solver, found),
        *inside(flat, solver, found),
        *instances(flat, solver),
    )
    return Proof(flat.entry, findings)
