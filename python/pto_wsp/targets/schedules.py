"""Which directives each target enforces, and why it refuses the others."""

from __future__ import annotations

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_directive
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.lang.schedule.registry import DIRECTIVES, conflict
from pto_wsp.location import caller_location
from pto_wsp.targets import registry
from pto_wsp.targets.base import Enforced, Refused, Support


def support(target: str, policy: Policy[..., Directive]) -> Support:
    """Return what a target makes of a policy."""
    reason = policy.refused.get(target)
    return registry.get(target).policies(policy) if reason is None else Refused(reason)


def require_support(target: str, module: Module) -> None:
    """Raise UnsupportedByTarget at the first directive of a module's schedule that a target refuses."""
    for directive in module.schedule:
        if module.entry_workload.processes and directive.kind != "calendar":
            reason = "each process runs its tasks in program order, or by a calendar"
            raise _refused(target, directive, reason, "take the policy back", " of a network")
        found = support(target, directive.policy)
        if isinstance(found, Refused):
            policies = DIRECTIVES[directive.kind].policies.values()
            taken = [f"`{p.name}`" for p in policies if not isinstance(support(target, p), Refused)]
            hint = f"as `{directive.kind}` it takes {', '.join(taken)}" if taken else "take the policy back"
            raise _refused(target, directive, found.reason, hint)
        if isinstance(found, Enforced) and (reason := conflict(directive, module.schedule)):
            hint = "it is refused together with the other policies of this schedule: remove one of them"
            raise _refused(target, directive, reason, hint)
        if reason := directive.refusal(module.entry_workload, module.written):
            raise _refused(target, directive, reason, "", " here")


def _refused(
    target: str, directive: Directive, reason: str, hint: str, where: str = ""
) -> UnsupportedByTarget:
    places = (key.loc for key in directive.key_exprs)
    loc = next((place for place in places if place is not None), None) or caller_location()
    what = f"`{print_directive(directive)}`{where}"
    return UnsupportedByTarget(target=target, what=what, reason=reason, loc=loc, hint=hint)
