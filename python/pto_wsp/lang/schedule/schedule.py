"""Schedules on their own: made once, given to workloads and programs."""

from __future__ import annotations

from pto_wsp.ir import schedule as ir
from pto_wsp.ir.printer import print_directive
from pto_wsp.lang.schedule.schedulable import Schedulable
from pto_wsp.visualize.notebook import schedule_html


class Schedule(Schedulable):
    """How tasks run: `Schedule().dispatch(DispatchPolicy.work_steal()).task_graph(window=TaskWindow(64))`.

    It never changes a result. What it does not mention is the default.

    Attributes:
        policies: its directives.
    """

    kind = "schedule"

    def __init__(self, policies: ir.Directives = ir.DEFAULT) -> None:
        self.policies = policies

    def _scheduled(self, policies: ir.Directives) -> Schedule:
        return Schedule(policies)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.policies == other.policies

    def __hash__(self) -> int:
        return hash(self.policies)

    def _repr_html_(self) -> str:
        return schedule_html(self.policies)

    def __repr__(self) -> str:
        return f"<Schedule: {'; '.join(map(print_directive, self.policies)) or 'the default'}>"
