"""What a run did, in numbers."""

from __future__ import annotations

from pto_wsp.runtime.proved import Proved
from pto_wsp.support.record import record
from pto_wsp.support.text import counted

_POLICIES = ("dispatch", "window", "ready", "start", "streams", "interleave", "load_balance", "timing")
_DECIDES = "the policy of `{}` decides where or when tasks run"
_MAPS_REASONS = (
    "",
    "the policy of `deps` is not `symbolic`",
    *(_DECIDES.format(kind) for kind in (*_POLICIES, "concurrent", "pools")),
    "tasks wait for earlier runs of the session",
    "one worker runs the tasks in program order",
    "the run was traced",
    "a `P` loop contains a `P.seq` loop of several units",
)
"""Texts of `MapsReason` of the engine."""


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
        streamed: names of the tensors whose stores went past the caches (`StorePolicy`).
        run: number of the run in this process, from 1 on; 0 for the target `interp`.
        schedule: name of the strategy of the run, or an empty text if the program has one schedule.
        proved: what a proof says that `compile` was given, and which checks the run left out.
    """

    tasks: int
    workers: int
    run_ms: float
    compiles: int
    compile_ms: float
    counters: dict[str, int | list[int]]
    streamed: tuple[str, ...] = ()
    run: int = 0
    schedule: str = ""
    proved: Proved = Proved()

    @property
    def is_benchmark(self) -> bool:
        """Whether no kernel was called, as `WindowMode.BENCHMARK` says: results are those of before."""
        return self.counters.get("is_benchmark") == 1

    @property
    def is_symbolic(self) -> bool:
        """Whether symbolic waits ordered the tasks, and neither hazard maps nor one worker alone."""
        return self.counters.get("is_symbolic") == 1

    @property
    def why_not_symbolic(self) -> str:
        """Why symbolic waits did not order the tasks; an empty text if they did."""
        reason = self.counters.get("maps_reason")
        return _MAPS_REASONS[reason] if isinstance(reason, int) else "the engine did not order the tasks"

    @property
    def has_calendar(self) -> bool:
        """Whether the tasks ran by a calendar."""
        return self.counters.get("has_calendar") == 1

    @property
    def cycles(self) -> int:
        """Cycles of the simulated device (target `sim`); 0 on other targets."""
        return self._count("cycles")

    @property
    def time_us(self) -> float:
        """The same in microseconds."""
        return self._count("time_ns") / 1e3

    @property
    def replayed(self) -> bool:
        """Whether the tasks were those of a graph that was kept from an earlier run, and not found again."""
        return self._count("replayed") != 0

    @property
    def build_ms(self) -> float:
        """Time that building a graph of all tasks took, in milliseconds; 0 if none was built."""
        return self._count("build_ns") / 1e6

    @property
    def bytes_per_task(self) -> float:
        """Memory that the kept graph takes per task; 0 if none is kept."""
        return self._count("graph_bytes") / max(1, self._count("graph_tasks"))

    def _count(self, name: str) -> int:
        count = self.counters.get(name, 0)
        assert isinstance(count, int)
        return count

    def __str__(self) -> str:
        tasks = f"{self.tasks:,} task{'s' * (self.tasks != 1)} on {counted(self.workers, 'worker')}"
        called = ", calling no kernel" if self.is_benchmark else ""
        streamed = f", stores of {', '.join(self.streamed)} past the caches" if self.streamed else ""
        chosen = f", schedule {self.schedule!r}" if self.schedule else ""
        left_out = f", no check of {', '.join(self.proved.left_out)}" if self.proved.left_out else ""
        return (
            f"{tasks} in {self.run_ms:.3f} ms{called}{streamed}"
            f"{chosen}{left_out}; {counted(self.compiles, 'compile')} in {self.compile_ms:.1f} ms"
        )
