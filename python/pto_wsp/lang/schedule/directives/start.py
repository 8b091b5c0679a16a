"""Start: when tasks begin to run."""

from __future__ import annotations

from pto_wsp.ir.schedule import Count, Directive, Settings, policy
from pto_wsp.lang.schedule.arguments import directed
from pto_wsp.support.record import record


@record
class StartPolicy(Directive):
    """When tasks begin to run.

    Tasks that are expanded before that are written down as a graph, which later runs replay.
    """

    kind, place = "start", 30
    name: str
    n: int = 0

    @policy(effect="test_a_run_that_starts_at_once_keeps_nothing")
    def immediate(self) -> StartPolicy:
        """Tasks run while the program is still being walked."""
        return self

    @policy(Count(1), settings={"start": "THRESHOLD"}, effect="test_no_task_starts_before_so_many_are_made")
    def threshold(self, n: int) -> StartPolicy:
        """No task runs before n of them, or all, have been expanded."""
        return directed(self, n=n)

    @policy(
        settings={"start": "AFTER_BUILD"},
        effect="test_a_graph_is_replayed_while_nothing_that_shaped_it_changes",
    )
    def after_build(self) -> StartPolicy:
        """No task runs before all of them have been expanded."""
        return self

    def engine_settings(self) -> Settings:
        """Return when tasks begin to run, and how many are expanded before."""
        return {**self.policy.settings, "threshold": self.n}
