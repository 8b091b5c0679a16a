"""The balanced planner: time of a replan, allocations, evenness, compared with FlashInfer's host planner."""

from __future__ import annotations

import ctypes
import subprocess
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.calibrate import compiler
from benchmarks.harness import Bench, Row
from pto_wsp.planner import BalancedConfig, BalancedPlanner

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "include"
FLAGS = ["-std=c++17", "-O3"]
MAX_LENGTH = 131072
WORKERS = (2, 24, 264)
MANY_WORKERS = 264  # two per multiprocessor of an H100: nearly every request is cut
KINDS = ("uniform", "lognormal", "zipf", "one_long")
HEADS = 8
GROUP_SIZE = 4
GOALS = {64: "<= 3", 256: "<= 6", 1000: "<= 18", 10_000: "<= 180"}
PEER = "FlashInfer's holistic plan, without CUDA"
STEPS = 21
INTS = np.ctypeslib.ndpointer(np.int32, flags="C_CONTIGUOUS")


def run(bench: Bench, folder: Path) -> None:
    """Measure every row; libraries are built in `folder`."""
    native = _library(folder, "balanced")
    native.replan_us.argtypes = [INTS, *[ctypes.c_int] * 4, ctypes.POINTER(ctypes.c_double)]
    native.replan_us.restype = ctypes.c_double
    replan(bench, native)
    replan_from_python(bench)
    beside_flashinfer(bench, native, folder)
    allocations(bench, folder)
    balance(bench, native)


def batches(kind: str, steps: int, batch: int, seed: int) -> np.ndarray:
    """Return int32 lengths `[steps, batch]` of one distribution."""
    random = np.random.default_rng(seed)
    shape = (steps, batch)
    drawn = {
        "uniform": lambda: random.integers(1, MAX_LENGTH + 1, shape),
        "lognormal": lambda: random.lognormal(np.log(2048), 1.3, shape),
        "zipf": lambda: random.pareto(1.1, shape) * 100 + 1,
        "one_long": lambda: np.where(np.arange(batch) == random.integers(batch), MAX_LENGTH, 1024),
    }[kind]()
    return np.ascontiguousarray(np.broadcast_to(np.clip(drawn, 1, MAX_LENGTH), shape), np.int32)


def replan(bench: Bench, native: ctypes.CDLL) -> None:
    """Plan with 8 heads; a row is the slowest of the distributions, for up to 24 or for many workers."""
    for batch, goal in GOALS.items():
        for name, all_workers, bound in (
            (f"replan_us_{batch}", WORKERS[:2], goal),
            (f"replan_us_{batch}_many_workers", (MANY_WORKERS,), None),
        ):
            inputs = [
                (batches(kind, STEPS, batch, bench.seed), workers)
                for kind in KINDS
                for workers in all_workers
            ]
            slowest = partial(_slowest, native, inputs)
            bench.add(name, bench.measure({name: slowest}, rounds=bench.rounds(9, 3))[name], "us", bound)


def replan_from_python(bench: Bench) -> None:
    """Call `BalancedPlanner.plan` for 1,024 requests: the median over steps with different lengths."""
    lens = batches("lognormal", STEPS, 1024, bench.seed)
    for name, workers, goal in (
        ("replan_python_us_1024", WORKERS[1], "<= 15"),
        ("replan_python_us_1024_many_workers", MANY_WORKERS, None),
    ):
        planner = BalancedPlanner(BalancedConfig(workers, HEADS), 1024)
        steps = [partial(planner.plan, step) for step in lens]
        typical = partial(_median_us, steps)
        bench.add(name, bench.measure({name: typical}, rounds=bench.rounds(9, 3))[name], "us", goal)


