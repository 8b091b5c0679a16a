"""Directives that exclude each other, pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_wsp.ir.schedule import Directive, Schedule
from pto_wsp.lang.schedule.directives.ready import LargestKeyFirst, ProgramOrderFirst
from pto_wsp.lang.schedule.directives.start import StartAfter, StartAfterBuild
from pto_wsp.lang.schedule.directives.streams import NoStreams
from pto_wsp.lang.schedule.directives.timing import StreamsTakeTurns
from pto_wsp.lang.schedule.directives.window import Window
from pto_wsp.lang.schedule.registry import every_kind

Reason = Callable[[Any, Any, Schedule], str]


def _beyond_window(start: StartAfter, window: Window, schedule: Schedule) -> str:
    if schedule.is_walked and start.n > window.size:
        return f"a window of {window.size} tasks never holds as many"
    return ""


def _decided(turns: Directive, ready: Directive, schedule: Schedule) -> str:
    return f"what starts first is decided by {ready.name}"


def _walked(start: StartAfterBuild, other: Directive, schedule: Schedule) -> str:
    if other.is_walked and not other.is_default:
        return (
            "a graph that is built first has no dispatchers, window, streams, batches, turns, pools or "
            "priorities"
        )
    return ""


CONFLICTS: tuple[tuple[type[Directive], type[Directive], Reason], ...] = (
    (
        StreamsTakeTurns,
        NoStreams,
        lambda turns, streams, schedule: "there are no streams that could take turns",
    ),
    (StreamsTakeTurns, ProgramOrderFirst, _decided),
    (StreamsTakeTurns, LargestKeyFirst, _decided),
    (StartAfterBuild, Directive, _walked),
    (StartAfter, Window, _beyond_window),
)
"""Which directive is refused beside which other one of a schedule, defaults among them, and why."""


def conflict(directive: Directive, schedule: Schedule) -> str:
    """Return why a directive is refused beside the others of a schedule; empty if it is not."""
    for one, other, reason in CONFLICTS:
        if isinstance(directive, one):
            for present in every_kind(schedule):
                if isinstance(present, other) and (found := reason(directive, present, schedule)):
                    return found
    return ""
