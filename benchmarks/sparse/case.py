"""The case `sparse`: one decode step of examples/04_sparse_attention, against what it needs at least.

One query over 8K and 64K tokens: 64 index heads of 128, 2048 tokens picked, 128 query heads over latent
vectors of 576, of which 512 are values. The indexer and attention need the time of their operations at the
peak, or that of their bytes at the rate of memory, whichever is longer; the bound is the sum of both.
"""

from __future__ import annotations

import importlib

import numpy as np

from benchmarks.harness import THREADS, Bench, Row, elapsed_ms

# The folders of numbered examples have no names that an import statement can say.
example = importlib.import_module("examples.04_sparse_attention.sparse_attention")

SHAPE = example.Shape(index_heads=64, index_dim=128, heads=128, key=576, value=512)
LENGTHS = {"sparse_8k": 8192, "sparse_64k": 65536}


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    program = example.sparse_attention(SHAPE).compile(target="cpu")
    for name, length in LENGTHS.items():
        batch = example.random_batch(np.random.default_rng(bench.seed), SHAPE, np.array([length]), length)
        example.run(program, batch, workers=THREADS)
        if not example.difference(batch) <= example.TOLERANCE:
            raise AssertionError(f"{name} differs from numpy")

        def once(batch: object = batch) -> float:
            return elapsed_ms(lambda: example.run(program, batch, workers=THREADS))

        measured = bench.measure(
            {name: once}, rounds=bench.rounds(31, 9), threads=THREADS, memory_bound=True
        )[name]
        bench.add(f"{name}_ms", measured, "ms")
        gflops = bench.calibrator.best[f"peak_gflops_{THREADS}c"]
        over = measured.times_bound(lambda gbs, n=length, peak=gflops: bound_ms(n, peak, gbs))
        bench.rows.append(Row(f"{name}_vs_bound", over, "x", goal="<= 1.6", noisy=measured.noisy))


def bound_ms(length: int, gflops: float, gbs: float) -> float:
    """Return the least time of a step over `length` tokens."""
    parts = (
        (2 * SHAPE.index_heads * SHAPE.index_dim * length, 4 * SHAPE.index_dim * length),
        (2 * SHAPE.heads * (SHAPE.key + SHAPE.value) * example.TOP_K, 4 * SHAPE.key * example.TOP_K),
    )
    return sum(max(flops / gflops, num_bytes / gbs) for flops, num_bytes in parts) / 1e6
