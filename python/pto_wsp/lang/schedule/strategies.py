"""Strategies: schedules of one program, one of which each run chooses by its sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pto_wsp.errors import UnknownName, WrongValue, did_you_mean
from pto_wsp.ir.scalar import Value
from pto_wsp.lang.schedule.schedule import Schedule
from pto_wsp.location import caller_location


class RunSizes:
    """The sizes of a run, for the function that chooses its strategy.

    `s.batch` is the size, the scalar or the dimension `batch`; `s.kv` are the lengths of the rows of the
    ragged or sparse axis `kv`: [rows] i64, so `s.kv.mean()` is their mean. Names with other characters than
    those of Python names are items: `s["kv.count"]`.
    """

    def __init__(self, sizes: Mapping[str, Value], lengths: Mapping[str, np.ndarray]) -> None:
        self._known: dict[str, Value | np.ndarray] = {**sizes, **lengths}

    def __getitem__(self, name: str) -> Value | np.ndarray:
        if name not in self._known:
            advice = did_you_mean(name, self._known)
            raise UnknownName(name=name, where="the sizes of a run", advice=advice, loc=caller_location())
        return self._known[name]

    def __getattr__(self, name: str) -> Value | np.ndarray:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]


class Strategies:
    """Schedules by name. Each run chooses one of them by its sizes, without compiling.

    `program.reschedule(Strategies({"long": pipelined, "short": Schedule()}, choose=lambda s: "long" if
    s.kv.mean() > 4096 else "short"))`. `program.stats.schedule` names the one of the last run.

    Attributes:
        schedules: the schedules by name.
    """

    def __init__(self, schedules: Mapping[str, Schedule], choose: Callable[[RunSizes], str]) -> None:
        """Make strategies.

        Args:
            schedules: at least one, by name.
            choose: a function of the sizes of a run that returns the name of its schedule.

        Raises:
            WrongValue: an argument is something else.
        """
        loc = caller_location()
        is_sound = isinstance(schedules, Mapping) and all(
            isinstance(name, str) and isinstance(schedule, Schedule) for name, schedule in schedules.items()
        )
        if not is_sound or not schedules:
            expected = "a dictionary of schedules by name"
            raise WrongValue(name="schedules", expected=expected, found=repr(schedules), loc=loc)
        if not callable(choose):
            expected = "a function of the sizes of a run"
            raise WrongValue(name="choose", expected=expected, found=repr(choose), loc=loc)
        self.schedules = dict(schedules)
        self._choose = choose

    def choose(self, sizes: RunSizes) -> str:
        """Return the name of the schedule for a run.

        Raises:
            WrongValue: the function returned something else.
        """
        name = self._choose(sizes)
        if name not in self.schedules:
            expected = " or ".join(map(repr, self.schedules))
            raise WrongValue(name="choose", expected=expected, found=repr(name), loc=caller_location())
        return name

    def __repr__(self) -> str:
        return f"<Strategies: {', '.join(self.schedules)}>"
