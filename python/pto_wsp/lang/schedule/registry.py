"""Every kind of directive, in canonical order, and those that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.ir.schedule import Directive, Directives
from pto_wsp.lang.schedule.directives.calendar import CalendarPolicy
from pto_wsp.lang.schedule.directives.concurrent import Concurrent
from pto_wsp.lang.schedule.directives.deps import Deps
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.lang.schedule.directives.interleave import Interleave
from pto_wsp.lang.schedule.directives.load_balance import LoadBalance
from pto_wsp.lang.schedule.directives.pools import Pools
from pto_wsp.lang.schedule.directives.prefetch import InputPrefetch
from pto_wsp.lang.schedule.directives.ready import ReadyPolicy
from pto_wsp.lang.schedule.directives.start import StartPolicy
from pto_wsp.lang.schedule.directives.stores import StorePolicy
from pto_wsp.lang.schedule.directives.streams import Streams
from pto_wsp.lang.schedule.directives.timing import TimingPolicy
from pto_wsp.lang.schedule.directives.trace import TracePolicy
from pto_wsp.lang.schedule.directives.window import Window

_KINDS = (
    *(DispatchPolicy, Window, ReadyPolicy, StartPolicy, Streams, Interleave),
    *(LoadBalance, TimingPolicy, Concurrent, Pools, InputPrefetch, StorePolicy, TracePolicy),
    *(Deps, CalendarPolicy),
)
DIRECTIVES: dict[str, type[Directive]] = {directive.kind: directive for directive in _KINDS}


def every_kind(schedule: Directives) -> Iterator[Directive]:
    """Yield the directive of each kind that holds under a schedule, defaults among them."""
    return (schedule.find(kind) or kind.default() for kind in DIRECTIVES.values())


CONFLICTS: dict[tuple[str, str], str] = {
    ("interleave = by", "ready = fifo"): "what starts first is decided by fifo",
    ("load_balance = by_cost", "ready = fifo"): "what starts first is decided by fifo",
}
"""Why a directive is refused together with another one, defaults included."""

PLACES_TASKS = frozenset({"dispatch", "window", "ready", "start", "interleave", "load_balance", "pools"})
"""Kinds whose directives, other than the default, decide where or in which order tasks run."""


def conflict(directive: Directive, schedule: Directives) -> str:
    """Return why a directive is refused together with the others of a schedule; empty if it is not."""
    if directive.title == "calendar = by_cost" and (found := placing(schedule)) is not None:
        return f"`{found.title}` decides where or in which order tasks run, and so does a calendar"
    present = {other.title for other in every_kind(schedule)}
    reasons = (why for (one, other), why in CONFLICTS.items() if one == directive.title and other in present)
    return next(reasons, "")


def placing(schedule: Directives) -> Directive | None:
    """Return a directive that decides where or in which order tasks run, or None."""
    is_symbolic = "deps = symbolic"
    return next((d for d in schedule if d.kind in PLACES_TASKS or d.title == is_symbolic), None)
