"""What an Ascend device makes of each directive of schedules.

On the device one control core expands the tasks in program order. Its runtime orders them by their tensors,
and starts a ready task on any free core of its kind. A directive that the host program alone would enforce is
refused.
"""

from __future__ import annotations

from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.targets.base import Enforced, Idle, Refused, Support

_ENFORCED = frozenset({"deps = infer_tensor_map_exact"})

_WITHOUT_EFFECT = frozenset(
    """
    dispatch = work_steal, ready = work_steal, start = immediate, streams = off, interleave = off,
    load_balance = off, timing = immediate, concurrent = off, pools = single, prefetch = off,
    stores = streaming, stores = cached, trace = off, calendar = off
    """.replace("\n    ", " ")
    .strip()
    .split(", ")
)
"""Directives that ask for what the device does anyway, or for what it has not: caches that a store passes."""

_CHOICE = "the runtime of the device chooses among the tasks that are ready"
_REASONS = {
    "dispatch": "one control core expands all tasks",
    "window": "the runtime of the device has a window of its own",
    "ready": _CHOICE,
    "start": "tasks start while the control core expands others",
    "streams": "the runtime of the device orders tasks by their tensors alone",
    "interleave": _CHOICE,
    "load_balance": "one control core expands all tasks",
    "timing": "the runtime of the device starts tasks without a clock",
    "concurrent": "the control core does not learn when tasks are complete",
    "pools": "a device has cores of its own for each unit, and its runtime chooses one of them",
    "prefetch": "the control core submits tasks, and fetches no inputs",
    "trace": "the device records nothing",
    "deps": "the runtime of the device orders tasks by their tensors alone",
    "calendar": "the runtime of the device chooses the core of a task",
}


def support(policy: Policy[..., Directive]) -> Support:
    """Return what an Ascend device makes of a directive."""
    title = f"{policy.kind} = {policy.name}"
    if title in _ENFORCED:
        return Enforced()
    if title in _WITHOUT_EFFECT:
        return Idle()
    return Refused(_REASONS.get(policy.kind, "nothing on the device enforces it"))
