"""What a run did, in numbers."""

from __future__ import annotations

from pto_wsp.support.record import record


@record
class RunStats:
    """Figures of one run.

    Attributes:
        tasks: tasks that ran.
        workers: threads that may have run them.
        run_ms: from entering the engine to the last task's end, in milliseconds.
        compiles: compiler calls since the run before, those of `compile()` for the first run.
        compile_ms: time that getting the kernels took, from the compiler or from the cache, in milliseconds.
        counters: figures of the engine, by name.
    """

    tasks: int
    workers: int
    run_ms: float
    compiles: int
    compile_ms: float
    counters: dict[str, int | list[int]]

    @property
    def is_benchmark(self) -> bool:
        """Whether no kernel was called, as `WindowMode.BENCHMARK` says: results are those of before."""
        return self.counters.get("is_benchmark") == 1

    def __str__(self) -> str:
        called = ", calling no kernel" if self.is_benchmark else ""
        return (
            f"{self.tasks:,} tasks on {self.workers} workers in {self.run_ms:.3f} ms{called}; "
            f"{self.compiles} compiles in {self.compile_ms:.1f} ms"
        )
