"""Calls of our programs, as a user makes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.engine import native, programs
from pto_wsp import Schedule, TaskWindow, WindowMode
from pto_wsp.lang.workload import Workload
from pto_wsp.runtime.program import Program
from pto_wsp.runtime.stats import RunStats

WINDOW = 8192


class Ours:
    """A program with its arrays, called again and again."""

    def __init__(
        self, workload: Workload, sizes: Mapping[str, int], schedule: Schedule | None = None
    ) -> None:
        self.program: Program = workload.compile(target="cpu")
        if schedule is not None:
            self.program.reschedule(schedule)
        named = {p.name for p in self.program.module.entry_workload.params}
        arrays = native.zeros(workload, sizes)
        self.values: dict[str, Any] = arrays | {name: n for name, n in sizes.items() if name in named}

    @property
    def stats(self) -> RunStats:
        """Figures of the last run."""
        assert self.program.stats is not None
        return self.program.stats

    def ns_per_task(self, workers: int, **options: Any) -> float:
        """Run once; return the nanoseconds per task of the whole call."""
        began = time.perf_counter()
        self.program.run(**self.values, workers=workers, **options)
        return 1e9 * (time.perf_counter() - began) / self.stats.tasks

    def total(self, workers: int) -> Callable[[], float]:
        """Return a function that runs once and returns the nanoseconds per task."""
        return lambda: self.ns_per_task(workers)


class Layer(Ours):
    """The LLaMA layer over n tiles, with a window of 8,192 tasks unless said otherwise."""

    def __init__(
        self, n: int, workload: Workload = programs.llama, window: int = WINDOW, start: Any = None
    ) -> None:
        schedule = windowed(window) if start is None else Schedule().task_graph(start=start)
        super().__init__(workload, {"n": n}, schedule)
        self._other: dict[str, Any] = {**native.zeros(workload, {"n": 1})}

    def rebuilt(self, part: str, workers: int = 1) -> Callable[[], float]:
        """Return a function that finds the graph anew and runs it; it returns nanoseconds per task.

        Args:
            part: `build_ms`, `body_ms` (running what was built) or `total_ms` (the whole call).
            workers: of the run.
        """

        def value() -> float:
            self.program.run(**self._other, workers=workers)  # another graph, so that this one is not kept
            total = self.ns_per_task(workers)
            stats = self.stats
            assert not stats.replayed
            build, run = (1e6 * ms / stats.tasks for ms in (stats.build_ms, stats.run_ms))
            return {"build_ms": build, "total_ms": total, "body_ms": run - build}[part]

        return value


def windowed(window: int) -> Schedule:
    """Return the schedule with a window."""
    return Schedule().task_graph(window=TaskWindow(window, "tasks", WindowMode.STALL))


def violations(n: int, window: int, workers: int, seed: int) -> int:
    """Run the layer whose bodies fold what they read into what they write; return the cells that differ.

    The fold tells the order: expected is what one worker, who runs task after task, comes to.
    """
    rng = np.random.default_rng(seed)
    shapes = {name: array.shape for name, array in native.zeros(programs.folding, {"n": n}).items()}
    expected: dict[str, Any] = {k: rng.integers(0, 1 << 30, s, np.int32) for k, s in shapes.items()}
    found: dict[str, Any] = {name: array.copy() for name, array in expected.items()}
    ours = Ours(programs.folding, {"n": n}, windowed(window))
    ours.program.run(**expected, workers=1)
    ours.program.run(**found, workers=workers)
    return sum(int((found[name] != expected[name]).sum()) for name in found)
