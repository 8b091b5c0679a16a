"""Runs under way: what `Program.submit` returns."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import NoReturn
from weakref import WeakValueDictionary

from pto_wsp.errors import NotYetSupported
from pto_wsp.location import Location, user_location
from pto_wsp.runtime.outcome import Figures, Submitted
from pto_wsp.runtime.stats import RunStats
from pto_wsp.runtime.trace import Trace


class Run:
    """A run that was submitted, and that need not be finished.

    Threads of the pool work on it, whether or not a thread waits. The run holds its arrays; until it is done,
    the program's caller must neither change nor read what it writes, nor change what it reads. A run that is
    dropped is cancelled, and dropping waits until no task runs.

    Attributes:
        location: where it was submitted.
        submitted: the run as its runner knows it.
    """

    def __init__(
        self,
        submitted: Submitted,
        finish: Callable[[Figures, Trace | None], RunStats],
        location: Location | None,
    ) -> None:
        self.location = location
        self.submitted = submitted
        self._finish = finish
        self._lock = threading.Lock()
        self._result: tuple[RunStats, Trace | None] | None = None
        _RUNS[submitted.number] = self

    def __repr__(self) -> str:
        return f"<Run {self.number}, {'done' if self.done else 'under way'}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: threads work on a run.

        Raises:
            NotYetSupported: always.
        """
        raise NotYetSupported(feature="pickling a Run", detail="", advice="wait for it, and keep its `stats`")

    @property
    def number(self) -> int:
        """The number of the run in this process, from 1 on; `RunStats.run` is the same."""
        return self.submitted.number

    @property
    def done(self) -> bool:
        """Whether all tasks are complete, or the run has ended otherwise. It does not wait."""
        return self.submitted.done

    def wait(self) -> RunStats:
        """Lend the calling thread to the run until it is done, and return its figures.

        Any thread may call this, any number of times. Ctrl-C on the main thread cancels the run.

        Returns:
            The figures of the run; `Program.stats` and `Program.trace` are then those of this run.

        Raises:
            KernelFailed: a check inside a kernel failed; earlier tasks have run.
            RunInterrupted: the run was cancelled, or the process forked or exits.
            TimeLimitReached: the run took longer than its `time_limit`; some tasks have run.
            NestedRun: inside a task, or in a `progress` function.
            RegionOutside, BadExpression, Stuck, OutOfMemory, RowsNotKnown: as `Program.run` raises them.
        """
        figures, trace = self.submitted.wait()
        with self._lock:
            if self._result is None:
                self._result = self._finish(figures, trace), trace
        return self._result[0]

    def cancel(self) -> None:
        """End the run: no task begins any more, and kernels end at their next iteration of a loop.

        `wait` then raises `RunInterrupted`.

        A run that is done stays as it is.
        """
        self.submitted.cancel()

    @property
    def stats(self) -> RunStats | None:
        """Figures of the run, or None before `wait` has returned."""
        return self._result[0] if self._result is not None else None

    @property
    def trace(self) -> Trace | None:
        """The record of the run, if one was asked for and `wait` has returned; else None."""
        return self._result[1] if self._result is not None else None


_RUNS: WeakValueDictionary[int, Run] = WeakValueDictionary()
"""The runs of the process by their numbers, for errors that name one."""


def where_started(number: int, thread: int) -> Location | None:
    """Return where a run was submitted, or where thread `thread`, if that is not 0, calls its program."""
    if thread != 0:
        frame = sys._current_frames().get(thread)
        return user_location(frame) if frame is not None else None
    run = _RUNS.get(number)
    return run.location if run is not None else None
