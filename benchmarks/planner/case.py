"""The case `planner`: choosing a chunk size, writing the descriptors, dealing rows to workers.

Lengths are uniform in 1..128K, lognormal (median 2048, sigma 1.3) or Zipf (alpha 1.1), clipped to 128K. The
peer is the specification written out literally in scalar C++; the limit is a buffer filled with constants.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.calibrate import compiler
from benchmarks.harness import Bench, Row
from benchmarks.planner import balanced
from pto_wsp.planner import AttentionPlanner, PlanConfig

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "include"
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared"]
MAX_LENGTH = 131072
INTS = np.ctypeslib.ndpointer(np.int32, flags="C_CONTIGUOUS")
INT = ctypes.c_int


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "planner.so"
        source = str(HERE / "planner.cpp")
        subprocess.run([*compiler(), *FLAGS, f"-I{INCLUDE}", source, "-o", str(library)], check=True)
        native = _declare(ctypes.CDLL(str(library)))
        chunk_size(bench, native)
        generation(bench, native)
        balanced.run(bench, Path(folder))


def lengths(kind: str, batch: int, seed: int) -> np.ndarray:
    """Return `[batch]` int32 lengths of one distribution."""
    random = np.random.default_rng(seed)
    drawn = {
        "uniform": lambda: random.integers(1, MAX_LENGTH + 1, batch),
        "lognormal": lambda: random.lognormal(np.log(2048), 1.3, batch),
        "zipf": lambda: random.pareto(1.1, batch) * 100 + 1,
    }[kind]()
    return np.clip(drawn, 1, MAX_LENGTH).astype(np.int32)


def chunk_size(bench: Bench, native: ctypes.CDLL) -> None:
    """Search chunk sizes for 10,000 requests; the row is the slowest of three distributions x three heads."""
    inputs = [
        (lengths(kind, 10_000, bench.seed), heads)
        for kind in ("uniform", "lognormal", "zipf")
        for heads in (1, 4, 8)
    ]
    names = ("plan_chunk_size_us", "literal_chunk_size_us")
    worst = {name: partial(_slowest_search, getattr(native, name), inputs) for name in names}
    for lens, heads in inputs:
        chunks = {name: ctypes.c_int() for name in worst}
        for name, chunk in chunks.items():
            getattr(native, name)(lens, len(lens), heads, ctypes.byref(chunk))
        if len({chunk.value for chunk in chunks.values()}) != 1:
            raise AssertionError("chunk sizes differ from the pseudo-code's")
    measured = bench.measure(worst, rounds=bench.rounds(9, 3))
    ours, literal = measured["plan_chunk_size_us"], measured["literal_chunk_size_us"]
    bench.rows.append(
        Row(
            "plan_chunk_size_10k_us",
            ours.value,
            "us",
            "the pseudo-code in scalar C++",
            literal.value,
            literal.value / ours.value,
            "<= 10",
            ours.noisy,
        )
    )


@dataclass(frozen=True)
class Plan:
    """One size of plan that is generated.

    Attributes:
        goal: on the microseconds per 1,000 descriptors.
        limit_goal: on the time over that of filling the same bytes.
    """

    name: str
    kind: str
    batch: int
    heads: int
    max_work_units: int
    goal: str | None
    limit_goal: str | None = None


PLANS = (
    Plan("24kb", "uniform", 1, 32, 1_024, "<= 0.5"),
    Plan("1500kb", "uniform", 64, 8, 65_536, "<= 0.5", "<= 2.5"),
    Plan("short_runs", "lognormal", 1000, 32, 65_536, None),
    Plan("150mb", "lognormal", 10_000, 32, 6_250_000, "<= 1.0"),
)


def generation(bench: Bench, native: ctypes.CDLL) -> None:
    """Write plans of three sizes, and one of many sequences with few chunks each."""
    for plan in PLANS:
        lens = lengths(plan.kind, plan.batch, bench.seed)
        planner = AttentionPlanner(PlanConfig(1, MAX_LENGTH, plan.max_work_units))
        chunk = planner.plan_chunk_size(lens, plan.heads)
        total = planner.get_total_work(lens, plan.heads, chunk)
        memory = np.zeros(total * 24 + 64, np.uint8)
        out = memory[-memory.ctypes.data % 64 :][: total * 24]
        call = (lens, len(lens), plan.heads, chunk, total, out.ctypes.data)
        functions: dict[str, Callable[[], float]] = {
            "ours": partial(native.generate_us, *call),
            "literal": partial(native.literal_generate_us, *call),
            "limit": partial(native.store_us, out.ctypes.data, out.nbytes),
        }
        _verify(functions, out)
        repeats = 3 if out.nbytes > 50_000_000 else 51
        typical = {name: partial(_typical, f, repeats, 1000 / total) for name, f in functions.items()}
        measured = bench.measure(typical, rounds=bench.rounds(9, 3))
        ours, literal, limit = (measured[name] for name in ("ours", "literal", "limit"))
        bench.rows.append(
            Row(
                f"generate_us_per_1k_{plan.name}",
                ours.value,
                "us",
                "the specification in scalar C++",
                literal.value,
                literal.value / ours.value,
                plan.goal,
                ours.noisy,
            )
        )
        name = "generate_vs_store_limit" + ("" if plan.limit_goal else f"_{plan.name}")
        ratio = ours.value / limit.value
        bench.rows.append(Row(name, ratio, "x", goal=plan.limit_goal, noisy=ours.noisy or limit.noisy))


def _verify(functions: dict[str, Callable[[], float]], out: np.ndarray) -> None:
    plans = []
    for name in ("ours", "literal"):
        out.fill(0xA5)
        if functions[name]() < 0:
            raise AssertionError("the planner reports an error")
        plans.append(out.copy())
    if not np.array_equal(*plans):
        raise AssertionError("the plan differs from the specification's")


def _slowest_search(function: Callable[..., float], inputs: list[tuple[np.ndarray, int]]) -> float:
    chunk = ctypes.byref(ctypes.c_int())
    return max(_typical(partial(function, lens, len(lens), heads, chunk)) for lens, heads in inputs)


def _typical(function: Callable[[], float], repeats: int = 21, scale: float = 1.0) -> float:
    return scale * median(function() for _ in range(repeats))


def _declare(native: ctypes.CDLL) -> ctypes.CDLL:
    for name in ("plan_chunk_size_us", "literal_chunk_size_us"):
        getattr(native, name).argtypes = [INTS, INT, INT, ctypes.POINTER(INT)]
    for name in ("generate_us", "literal_generate_us"):
        getattr(native, name).argtypes = [INTS, INT, INT, INT, INT, ctypes.c_void_p]
    native.store_us.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    functions = (
        "plan_chunk_size_us",
        "literal_chunk_size_us",
        "generate_us",
        "literal_generate_us",
        "store_us",
    )
    for name in functions:
        getattr(native, name).restype = ctypes.c_double
    return native
