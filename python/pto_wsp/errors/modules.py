"""Modules and schedules that break a rule."""

from __future__ import annotations

from pto_wsp.errors.base import ScheduleError, VerifyError


class InvalidIR(VerifyError):
    """A module that no front end should have built."""

    code = "invalid-ir"
    template = "{message}"


class BadKey(ScheduleError):
    """A key of a schedule that no task has, that is ambiguous, or that is not an integer."""

    code = "bad-key"
    template = "{problem}"
    label = "{detail}"
    hint = "{advice}"


class ScheduledPart(ScheduleError):
    """A workload with a schedule of its own inside another one."""

    code = "scheduled-part"
    template = "`{part}` has a schedule, and is part of another workload"
    label = "a program has one schedule"
    hint = "give the schedule to the whole workload"
