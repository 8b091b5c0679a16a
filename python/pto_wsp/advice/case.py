"""What advices look at: a recorded run, its program, and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from pto_wsp.advice.chains import Ordered
from pto_wsp.advice.machine import Machine
from pto_wsp.advice.report import MEASURED, SIMULATED, Report, make_report
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.visualize.timeline import Timeline

OUTLIER = 4
"""A task that takes this many times the median of its call may have been interrupted."""


class Places(Protocol):
    """The places of tasks in the program."""

    def column(self, key: Expr, rows: np.ndarray) -> np.ndarray:
        """Return the values of an expression for some tasks."""
        ...


class Case:
    """A run for advices to look at.

    Attributes:
        run: what was recorded.
        module: the program that ran.
        nodes: the task of each call of the run.
        loops: the loops around it, outermost first.
        places: the places of the tasks in the program.
        machine: what ran it.
    """

    def __init__(
        self,
        run: Timeline,
        module: Module,
        nodes: Sequence[w.Task],
        loops: Sequence[tuple[w.Loop, ...]],
        places: Places,
        machine: Machine,
    ) -> None:
        self.run = run
        self.module = module
        self.nodes = nodes
        self.loops = loops
        self.places = places
        self.machine = machine

    @cached_property
    def report(self) -> Report:
        """The figures of the run, without advice."""
        clock = SIMULATED if self.machine.is_simulated else MEASURED
        return make_report(self.run, self._ordered(), self.machine.cpu_ns, clock)

    @cached_property
    def took_ns(self) -> np.ndarray:
        """How long each task took."""
        return self.run.end_ns - self.run.start_ns

    @cached_property
    def steady_ns(self) -> np.ndarray:
        """How long each task took, at most `OUTLIER` times the median of its call."""
        steady = self.took_ns.copy()
        for call in range(len(self.nodes)):
            rows = self.tasks(call)
            if len(rows):
                steady[rows] = np.minimum(steady[rows], OUTLIER * int(np.median(steady[rows])))
        return steady

    @property
    def num_workers(self) -> int:
        """How many workers could run tasks."""
        return len(self.run.workers)

    def kernel(self, call: int) -> KernelFunction:
        """Return the kernel of a call."""
        return self.module.kernel(self.nodes[call].kernel)

    def tasks(self, call: int) -> np.ndarray:
        """Return the numbers of the tasks of a call."""
        return np.flatnonzero(self.run.call == call)

    def values(self, expr: Expr, rows: np.ndarray) -> np.ndarray:
        """Return the values of an expression of the workload at some tasks."""
        return self.places.column(expr, rows)

    def iterations(self, loop: w.Loop) -> Ordered:
        """Return the instance of a loop that each task is in, and its iteration there."""
        depth = {
            call: place
            for call, loops in enumerate(self.loops)
            for place, around in enumerate(loops)
            if around is loop
        }
        instance, iteration = (np.full(len(self.run.call), -1, np.int64) for _ in range(2))
        keys: dict[tuple[int, ...], int] = {}
        for call, place in depth.items():
            rows = self.tasks(call)
            columns = [self.values(Var(around.var), rows) for around in self.loops[call][:place]]
            table = np.stack(columns, axis=1) if columns else np.zeros((len(rows), 1), np.int64)
            found, inverse = np.unique(table, axis=0, return_inverse=True)
            numbers = np.array([keys.setdefault((*row,), len(keys)) for row in found.tolist()], np.int64)
            instance[rows] = numbers[inverse.reshape(-1)]
            iteration[rows] = self.values(Var(loop.var), rows)
        return Ordered(instance, iteration)

    @property
    def every_loop(self) -> Sequence[w.Loop]:
        """The loops around the calls, each once."""
        return [*{id(loop): loop for loops in self.loops for loop in loops}.values()]

    def _ordered(self) -> Sequence[Ordered]:
        return [self.iterations(loop) for loop in self.every_loop if loop.kind == w.SEQUENTIAL]
