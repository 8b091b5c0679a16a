"""What a runner reports of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.runtime.trace import Trace


class Figures(Protocol):
    """What a run did, in numbers."""

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

    def run(
        self,
        arrays: Sequence[np.ndarray],
        scalars: Sequence[Value | None],
        workers: int,
        trace: int,
        check: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> tuple[Figures, Trace | None]:
        """Check the arguments, run every task and return when all are done; `workers` 0 means all cores.

        `trace` is what to record: 0 nothing, 1 tasks, 2 what dispatchers do too. The second part of the
        result is the record of the run, if one was asked for. With `check`, what P states is checked.
        """
        ...

    def cancel(self) -> None:
        """Stop the run that another thread is in, if there is one: it raises `RunInterrupted`."""
        ...

    def reschedule(self, module: Module) -> None:
        """Run with the schedule of `module`, which is the same but for that, from the next run on."""
        ...
