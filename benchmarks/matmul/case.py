"""The case `matmul`: products of tiles on one core, and of matrices through the engine, against the peak.

Matrices are packed once, before anything is timed. The goals of a peer's rows say how many times longer it
takes. Calls follow each other directly, so that what fits the last cache is found there, by peers too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import pto_wsp
from benchmarks.harness import Bench, Measurement, Row, available_cores
from benchmarks.matmul import orders
from benchmarks.matmul.peers import PEERS
from pto_wsp import In, Out, Scalar, Tensor, Tile, bf16, f32, i64, kernel, pto, workload
from pto_wsp.ops.matmul import PackedMatrix, matmul
from pto_wsp.types import DType

THREADS = min(2, available_cores())
TOLERANCE = 2e-5  # of the largest element, for 4096 terms
REPEATS = (
    2000  # products of one task of the rows of tiles: after a calibration, the first call is 0.1 ms slower
)


@dataclass(frozen=True)
class Shape:
    """One row: x of m x k, a matrix of k x n; `goal` in percent of the peak of its type."""

    name: str
    m: int
    n: int
    k: int
    goal: str
    dtype: DType = f32
    peers: bool = False

    @property
    def flops(self) -> float:
        """Operations of one product."""
        return 2.0 * self.m * self.n * self.k


SHAPES = (
    Shape("gemm_1024_pct_peak", 1024, 1024, 1024, ">= 85", peers=True),
    Shape("gemm_512x4096x4096_pct_peak", 512, 4096, 4096, ">= 85", peers=True),
    Shape("gemm_2048x11008x4096_pct_peak", 2048, 11008, 4096, ">= 85"),
    Shape("gemm_128x4096x4096_pct_peak", 128, 4096, 4096, ">= 85"),
    Shape("gemm_32x11008x4096_pct_peak", 32, 11008, 4096, ">= 75", peers=True),
    Shape("gemm_bf16_512x4096x4096_pct_bf16_peak", 512, 4096, 4096, ">= 80", bf16),
)


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    of_tiles(bench, "tile_64_pct_peak", 64, 64, 64)
    of_tiles(bench, "tile_64x128x128_pct_peak", 64, 128, 128)
    for shape in SHAPES:
        of_matrices(bench, shape)
    of_one_row(bench)
    of_orders(bench)


# --- tiles ---


def tile_program(m: int, n: int, k: int) -> Any:
    """Return a program of one task, which multiplies one pair of tiles again and again."""

    @kernel
    def repeat(
        x: In[Tile[m, k, f32]],
        w: In[Tile[k, n, f32]],
        y: Out[Tile[m, n, f32]],
        times: Scalar[i64],
    ):
        total = pto.full((m, n), 0.0)
        for _ in range(times):
            total = pto.matmul(x, w, acc=total)
        pto.store(y, total)

    @workload
    def tile(
        X: Tensor[f32, m, k],
        W: Tensor[f32, k, n],
        Y: Tensor[f32, m, n],
        times: Scalar[i64],
    ):
        repeat(x=X, w=W, y=Y, times=times)

    return tile.compile(target="cpu")


def of_tiles(bench: Bench, name: str, m: int, n: int, k: int) -> None:
    """Add the row of a tile's product that stays in the caches, on one core."""
    program = tile_program(m, n, k)
    x, w = random(bench.seed, m, k), random(bench.seed + 1, k, n)
    y = np.empty((m, n), np.float32)
    program(X=x, W=w, Y=y, times=1)
    verify(name, y, x, w)

    def once() -> float:
        return elapsed_s(lambda: program.run(workers=1, X=x, W=w, Y=y, times=REPEATS))

    times = bench.measure({name: once}, rounds=bench.rounds(31, 9))[name]
    flops = 2.0 * m * n * k * REPEATS
    bench.rows.append(share_of_peak(name, flops, times, ">= 90"))


# --- matrices ---


def of_matrices(bench: Bench, shape: Shape) -> None:
    """Add the row of a product through the engine, and the rows of its peers."""
    if shape.dtype is bf16 and not bench.calibrator.peak_bf16_gflops(THREADS):
        bench.skipped[shape.name] = "the processor has no dot product of bf16"
        bench.rows.append(Row(shape.name, None, "%"))
        return
    x, w = random(bench.seed, shape.m, shape.k), random(bench.seed + 1, shape.k, shape.n)
    given, packed = x.astype(shape.dtype.to_numpy()), PackedMatrix(w, shape.dtype)
    out = pto_wsp.empty((shape.m, shape.n), shape.dtype)

    def ours() -> float:
        return elapsed_s(lambda: matmul(given, packed, out=out, workers=THREADS))

    ours()
    verify(shape.name, out, given, packed.unpack())
    times = bench.measure({"ours": ours}, rounds=bench.rounds(15, 5), threads=THREADS)["ours"]
    scale = 1.0
    if shape.dtype is bf16:
        best = bench.calibrator.best
        scale = best[f"peak_bf16_gflops_{THREADS}c"] / best[f"peak_gflops_{THREADS}c"]
    bench.rows.append(share_of_peak(shape.name, shape.flops / scale, times, shape.goal))
    if shape.peers:
        against_peers(bench, shape, x, w, ours)


