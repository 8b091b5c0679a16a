"""Mistakes with calendars: tables of which core runs which task when."""

from __future__ import annotations

from pto_wsp.errors.base import BindError


class CalendarChanged(BindError):
    """A calendar that was made for another program, or for other sizes, elements or arrays."""

    code = "calendar-changed"
    template = "the calendar does not fit the run: {what}"
    label = "{detail}"
    hint = "make another one with `program.calendar(...)`"


class CalendarUnordered(BindError):
    """A calendar that does not order two tasks that conflict."""

    code = "calendar-unordered"
    template = "the calendar does not order task {task}, `{kernel}`, after task {before}, `{earlier}`"
    label = "expected a wait until {count} of the tasks of core {core} are complete"
    hint = "add the wait to the row of the task, or make the calendar with `program.calendar(...)`"


class BadCalendar(BindError):
    """A calendar that is not a table of the tasks of a run."""

    code = "bad-calendar"
    template = "the calendar cannot be used: {reason}"
    label = "{where}"
    hint = "make it with `program.calendar(...)`"


class CalendarUndecided(BindError):
    """A calendar of a program whose tasks, or whose timing, decides which tasks exist."""

    code = "calendar-undecided"
    template = "`{program}` cannot have a calendar: its tasks are not decided before the run"
    label = "{what}"
    hint = "run it without a calendar, or {remedy}"
