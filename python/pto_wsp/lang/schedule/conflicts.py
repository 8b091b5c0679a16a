"""Directives that exclude each other, pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_wsp.ir.schedule import Directive, Directives
from pto_wsp.lang.schedule.registry import every_kind

NOT_IN_A_GRAPH = "dispatchers, window, streams, batches, turns, pools or priorities"
CONFLICTS: dict[tuple[str, str], Callable[[Any, Any, Directives], str | bool]] = {
    ("timing = interleaved", "streams = off"): lambda turns, streams, schedule: (
        "there are no streams that could take turns"
    ),
    ("timing = interleaved", "ready"): lambda turns, ready, schedule: (
        ready.name != "work_steal" and f"what starts first is decided by {ready.name}"
    ),
    ("start = threshold", "window"): lambda start, window, schedule: (
        start.n > window.size
        and schedule.is_walked
        and f"a window of {window.size} tasks never holds as many"
    ),
    ("start = after_build", ""): lambda start, other, schedule: (
        other.is_walked
        and other != other.default()
        and f"a graph that is built first has no {NOT_IN_A_GRAPH}"
    ),
}
"""Why a directive is refused beside another one, defaults among them; a false value where it is not.

A pair names directives as text does, or a kind, or any directive. The order of the schedule is of no concern.
"""


def conflict(directive: Directive, schedule: Directives) -> str:
    """Return why a directive is refused beside the others of a schedule; empty if it is not."""
    for (one, other), reason in CONFLICTS.items():
        if one == _name(directive):
            for present in every_kind(schedule):
                found = other in ("", present.kind, _name(present)) and reason(directive, present, schedule)
                if found:
                    return str(found)
    return ""


def _name(directive: Directive) -> str:
    return f"{directive.kind} = {directive.name}"
