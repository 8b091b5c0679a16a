"""Streams: which tasks run in program order, one at a time."""

from __future__ import annotations

from typing import Self

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.schedule import Count, Directive, Key, Settings, policy
from pto_wsp.lang.schedule.arguments import Scheduled, checked_count
from pto_wsp.lang.schedule.keys import KeyFunction, trace_key
from pto_wsp.support.record import record, replace

_ONE_AT_A_TIME = "test_tasks_of_a_stream_run_one_at_a_time"


@record
class Streams(Directive):
    """Which tasks are in one stream: they start in program order, one at a time."""

    kind, place, mark = "streams", 40, "STREAM"
    name: str
    key: Expr | None = None
    n: int = 0

    @policy(effect="test_defaults_keep_no_tasks_apart")
    def off(self) -> Streams:
        """Tasks are in no streams."""
        return self

    @policy(Count(1), settings={"streams": "IN_TURN"}, effect=_ONE_AT_A_TIME)
    def in_turn(self, n: int) -> Streams:
        """Every n-th task is in one stream."""
        return Streams(self.name, n=checked_count("streams", n, 1))

    @policy(Key(), Count(0), settings={"streams": "BY_KEY"}, effect=_ONE_AT_A_TIME)
    def by(self, key: KeyFunction, n: int = 0) -> Streams:
        """Tasks with equal keys are in one stream: key modulo n, or any key if n is open.

        A task without the key is in no stream.
        """
        return Streams(self.name, trace_key("stream_by", key), n)

    def engine_settings(self) -> Settings:
        """Return what is in one stream, and the number of streams."""
        return {**self.policy.settings, "num_streams": self.n}


class StreamMethods(Scheduled):
    """The directives of streams, as methods."""

    def streams(self, n: int) -> Self:
        """Return a copy whose tasks are in n streams; without `stream_by` they go to them in turn.

        Raises:
            WrongValue: n is not an integer from 1.
        """
        found, present = Streams.in_turn(n), self.policies.find(Streams)
        if present is not None and present.name == "by":
            found = replace(present, n=found.n)
        return self.having(streams=found)

    def stream_by(self, key: KeyFunction) -> Self:
        """Return a copy whose tasks are in streams by a key: modulo their number, or one stream per key.

        Raises:
            WrongValue, BadKey, FrontendError: the key is not a function of a task that gives an integer.
        """
        present = self.policies.find(Streams)
        return self.having(streams=Streams.by(key, 0 if present is None else present.n))
