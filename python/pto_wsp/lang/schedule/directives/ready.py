"""Ready: which of the tasks that are ready starts first."""

from __future__ import annotations

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.schedule import Directive, Key
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.lang.schedule.keys import KeyFunction
from pto_wsp.support.record import record


class ReadyPolicy(Directive):
    """Which of the tasks that are ready starts first."""

    kind, place = "ready", 20

    @staticmethod
    def work_steal() -> ReadyPolicy:
        """A worker continues with what it made ready, and takes from others when idle. The default."""
        return OwnFirst()

    @staticmethod
    def fifo() -> ReadyPolicy:
        """The first in program order."""
        return ProgramOrderFirst()

    @staticmethod
    def priority(key: KeyFunction) -> LargestKeyFirst:
        """One with the largest key; of equal ones the first in program order."""
        return directed(LargestKeyFirst, key=key)


@record
class OwnFirst(ReadyPolicy):
    """A worker continues with what it made ready, and takes from others when idle."""

    name, is_initial = "work_steal", True
    effect = "test_a_worker_continues_with_what_it_made_ready"


@record
class ProgramOrderFirst(ReadyPolicy):
    """Of the tasks that are ready, the first in program order starts first."""

    name, settings = "fifo", {"ready": "FIFO"}
    effect = "test_fifo_starts_tasks_in_program_order"


@record
class LargestKeyFirst(ReadyPolicy):
    """Of the tasks that are ready, one with the largest key starts first.

    A task without the key has priority 0. Of equal keys, the first in program order starts first.
    """

    name, settings, parameters, mark = "priority", {"ready": "PRIORITY"}, (Key(),), "PRIORITY"
    is_walked = True
    effect = "test_the_largest_key_of_the_ready_starts_first"
    key: Expr


DIRECTIVES = (OwnFirst, ProgramOrderFirst, LargestKeyFirst)
