"""`prove`: what holds for every size, shape and index array that the types of a workload allow."""

from __future__ import annotations

from pto_wsp.analysis.accesses.sites import sites
from pto_wsp.ir.entry import with_entry_workload
from pto_wsp.ir.module import Module
from pto_wsp.passes.inline_calls import inline_calls
from pto_wsp.prove.blocks import instances
from pto_wsp.prove.channels import channels
from pto_wsp.prove.conflicts import independence
from pto_wsp.prove.edges import edges
from pto_wsp.prove.finding import Proof
from pto_wsp.prove.processes import tasks_of_processes
from pto_wsp.prove.regions import inside
from pto_wsp.prove.solver import Solver


def prove(module: Module) -> Proof:
    """Return what is proved, refuted and unknown about the entry of a verified module.

    A proof is about calls whose tensors are different arrays, and that no other error ends.

    Raises:
        MissingPackage: islpy is not installed.
        CannotInline: a call of a workload cannot be inlined.
    """
    whole = with_entry_workload(module)
    flat = inline_calls(whole).reached
    if flat.entry_workload.processes:
        return Proof(whole, (channels(flat), *tasks_of_processes(flat, Solver())))
    solver, found = Solver(), sites(flat)
    findings = (
        *independence(flat, solver, found),
        *edges(flat, solver, found),
        *inside(flat, solver, found),
        *instances(flat, solver, found),
    )
    return Proof(whole, findings)
