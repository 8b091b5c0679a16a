"""Run batches through one attention layer of DeepSeek V3.2, and check tokens against numpy.

python -m examples.deepseek_v32 [--small] [--requests N] [--longest N] [--steps N] [--weights f32|bf16]
"""

from __future__ import annotations

import argparse
from collections import Counter
from time import perf_counter

import numpy as np

from examples.deepseek_v32.config import SMALL, Config
from examples.deepseek_v32.model import Cache, Chunk, Layer, pack
from examples.deepseek_v32.reference import Weights, index_scores, random_weights
from pto_wsp import bf16, f32

TOLERANCE = 1e-4
"""Of an output, relative to the largest."""


def lengths_of(rng: np.random.Generator, requests: int, longest: int) -> np.ndarray:
    """Return lengths as served models see them: lognormal, most of them short."""
    return np.clip(rng.lognormal(np.log(longest / 8), 1.2, requests), 2, longest - 1).astype(int)


def filled(rng: np.random.Generator, config: Config, lengths: np.ndarray, longest: int) -> Cache:
    """Return a cache with random rows for requests of these lengths."""
    cache = Cache.of(config, len(lengths), longest)
    for array in cache:
        for slot, length in enumerate(lengths):
            array[slot, :length] = rng.standard_normal((length, array.shape[2]), np.float32)
    return cache


def check(config: Config, w: Weights, arrays: dict[str, np.ndarray], token: int) -> float:
    """Return the error of one token's output, relative to the largest element; check its chosen keys."""
    keys, slot = int(arrays["Keys"][token]), int(arrays["Owner"][token])
    count = min(keys, config.top_k)
    picks = np.sort(arrays["TopK"][token, 0, :count])
    weights = arrays["Indexed"][token, config.index_dim :].astype(np.float64)
    q, k = (arrays[name].astype(np.float64) for name in ("IndexQ", "IndexK"))
    scores = index_scores(q[token], weights, k[slot, :keys])
    least = np.sort(scores)[-count]
    assert len(np.unique(picks)) == count and (scores[picks] >= least - 1e-4 * np.abs(scores).max()).all()
    rows = arrays["Latent"][slot, picks].astype(np.float64)
    q = arrays["Q"][token].astype(np.float64) / config.softmax_scale
    heads = absorbed(config, q, rows, w.wkv_b.astype(np.float64))
    expected = heads.ravel() @ w.wo.T.astype(np.float64)
    return float(np.abs(arrays["Y"][token] - expected).max() / np.abs(expected).max())


def absorbed(config: Config, q: np.ndarray, rows: np.ndarray, wkv_b: np.ndarray) -> np.ndarray:
    """Return the heads of one token by the form of decode: queries are in the latent space."""
    scores = q @ rows.T * config.softmax_scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expand = wkv_b.reshape(config.heads, -1, config.kv_rank)[:, config.nope :]
    return np.einsum("hc,hvc->hv", weights @ rows[:, : config.kv_rank], expand)


def main(arguments: list[str] | None = None) -> None:
    """Run the steps, print their times, check some tokens of the last one."""
    parser = argparse.ArgumentParser(prog="python -m examples.deepseek_v32", description=__doc__)
    parser.add_argument("--small", action="store_true", help="sizes that end in seconds")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--longest", type=int, default=4096, help="positions of a request at most")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--weights", choices=("f32", "bf16"), default="bf16")
    options = parser.parse_args(arguments)
    config, rng = SMALL if options.small else Config(), np.random.default_rng(0)
    dtype = f32 if options.weights == "f32" else bf16
    stored = [a.astype(dtype.to_numpy()).astype(np.float32) for a in random_weights(rng, config)]
    w = Weights(*stored)
    layer = Layer(config, pack(config, w, dtype), dtype)
    lengths = lengths_of(rng, options.requests, options.longest - options.steps - 16)
    cache = filled(rng, config, lengths, options.longest)
    errors = [0.0]
    for step in range(options.steps):
        tokens = np.ones(len(lengths), int)
        tokens[step % len(lengths)] = 16  # one request has a prefill chunk
        chunks = [
            Chunk(slot, int(n), int(t)) for slot, (n, t) in enumerate(zip(lengths, tokens, strict=True))
        ]
        x = rng.standard_normal((tokens.sum(), config.hidden), np.float32)
        start = perf_counter()
        arrays = layer(x, chunks, cache)
        ms = 1e3 * (perf_counter() - start)
        print(f"step {step}: {len(x)} tokens of {len(chunks)} requests, {ms:.1f} ms, {layer.program.stats}")
        lengths += tokens
        errors = [check(config, w, arrays, t) for t in rng.choice(len(x), min(4, len(x)), replace=False)]
        assert max(errors) < TOLERANCE, errors
    attended = Counter("dense" if n <= config.top_k else "sparse" for n in lengths)
    print(f"checked against numpy: worst error {max(errors):.1e}; requests: {dict(attended)}")


if __name__ == "__main__":
    main()
