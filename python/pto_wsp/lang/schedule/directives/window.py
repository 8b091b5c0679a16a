"""Window: how many tasks can be recorded and not complete."""

from __future__ import annotations

import enum

from pto_wsp.errors import WrongValue
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Count, Directive, Refused, Schedule, Settings
from pto_wsp.lang.schedule.arguments import checked_count
from pto_wsp.location import caller_location
from pto_wsp.support.record import record

DEFAULT_TASKS = 8192
"""The size of a window that is left open."""


class Window(Directive):
    """How many tasks can be recorded and not complete.

    Attributes:
        n: the number of tasks; 0 stands for 8,192.
    """

    kind, place = "window", 10
    parameters = (Count(1),)
    is_walked = True
    mode: str
    n: int

    @property
    def size(self) -> int:
        """The most tasks that are recorded at a time."""
        return self.n or DEFAULT_TASKS

    def engine_settings(self, schedule: Schedule) -> Settings:
        """Return the size of the window and its mode."""
        return {"window": self.size, "window_mode": self.mode}


@record
class StallWindow(Window):
    """At most n tasks are recorded and not complete; the walk waits for room."""

    name, mode, parameters, is_initial = "stall", "STALL", (Count(0),), True
    effect = "test_windows_bound_what_is_recorded"
    n: int = 0


@record
class AbortWindow(Window):
    """As `stall`, but where the walk would wait the run ends with an error."""

    name, mode = "abort", "ABORT"
    effect = "test_abort_ends_the_run_before_the_task_that_has_no_room"
    n: int


@record
class BenchmarkWindow(Window):
    """As `stall`, but no kernel is called: the cost of the walk itself."""

    name, mode = "benchmark", "BENCHMARK"
    support = (("interp", Refused("it runs tasks by calling kernels, and does nothing else")),)
    effect = "test_benchmark_calls_no_kernel"
    n: int

    def refusal(self, module: Module) -> str:
        """Refuse programs in which the results of kernels decide."""
        decided = w.deciding_tensors(module.entry_workload.body) & module.written
        return f"`{min(decided)}` decides what runs, and tasks write it" if decided else ""


DIRECTIVES = (StallWindow, AbortWindow, BenchmarkWindow)


class WindowMode(enum.Enum):
    """What happens when the window is full."""

    STALL = "stall"
    ABORT = "abort"
    BENCHMARK = "benchmark"


class TaskWindow:
    """How many tasks can be recorded and not complete: `TaskWindow(8192, "tasks", WindowMode.STALL)`.

    A task that can run when it is expanded needs no room: it is not recorded. The default is 8,192, STALL.
    """

    def __new__(cls, size: int, unit: str = "tasks", mode: WindowMode = WindowMode.STALL) -> Window:
        """Return the directive.

        Raises:
            WrongValue: the size is below 1, the unit is not tasks, or there is no such mode.
        """
        if unit != "tasks":
            raise WrongValue(name="unit", expected='"tasks"', found=repr(unit), loc=caller_location())
        if not isinstance(mode, WindowMode):
            raise WrongValue(name="mode", expected="a WindowMode", found=repr(mode), loc=caller_location())
        directive = next(directive for directive in DIRECTIVES if directive.name == mode.value)
        return directive(checked_count(f"{mode.value}'s n", size, 1, Count.most))
