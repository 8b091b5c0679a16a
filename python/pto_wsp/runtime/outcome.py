"""What a runner reports of one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from pto_wsp import _native
from pto_wsp.errors import RunError
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import record

if TYPE_CHECKING:
    from pto_wsp.advice.report import Report


@dataclass(slots=True)
class RunRequest:
    """What a runner is asked for. Each run makes one, with slots in half the time of a record.

    Attributes:
        arrays: one per tensor of the workload, in order.
        scalars: one per size and scalar, in order; None where arrays decide.
        workers: threads to use; 0 means all cores.
        trace: what to record: 0 nothing, 1 tasks, 2 what dispatchers do too.
        check: whether to check what P states.
        progress: called with the number of tasks that are complete, or None.
        time_limit_ns: not 0: the run ends so long after it began.
        jitter: seed of random delays before tasks, for tests of the engine; 0 means none.
        stream: of a GPU, as a number: the run is ordered in it. None where a program runs on the CPU.
        calendar: where and in which order tasks run, or None.
    """

    arrays: Sequence[np.ndarray]
    scalars: Sequence[Value | None]
    workers: int = 0
    trace: int = 0
    check: bool = False
    progress: Callable[[int], object] | None = None
    time_limit_ns: int = 0
    jitter: int = 0
    stream: int | None = None
    calendar: _native.Calendar | None = None


class Figures(Protocol):
    """What a run did, in numbers."""

    @property
    def run(self) -> int:
        """The number of the run in this process, or 0."""
        ...

    @property
    def tasks(self) -> int:
        """Tasks that ran."""
        ...

    @property
    def workers(self) -> int:
        """Threads that may have run them."""
        ...

    @property
    def run_ns(self) -> int:
        """Nanoseconds until the last task's end."""
        ...

    @property
    def counters(self) -> Mapping[str, int | list[int]]:
        """Figures of the engine, by name."""
        ...


@record
class SimulatedFigures:
    """Figures of a run on a simulated device, with what makes its report."""

    run: int
    tasks: int
    workers: int
    run_ns: int
    counters: Mapping[str, int | list[int]]
    report: Callable[[], Report]


class CalendarMaker(ABC):
    """A runner that makes and runs calendars. Runners name it among their bases.

    Attributes:
        clock_ghz: cycles per nanosecond of its times, or None if they are nanoseconds.
    """

    clock_ghz: float | None

    @abstractmethod
    def core_names(self, count: int) -> list[str]:
        """Return the names of `count` cores."""

    @abstractmethod
    def make_calendar(self, request: RunRequest) -> tuple[_native.Calendar, Trace]:
        """Return a calendar for a request, with the places of its tasks."""


class Submitted(Protocol):
    """A run of a runner, which need not have ended."""

    @property
    def number(self) -> int:
        """The number of the run in this process, from 1 on; 0 where runs have none."""
        ...

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        ...

    def wait(self) -> tuple[Figures, Trace | None]:
        """Lend the calling thread to the run until it has ended; return what it did."""
        ...

    def cancel(self) -> None:
        """End the run between two tasks."""
        ...


class EndedRun:
    """A run that ended before it was returned, with its figures or with what ended it early."""

    number = 0
    done = True

    def __init__(self, ended: Figures | RunError, trace: Trace | None = None) -> None:
        self._ended = ended
        self._trace = trace

    def wait(self) -> tuple[Figures, Trace | None]:
        """Return what the run did, or raise why it failed."""
        if isinstance(self._ended, RunError):
            raise self._ended
        return self._ended, self._trace

    def cancel(self) -> None:
        """Do nothing: the run has ended."""


class Runner(Protocol):
    """Runs one module on the arrays and scalars of a call."""

    @property
    def workload(self) -> WorkloadFunction:
        """The entry, with the parameters that runs have."""
        ...

    @property
    def compiles(self) -> int:
        """Compiler calls made to build it."""
        ...

    @property
    def compile_ms(self) -> float:
        """Milliseconds spent in them."""
        ...

    def run(self, request: RunRequest) -> tuple[Figures, Trace | None]:
        """Check the arguments, run every task and return when all are done, with the record of the run."""
        ...

    def submit(self, request: RunRequest) -> Submitted:
        """Check the arguments and begin a run."""
        ...

    def submit_after(self, request: RunRequest, earlier: Sequence[Submitted]) -> Submitted | None:
        """Begin a run as if `earlier` ones had ended; return None where it must wait for their ends."""
        ...

    def call_kernel(
        self, kernel: KernelFunction, args: Sequence[np.ndarray | Value], workspace: int, task: int
    ) -> None:
        """Call one kernel on views and scalars, with that many bytes of workspace, as task number `task`."""
        ...

    def cancel(self) -> None:
        """Stop all runs that are under way: who waits for one gets `RunInterrupted`."""
        ...

    def rescheduled(self, module: Module) -> Self:
        """Return a runner for `module`, which differs in its schedule alone. Kernels are shared."""
        ...
