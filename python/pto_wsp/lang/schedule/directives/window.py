"""Window: how many tasks can be recorded and not complete."""

from __future__ import annotations

import enum

from pto_wsp.errors import WrongValue
from pto_wsp.ir import workload as w
from pto_wsp.ir.schedule import Count, Directive, Settings, policy
from pto_wsp.lang.schedule.arguments import checked_count, directed
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

DEFAULT_TASKS = 8192
"""The size of a window that is left open."""


@record
class Window(Directive):
    """How many tasks can be recorded and not complete.

    A task that can run when it is expanded needs no room: it is not recorded. The default is 8,192.

    On a simulated device every task is recorded.
    """

    kind, place = "window", 10
    name: str
    n: int = 0

    @policy(Count(0), effect="test_windows_bound_what_is_recorded")
    def stall(self, n: int) -> Window:
        """At most n tasks are recorded and not complete; the walk waits for room."""
        return directed(self, n=n)

    @policy(Count(1), effect="test_abort_ends_the_run_before_the_task_that_has_no_room")
    def abort(self, n: int) -> Window:
        """As `stall`, but where the walk would wait the run ends with an error."""
        return directed(self, n=n)

    @policy(
        Count(1),
        effect="test_benchmark_calls_no_kernel",
        refused={"interp": "it runs tasks by calling kernels, and does nothing else"},
    )
    def benchmark(self, n: int) -> Window:
        """As `stall`, but no kernel is called: the cost of the walk itself."""
        return directed(self, n=n)

    @property
    def size(self) -> int:
        """The most tasks that are recorded at a time."""
        return self.n or DEFAULT_TASKS

    def engine_settings(self) -> Settings:
        """Return the size of the window and its mode."""
        return {"window": self.size, "window_mode": self.name.upper()}

    def refusal(self, entry: w.WorkloadFunction, written: frozenset[str]) -> str:
        """Refuse to call no kernels where their results decide."""
        decided = w.deciding_tensors(entry.body) & written
        is_refused = self.name == "benchmark" and decided
        return f"`{min(decided)}` decides what runs, and tasks write it" if is_refused else ""


class WindowMode(enum.Enum):
    """What happens when the window is full."""

    STALL = "stall"
    ABORT = "abort"
    BENCHMARK = "benchmark"


class TaskWindow:
    """How many tasks can be recorded and not complete: `TaskWindow(8192, "tasks", WindowMode.STALL)`."""

    def __new__(cls, size: int, unit: str = "tasks", mode: WindowMode = WindowMode.STALL) -> Window:
        """Return the directive.

        Raises:
            WrongValue: the size is below 1, the unit is not tasks, or there is no such mode.
        """
        if unit != "tasks":
            raise WrongValue(name="unit", expected='"tasks"', found=repr(unit), loc=caller_location())
        if not isinstance(mode, WindowMode):
            raise WrongValue(name="mode", expected="a WindowMode", found=repr(mode), loc=caller_location())
        return Window(mode.value, checked_count("window's size", size, 1))
