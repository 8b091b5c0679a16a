"""Timing: when tasks that are ready start."""

from __future__ import annotations

from pto_wsp.ir.schedule import Count, Directive, Settings, policy
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.support.record import record

_OPTIONS = {"batched": "batch", "rate_limit": "starts_per_second"}


@record
class TimingPolicy(Directive):
    """When tasks that are ready start."""

    kind, place = "timing", 50
    name: str
    n: int = 0

    @policy(effect="test_defaults_keep_no_tasks_apart")
    def immediate(self) -> TimingPolicy:
        """A task starts as soon as it is ready and there is a worker for it."""
        return self

    @policy(Count(1), effect="test_batches_start_one_after_the_other")
    def batched(self, n: int) -> TimingPolicy:
        """Tasks start in groups of n, in program order, one group after the other."""
        return directed(self, n=n)

    @policy(Count(1, 10**9), refused={"interp": "it has no clock"}, effect="test_starts_keep_their_distance")
    def rate_limit(self, per_second: int) -> TimingPolicy:
        """At most n tasks start per second, evenly spaced: a token bucket with room for one."""
        return directed(self, n=per_second)

    def engine_settings(self) -> Settings:
        """Return the option of the timing, with its number."""
        return {_OPTIONS[self.name]: self.n}
