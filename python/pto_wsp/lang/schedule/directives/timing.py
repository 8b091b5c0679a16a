"""Timing: when tasks that are ready start."""

from __future__ import annotations

from pto_wsp.ir.schedule import Count, Directive, Refused, Schedule, Settings
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.support.record import record


class TimingPolicy(Directive):
    """When tasks that are ready start."""

    kind, place = "timing", 50

    @staticmethod
    def immediate() -> TimingPolicy:
        """As soon as there is a worker for them. The default."""
        return WithoutDelay()

    @staticmethod
    def batched(n: int) -> TimingPolicy:
        """In groups of n in program order: no task starts before the group before its own is complete."""
        return directed(InBatches, n=n)

    @staticmethod
    def interleaved(n: int) -> TimingPolicy:
        """Streams take turns, n at a time, in the order in which they begin; needs streams."""
        return directed(StreamsTakeTurns, n=n)

    @staticmethod
    def rate_limit(per_second: int) -> TimingPolicy:
        """At most so many starts per second, evenly spaced: a token bucket with room for one."""
        return directed(AtRate, n=per_second)


class CountedTiming(TimingPolicy):
    """A timing with a number, which one option of the engine takes."""

    parameters = (Count(1),)
    option: str
    n: int

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return the option with the number."""
        return {self.option: self.n}


@record
class WithoutDelay(TimingPolicy):
    """A task starts as soon as it is ready and there is a worker for it."""

    name, is_initial = "immediate", True
    effect = "test_tasks_without_a_stream_run_at_the_same_time"


@record
class InBatches(CountedTiming):
    """Tasks start in groups of n, in program order, one group after the other."""

    name, option, is_walked = "batched", "batch", True
    effect = "test_batches_start_one_after_the_other"
    n: int


@record
class StreamsTakeTurns(CountedTiming):
    """Of n streams at a time, in the order in which they begin, each starts a task in turn."""

    name, option, is_walked = "interleaved", "interleaved", True
    effect = "test_streams_take_turns"
    n: int


@record
class AtRate(CountedTiming):
    """At most n tasks start per second, evenly spaced."""

    name, option, parameters = "rate_limit", "starts_per_second", (Count(1, 10**9),)
    support = (("interp", Refused("it has no clock")),)
    effect = "test_starts_keep_their_distance"
    n: int


DIRECTIVES = (WithoutDelay, InBatches, StreamsTakeTurns, AtRate)
