"""Calls of a program: their options are checked, and their values are bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pto_wsp.errors import CalendarChanged, UnsupportedByTarget, WrongValue
from pto_wsp.lang.captured import Captured
from pto_wsp.lang.schedule.registry import placing
from pto_wsp.lang.schedule.strategies import RunSizes
from pto_wsp.location import caller_location
from pto_wsp.runtime.binding import Binder, Bound
from pto_wsp.runtime.calendar import Calendar, identity_of
from pto_wsp.runtime.chosen_schedules import ChosenSchedules, ScheduledProgram
from pto_wsp.runtime.networks import require_one_order, require_separate
from pto_wsp.runtime.outcome import CalendarMaker, RunRequest
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.runtime.run_options import (
    require_outermost,
    stream_number,
    time_limit_ns,
    trace_level,
    worker_count,
)


@dataclass(slots=True)
class CallOptions:
    """The options of `Program.run`, as the caller gave them."""

    workers: int | None = None
    trace: bool | str | None = None
    check: str | None = None
    progress: Callable[[int], object] | None = None
    time_limit: float | None = None
    stream: object = None
    calendar: Calendar | None = None

    def require_check_alone(self) -> None:
        """Refuse other options next to `check`."""
        others = ("workers", "trace", "progress", "time_limit", "stream", "calendar")
        given = ", ".join(f"`{name}`" for name in others if getattr(self, name) is not None)
        if given:
            expected, loc = 'no other option with `check="values"`', caller_location()
            raise WrongValue(name="check", expected=expected, found=given, loc=loc)


class CallChecker:
    """Turns the calls of a program into requests to its runner.

    Args:
        prepared: the program.
        captured: variables around the workload, which must not change.
        binder: knows the parameters.
        schedules: those that a call chooses from.
    """

    def __init__(
        self, prepared: Prepared, captured: Captured, binder: Binder, schedules: ChosenSchedules
    ) -> None:
        self._prepared = prepared
        self._captured = captured
        self._binder = binder
        self._schedules = schedules
        self._target = prepared.target.name
        self._name = prepared.module.entry_workload.name
        self._is_network = bool(prepared.module.entry_workload.processes)

    @cached_property
    def identity(self) -> str:
        """What a calendar states of the program that it is for; schedules are not part of it."""
        return identity_of(self._prepared.module)

    def request(
        self, values: Mapping[str, Any], options: CallOptions, unnamed: tuple[object, ...] = ()
    ) -> tuple[Bound, RunRequest, ScheduledProgram]:
        """Return the bound values of a call, the request to a runner, and the program with its schedule.

        Raises:
            PtoError: as `Program.run` raises before the first task.
        """
        require_outermost()
        if unnamed:
            expected = "values by name: " + ", ".join(f"{name}=..." for name in self._binder.params)
            raise WrongValue(name="argument 1", expected=expected, found="a value without a name")
        check, progress, calendar = options.check, options.progress, options.calendar
        if check not in (None, "hazards", "values"):
            raise WrongValue(name="check", expected='None, "hazards" or "values"', found=repr(check))
        self._captured.check()
        number = stream_number(
            options.stream, self._target, has_streams=self._prepared.target.takes_gpu_arrays
        )
        bound = self._binder.bind(values, number)
        scheduled = self._schedules.choose(lambda: RunSizes(*self._binder.sizes_of(bound)))
        self._schedules.current = scheduled
        level = scheduled.level if options.trace is None else trace_level(options.trace)
        if self._is_network:
            self._require_network_run(bound, check, level)
        if progress is not None and not callable(progress):
            expected = "a function of one number, or None"
            raise WrongValue(name="progress", expected=expected, found=repr(progress))
        workers = options.workers if calendar is None else self._workers_of(calendar, options.workers)
        count, limit_ns = worker_count(workers), time_limit_ns(options.time_limit)
        has_check = check is not None
        request = RunRequest(bound.arrays, bound.scalars, count, level, has_check, progress, limit_ns)
        request.stream = number
        request.calendar = None if calendar is None else calendar.native
        return bound, request, scheduled

    def calendar_maker(self) -> CalendarMaker:
        """Return what makes and runs calendars of the current schedule.

        Raises:
            UnsupportedByTarget: the target runs none.
            WrongValue: a directive places or orders tasks.
        """
        runner, module = self._schedules.current.runner, self._schedules.current.module
        if not isinstance(runner, CalendarMaker):
            reason = "only `cpu` and `sim` run tasks by a calendar"
            raise UnsupportedByTarget(target=self._target, what="a calendar", reason=reason)
        if (found := placing(module.schedule)) is not None:
            expected = f"a schedule without `{found.title}`, which decides where or in which order tasks run"
            raise WrongValue(name="calendar", expected=expected, found="both", loc=caller_location())
        return runner

    def _workers_of(self, calendar: Calendar, workers: int | None) -> int | None:
        """Check a calendar against the program, and return the number of workers of its run."""
        if not isinstance(calendar, Calendar):
            expected = "a Calendar, as `program.calendar` returns it, or None"
            raise WrongValue(
                name="calendar", expected=expected, found=type(calendar).__name__, loc=caller_location()
            )
        runner = self.calendar_maker()
        name, identity = calendar.program
        if identity != self.identity:
            detail = f"expected `{self._name}` as it is now, found `{name}`"
            raise CalendarChanged(what="it is that of another program", detail=detail, loc=caller_location())
        is_simulated = runner.clock_ghz is not None
        if is_simulated != (calendar.unit == "cycles"):
            detail = f"found times in {calendar.unit}"
            what = "it is for cores of a device" if calendar.unit == "cycles" else "it is for workers"
            raise CalendarChanged(what=what, detail=detail, loc=caller_location())
        if is_simulated:
            return workers
        if workers not in (None, len(calendar.cores)):
            expected = f"{len(calendar.cores)}, as the calendar has"
            raise WrongValue(name="workers", expected=expected, found=str(workers), loc=caller_location())
        return len(calendar.cores)

    def _require_network_run(self, bound: Bound, check: str | None, level: int) -> None:
        """Refuse options and arrays that a run of a network does not take."""
        if check is not None:
            require_one_order(self._prepared.module.entry_workload, f"`check={check!r}`")
        if level and self._target == "sim":
            advice = "`report_of(program).network` has the tasks and tokens of its processes"
            raise UnsupportedByTarget(
                target="sim", what="`trace` of a network", reason=advice, loc=caller_location()
            )
        require_separate(self._prepared.module, bound.arrays)
