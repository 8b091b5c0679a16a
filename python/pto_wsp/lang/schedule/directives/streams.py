"""Streams: which tasks run in program order, one at a time."""

from __future__ import annotations

from typing import TypeVar

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.schedule import Count, Directive, Key, Schedule, Settings
from pto_wsp.lang.schedule.arguments import checked_count, directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.lang.schedule.scheduled import Scheduled
from pto_wsp.support.record import record

S = TypeVar("S", bound=Scheduled)


class Streams(Directive):
    """Which tasks are in one stream: they start in program order, one at a time.

    Attributes:
        n: the number of streams; 0 stands for one per key.
    """

    kind, place = "streams", 40
    is_walked = True
    n: int = 0


@record
class NoStreams(Streams):
    """Tasks are in no streams."""

    name, is_initial = "off", True
    effect = "test_tasks_without_a_stream_run_at_the_same_time"


@record
class StreamsInTurn(Streams):
    """Every n-th task is in one stream: they start in program order, one at a time."""

    name, parameters = "in_turn", (Count(1),)
    effect = "test_tasks_of_a_stream_run_one_at_a_time"
    n: int

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return the number of streams."""
        return {"streams": "IN_TURN", "num_streams": self.n}


@record
class StreamsByKey(Streams):
    """Tasks with equal keys are in one stream: key modulo n, or any key if n is open.

    A task without the key is in no stream.
    """

    name, parameters, mark = "by", (Key(), Count(0)), "STREAM"
    effect = "test_tasks_of_a_stream_run_one_at_a_time"
    key: Expr
    n: int = 0

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return the number of streams."""
        return {"streams": "BY_KEY", "num_streams": self.n}


DIRECTIVES = (NoStreams, StreamsInTurn, StreamsByKey)


class StreamMethods(Scheduled):
    """The directives of streams, as methods."""

    def streams(self: S, n: int) -> S:
        """Return a copy whose tasks are in n streams; without `stream_by` they go to them in turn.

        Tasks of one stream start in program order, one at a time.

        Raises:
            WrongValue: n is not an integer from 1.
        """
        checked_count("streams", n, 1, Count.most)
        by_key = self.policies.find(StreamsByKey)
        return self.having(StreamsInTurn(n) if by_key is None else StreamsByKey(by_key.key, n))

    def stream_by(self: S, key: KeyFunction) -> S:
        """Return a copy whose tasks are in streams by a key: modulo their number, or one stream per key.

        Raises:
            WrongValue, BadKey, FrontendError: the key is not a function of a task that gives an integer.
        """
        present = self.policies.find(Streams)
        return self.having(directed(StreamsByKey, key=key, n=0 if present is None else present.n))
