"""What a runner reports of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pto_wsp.ir.scalar import Value
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import record


@record
class Outcome:
    """Tasks run, threads used, nanoseconds, the engine's counters, and the record if one was asked for."""

    tasks: int
    workers: int
    run_ns: int
    counters: dict[str, int | list[int]]
    trace: Trace | None


class Runner(Protocol):
    """Runs one module on the arrays and scalars of a call."""

    @property
    def compiles(self) -> int:
        """Compiler calls made to build it."""
        ...

    @property
    def compile_ms(self) -> float:
        """Milliseconds that getting its kernels took, from the compiler or from the cache."""
        ...

    def run(
        self, arrays: Sequence[np.ndarray], scalars: Sequence[Value | None], workers: int, trace: bool
    ) -> Outcome:
        """Check the arguments, run every task and return when all are done; `workers` 0 means all cores."""
        ...