def against_peers(
    bench: Bench, shape: Shape, x: np.ndarray, w: np.ndarray, ours: Callable[[], float]
) -> None:
    """Time a product and its peers in turn."""
    functions = {"ours": ours}
    stem = shape.name.removesuffix("_pct_peak")
    target = np.empty((shape.m, shape.n), np.float32)
    for name, make in PEERS.items():
        try:
            peer = make(x, w, target, THREADS)
        except ImportError as error:
            bench.skipped[name] = f"{error.name} is not installed: make bench needs the extra [bench]"
            continue
        peer()
        verify(f"{stem}_vs_{name}", target, x, w)
        functions[name] = lambda peer=peer: elapsed_s(peer)
    measured = bench.measure(functions, rounds=bench.rounds(9, 3), threads=THREADS)
    us = measured.pop("ours")
    for name, found in measured.items():
        noisy = us.noisy or found.noisy
        row = Row(f"{stem}_vs_{name}", 1e3 * us.value, "ms", name, 1e3 * found.value, noisy=noisy)
        bench.rows.append(with_ratio(row))


def with_ratio(row: Row) -> Row:
    """Return a row of times with the peer's over ours."""
    assert row.value is not None and row.peer_value is not None
    ratio = row.peer_value / row.value
    return Row(row.name, row.value, row.unit, row.peer, row.peer_value, ratio, "ratio >= 1", row.noisy)


def of_one_row(bench: Bench) -> None:
    """Add the row of a matrix times a vector: its time over that of reading the matrix."""
    name, n, k = "gemv_11008x4096_vs_dram", 11008, 4096
    x, w = random(bench.seed, 1, k), random(bench.seed + 1, k, n)
    packed, out = PackedMatrix(w), np.empty((1, n), np.float32)

    def ours() -> float:
        return elapsed_s(lambda: matmul(x, packed, out=out, workers=THREADS))

    ours()
    verify(name, out, x, w)
    times = bench.measure({name: ours}, rounds=bench.rounds(15, 5), threads=THREADS, memory_bound=True)[name]
    pairs = zip(times.values, times.calibrations, strict=True)
    over = median(s * 1e9 * gbs / (4 * n * k) for s, gbs in pairs)
    bench.rows.append(Row(name, over, "x", goal="<= 1.15", noisy=times.noisy))


def of_orders(bench: Bench) -> None:
    """Add the rows of the order of tasks: that of `ops.matmul`, compared with rows first and panels first."""
    x, w = random(bench.seed, orders.M, orders.K), random(bench.seed + 1, orders.K, orders.N)
    packed, y = PackedMatrix(w), pto_wsp.empty((orders.M, orders.N), f32)
    functions = {}
    for name, panels in orders.ORDERS.items():
        program = orders.program(panels)

        def once(program: pto_wsp.Program = program) -> float:
            return elapsed_s(lambda: program.run(workers=THREADS, X=x, W=packed.panels, Y=y))

        once()
        verify(name, y, x, w)
        functions[name] = once
    measured = bench.measure(functions, rounds=bench.rounds(9, 3), threads=THREADS)
    us = measured.pop("slabs")
    for name, found in measured.items():
        noisy = us.noisy or found.noisy
        ratio = found.value / us.value
        row = Row(f"order_slabs_vs_{name}", 1e3 * us.value, "ms", name, 1e3 * found.value, ratio, noisy=noisy)
        bench.rows.append(row)


# --- what the rows share ---


def random(seed: int, *shape: int) -> np.ndarray:
    """Return values around 0 in huge pages."""
    array = pto_wsp.empty(shape, f32)
    array[...] = np.random.default_rng(seed).random(shape, np.float32) - np.float32(0.5)
    return array


def verify(name: str, found: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    """Raise unless some rows agree with numpy in f64."""
    rows = np.unique(np.linspace(0, len(x) - 1, 5).astype(int))
    expected = x[rows].astype(np.float64) @ w.astype(np.float64)
    tolerance = TOLERANCE if found.dtype == np.float32 else 2**-8
    if not np.abs(found[rows].astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max():
        raise AssertionError(f"{name} differs from numpy")


def share_of_peak(name: str, flops: float, times: Measurement, goal: str) -> Row:
    """Return the row of seconds as percent of the peak that was calibrated around each."""
    pairs = zip(times.values, times.calibrations, strict=True)
    share = median(100 * flops / (s * 1e9 * peak) for s, peak in pairs)
    return Row(name, share, "%", goal=goal, noisy=times.noisy)


def elapsed_s(function: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
