"""Trace: what runs record."""

from __future__ import annotations

from pto_wsp.ir.schedule import Directive, Refused
from pto_wsp.support.record import record

_SILENT = (("interp", Refused("it records nothing; `Program.task_graph` does")),)


class TracePolicy(Directive):
    """What runs record in `Program.trace`, unless `run(trace=...)` says otherwise."""

    kind, place = "trace", 80

    @staticmethod
    def off() -> TracePolicy:
        """Nothing. The default."""
        return TraceOff()

    @staticmethod
    def tasks() -> TracePolicy:
        """Where and when each task ran."""
        return TraceTasks()

    @staticmethod
    def full() -> TracePolicy:
        """As `tasks`, and what dispatchers did: when they expanded tasks, and what stopped them."""
        return TraceFull()


@record
class TraceOff(TracePolicy):
    """Nothing is recorded."""

    name, is_initial = "off", True
    effect = "test_a_trace_is_as_full_as_the_schedule_says"


@record
class TraceTasks(TracePolicy):
    """Which worker ran each task, when, and which dispatcher expanded it."""

    name, support = "tasks", _SILENT
    effect = "test_a_trace_is_as_full_as_the_schedule_says"


@record
class TraceFull(TracePolicy):
    """As `tasks`, and when dispatchers expanded tasks and what stopped them."""

    name, support = "full", _SILENT
    effect = "test_a_full_trace_records_dispatchers"


DIRECTIVES = (TraceOff, TraceTasks, TraceFull)
"""In ascending order of what is recorded: the index is the level that a run takes."""

LEVELS = tuple(directive.name for directive in DIRECTIVES)
