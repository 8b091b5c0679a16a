"""Which directives each target enforces, and why it refuses the others."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_directive
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.lang.schedule.conflicts import conflict
from pto_wsp.lang.schedule.registry import DIRECTIVES
from pto_wsp.location import caller_location
from pto_wsp.support.record import record


@record
class Enforced:
    """The target does what the policy says."""


@record
class Idle:
    """The target accepts the policy, which has nothing to decide there."""


@record
class Refused:
    """The target refuses the policy by name."""

    reason: str


Support = Enforced | Idle | Refused

_OF_MOST: dict[str, Support] = {"cpu": Enforced(), "interp": Idle()}
"""What a target makes of a directive that does not mention the target.

`interp` runs tasks one after another, in program order, on the calling thread: as most directives allow.
"""


def support(target: str, policy: Policy[..., Directive]) -> Support:
    """Return what a target makes of a policy."""
    if target in policy.refused:
        return Refused(policy.refused[target])
    return _OF_MOST.get(target, Refused("nothing in it enforces policies"))


def require_support(target: str, module: Module) -> None:
    """Raise UnsupportedByTarget at the first directive of a module's schedule that a target refuses."""
    for directive in module.schedule:
        found = support(target, directive.policy)
        if isinstance(found, Refused):
            taken = ", ".join(f"`{name}`" for name in _accepted(target, directive.kind))
            hint = f"as `{directive.kind}` it takes {taken}" if taken else "take the policy back"
            raise _refused(target, directive, found.reason, hint)
        reason = conflict(directive, module.schedule) if isinstance(found, Enforced) else ""
        if reason:
            hint = "it is refused beside the other policies of this schedule: take one of them back"
            raise _refused(target, directive, reason, hint)
        reason = directive.refusal(module.entry_workload, module.written)
        if reason:
            raise _refused(target, directive, reason, "", " here")


def _accepted(target: str, kind: str) -> Iterator[str]:
    """Yield the names of the directives of a kind that a target does not refuse."""
    policies = DIRECTIVES[kind].policies.items()
    return (name for name, policy in policies if not isinstance(support(target, policy), Refused))


def _refused(
    target: str, directive: Directive, reason: str, hint: str, where: str = ""
) -> UnsupportedByTarget:
    key = directive.key_expr
    loc = (key.loc if key is not None else None) or caller_location()
    what = f"`{print_directive(directive)}`{where}"
    return UnsupportedByTarget(target=target, what=what, reason=reason, loc=loc, hint=hint)
