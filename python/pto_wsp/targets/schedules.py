"""Which policies each target enforces, and why it refuses the others."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.printer import print_policy
from pto_wsp.ir.schedule import POLICIES, Policy, Schedule
from pto_wsp.location import caller_location
from pto_wsp.support.record import record


@record
class Enforced:
    """The target does what the policy says."""


@record
class Idle:
    """The target takes the policy, which has nothing to decide there."""


@record
class Refused:
    """The target refuses the policy by name."""

    reason: str


Support = Enforced | Idle | Refused

_INTERP_REFUSES = {
    ("window", "benchmark"): Refused("it runs tasks by calling kernels, and does nothing else"),
    ("timing", "rate_limit"): Refused("it has no clock"),
    ("trace", "tasks"): Refused("it records nothing; `Program.task_graph` does"),
    ("trace", "full"): Refused("it records nothing; `Program.task_graph` does"),
}

_CPU: Mapping[str, Mapping[str, Support]] = {
    "dispatch": {
        "work_steal": Enforced(),
        "round_robin": Enforced(),
        "affinity": Enforced(),
        "hash": Enforced(),
        "dispatch_by": Enforced(),
        "threshold": Enforced(),
        "static_partition": Enforced(),
    },
    "window": {"stall": Enforced(), "abort": Enforced(), "benchmark": Enforced()},
    "ready": {"work_steal": Enforced(), "fifo": Enforced(), "priority": Enforced()},
    "streams": {"off": Enforced(), "in_turn": Enforced(), "by": Enforced()},
    "start": {"immediate": Enforced(), "threshold": Enforced(), "after_build": Enforced()},
    "timing": {
        "immediate": Enforced(),
        "batched": Enforced(),
        "interleaved": Enforced(),
        "rate_limit": Enforced(),
    },
    "pools": {"single": Enforced(), "by_exec_unit": Enforced(), "custom": Enforced()},
    "stores": {"streaming": Enforced(), "cached": Enforced()},
    "trace": {"off": Enforced(), "tasks": Enforced(), "full": Enforced()},
    "deps": {
        "infer_tensor_map_exact": Enforced(),
        "infer_bytes_overlap": Enforced(),
        "hybrid": Enforced(),
        "explicit": Enforced(),
        "explicit_unchecked": Enforced(),
        "trust": Enforced(),
    },
}


_INTERP: Mapping[str, Mapping[str, Support]] = {
    directive: {policy: _INTERP_REFUSES.get((directive, policy), Idle()) for policy in policies}
    for directive, policies in POLICIES.items()
}
"""Tasks run one after another, in program order, on the calling thread: as all policies allow but these."""

_TARGETS = {"cpu": _CPU, "interp": _INTERP}


def support(target: str, directive: str, policy: str) -> Support:
    """Return what a target makes of a policy."""
    if target in _TARGETS:
        return _TARGETS[target][directive][policy]
    return Refused("nothing in it enforces policies")


def _support_in(target: str, schedule: Schedule, policy: Policy) -> Support:
    """Return what a target makes of a policy beside the others of a schedule."""
    found = support(target, policy.directive, policy.name)
    if not isinstance(found, Enforced):
        return found
    if policy.name == "interleaved":
        if schedule.streams.name == "off":
            return Refused("there are no streams that could take turns")
        if schedule.ready.name != "work_steal":
            return Refused(f"what starts first is decided by {schedule.ready.name}")
    return found


def require_support(target: str, schedule: Schedule) -> None:
    """Raise UnsupportedByTarget at the first policy of a schedule that a target refuses."""
    for policy in schedule.chosen():
        found = _support_in(target, schedule, policy)
        if isinstance(found, Refused):
            what = f"`{policy.directive} = {print_policy(policy)}`"
            loc = (policy.key.loc if policy.key is not None else None) or caller_location()
            hint = _alternatives(target, policy)
            raise UnsupportedByTarget(target=target, what=what, reason=found.reason, loc=loc, hint=hint)


def _alternatives(target: str, policy: Policy) -> str:
    """Return a hint: what a target takes in place of a policy, or which other policies are in its way."""
    if isinstance(support(target, policy.directive, policy.name), Refused):
        taken = [
            f"`{name}`"
            for name in POLICIES[policy.directive]
            if not isinstance(support(target, policy.directive, name), Refused)
        ]
        return f"as `{policy.directive}` it takes {', '.join(taken)}" if taken else "take the policy back"
    return "it is refused beside the other policies of this schedule: take one of them back"
