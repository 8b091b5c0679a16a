"""Ready: which of the tasks that are ready starts first."""

from __future__ import annotations

from typing import Self

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.schedule import Directive, Keys, policy
from pto_wsp.lang.schedule.arguments import Scheduled, directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record

MAX_KEYS = 4


@record
class ReadyPolicy(Directive):
    """Which of the tasks that are ready starts first."""

    kind, place, mark = "ready", 20, "ORDER"
    name: str
    keys: tuple[Expr, ...] = ()

    @policy(effect="test_ready_tasks_run_at_once_unless_an_order_is_asked_for")
    def work_steal(self) -> ReadyPolicy:
        """A dispatcher runs a task that is ready when it expands it; idle workers take recorded tasks."""
        return self

    @policy(settings={"ready": "FIFO"}, effect="test_fifo_starts_tasks_in_program_order")
    def fifo(self) -> ReadyPolicy:
        """Of the tasks that are ready, the first in program order starts first."""
        return self

    @policy(
        Keys(MAX_KEYS), settings={"ready": "ORDERED"}, effect="test_the_least_keys_of_the_ready_start_first"
    )
    def _order_by(self, *keys: KeyFunction) -> ReadyPolicy:
        """Of the tasks that are ready, one with the least keys starts first, compared one after the other.

        A key that a task lacks is 0 for this task. Of equal keys, the first in program order starts first.
        """
        return directed(self, keys=keys)


class ReadyMethods(Scheduled):
    """The order of ready tasks, as a method."""

    def order_by(self, *keys: KeyFunction) -> Self:
        """Return a copy whose ready tasks start in the order of their keys, the least first.

        `order_by(lambda t: t.b, lambda t: t.kernel)` finishes one batch after the other, and within a batch
        one kernel after the other. `order_by(lambda t: -t.args.k.rows)` starts the longest tasks first.

        Args:
            keys: one to four functions of a task. The second decides between tasks whose first keys are
                equal, and so on. A key that a task lacks is 0 for this task.

        Raises:
            WrongValue, BadKey, FrontendError: a key is not a function of a task that gives an integer, or
                there are none or more than four.
        """
        return self.having(ready=ReadyPolicy._order_by(*keys))
