"""Directives that exclude each other, pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_wsp.ir.schedule import Directive, Schedule
from pto_wsp.lang.schedule.registry import every_kind


def _decided(turns: Directive, ready: Directive, schedule: Schedule) -> str:
    return f"what starts first is decided by {ready.name}"


def _no_turns(turns: Directive, streams: Directive, schedule: Schedule) -> str:
    return "there are no streams that could take turns"


def _beyond_window(start: Any, window: Any, schedule: Schedule) -> str:
    is_beyond = schedule.is_walked and start.n > window.size
    return f"a window of {window.size} tasks never holds as many" if is_beyond else ""


def _not_walked(start: Directive, other: Directive, schedule: Schedule) -> str:
    unknown = "dispatchers, window, streams, batches, turns, pools or priorities"
    is_walked = other.is_walked and other != other.default()
    return f"a graph that is built first has no {unknown}" if is_walked else ""


CONFLICTS: dict[tuple[str, str], Callable[[Any, Any, Schedule], str]] = {
    ("timing = interleaved", "streams = off"): _no_turns,
    ("timing = interleaved", "ready = fifo"): _decided,
    ("timing = interleaved", "ready = priority"): _decided,
    ("start = threshold", "window"): _beyond_window,
    ("start = after_build", ""): _not_walked,
}
"""What is refused beside what other directive, defaults among them, and why.

A pair holds a name, a kind, or no text for any kind. The function returns the reason, or no text.
"""


def conflict(directive: Directive, schedule: Schedule) -> str:
    """Return why a directive is refused beside the others of a schedule; empty if it is not."""
    for (one, other), reason in CONFLICTS.items():
        if one == _name(directive):
            for present in every_kind(schedule):
                is_other = other in ("", present.kind, _name(present))
                if is_other and (found := reason(directive, present, schedule)):
                    return found
    return ""


def _name(directive: Directive) -> str:
    return f"{directive.kind} = {directive.name}"
