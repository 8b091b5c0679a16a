"""Start: when tasks begin to run."""

from __future__ import annotations

from pto_wsp.ir.schedule import Count, Directive, Schedule, Settings
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.support.record import record


class StartPolicy(Directive):
    """When tasks begin to run, while the program is being walked or later.

    What is expanded before that is written down as a graph, which later runs replay. Beside a directive about
    the walk it is recorded instead, up to the size of the window, and not kept.
    """

    kind, place = "start", 30

    @staticmethod
    def immediate() -> StartPolicy:
        """While the program is still being walked. The default."""
        return StartAtOnce()

    @staticmethod
    def threshold(n: int) -> StartAfter:
        """When n tasks, or all, have been expanded."""
        return directed(StartAfter, n=n)

    @staticmethod
    def after_build() -> StartPolicy:
        """When all tasks have been expanded."""
        return StartAfterBuild()


@record
class StartAtOnce(StartPolicy):
    """Tasks run while the program is still being walked."""

    name, is_initial = "immediate", True
    effect = "test_a_run_that_starts_at_once_keeps_nothing"


@record
class StartAfter(StartPolicy):
    """No task runs before n of them, or all, have been expanded."""

    name, parameters = "threshold", (Count(1),)
    effect = "test_no_task_starts_before_so_many_are_made"
    n: int

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return how many tasks of a graph, or records of a walk, come first."""
        return {"held": self.n} if schedule.is_walked else {"start": "THRESHOLD", "threshold": self.n}


@record
class StartAfterBuild(StartPolicy):
    """No task runs before all of them have been expanded."""

    name, settings = "after_build", {"start": "AFTER_BUILD"}
    effect = "test_a_graph_is_replayed_while_nothing_that_shaped_it_changes"


DIRECTIVES = (StartAtOnce, StartAfter, StartAfterBuild)
