"""The case `flash`: attention of one prompt of 2048 positions, 16 heads of 128, against the peak and torch.

Operations are those of the two products for what a query attends: half of them with a causal mask. Times are
of `run`; the plan, which any number of layers share, is made before.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks.flash.peers import torch_attention
from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from pto_wsp.ops.attention import BatchPrefill

LENGTH, HEADS, DIM = 2048, 16, 128
TOLERANCE = 1e-5


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    for name, causal, goal in (("full", False, ">= 80"), ("causal", True, ">= 75")):
        measure(bench, f"flash_{LENGTH}_{name}", causal, goal)


def measure(bench: Bench, name: str, causal: bool, goal: str) -> None:
    """Add the row of a mask, and that of its peer."""
    rng = np.random.default_rng(bench.seed)
    q, k, v = (rng.standard_normal((LENGTH, HEADS, DIM), np.float32) for _ in range(3))
    prefill = BatchPrefill(HEADS, HEADS, DIM, page_size=None, causal=causal, workers=THREADS)
    prefill.plan([0, LENGTH], [0, LENGTH])
    out = np.empty_like(q)

    def ours() -> float:
        return elapsed_ms(lambda: prefill.run(q, (k, v), out=out))

    ours()
    verify(name, out, q, k, v, causal)
    measured = bench.measure({name: ours}, rounds=bench.rounds(15, 5), threads=THREADS)[name]
    attended = LENGTH * (LENGTH + 1) // 2 if causal else LENGTH**2
    flops = 4.0 * attended * DIM * HEADS
    pairs = zip(measured.values, measured.calibrations, strict=True)
    share = median(100 * flops / (ms * 1e6 * peak) for ms, peak in pairs)
    bench.rows.append(Row(f"{name}_pct_peak", share, "%", goal=goal, noisy=measured.noisy))
    against_torch(bench, name, ours, q, k, v, causal)


def against_torch(
    bench: Bench,
    name: str,
    ours: Callable[[], float],
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    causal: bool,
) -> None:
    """Time our attention and torch's in turn."""
    try:
        peer = torch_attention(q, k, v, causal, THREADS)
    except ImportError as error:
        bench.skipped["torch"] = f"{error.name} is not installed: make bench needs the extra [bench]"
        return
    verify(f"{name}_vs_torch", np.asarray(peer()), q, k, v, causal)
    functions = {"ours": ours, "torch": lambda: elapsed_ms(peer)}
    measured = bench.measure(functions, rounds=bench.rounds(9, 3), threads=THREADS)
    us, them = measured["ours"], measured["torch"]
    ratio, noisy = them.value / us.value, us.noisy or them.noisy
    bench.rows.append(
        Row(f"{name}_vs_torch", us.value, "ms", "torch", them.value, ratio, "ratio >= 2", noisy)
    )


def verify(name: str, found: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> None:
    """Raise unless some positions of a head agree with numpy in f64."""
    head = HEADS - 1
    for at in (0, 1, LENGTH // 2 + 5, LENGTH - 1):
        seen = slice(0, at + 1 if causal else LENGTH)
        keys, values = (a[seen, head].astype(np.float64) for a in (k, v))
        scores = keys @ q[at, head].astype(np.float64) / np.sqrt(DIM)
        weights = np.exp(scores - scores.max())
        if not np.abs(found[at, head] - weights @ values / weights.sum()).max() <= TOLERANCE:
            raise AssertionError(f"{name}: position {at} differs from numpy")
