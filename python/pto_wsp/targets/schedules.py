"""Which policies each target enforces, and why it refuses the others."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.printer import print_policy
from pto_wsp.ir.schedule import POLICIES, Schedule
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

_LATER = Refused("this version does not have it")

_INTERP_REFUSES = {
    ("window", "benchmark"): Refused("it runs tasks by calling kernels, and does nothing else")
}

_CPU: Mapping[str, Mapping[str, Support]] = {
    "dispatch": {
        "work_steal": Enforced(),
        "round_robin": Enforced(),
        "affinity": Enforced(),
        "hash": Enforced(),
        "dispatch_by": Enforced(),
    },
    "window": {"stall": Enforced(), "abort": Enforced(), "benchmark": Enforced()},
    "ready": {"work_steal": Enforced(), "fifo": Enforced(), "priority": Enforced()},
    "start": {"immediate": Enforced(), "threshold": _LATER, "after_build": _LATER},
    "deps": {
        "infer_tensor_map_exact": Enforced(),
        "infer_bytes_overlap": _LATER,
        "hybrid": _LATER,
        "explicit": _LATER,
        "trust": _LATER,
    },
}


_INTERP: Mapping[str, Mapping[str, Support]] = {
    directive: {policy: _INTERP_REFUSES.get((directive, policy), Idle()) for policy in policies}
    for directive, policies in POLICIES.items()
}
"""Tasks run one after another, in program order, on the calling thread: as all policies allow but one."""

_TARGETS = {"cpu": _CPU, "interp": _INTERP}


def support(target: str, directive: str, policy: str) -> Support:
    """Return what a target makes of a policy."""
    return _TARGETS[target][directive][policy]


def require_support(target: str, schedule: Schedule) -> None:
    """Raise UnsupportedByTarget at the first policy of a schedule that a target refuses."""
    for policy in schedule.chosen():
        found = support(target, policy.directive, policy.name)
        if isinstance(found, Refused):
            what = f"`{policy.directive} = {print_policy(policy)}`"
            loc = policy.key.loc if policy.key is not None else None
            raise UnsupportedByTarget(target=target, what=what, reason=found.reason, loc=loc)
