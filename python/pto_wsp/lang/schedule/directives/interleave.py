"""Interleave: which tasks take turns."""

from __future__ import annotations

from typing import Self

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.schedule import Count, Directive, Key, Settings, policy
from pto_wsp.lang.schedule.arguments import Scheduled, count_of, directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record


@record
class Interleave(Directive):
    """Which tasks take turns: tasks with different keys, as many keys at a time as there are places."""

    kind, place, mark = "interleave", 45, "TURN"
    name: str
    key: Expr | None = None
    n: int = 0

    @policy(effect="test_defaults_keep_no_tasks_apart")
    def off(self) -> Interleave:
        """No tasks take turns."""
        return self

    @policy(Key(), Count(1), effect="test_values_take_turns")
    def by(self, key: KeyFunction, n: int) -> Interleave:
        """Ready tasks of n keys at a time, in the order in which they begin, start in turn.

        With `order_by`, its keys decide among the tasks of these n keys. Tasks without the key go first.
        """
        return directed(self, key=key, n=n)

    def engine_settings(self) -> Settings:
        """Return the number of keys that take turns."""
        return {"turns": self.n}


class InterleaveMethods(Scheduled):
    """Turns, as a method."""

    def interleave(self, key: KeyFunction, n: int) -> Self:
        """Return a copy that works on n keys at a time and starts their ready tasks in turn.

        `interleave(lambda t: t.b, 4)` works on four batches at a time, which hides the latency of each.

        Args:
            key: a function of a task.
            n: keys at a time, from 1. The first n keys in program order go first, then the next n.

        Raises:
            WrongValue, BadKey, FrontendError: an argument does not fit.
        """
        return self.having(interleave=Interleave.by(key, count_of("interleave's n", n, Interleave.by)))
