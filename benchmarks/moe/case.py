"""The case `moe`: 512 tokens through the layer of examples/03_moe, against what its experts need at least.

The hidden size is 2048; experts are chosen with the weights 1, 1/2, 1/3, ... An expert needs the time of its
operations at the peak or that of its weights at the rate of memory, whichever is longer; the bound is the sum
over the experts that have tokens.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import pto_wsp
from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from pto_wsp import f32

# The folders of numbered examples have no names that an import statement can say.
moe = importlib.import_module("examples.03_moe.moe")

TOKENS, HIDDEN = 512, 2048
ROWS = {
    "moe_e8_top2": (moe.Shape(8, HIDDEN, 5632, 2), 1.25),
    "moe_e64_top2": (moe.Shape(64, HIDDEN, 1408, 2), 1.45),
    "moe_e64_top6": (moe.Shape(64, HIDDEN, 1408, 6), 1.4),
}


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    weights = None
    for name, (shape, goal) in ROWS.items():
        if weights is None or len(weights.W1) != shape.experts:
            weights = None  # the memory of the last ones, before more is taken
            weights = repeated_weights(bench.seed, shape)
        against_bound(bench, name, shape, weights, goal)


def repeated_weights(seed: int, shape: Any) -> Any:
    """Return weights that repeat some random numbers: gigabytes of them would take long to draw."""
    some = np.random.default_rng(seed).standard_normal(1 << 20, np.float32)
    small = moe.random_weights(np.random.default_rng(seed), shape._replace(inner=moe.WIDTH))
    widths = ((shape.hidden, shape.inner), (shape.inner, shape.hidden), (shape.hidden, shape.inner))
    packed = []
    for k, n in widths:
        array = pto_wsp.empty((shape.experts, n // moe.COLS, k, moe.COLS), f32)
        for panels in array:
            panels[...] = np.resize(some * np.float32(k**-0.5), panels.shape)
        packed.append(array)
    return moe.Weights(small.Router, *packed)


def against_bound(bench: Bench, name: str, shape: Any, weights: Any, goal: float) -> None:
    """Add the rows of a layer: milliseconds, and how many times the bound that is."""
    batch = moe.random_batch(np.random.default_rng(bench.seed), TOKENS, weights, shape)
    program = moe.moe(shape).compile(target="cpu")
    moe.run(program, batch, weights, workers=THREADS)
    if not moe.difference(batch, weights, shape) <= moe.TOLERANCE:
        raise AssertionError(f"{name} differs from numpy")
    pairs = np.bincount(batch.Experts.ravel())
    parameters = 3 * shape.hidden * shape.inner
    flops, num_bytes = 2 * pairs[pairs > 0] * parameters, 4 * parameters
    gflops = bench.calibrator.best[f"peak_gflops_{THREADS}c"]

    def bound_ms(gbs: float) -> float:
        return float(np.maximum(flops / gflops, num_bytes / gbs).sum() / 1e6)

    def once() -> float:
        return elapsed_ms(lambda: moe.run(program, batch, weights, workers=THREADS))

    measured = bench.measure({name: once}, rounds=bench.rounds(11, 3), threads=THREADS, memory_bound=True)[
        name
    ]
    bench.add(f"{name}_ms", measured, "ms")
    over = measured.times_bound(bound_ms)
    bench.rows.append(Row(f"{name}_vs_bound", over, "x", goal=f"<= {goal}", noisy=measured.noisy))
