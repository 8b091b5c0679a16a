"""The case `spine`: tasks per second, compile times, start-up times, fixed cost of a run."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Measurement, Row, available_cores
from benchmarks.spine import programs

ROOT = Path(__file__).parents[2]
TASKS = 1_000_000
CONSTANTS = itertools.count(1)  # every use makes kernels that no cache has seen


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    with fresh_cache():
        for workers in range(1, min(2, available_cores()) + 1):
            task_rate(bench, workers)
        compile_times(bench)
        run_fixed(bench)
        start_times(bench)


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Use an empty kernel cache, so that nothing is found that an earlier run has left."""
    before = os.environ.get("PTO_WSP_CACHE")
    folder = tempfile.mkdtemp(prefix="pto-wsp-bench-")
    os.environ["PTO_WSP_CACHE"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder)
        if before is None:
            del os.environ["PTO_WSP_CACHE"]
        else:
            os.environ["PTO_WSP_CACHE"] = before


def task_rate(bench: Bench, workers: int) -> None:
    """Run a million tasks that do almost nothing, then verify that the workers kept the order."""
    program = programs.bump_rows.compile(target="cpu")
    x = np.zeros((TASKS, programs.COLS), np.float32)
    y = np.empty_like(x)

    def tasks_per_s() -> float:
        seconds = elapsed(lambda: program.run(X=x, Y=y, step=1.0, workers=workers))
        if program.stats is None or program.stats.tasks != TASKS or not (y == 1.0).all():
            raise AssertionError("not every task ran")
        y.fill(0.0)
        return TASKS / seconds

    tasks_per_s()
    name = f"trivial_tasks_per_s_{workers}w"
    measured = bench.measure({name: tasks_per_s}, rounds=bench.rounds(15, 5), threads=workers)
    bench.add(name, measured[name], "tasks/s", goal=">= 1e6")
    verify_order(workers, bench.seed)


def verify_order(workers: int, seed: int, rounds: int = 500, slots: int = 16) -> None:
    """Fold random tokens into counters, in an order that only data gives, and compare with a plain loop."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, 1 << 30, (rounds, slots, programs.COLS), dtype=np.int32)
    counters = np.zeros((slots, programs.COLS), np.int32)
    program = programs.stamp_counters.compile(target="cpu")
    program.run(Tokens=tokens, Counters=counters, workers=workers)
    expected = np.zeros_like(counters)
    for token in tokens:
        expected = expected * np.int32(31) + token
    if not np.array_equal(counters, expected):
        raise AssertionError(f"{workers} workers did not keep the order of tasks (seed {seed})")


def compile_times(bench: Bench) -> None:
    """Time compilation: a new kernel alone, new kernels together, and against the number of tasks."""

    def cold_ms() -> float:
        return 1e3 * elapsed(lambda: programs.one_kernel(float(next(CONSTANTS))).compile(target="cpu"))

    def batched_ms() -> float:
        stages = programs.many_kernels(float(next(CONSTANTS)))
        return 1e3 * elapsed(lambda: stages.compile(target="cpu")) / programs.BATCH

    kernels = bench.measure({"cold": cold_ms, "batched": batched_ms}, rounds=bench.rounds(9, 3))
    bench.add("kernel_cold_ms", kernels["cold"], "ms", goal="<= 80")
    bench.add("kernel_batched_ms", kernels["batched"], "ms per kernel", goal="<= 20")

    def counted_ms(tasks: int) -> Callable[[], float]:
        return lambda: 1e3 * elapsed(lambda: programs.counted(tasks).compile(target="cpu"))

    few, many = counted_ms(10), counted_ms(TASKS)
    few()  # the kernel itself is compiled here, once
    counts = bench.measure({"few": few, "many": many}, rounds=bench.rounds(21, 9))
    ratio = counts["many"].value / counts["few"].value
    bench.rows.append(Row("compile_ms_vs_tasks", ratio, "x", goal="<= 1.3", noisy=is_noisy(counts)))


def run_fixed(bench: Bench) -> None:
    """Time a run of one tiny task, called from Python."""
    program = programs.bump_rows.compile(target="cpu")
    x = np.zeros((1, programs.COLS), np.float32)
    y = np.empty_like(x)

    def fixed_us() -> float:
        return 1e6 * median(elapsed(lambda: program(X=x, Y=y, step=1.0)) for _ in range(500))

    measured = bench.measure({"fixed": fixed_us}, rounds=bench.rounds(9, 3))
    bench.add("run_fixed_us", measured["fixed"], "us")


def start_times(bench: Bench) -> None:
    """Time new processes: importing the package, and the first result with a warm kernel cache."""
    scripts = {
        "numpy": "import numpy",
        "import": "import numpy, pto_wsp",
        "first": "import benchmarks.spine.first_result",
    }

    # An installed package has its byte code; some environments keep a source tree from getting it.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def process_ms(script: str) -> Callable[[], float]:
        command = [sys.executable, "-c", script]
        return lambda: 1e3 * elapsed(lambda: subprocess.run(command, check=True, cwd=ROOT, env=environment))

    functions = {name: process_ms(script) for name, script in scripts.items()}
    functions["first"]()  # fills the kernel cache, and those of byte code
    measured = bench.measure(functions, rounds=bench.rounds(21, 10))
    noisy, numpy_ms = is_noisy(measured), measured["numpy"].value
    warm, light = measured["first"].value - numpy_ms, measured["import"].value - numpy_ms
    bench.rows.append(Row("warm_start_ms", warm, "ms", noisy=noisy))
    bench.rows.append(Row("import_ms", light, "ms", goal="<= 150", noisy=noisy))


def is_noisy(measured: dict[str, Measurement]) -> bool:
    """Whether any of several measurements has no quiet repetition."""
    return any(m.noisy for m in measured.values())


def elapsed(function: Callable[[], Any]) -> float:
    """Return the seconds that one call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