def beside_flashinfer(bench: Bench, native: ctypes.CDLL, folder: Path) -> None:
    """Divide the time of FlashInfer's persistent planner by ours: the same lengths and workers."""
    peer = _flashinfer(folder)
    if peer is None:
        bench.skipped["flashinfer"] = "its headers are not there: pip install --no-deps flashinfer-python"
    for batch in (64, 256, 1000):
        name = f"replan_vs_flashinfer_{batch}"
        lens = batches("lognormal", STEPS, batch, bench.seed)
        if peer is None:
            bench.rows.append(Row(name, None, "x", PEER))
            continue
        functions = {
            "ours": partial(_slowest, native, [(lens, MANY_WORKERS)]),
            "theirs": partial(_median_of_peer, peer, lens),
        }
        measured = bench.measure(functions, rounds=bench.rounds(5, 3))
        ours, theirs = measured["ours"], measured["theirs"]
        ratio = theirs.value / ours.value
        bench.rows.append(Row(name, ratio, "x", PEER, 1.0, ratio, noisy=ours.noisy or theirs.noisy))


def allocations(bench: Bench, folder: Path) -> None:
    """Count allocations of any kind in a program of its own."""
    program = folder / "allocations"
    _compile([str(HERE / "allocations.cpp"), "-o", str(program)])
    counted = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    bench.rows.append(Row("mallocs_per_replan", float(counted), "calls", goal="<= 0"))


def balance(bench: Bench, native: ctypes.CDLL) -> None:
    """Find the largest makespan over max(cost / workers, one tile) where the goals speak of it."""
    for heads, tiles, goal in ((8, 48, "<= 1.03"), (1, 16, "<= 1.10")):
        worst = 0.0
        for batch in (1, 4, 16, 64, 256, 1000):
            for kind in KINDS:
                lens = batches(kind, STEPS, batch, bench.seed)
                for workers in WORKERS:
                    share = heads * (lens.sum(1, np.int64) + 32 * batch) / workers
                    enough = np.ascontiguousarray(lens[share >= tiles * 128])
                    if len(enough):
                        worst = max(worst, _replan(native, enough, workers, heads)[1])
        bench.rows.append(Row(f"balance_worst_{heads}h", worst, "x", goal=goal))


def _replan(native: ctypes.CDLL, lens: np.ndarray, workers: int, heads: int = HEADS) -> tuple[float, float]:
    makespan = ctypes.c_double()
    us = native.replan_us(lens, *lens.shape, heads, workers, ctypes.byref(makespan))
    if us < 0:
        raise AssertionError("the planner reports an error")
    return us, makespan.value


def _slowest(native: ctypes.CDLL, inputs: list[tuple[np.ndarray, int]]) -> float:
    return max(_replan(native, lens, workers)[0] for lens, workers in inputs)


def _median_us(calls: Sequence[Callable[[], object]]) -> float:
    return 1e6 * median(timeit.timeit(call, number=1) for call in calls)


def _median_of_peer(peer: ctypes.CDLL, lens: np.ndarray) -> float:
    times = [peer.flashinfer_plan_us(step, len(step), HEADS, GROUP_SIZE) for step in lens]
    if min(times) < 0:
        raise AssertionError("FlashInfer's planner reports an error")
    return median(times)


def _flashinfer(folder: Path) -> ctypes.CDLL | None:
    package = find_spec("flashinfer")
    places = [] if package is None else package.submodule_search_locations or []
    include = next((Path(place) / "data" / "include" for place in places), None)
    if include is None or not (include / "flashinfer" / "attention" / "scheduler.cuh").is_file():
        return None
    for name in ("cuda_runtime_api.h", "driver_types.h"):  # what they declare is in flashinfer.cpp
        (folder / name).touch()
    native = _library(folder, "flashinfer", "-march=native", "-w", f"-I{folder}", f"-I{include}")
    native.flashinfer_plan_us.argtypes = [INTS, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    native.flashinfer_plan_us.restype = ctypes.c_double
    return native


def _library(folder: Path, name: str, *flags: str) -> ctypes.CDLL:
    library = folder / f"{name}.so"
    _compile(["-fPIC", "-shared", *flags, str(HERE / f"{name}.cpp"), "-o", str(library)])
    return ctypes.CDLL(str(library))


def _compile(arguments: list[str]) -> None:
    subprocess.run([*compiler(), *FLAGS, f"-I{INCLUDE}", *arguments], check=True)
