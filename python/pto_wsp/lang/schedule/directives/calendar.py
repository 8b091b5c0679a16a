"""CalendarPolicy: whether tasks run by a table that is made before they start."""

from __future__ import annotations

from pto_wsp.ir import workload as w
from pto_wsp.ir.schedule import Directive, policy
from pto_wsp.support.record import record


@record
class CalendarPolicy(Directive):
    """Whether tasks run by a calendar: a table of which core runs which task when.

    Programs whose tasks decide which tasks exist are refused. `Program.calendar` returns such a table.
    """

    kind, place = "calendar", 95
    name: str

    @policy(effect="test_a_run_without_a_calendar_has_none")
    def off(self) -> CalendarPolicy:
        """Dispatchers place tasks during the run."""
        return self

    @policy(settings={"makes_calendar": True}, effect="test_workers_run_what_the_calendar_says")
    def by_cost(self) -> CalendarPolicy:
        """The first run of given sizes makes a calendar by list scheduling; equal runs use it again.

        Of the tasks that are ready, the one before the longest chain of tasks starts first. Measured times
        are its costs, or those of the simulated device.
        """
        return self

    def refusal(self, entry: w.WorkloadFunction, written: frozenset[str]) -> str:
        """Refuse programs whose tasks write values that decide which tasks exist."""
        decided = w.deciding_tensors(entry.body) & written
        is_refused = self.name == "by_cost" and decided
        return f"`{min(decided)}` decides which tasks exist, and tasks write it" if is_refused else ""
