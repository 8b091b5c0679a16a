"""The cost of the C API: the program capi.c, compared with published figures of its interface."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.engine.ours import Ours
from benchmarks.engine.programs import llama
from benchmarks.harness import Bench, Measurement, Row
from examples.c_api.build import compile_c
from pto_wsp import DispatchPolicy, Schedule

SOURCE = Path(__file__).parent / "capi.c"
PUBLISHED = "published, its machine"

LAYERS = {
    "1k": (16, 0.144, 2.81),
    "2k": (32, 0.444, 9.81),
    "4k": (64, 1.696, 36.4),
    "8k": (128, 8.503, 140.0),
    "16k": (256, 34.2, 548.0),
}
"""Iterations of the layer for a number of positions; published milliseconds to build, and MB."""

ENTRIES = (
    ("llama", 4, 4, 0, 108.0),
    ("llama", 8, 4, 10, 75.0),
    ("llama", 16, 8, 0, 72.0),
    ("llama", 256, 8, 20, 96.0),
    ("softmax", 64, 4, 0, 102.0),
    ("softmax", 64, 4, 20, 73.0),
)
"""Tiles, workers and threshold of whole calls, and the published milliseconds."""


def run(bench: Bench, folder: Path) -> None:
    """Measure the rows of the C API, and those of dispatchers."""
    program = compile_c(SOURCE, folder / "capi")

    def value(*arguments: object) -> Callable[[], float]:
        command = [str(program), *map(str, arguments)]
        return lambda: float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    _layers(bench, value)
    _entries(bench, value)
    _dispatchers(bench)


def _layers(bench: Bench, value: Callable[..., Callable[[], float]]) -> None:
    functions = {name: value("build", n) for name, (n, _, _) in LAYERS.items()}
    functions |= {"cold": value("cold", 256), "run_1w": value("run", 256, 1), "run_2w": value("run", 256, 2)}
    found = bench.measure(functions, rounds=bench.rounds(9, 3))
    for name, (n, published_ms, published_mb) in LAYERS.items():
        _beside(bench, f"llama_{name}_build_ms", found[name], "ms", published_ms)
        mb = value("mb", n)()
        bench.rows.append(Row(f"llama_{name}_mb", mb, "MB", PUBLISHED, published_mb, published_mb / mb, None))
    tasks = 16 * 256 + 3 * 256**2
    rate, noisy = tasks / found["16k"].value, found["16k"].noisy
    bench.rows.append(Row("capi_llama16k_build_tasks_per_ms", rate, "tasks/ms", goal=">= 20000", noisy=noisy))
    bench.rows.append(
        Row("capi_vs_seed_claim", rate, "tasks/ms", PUBLISHED, 5868.0, rate / 5868, None, noisy)
    )
    cold = tasks / found["cold"].value
    bench.rows.append(Row("capi_llama16k_first_build", cold, "tasks/ms", noisy=found["cold"].noisy))
    for name in ("run_1w", "run_2w"):
        bench.add(f"capi_llama16k_{name}_ns", found[name], "ns per task")


def _entries(bench: Bench, value: Callable[..., Callable[[], float]]) -> None:
    functions = {str(i): value(*entry[:4]) for i, entry in enumerate(ENTRIES)}
    found = bench.measure(functions, rounds=bench.rounds(7, 3))
    for i, (name, tiles, workers, threshold, published) in enumerate(ENTRIES):
        start = f"from_{threshold}" if threshold else "safe"
        _beside(bench, f"entry_{name}_{tiles}_{workers}w_{start}_ms", found[str(i)], "ms", published)


def _dispatchers(bench: Bench) -> None:
    """The layer on one thread by k dispatchers, compared with one dispatcher: each walks the program."""
    layers = {
        k: Ours(llama, {"n": 256}, Schedule().dispatch(DispatchPolicy.round_robin(k))) for k in (1, 2, 4)
    }
    functions = {str(k): layer.total(1) for k, layer in layers.items()}
    found = bench.measure(functions, rounds=bench.rounds(9, 3))
    for k in ("2", "4"):
        ratio, noisy = found[k].value / found["1"].value, found[k].noisy or found["1"].noisy
        bench.rows.append(Row(f"dispatchers_{k}_overhead_ratio", ratio, "x", goal=None, noisy=noisy))


def _beside(bench: Bench, name: str, found: Measurement, unit: str, published: float) -> None:
    ratio = published / found.value
    bench.rows.append(Row(name, found.value, unit, PUBLISHED, published, ratio, None, found.noisy))
