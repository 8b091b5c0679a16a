"""Trace: what runs record."""

from __future__ import annotations

from pto_wsp.ir.schedule import Directive, policy
from pto_wsp.support.record import record

_SILENT = {"interp": "it records nothing; `Program.task_graph` does"}
_AS_FULL = "test_a_trace_is_as_full_as_the_schedule_says"


@record
class TracePolicy(Directive):
    """What runs record in `Program.trace`, unless `run(trace=...)` says otherwise."""

    kind, place = "trace", 80
    name: str

    @policy(effect=_AS_FULL)
    def off(self) -> TracePolicy:
        """Nothing is recorded."""
        return self

    @policy(refused=_SILENT, effect=_AS_FULL)
    def tasks(self) -> TracePolicy:
        """Which worker ran each task, when, and which dispatcher expanded it."""
        return self

    @policy(refused=_SILENT, effect=_AS_FULL)
    def full(self) -> TracePolicy:
        """As `tasks`, and when dispatchers expanded tasks and what stopped them."""
        return self


LEVELS = tuple(TracePolicy.policies)
"""In ascending order of what is recorded: the index is the level that a run takes."""
