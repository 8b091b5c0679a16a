"""The case `norms`: rows from memory to memory, over the time in which memory reads as many bytes.

1024 rows, of 4096 elements for RMSNorm and of twice 11008 for SwiGLU, f32. A repetition goes over several
arrays, together more than any cache holds, and calls the operators of `pto_wsp.ops.functional`. One row of
them, called again and again, costs what a call costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from statistics import median

import numpy as np

import pto_wsp
from benchmarks.calibrate import READ_BYTES
from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from pto_wsp import f32
from pto_wsp.ops import functional

ROWS, HIDDEN, INNER = 1024, 4096, 11008
TOLERANCE = 1e-5
CALLS = 500


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    rng = np.random.default_rng(bench.seed)
    gain = rng.standard_normal(HIDDEN, np.float32)

    def rms_norm(x: np.ndarray, y: np.ndarray) -> None:
        functional.rms_norm(x, gain, 1e-5, out=y)

    def exact_rms_norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * gain

    def swiglu(x: np.ndarray, y: np.ndarray) -> None:
        functional.swiglu(x, out=y)

    def exact_swiglu(x: np.ndarray) -> np.ndarray:
        gate, up = np.split(x, 2, axis=1)
        return gate / (1 + np.exp(-gate)) * up

    against_memory(bench, "rmsnorm_1024_vs_dram", rms_norm, exact_rms_norm, HIDDEN, HIDDEN)
    against_memory(bench, "swiglu_1024_vs_dram", swiglu, exact_swiglu, 2 * INNER, INNER)
    one_row(bench, gain)


def one_row(bench: Bench, gain: np.ndarray) -> None:
    """Add the row of a call for one row, compared with torch if it is installed."""
    x = np.random.default_rng(bench.seed).standard_normal((1, HIDDEN), np.float32)
    functions = {"ours": median_us(lambda: functional.rms_norm(x, gain, 1e-5))}
    try:
        functions["torch"] = median_us(torch_rms_norm(x, gain))
    except ImportError as error:
        bench.skipped["torch"] = f"{error.name} is not installed: make bench needs the extra [bench]"
    found = bench.measure(functions, rounds=bench.rounds(15, 5))
    ours, theirs = found["ours"], found.get("torch")
    row = Row("rmsnorm_1_call_us", ours.value, "us", noisy=ours.noisy)
    if theirs is not None:
        noisy = ours.noisy or theirs.noisy
        row = replace(
            row, peer="torch", peer_value=theirs.value, ratio=theirs.value / ours.value, noisy=noisy
        )
    bench.rows.append(row)


def median_us(function: Callable[[], object]) -> Callable[[], float]:
    """Return a function that times calls, one after another."""
    return lambda: 1e3 * median(elapsed_ms(function) for _ in range(CALLS))


def torch_rms_norm(x: np.ndarray, gain: np.ndarray) -> Callable[[], object]:
    """Return the same in torch.

    Raises:
        ImportError: it is not installed.
    """
    torch = import_module("torch")
    values, weight = torch.from_numpy(x), torch.from_numpy(gain)
    return lambda: torch.nn.functional.rms_norm(values, gain.shape, weight, 1e-5)


def against_memory(
    bench: Bench,
    name: str,
    function: Callable[[np.ndarray, np.ndarray], None],
    exact: Callable[[np.ndarray], np.ndarray],
    cols: int,
    out_cols: int,
) -> None:
    """Add the row of a function from [ROWS, cols] to [ROWS, out_cols]."""
    rng = np.random.default_rng(bench.seed)
    num_bytes = ROWS * (cols + out_cols) * f32.itemsize
    pairs = []
    for _ in range(-(-READ_BYTES // num_bytes)):
        x, y = pto_wsp.empty((ROWS, cols), f32), pto_wsp.empty((ROWS, out_cols), f32)
        x[...] = rng.standard_normal((1, cols), np.float32)
        x *= rng.standard_normal((ROWS, 1), np.float32)
        pairs.append((x, y))

    def over_all() -> None:
        for x, y in pairs:
            function(x, y)

    over_all()
    x, y = pairs[-1]
    if not np.abs(y[::64] - exact(x[::64].astype(np.float64))).max() <= TOLERANCE * np.abs(y).max():
        raise AssertionError(f"{name}: the result differs from numpy")
    measured = bench.measure(
        {name: lambda: elapsed_ms(over_all)}, rounds=bench.rounds(21, 7), threads=THREADS, memory_bound=True
    )[name]
    over = measured.times_memory(len(pairs) * num_bytes)
    bench.rows.append(Row(name, over, "x", goal="<= 1.15", noisy=measured.noisy))
