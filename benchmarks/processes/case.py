"""The case `processes`: what a token costs, how stages overlap, and how soon a deadlock is found."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Measurement, Row, available_cores
from benchmarks.processes import programs
from pto_wsp import Program
from pto_wsp.errors import Deadlock

TOKENS = 100_000
LONG_TOKENS = 2_000
STAGES = 4
EVENTS_PER_TOKEN = 8


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    workers = min(2, available_cores())
    token_rows(bench, workers)
    overlap_rows(bench, workers)
    memory_row(bench, workers)
    simulation_row(bench)
    report_row(bench, workers)


def token_rows(bench: Bench, workers: int) -> None:
    """Tokens through two and eight stages with trivial bodies."""
    two, deep, meeting, eight = (programs.chain(*shape) for shape in ((2, 2), (2, 64), (2, 0), (8, 2)))
    rows = {
        "token_ns_1w": (two, 1, "<= 100"),
        "token_ns_2w": (two, workers, "<= 200"),
        "token_ns_depth64_2w": (deep, workers, "<= 60"),
        "rendezvous_ns_2w": (meeting, workers, "<= 500"),
        "stages_8_ns_per_token_2w": (eight, workers, None),
    }
    functions = {name: _per_token(program, count) for name, (program, count, _) in rows.items()}
    measured = bench.measure(functions, rounds=bench.rounds(9, 3), threads=workers)
    for name, (_, _, goal) in rows.items():
        bench.add(name, measured[name], "ns per token", goal=goal)


def _per_token(program: Program, workers: int) -> Callable[[], float]:
    x, y = np.ones((1, programs.COLS), np.float32), np.empty((1, programs.COLS), np.float32)

    def nanoseconds() -> float:
        start = time.perf_counter_ns()
        program.run(X=x, Y=y, n=TOKENS, workers=workers)
        return (time.perf_counter_ns() - start) / TOKENS

    return nanoseconds


def overlap_rows(bench: Bench, workers: int) -> None:
    """Stages and replicas of 2 us, over the time that their bodies alone take on as many workers."""
    x = np.linspace(-1, 1, programs.LONG, dtype=np.float32)[None]
    y = np.empty_like(x)
    alone, staged, shared = programs.bodies(), programs.long_chain(2), programs.replicated(STAGES)

    def timed(program: Program, count: int, **arrays: Any) -> Callable[[], float]:
        def seconds() -> float:
            start = time.perf_counter()
            program.run(**arrays, n=LONG_TOKENS, workers=count)
            return time.perf_counter() - start

        return seconds

    functions = {
        "alone": timed(alone, 1, X=x, Y=y),
        "staged": timed(staged, workers, X=x, Y=y),
        "shared": timed(shared, workers, X=x),
    }
    measured = bench.measure(functions, rounds=bench.rounds(15, 5), threads=workers)
    ideal = measured["alone"].value / workers
    _ratio(bench, "pipeline_2us_vs_ideal", measured["staged"], STAGES * ideal)
    _ratio(bench, "replicate_4_vs_ideal", measured["shared"], ideal)


def _ratio(bench: Bench, name: str, measured: Measurement, ideal: float) -> None:
    bench.rows.append(Row(name, measured.value / ideal, "x", goal="<= 1.10", noisy=measured.noisy))


def memory_row(bench: Bench, workers: int) -> None:
    """Memory that many tokens take besides the rings."""
    program = programs.chain(2, 2)
    once = _per_token(program, workers)
    once()
    before, rounds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, bench.rounds(100, 5)
    for _ in range(rounds):
        once()
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    bench.rows.append(Row("memory_bytes_per_token", grown / (rounds * TOKENS), "bytes", goal="<= 0.1"))


def simulation_row(bench: Bench) -> None:
    """Events of a simulated network: per token two tasks, two sends and two receipts, and their ends."""
    program = programs.chain(2, 2, target="sim", values=False)
    x, y = np.ones((1, programs.COLS), np.float32), np.empty((1, programs.COLS), np.float32)

    def millions() -> float:
        start = time.perf_counter()
        program.run(X=x, Y=y, n=TOKENS)
        return EVENTS_PER_TOKEN * TOKENS / (time.perf_counter() - start) / 1e6

    measured = bench.measure({"events": millions}, rounds=bench.rounds(9, 3))
    bench.add("network_sim_events_per_s", measured["events"], "M events/s", goal=">= 5")


def report_row(bench: Bench, workers: int) -> None:
    """From the call to the error of a network in a deadlock."""
    program = programs.deadlock()

    def milliseconds() -> float:
        start = time.perf_counter()
        try:
            program.run(workers=workers)
        except Deadlock:
            return 1e3 * (time.perf_counter() - start)
        raise AssertionError("a deadlock was not found")

    measured = bench.measure({"report": milliseconds}, rounds=bench.rounds(9, 3), threads=workers)
    bench.add("deadlock_report_ms", measured["report"], "ms", goal="<= 50")
