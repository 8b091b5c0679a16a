"""Load balance: whether long tasks start first."""

from __future__ import annotations

from typing import Self

from pto_wsp.errors import WrongValue
from pto_wsp.ir.schedule import Directive, policy
from pto_wsp.lang.schedule.arguments import Scheduled
from pto_wsp.location import caller_location
from pto_wsp.support.record import record


@record
class LoadBalance(Directive):
    """Whether long tasks start first, so that workers end together."""

    kind, place = "load_balance", 46
    name: str

    @policy(effect="test_defaults_keep_no_tasks_apart")
    def off(self) -> LoadBalance:
        """Tasks start whatever they cost."""
        return self

    @policy(settings={"balances": True}, effect="test_the_longest_tasks_start_first")
    def by_cost(self) -> LoadBalance:
        """Of the ready tasks that no key orders, the one with the largest predicted cost starts first.

        The cost is the one that the kernel states, or else the number of elements in its arguments.
        """
        return self


class LoadBalanceMethods(Scheduled):
    """The balance of workers, as a method."""

    def load_balance(self, by: str = "cost") -> Self:
        """Return a copy in which the longest of the ready tasks start first, so that workers end together.

        The keys of `order_by` and the turns of `interleave` decide first.

        Args:
            by: `"cost"`, the predicted cost: that of `@kernel(cost=...)`, or else the number of elements in
                the arguments of the task.

        Raises:
            WrongValue: `by` is something else.
        """
        if by != "cost":
            raise WrongValue(name="by", expected='"cost"', found=repr(by), loc=caller_location())
        return self.having(load_balance=LoadBalance.by_cost())
