"""Every kind of directive."""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.ir.schedule import Directive, Schedule
from pto_wsp.lang.schedule.directives import (
    deps,
    dispatch,
    pools,
    ready,
    start,
    stores,
    streams,
    timing,
    trace,
    window,
)

_FILES = (dispatch, window, ready, start, streams, timing, pools, stores, trace, deps)

DIRECTIVES: dict[str, dict[str, type[Directive]]] = {
    file.DIRECTIVES[0].kind: {directive.name: directive for directive in file.DIRECTIVES} for file in _FILES
}
"""Every directive by kind and name; the first of a kind is its default."""


def every_kind(schedule: Schedule) -> Iterator[Directive]:
    """Yield the directive of each kind that holds under a schedule, defaults among them."""
    chosen = {directive.kind: directive for directive in schedule}
    for kind, classes in DIRECTIVES.items():
        yield chosen[kind] if kind in chosen else next(iter(classes.values()))()
