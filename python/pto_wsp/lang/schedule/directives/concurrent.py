"""Concurrent: how many iterations of a loop may be in flight."""

from __future__ import annotations

from typing import Self

from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Expr, TaskIndex, walk
from pto_wsp.ir.schedule import Count, Directive, Key, Settings, policy
from pto_wsp.lang.schedule.arguments import Scheduled, count_of, directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record

MAX_IN_FLIGHT = 65536


@record
class Concurrent(Directive):
    """How many keys may be in flight: from the first start of a task until all its tasks are complete."""

    kind, place, mark = "concurrent", 55, "ADMIT"
    name: str
    key: Expr | None = None
    n: int = 0

    @policy(effect="test_defaults_keep_no_tasks_apart")
    def off(self) -> Concurrent:
        """Any number of them."""
        return self

    @policy(Key(), Count(1, MAX_IN_FLIGHT), effect="test_so_many_values_are_in_flight")
    def by(self, key: KeyFunction, n: int) -> Concurrent:
        """Tasks of at most n keys are in flight. A key begins when the n-th key before it is complete.

        Keys are admitted in program order; each loop admits its own keys. A task without the key needs no
        admission. A key that follows no loop is refused.
        """
        return directed(self, key=key, n=n)

    def engine_settings(self) -> Settings:
        """Return the number of keys in flight."""
        return {"in_flight": self.n}

    def refusal(self, entry: w.WorkloadFunction, written: frozenset[str]) -> str:
        """Refuse keys that do not come one after the other in program order."""
        is_refused = self.key is not None and not any(isinstance(part, TaskIndex) for part in walk(self.key))
        return "its key follows no loop, so no iteration ends the flight of a key" if is_refused else ""


class ConcurrentMethods(Scheduled):
    """The bound on what is in flight, as a method."""

    def concurrent(self, key: KeyFunction, max: int) -> Self:
        """Return a copy in which tasks of at most `max` keys are in flight.

        `concurrent(lambda t: t.b, max=4)` begins batch 4 when batch 0 is complete, which bounds the data
        that batches in flight keep in caches.

        Args:
            key: a function of a task that follows a loop.
            max: keys in flight, from 1 to 65,536.

        Raises:
            WrongValue, BadKey, FrontendError: an argument does not fit.
        """
        return self.having(concurrent=Concurrent.by(key, count_of("concurrent's max", max, Concurrent.by)))
