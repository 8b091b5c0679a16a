"""The schedules of a program: one, or several that runs choose from."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property

from pto_wsp.errors import UnusableFile, WrongValue
from pto_wsp.ir.module import Module
from pto_wsp.lang.schedule.directives.trace import LEVELS, TracePolicy
from pto_wsp.lang.schedule.schedule import Schedule
from pto_wsp.lang.schedule.strategies import RunSizes, Strategies
from pto_wsp.location import caller_location
from pto_wsp.runtime.outcome import Runner
from pto_wsp.runtime.prepared import check_schedule
from pto_wsp.support.record import record


@record
class ScheduledProgram:
    """A program under one schedule.

    Attributes:
        name: that of the strategy, or an empty text if the program has one schedule.
        module: the IR with the schedule.
        runner: runs it.
    """

    name: str
    module: Module
    runner: Runner

    @cached_property
    def level(self) -> int:
        """What the schedule says to record."""
        scheduled = self.module.schedule.find(TracePolicy)
        return 0 if scheduled is None else LEVELS.index(scheduled.name)


class ChosenSchedules:
    """The schedules of a program. Their runners share its kernels.

    Attributes:
        current: the one of the last run.
    """

    def __init__(self, target: str, first: ScheduledProgram) -> None:
        self.current = first
        self._target = target
        self._strategies: Strategies | None = None
        self._by_name = {"": first}

    def replace(self, schedule: Schedule | Strategies) -> None:
        """Replace all schedules.

        Raises:
            WrongValue, BadKey, UnsupportedByTarget: as `Program.reschedule` raises.
        """
        if not isinstance(schedule, (Schedule, Strategies)):
            expected = "a Schedule, or Strategies"
            raise WrongValue(name="schedule", expected=expected, found=repr(schedule), loc=caller_location())
        strategies = schedule if isinstance(schedule, Strategies) else None
        schedules = schedule.schedules if isinstance(schedule, Strategies) else {"": schedule}
        modules = {n: self.current.module.with_schedule(s.policies) for n, s in schedules.items()}
        for module in modules.values():
            check_schedule(module, self._target)
        runner = self.current.runner
        self._by_name = {
            n: ScheduledProgram(n, module, runner.rescheduled(module)) for n, module in modules.items()
        }
        self._strategies = strategies
        self.current = next(iter(self._by_name.values()))

    @property
    def schedule(self) -> Schedule | Strategies:
        """The schedule, or the strategies."""
        return self._strategies or Schedule(self.current.module.schedule)

    def choose(self, sizes: Callable[[], RunSizes]) -> ScheduledProgram:
        """Return the program as a run of these sizes has it."""
        if self._strategies is None:
            return self.current
        return self._by_name[self._strategies.choose(sizes())]

    def require_one(self, path: str | os.PathLike[str]) -> Module:
        """Return the IR with its schedule, or raise UnusableFile if runs choose the schedule."""
        if self._strategies is not None:
            reason = "runs choose its schedule: take one of them with `reschedule`"
            raise UnusableFile(what="written", path=path, reason=reason)
        return self.current.module
