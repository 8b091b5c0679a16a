"""The case `dispatch`: tasks generated where they run, compared with a list that the host makes first.

The program is the LLaMA layer over 256 tiles, 200,704 tasks. What the list takes is measured twice: as a
graph that is built before the first task starts (`StartPolicy.after_build`), and as the records of 2,864
bytes that a runtime of fixed capacities keeps per task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pto_wsp
from benchmarks.dispatch import affinity
from benchmarks.engine import native, programs
from benchmarks.engine.ours import Layer
from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from benchmarks.spine.case import fresh_cache
from pto_wsp import DispatchPolicy, ReadyPolicy, Schedule, StartPolicy

TILES = 256
FIXED_RECORD = 2864
"""Bytes of a record with room for all that a task may have: 16 arguments, 512 successors."""


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    with fresh_cache():
        listed, made = Layer(TILES, start=StartPolicy.after_build()), Layer(TILES)
        sizes(bench, made, listed)
        first_tasks(bench, made, listed)
        waits(bench)
    kept_tiles(bench)


def sizes(bench: Bench, made: Layer, listed: Layer) -> None:
    """What a device would be sent, and what the host holds."""
    made.ns_per_task(2)
    listed.ns_per_task(2)
    tasks = made.stats.tasks
    code = len(native.lowered(programs.llama).code)
    graph = listed.stats.bytes_per_task * tasks
    for name, peer, held, goal in (
        ("sent_bytes", "records of 2,864 bytes", FIXED_RECORD * tasks, "ratio >= 100000"),
        ("sent_bytes_vs_graph", "a graph built first", graph, "ratio >= 100"),
    ):
        bench.rows.append(Row(name, code, "bytes", peer, held, held / code, goal))
    recorded = made.stats.counters["max_recorded"]
    assert isinstance(recorded, int)
    ratio = tasks / max(recorded, 1)
    bench.rows.append(
        Row("most_records", recorded, "tasks", "a graph built first", tasks, ratio, "ratio >= 10")
    )


def first_tasks(bench: Bench, made: Layer, listed: Layer) -> None:
    """The time from entering the engine to the start of the first task, in a run that reuses nothing."""
    functions = {"made": start_of(made), "listed": start_of(listed)}
    found = bench.measure(functions, rounds=bench.rounds(9, 3), threads=THREADS)
    ours, peer = found["made"], found["listed"]
    ratio, noisy = peer.value / ours.value, ours.noisy or peer.noisy
    row = Row(
        "first_task_us", ours.value, "us", "a graph built first", peer.value, ratio, "ratio >= 10", noisy
    )
    bench.rows.append(row)


def start_of(layer: Layer) -> Callable[[], float]:
    """Return a function that runs once and returns when the first task started, in us."""
    other: dict[str, Any] = {**native.zeros(programs.llama, {"n": 1})}

    def value() -> float:
        layer.program.run(**other, workers=2)  # another graph, so that this one is not kept
        layer.program.run(**layer.values, workers=2, trace=True)
        assert layer.program.trace is not None
        return float(layer.program.trace.start_ns.min()) / 1e3

    return value


def waits(bench: Bench) -> None:
    """How many of the waits are for tasks of other dispatchers: rows of queries together, or all in turn."""
    policies = {"rows": DispatchPolicy.affinity(lambda t: t.q, 4), "turns": DispatchPolicy.round_robin(4)}
    for name, policy in policies.items():
        layer = Layer(64)
        layer.program.reschedule(Schedule().dispatch(policy).task_graph(ready=ReadyPolicy.fifo()))
        layer.ns_per_task(2)
        local, remote = (total(layer, f"dispatcher_{kind}_waits") for kind in ("local", "remote"))
        share = 100 * remote / max(local + remote, 1)
        bench.rows.append(Row(f"remote_waits_{name}_pct", share, "% of the waits"))


def kept_tiles(bench: Bench) -> None:
    """What it is worth that tiles stay in the cache of one worker."""
    tiles = pto_wsp.empty((affinity.TILES, affinity.ROWS, affinity.COLS), pto_wsp.f32)
    functions: dict[str, Callable[[], float]] = {}
    for name, policy in affinity.POLICIES.items():
        program = affinity.program(policy)

        def once(program: pto_wsp.Program = program) -> float:
            return elapsed_ms(lambda: program.run(Y=tiles, workers=THREADS))

        tiles[...] = 0.0
        once()
        if not (tiles == affinity.STEPS).all():
            raise AssertionError(f"{name}: tiles were not changed as often as they should be")
        functions[name] = once
    found = bench.measure(functions, rounds=bench.rounds(31, 9), threads=THREADS)
    ours = found.pop("affinity")
    for name, peer in found.items():
        ratio, noisy = peer.value / ours.value, ours.noisy or peer.noisy
        bench.rows.append(Row(f"affinity_vs_{name}", ours.value, "ms", name, peer.value, ratio, noisy=noisy))


def total(layer: Layer, counter: str) -> int:
    """Return a counter of all dispatchers."""
    found = layer.stats.counters[counter]
    assert isinstance(found, list)
    return sum(found)
