"""Calls of our programs, as a user makes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.engine import native, programs
from pto_wsp import Schedule, TaskWindow, WindowMode, _native, combine
from pto_wsp.lang.workload.workload import Workload
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
        """Return a function that builds the graph again and runs it; it returns nanoseconds per task.

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


def violations(layers: int, windows: Sequence[int], workers: Sequence[int], seed: int) -> int:
    """Run layers over 24 tiles in every way, with random delays; return the mistakes in their order.

    Each run verifies itself: tasks that began before one that they must wait for had ended. And the bodies
    fold what they read into what they write, which tells the order too: cells that differ from what one
    worker, who runs task after task, comes to.
    """
    workload = combine(*[programs.folding] * layers)
    found = native.lowered(workload)
    executable = _native.Executable(found.code, _native.KernelLibrary(str(native.kernels(workload).path)))
    rng, options = np.random.default_rng(seed), _native.RunOptions()
    start = [rng.integers(0, 1 << 30, a.shape, np.int32) for a in native.zeros(workload, {"n": 24}).values()]
    expected = [array.copy() for array in start]
    executable.run(tuple(expected), (24,), workers=1)
    options.verifies = True
    mistakes = 0
    for options.window in windows:
        for count in workers:
            arrays = [array.copy() for array in start]
            result = executable.run(tuple(arrays), (24,), count, jitter=seed, tracks=True, options=options)
            broken = result.counters["order_violations"]
            assert isinstance(broken, int)
            mistakes += broken + sum(int((a != b).sum()) for a, b in zip(arrays, expected, strict=True))
    return mistakes
