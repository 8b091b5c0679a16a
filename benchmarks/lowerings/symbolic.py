"""Symbolic waits: runs of two workers without records, and how many accesses need no hazard map.

`python -m benchmarks.lowerings.symbolic` prints the memory that a run takes in a fresh process, in MB.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.engine import native, programs
from benchmarks.engine.first_run import resident_mb
from benchmarks.harness import Bench, Row
from examples.cases import Run, cases, copied
from pto_wsp import Deps, Schedule, compile_module
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Region
from pto_wsp.ir.module import Module

TILES, LARGE_TILES = 256, 2048
WORKERS = 2


def run(bench: Bench) -> None:
    """Measure the rows of symbolic waits."""
    tiles = TILES if bench.quick else LARGE_TILES
    runs = {name: layer(name, tiles) for name in ("stream", "symbolic")}
    found = bench.measure(runs, rounds=bench.rounds(5, 2), threads=WORKERS)
    bench.add("stream_n2048_2w_ns", found["stream"], "ns/task")
    bench.add("symbolic_n2048_2w_ns", found["symbolic"], "ns/task", "<= 2.8")
    peak = bench.measure({"peak": peak_mb}, rounds=bench.rounds(5, 1), threads=WORKERS)["peak"]
    bench.add("symbolic_n2048_peak_mb", peak, "MB over the arrays", "<= 1")
    bench.rows.append(Row("symbolic_share_examples_pct", share_of_examples(), "%", goal=">= 80"))


def layer(name: str, tiles: int) -> Callable[[], float]:
    """Return a function that runs the LLaMA layer on two workers and returns ns per task."""
    deps = Deps.symbolic() if name == "symbolic" else Deps.infer_tensor_map_exact()
    program = programs.llama.task_graph(deps=deps).compile()
    values: dict[str, Any] = {**native.zeros(programs.llama, {"n": tiles})}

    def ns_per_task() -> float:
        began = time.perf_counter()
        program.run(**values, workers=WORKERS)
        assert program.stats is not None
        return 1e9 * (time.perf_counter() - began) / program.stats.tasks

    ns_per_task()
    return ns_per_task


def peak_mb() -> float:
    """Return what the first run of a fresh process adds to its memory."""
    command = [sys.executable, "-m", "benchmarks.lowerings.symbolic"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def first_run_mb() -> float:
    """Return what a run adds to the memory of this process."""
    program = programs.llama.task_graph(deps=Deps.symbolic()).compile()
    values: dict[str, Any] = {**native.zeros(programs.llama, {"n": LARGE_TILES})}
    for array in values.values():
        if not isinstance(array, int):
            array.fill(0)  # its pages exist before the run
    before = resident_mb("VmRSS")
    program.run(**values, workers=WORKERS)
    return resident_mb("VmHWM") - before


def share_of_examples() -> float:
    """Return the share of accesses to written memory, of all examples, that symbolic waits order."""
    symbolic = total = 0
    for _, make in cases():
        example = make()
        if not example.module.entry_workload.processes:
            here, all_here = accesses(example)
            symbolic, total = symbolic + here, total + all_here
    return 100 * symbolic / total


def accesses(example: Run) -> tuple[int, int]:
    """Return how many accesses of a program have symbolic waits, and how many it has."""
    program = compile_module(example.module)
    try:
        program.reschedule(Schedule().task_graph(deps=Deps.symbolic()))
    except UnsupportedByTarget:
        return 0, of_written(example.module)
    program.run(**{name: copied(value) for name, value in example.arguments.items()}, workers=WORKERS)
    assert program.stats is not None
    if not program.stats.is_symbolic:
        return 0, of_written(example.module)
    counters = program.stats.counters
    symbolic, mapped = counters["symbolic_accesses"], counters["mapped_accesses"]
    assert isinstance(symbolic, int) and isinstance(mapped, int)
    return symbolic, symbolic + mapped


def of_written(module: Module) -> int:
    """Return the number of arguments that are regions of tensors that tasks write."""
    tasks = (node for node in w.walk_nodes(module.entry_workload.body) if isinstance(node, w.Task))
    regions = (arg for task in tasks for arg in task.args if isinstance(arg, Region))
    return sum(region.tensor in module.written for region in regions)


if __name__ == "__main__":
    print(first_run_mb())
