"""Bytecode and generated source: the time of a walk, of a run, and of compiling."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.engine import native, programs
from benchmarks.harness import Bench, Row
from benchmarks.spine.case import fresh_cache
from pto_wsp.lang.workload.workload import Workload

TILES, LARGE_TILES = 256, 2048
"""Tiles of the LLaMA layer: 200,704 and 12.6 M tasks."""


def run(bench: Bench) -> None:
    """Measure the rows of generated source."""
    with fresh_cache(), tempfile.TemporaryDirectory() as name:
        bench.rows.append(compiling(programs.llama, 3 if bench.quick else 9))
        engine = native.build(Path(name))
        walk = native.compiled_walk(programs.llama)
        calls = {"bytecode": engine.call(programs.llama, {"n": TILES})}
        calls["source"] = engine.call(programs.llama, {"n": TILES}, walk)
        functions = {way: engine.value("expand", call) for way, call in calls.items()}
        found = bench.measure(functions, rounds=bench.rounds(9, 3))
        bench.add("expand_bytecode_ns", found["bytecode"], "ns/task")
        bench.add("expand_source_ns", found["source"], "ns/task", "<= 1.5")
        runs = {way: whole(way, TILES if bench.quick else LARGE_TILES) for way in ("bytecode", "source")}
        found = bench.measure(runs, rounds=bench.rounds(5, 2))
        bench.add("stream_n2048_1w_ns", found["bytecode"], "ns/task")
        bench.add("source_n2048_1w_ns", found["source"], "ns/task", "<= 5")


def whole(expander: str, tiles: int) -> Callable[[], float]:
    """Return a function that runs the layer on one worker and returns ns per task."""
    program = programs.llama.compile(expander=expander)
    values: dict[str, Any] = {**native.zeros(programs.llama, {"n": tiles})}

    def ns_per_task() -> float:
        began = time.perf_counter()
        program.run(**values, workers=1)
        assert program.stats is not None
        return 1e9 * (time.perf_counter() - began) / program.stats.tasks

    ns_per_task()
    return ns_per_task


def compiling(workload: Workload, rounds: int) -> Row:
    """Return what a compiled walk adds to the time of compiling, with the kernels in the cache."""
    workload.compile()
    added = []
    for _ in range(rounds):
        with fresh_cache():
            native.kernels(workload)
            times = {}
            for expander in ("bytecode", "source"):
                began = time.perf_counter()
                workload.compile(expander=expander)
                times[expander] = 1e3 * (time.perf_counter() - began)
            added.append(times["source"] - times["bytecode"])
    return Row("source_compile_ms", median(added), "ms over bytecode", goal="<= 150")
