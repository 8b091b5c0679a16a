"""The case `llama`: a decoder layer of LLaMA-7B, against the peak of the machine and the rate of its memory.

Hidden size 4096, 32 heads of 128, feed-forward network of 11008. Prompts of 128, 512 and 2048 tokens count
the operations of the linear layers and of causal attention; a step of one token after 2048 others counts the
bytes of weights and cache. The layer is that of `examples/llama`.
"""

from __future__ import annotations

import numpy as np

import pto_wsp
from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from examples.llama.kernels import Shape, Types
from examples.llama.model import MATRICES, Cache, Chunk, Layer, Plain, matrix_shapes, reference
from pto_wsp import MemLayout, bf16, f32
from pto_wsp.targets.preferences import sums_pairs
from pto_wsp.types import DType

SHAPE = Shape()
CONTEXT = 2048
TOLERANCE = 1e-4
GOALS = {
    "llama_128": 80,
    "llama_512": 82,
    "llama_2048": 82,
    "llama_1": 85,
    "llama_bf16_512": 75,
    "llama_bf16_1": 82,
}


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    cache = Cache.of(SHAPE, 1, CONTEXT + 1)
    for array in cache:
        array[...] = np.random.default_rng(bench.seed).standard_normal(array.shape[-1], np.float32)
    layer = make_layer(f32, bench.seed)
    verify(layer)
    for tokens in (128, 512, 2048):
        prefill(bench, f"llama_{tokens}", layer, tokens, cache)
    step(bench, "llama_1", layer, cache)
    # Pairs of small factors are worth it where the processor multiplies them as such.
    layer = make_layer(bf16, bench.seed, bf16 if sums_pairs("cpu") else f32)
    prefill(bench, "llama_bf16_512", layer, 512, cache)
    step(bench, "llama_bf16_1", layer, cache)


def make_layer(weights: DType, seed: int, activations: DType = f32) -> Layer:
    """Return the layer with random weights, made in the layout that it reads."""
    some = np.random.default_rng(seed).standard_normal(1 << 20, np.float32)
    layout, packed = MemLayout.panels(SHAPE.panel), {}
    for name, dims in matrix_shapes(SHAPE).items():
        packed[name] = pto_wsp.empty(tuple(int(d) for d in layout.physical_dims(dims)), weights)
        for panel in packed[name]:
            panel[...] = np.resize(some * np.float32(dims[0] ** -0.5), panel.shape)
    return Layer(SHAPE, packed, Types(weights, activations))


def verify(layer: Layer) -> None:
    """Raise unless a short prompt agrees with numpy."""
    layout = MemLayout.panels(SHAPE.panel)
    matrices = (layout.unpack(layer.weights[name], matrix_shapes(SHAPE)[name][1]) for name in MATRICES)
    gains = [np.ones(SHAPE.hidden, np.float32)] * 2
    hidden = random_hidden(12)
    expected = reference(Plain(*matrices, *gains), SHAPE, hidden)
    layer(hidden, [Chunk(0, 0, len(hidden))], Cache.of(SHAPE, 1, len(hidden)))
    if not np.abs(hidden - expected).max() <= TOLERANCE * np.abs(expected).max():
        raise AssertionError("the layer differs from numpy")


def random_hidden(tokens: int) -> np.ndarray:
    """Return the tokens that come in."""
    return np.random.default_rng(tokens).standard_normal((tokens, SHAPE.hidden), np.float32)


def prefill(bench: Bench, name: str, layer: Layer, tokens: int, cache: Cache) -> None:
    """Add the rows of a prompt: milliseconds, and the share of the peak."""
    hidden, weights = random_hidden(tokens), sum(a * b for a, b in matrix_shapes(SHAPE).values())
    flops = 2 * tokens * weights + 2 * SHAPE.hidden * tokens * (tokens + 1)

    def once() -> float:
        x = hidden.copy()
        return elapsed_ms(lambda: layer(x, [Chunk(0, 0, tokens)], cache))

    once()
    measured = bench.measure({name: once}, rounds=bench.rounds(7, 2), threads=THREADS)[name]
    bench.add(f"{name}_ms", measured, "ms")
    share = measured.percent_of_peak(flops)
    if next(iter(layer.weights.values())).itemsize != 2:
        row = f"{name}_pct_peak"
    else:
        row, share = f"{name}_pct_bf16_peak", share * peak_over_bf16(bench)
        if not share:
            bench.skipped[row] = "the processor has no dot product of bf16"
            return
    bench.rows.append(Row(row, share, "%", goal=f">= {GOALS[name]}", noisy=measured.noisy))


def peak_over_bf16(bench: Bench) -> float:
    """Return the peak of f32 over that of dot products of bf16; 0 where there are none."""
    threads = bench.calibrator.max_threads
    bf16_peak = bench.calibrator.best[f"peak_bf16_gflops_{threads}c"]
    return bench.calibrator.best[f"peak_gflops_{threads}c"] / bf16_peak if bf16_peak else 0.0


def step(bench: Bench, name: str, layer: Layer, cache: Cache) -> None:
    """Add the rows of one token after `CONTEXT` others: milliseconds, and the share of memory's rate."""
    hidden = random_hidden(1)
    num_bytes = sum(a.nbytes for a in layer.weights.values()) + 2 * SHAPE.hidden * CONTEXT * f32.itemsize

    def once() -> float:
        x = hidden.copy()
        return elapsed_ms(lambda: layer(x, [Chunk(0, CONTEXT, 1)], cache))

    once()
    measured = bench.measure({name: once}, rounds=bench.rounds(15, 5), threads=THREADS, memory_bound=True)[
        name
    ]
    bench.add(f"{name}_ms", measured, "ms")
    share = 100 / measured.times_memory(num_bytes)
    bench.rows.append(Row(f"{name}_pct_dram", share, "%", goal=f">= {GOALS[name]}", noisy=measured.noisy))
