"""Ready: which of the tasks that are ready starts first."""

from __future__ import annotations

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.schedule import Directive, Key, policy
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record


@record
class ReadyPolicy(Directive):
    """Which of the tasks that are ready starts first."""

    kind, place, mark = "ready", 20, "PRIORITY"
    name: str
    key: Expr | None = None

    @policy(effect="test_ready_tasks_run_at_once_unless_an_order_is_asked_for")
    def work_steal(self) -> ReadyPolicy:
        """A dispatcher runs a task that is ready when it expands it; idle workers take recorded tasks."""
        return self

    @policy(settings={"ready": "FIFO"}, effect="test_fifo_starts_tasks_in_program_order")
    def fifo(self) -> ReadyPolicy:
        """Of the tasks that are ready, the first in program order starts first."""
        return self

    @policy(
        Key(),
        settings={"ready": "PRIORITY"},
        effect="test_the_largest_key_of_the_ready_starts_first",
    )
    def priority(self, key: KeyFunction) -> ReadyPolicy:
        """Of the tasks that are ready, one with the largest key starts first.

        A task without the key has priority 0. Of equal keys, the first in program order starts first.
        """
        return directed(self, key=key)
