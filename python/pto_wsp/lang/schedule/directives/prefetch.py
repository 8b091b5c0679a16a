"""Prefetch: inputs of later tasks are fetched while earlier ones run."""

from __future__ import annotations

from typing import Self

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.schedule import Count, Directive, Key, Settings, policy
from pto_wsp.lang.schedule.arguments import Scheduled, count_of, directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record

MAX_AHEAD = 1024


@record
class InputPrefetch(Directive):
    """Which inputs are fetched into a cache before their tasks begin."""

    kind, place, mark = "prefetch", 65, "PREFETCH"
    name: str
    key: Expr | None = None
    n: int = 0

    @policy(effect="test_defaults_fetch_nothing")
    def off(self) -> InputPrefetch:
        """None: tasks fetch their inputs themselves."""
        return self

    @policy(Key(), Count(1, MAX_AHEAD), effect="test_inputs_of_the_next_keys_are_fetched")
    def by(self, key: KeyFunction, n: int) -> InputPrefetch:
        """While tasks of a key run, the inputs of tasks of the next n keys are fetched.

        Keys are in program order. The order of tasks and their waits do not change.
        """
        return directed(self, key=key, n=n)

    def engine_settings(self) -> Settings:
        """Return how many keys are fetched ahead."""
        return {"prefetch": self.n}


class PrefetchMethods(Scheduled):
    """Fetching inputs ahead, as a method."""

    def prefetch(self, key: KeyFunction, ahead: int = 1) -> Self:
        """Return a copy in which the inputs of the next keys are fetched while tasks of a key run.

        `prefetch(lambda t: t.b)` fetches the inputs of batch 1 while batch 0 runs. This hides the latency of
        memory where a processor cannot predict addresses: rows that an index array selects, or small regions.

        Args:
            key: a function of a task.
            ahead: keys whose inputs are fetched, from 1 to 1,024.

        Raises:
            WrongValue, BadKey, FrontendError: an argument does not fit.
        """
        return self.having(
            prefetch=InputPrefetch.by(key, count_of("prefetch's ahead", ahead, InputPrefetch.by))
        )
