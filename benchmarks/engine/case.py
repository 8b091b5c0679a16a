"""The case `engine`: the cost of a task, compared with oneTBB's flow graph and gcc's tasks.

The graphs are those of programs.py: a64 and a256 are the LLaMA layer over 64 and 256 tiles, n1024 and n2048
the same over more, b independent tasks, c fan-out and fan-in, d a chain, e a wavefront. Every run of ours is
one Python call with hazards tracked. `stream` is the default, in which tasks run while others are found;
`build` and `run` are the parts of a run that builds the whole graph first. `llama_*_build_ms`, `capi_*` and
`entry_*` are of the C API.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.engine import capi, native, peers, programs
from benchmarks.engine.ours import Layer, Ours, violations
from benchmarks.harness import THREADS, Bench, Measurement, Row
from benchmarks.spine.case import fresh_cache
from pto_wsp import StartPolicy

TBB = "oneTBB flow graph"
WINDOWS = (1, 2, 3, 7, 64, 1024, 8192, 65536)
SHAPES = (
    ("b", programs.independent, "independent", {"n": 1_000_000}),
    ("c", programs.fan, "fan", {"n": 100_000, "rounds": 10}),
    ("d", programs.chain, "chain", {"n": 1_000_000}),
    ("e", programs.wavefront, "wavefront", {"n": 1000}),
)


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    with fresh_cache(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        others = peers.load(folder)
        bench.skipped |= others.missing
        built(bench, others)
        replayed(bench)
        streamed(bench)
        shapes(bench, others)
        fixed_costs(bench, native.build(folder))
        fresh_processes(bench)
        disturbed(bench, others)
        recorded(bench)
        narrow_window(bench)
        capi.run(bench, folder)


def built(bench: Bench, others: peers.Peers) -> None:
    """Build the whole layer, then run it, without reuse between repetitions."""
    a64, a256 = (Layer(n, start=StartPolicy.after_build()) for n in (64, 256))
    found = bench.measure({"build": a64.rebuilt("build_ms")}, rounds=bench.rounds(15, 5))
    bench.add("build_a64_tasks_per_ms", changed(found["build"], rate_per_ms), "tasks/ms", ">= 60000")
    graph = others.graph("llama", 256)
    functions = {"build": a256.rebuilt("build_ms"), "total": a256.rebuilt("total_ms", 2)}
    functions |= {"run_1w": a256.rebuilt("body_ms", 1), "run_2w": a256.rebuilt("body_ms", 2)}
    functions |= {"gomp": graph.total("libgomp", 2)}
    if others.has_tbb:
        functions |= {"tbb_build": graph.build("tbb", 1), "tbb": graph.total("tbb", 2)}
    found = bench.measure(functions, rounds=bench.rounds(9, 2), threads=THREADS)
    graph.close()
    bench.add("build_a256_tasks_per_ms", changed(found["build"], rate_per_ms), "tasks/ms", ">= 60000")
    for name, mine, peer, what, goal in (
        ("build_a256_vs_tbb", "build", "tbb_build", TBB, "ratio >= 8"),
        ("total_a256_2w_vs_tbb", "total", "tbb", TBB, "ratio >= 10"),
        ("total_a256_2w_vs_libgomp", "total", "gomp", "libgomp", "ratio >= 40"),
    ):
        add_versus(bench, name, found[mine], found.get(peer), what, goal)
    for name in ("run_1w", "run_2w"):
        measured = changed(found[name], lambda ns: 1e3 / ns)
        bench.add(f"run_a256_{name[-2:]}_mtasks_s", measured, "M tasks/s", ">= 100")
    add_ratio(bench, "speedup_a256_2w", found["run_1w"], found["run_2w"], ">= 1.3")


def replayed(bench: Bench) -> None:
    """Run a graph that is kept once more."""
    kept = {f"{workers}w": Layer(256, start=StartPolicy.after_build()) for workers in (1, 2)}
    functions = {name: layer.total(int(name[0])) for name, layer in kept.items()}
    for function in functions.values():
        function()
    for name, measured in bench.measure(functions, rounds=bench.rounds(21, 7), threads=THREADS).items():
        bench.add(f"replay_a256_{name}_ns", measured, "ns per task", "<= 10")
    assert all(layer.stats.replayed for layer in kept.values())


def streamed(bench: Bench) -> None:
    """Run while tasks are found, with a window of 8,192."""
    for name, n, full, quick in (("a256", 256, 15, 3), ("n1024", 1024, 7, 2), ("n2048", 2048, 5, 1)):
        layer = Layer(n)
        functions = {f"{workers}w": layer.total(workers) for workers in (1, 2)}
        for _ in range(4):  # by then runs have tried both ways
            functions["2w"]()
        found = bench.measure(functions, rounds=bench.rounds(full, quick), threads=THREADS)
        bench.add(f"stream_{name}_1w_ns", found["1w"], "ns per task", "<= 20")
        bench.add(f"stream_{name}_2w_ns", found["2w"], "ns per task")
        add_ratio(bench, f"stream_{name}_speedup_2w", found["1w"], found["2w"], ">= 1.5")


def shapes(bench: Bench, others: peers.Peers) -> None:
    """The other graphs, of a million tasks each; of a tenth of that in a quick run."""
    for letter, workload, name, sizes in SHAPES:
        n = sizes["n"] if not bench.quick else sizes["n"] // (3 if letter == "e" else 10)
        ours, graph = Ours(workload, {**sizes, "n": n, "rows": n + 1}), others.graph(name, n)
        functions: dict[str, Callable[[], float]] = {}
        ours.ns_per_task(2)  # pages of the arrays exist then
        for workers in (1, 2):
            functions[f"ours_{workers}w"] = ours.total(workers)
            if others.has_tbb:
                functions[f"tbb_{workers}w"] = graph.total("tbb", workers)
        found = bench.measure(functions, rounds=bench.rounds(5, 1), threads=THREADS)
        for workers in ("1w", "2w"):
            row = f"{letter}_ns_per_task_{workers}"
            add_versus(bench, row, found[f"ours_{workers}"], found.get(f"tbb_{workers}"), TBB, None)
        graph.close()


def fixed_costs(bench: Bench, program: native.Native) -> None:
    """The fixed cost of a run, from C++ and from Python, and the cost of reading bytecode."""
    one, layer = program.call(programs.single, {}), program.call(programs.llama, {"n": 1024})
    calls = {"startup": one, "roundtrip": one, "interpret": layer, "loops": layer}
    functions = {mode: program.value(mode, call) for mode, call in calls.items()}
    found = bench.measure(functions, rounds=bench.rounds(9, 3))
    bench.add("startup_ms", changed(found["startup"], lambda ns: ns / 1e6), "ms", "<= 1")
    bench.add("roundtrip_cpp_us", changed(found["roundtrip"], lambda ns: ns / 1e3), "us", "<= 5")
    over = changed(found["interpret"], lambda ns: ns - found["loops"].value)
    bench.add("interpret_ns", over, "ns per task over loops in C++", "<= 4")
    ours = Ours(programs.single, {})
    functions = {"us": lambda: median(ours.ns_per_task(2) for _ in range(500)) / 1e3}
    measured = bench.measure(functions, rounds=bench.rounds(9, 3))["us"]
    bench.add("roundtrip_python_us", measured, "us", "<= 15")
    size = len(native.lowered(programs.llama).code)
    bench.rows.append(Row("bytecode_bytes_llama", size, "bytes", goal="<= 8192"))


def fresh_processes(bench: Bench) -> None:
    """What only the first run of a process shows: page faults, memory."""
    for row, mode, unit, goal in (
        ("stream_n2048_cold_s", "cold", "s", "<= 0.30"),
        ("stream_n2048_peak_mb", "peak", "MB over the arrays", "<= 16"),
        ("bytes_per_task_a256", "bytes", "bytes of resident memory", "<= 96"),
    ):
        command = [sys.executable, "-m", "benchmarks.engine.first_run", mode]

        def value(command: list[str] = command) -> float:
            return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        bench.add(
            row, bench.measure({row: value}, rounds=bench.rounds(5, 1), threads=THREADS)[row], unit, goal
        )


def disturbed(bench: Bench, others: peers.Peers) -> None:
    """Run while another thread occupies one core: two layers as they are streamed, and a kept graph."""
    kept = StartPolicy.after_build()
    for name, layer, runs in (
        ("", Layer(64), 50), ("_a256", Layer(256), 9), ("_replay", Layer(256, start=kept), 9)
    ):  # fmt: skip

        def quiet(layer: Layer = layer, runs: int = runs) -> float:
            return median(layer.ns_per_task(2) for _ in range(runs))

        def busy(quiet: Callable[[], float] = quiet) -> float:
            with others.busy_core(max(os.sched_getaffinity(0))):
                return quiet()

        quiet()  # by then runs have tried both ways, and the graph is kept
        found = bench.measure({"quiet": quiet, "busy": busy}, rounds=bench.rounds(9, 3), threads=THREADS)
        add_ratio(bench, f"busy_core{name}_ratio", found["busy"], found["quiet"], "<= 1.5")


def recorded(bench: Bench) -> None:
    """What recording adds to a task."""
    layer = Layer(256)
    functions = {"off": layer.total(1), "on": lambda: layer.ns_per_task(1, trace=True)}
    found = bench.measure(functions, rounds=bench.rounds(9, 3))
    added = changed(found["on"], lambda ns: ns - found["off"].value)
    bench.add("trace_ns_per_task", added, "ns per task", "<= 50")


def narrow_window(bench: Bench) -> None:
    """Bodies of 2 us, a window of 64: two workers need half the time of all. Any window keeps order."""
    layer = Layer(64 if bench.quick else 256, programs.slow_layer(), window=64)
    measured = bench.measure({"ns": layer.total(2)}, rounds=bench.rounds(3, 1), threads=THREADS)["ns"]
    bench.add("window64_2us_vs_ideal", changed(measured, lambda ns: ns / 1000), "x", "<= 1.15")
    found = sum(violations(layers, WINDOWS, (1, 2, 3, 4), bench.seed) for layers in (1, 2, 3))
    bench.rows.append(Row("order_violations", found, "tasks, and cells", goal="<= 0"))


def rate_per_ms(ns_per_task: float) -> float:
    """Return tasks per millisecond."""
    return 1e6 / ns_per_task


def changed(measured: Measurement, function: Callable[[float], float]) -> Measurement:
    """Return a measurement in another unit."""
    values = [function(value) for value in measured.values]
    return Measurement(values, measured.calibrations, measured.dropped, measured.noisy)


def add_ratio(bench: Bench, name: str, a: Measurement, b: Measurement, goal: str) -> None:
    """Add the ratio of two measurements of ours."""
    bench.rows.append(Row(name, a.value / b.value, "x", goal=goal, noisy=a.noisy or b.noisy))


def add_versus(
    bench: Bench, name: str, ours: Measurement, peer: Measurement | None, what: str, goal: str | None
) -> None:
    """Add our nanoseconds per task and a peer's; without the ratio if the peer is missing."""
    if peer is None:
        bench.rows.append(Row(name, ours.value, "ns per task", what, goal=goal, noisy=ours.noisy))
        return
    ratio, noisy = peer.value / ours.value, ours.noisy or peer.noisy
    bench.rows.append(Row(name, ours.value, "ns per task", what, peer.value, ratio, goal, noisy))
