"""The case `ragged_decode`: a decode step of 32 requests, against the memory that it reads and against torch.

32 query heads share 8 KV heads of 128; lengths are lognormal (median 1500, sigma 1.2, 128..16384), pages
of 16 lie scattered over the cache. Times include the plan of the step. The limit is the time in which the
calibrated rate of memory reads the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import pto_wsp
from benchmarks.harness import THREADS, Bench, Measurement, Row, elapsed_ms
from benchmarks.ragged_decode import peers
from pto_wsp import bf16, f32
from pto_wsp.ops.attention import BatchDecode
from pto_wsp.types import DType

LENGTHS = np.array(
    [
        128, 128, 169, 224, 283, 293, 306, 372, 513, 628, 694, 788, 863, 991, 1009, 1016, 1158, 1166, 1227,
        1903, 1977, 2112, 3368, 3510, 3834, 4411, 4559, 5056, 5219, 5549, 15136, 16384,
    ]
)  # fmt: skip
Q_HEADS, KV_HEADS, DIM, PAGE = 32, 8, 128, 16
TOLERANCE = {f32: 1e-5, bf16: 5e-3}
"""Of results, by the element type of queries."""
PEERS = {
    "decode_f32_vs_torch_padded": (peers.torch_padded, "ratio >= 8"),
    "decode_f32_vs_torch_loop": (peers.torch_loop, "ratio >= 1.5"),
    "decode_f32_vs_numpy_loop": (peers.numpy_loop, None),
}


class Decode:
    """One step over a cache.

    Args:
        kv: element type of the cache.
        q: element type of queries and results.
        seed: of the values.
        empty: makes the memory of the cache.
    """

    def __init__(
        self, kv: DType, q: DType, seed: int, empty: Callable[[tuple[int, ...]], np.ndarray]
    ) -> None:
        rng = np.random.default_rng(seed)
        counts = -(-LENGTHS // PAGE)
        self.indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        self.pages = rng.permutation(int(self.indptr[-1])).astype(np.int32)
        self.last = (LENGTHS - (counts - 1) * PAGE).astype(np.int32)
        self.cache = tuple(empty((len(self.pages), KV_HEADS, PAGE, DIM)) for _ in range(2))
        for array in self.cache:
            for part in np.array_split(array, 16):
                part[...] = rng.standard_normal(part.shape, np.float32)
        queries = rng.standard_normal((len(LENGTHS), Q_HEADS, DIM), np.float32)
        self.q, self.tolerance = queries.astype(q.to_numpy()), TOLERANCE[q]
        self.out = np.empty_like(self.q)
        self.bytes = int(LENGTHS.sum()) * 2 * KV_HEADS * DIM * kv.itemsize
        self.attention = BatchDecode(
            Q_HEADS, KV_HEADS, DIM, page_size=PAGE, kv_dtype=kv, q_dtype=q, kv_layout="HND", workers=THREADS
        )
        self.step()
        self.verify()

    def step(self) -> float:
        """Plan and run; return milliseconds."""
        began = time.perf_counter()
        self.attention.plan(self.indptr, self.pages, self.last)
        self.attention.run(self.q, self.cache, out=self.out)
        return 1e3 * (time.perf_counter() - began)

    def pair(self, b: int) -> tuple[np.ndarray, np.ndarray]:
        """Return keys and values of a request as `[kv_heads, length, dim]`, one after the other."""
        rows = self.pages[self.indptr[b] : self.indptr[b + 1]]
        k, v = (
            np.ascontiguousarray(
                array[rows].swapaxes(0, 1).reshape(KV_HEADS, -1, DIM)[:, : LENGTHS[b]], np.float32
            )
            for array in self.cache
        )
        return k, v

    def verify(self) -> None:
        """Raise unless a few requests agree with numpy in f64."""
        for b in (0, 7, len(LENGTHS) - 1):
            k, v = (a.astype(np.float64) for a in self.pair(b))
            expected = peers.numpy_loop(self.q[b : b + 1].astype(np.float64), [(k, v)], THREADS)()
            if not np.abs(self.out[b] - expected).max() <= self.tolerance:
                raise AssertionError(f"request {b} differs from numpy")


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    for name, q, goal in (("decode_bf16", bf16, "<= 1.25"), ("decode_bf16_f32_queries", f32, None)):
        against_memory(bench, f"{name}_vs_dram", Decode(bf16, q, bench.seed, huge(bf16)), goal)
    against_memory(bench, "decode_f32_numpy_memory_vs_dram", Decode(f32, f32, bench.seed, plain), None)
    decode = Decode(f32, f32, bench.seed, huge(f32))
    against_memory(bench, "decode_f32_vs_dram", decode, "<= 1.25")
    against_peers(bench, decode)


def huge(dtype: DType) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Return what makes memory in huge pages."""
    return lambda shape: pto_wsp.empty(shape, dtype)


def plain(shape: tuple[int, ...]) -> np.ndarray:
    """Make numpy's own memory."""
    return np.empty(shape, np.float32)


def against_memory(bench: Bench, name: str, decode: Decode, goal: str | None) -> None:
    """Add the row of a step's time over the time that its bytes take to read."""
    measured = bench.measure(
        {name: decode.step}, rounds=bench.rounds(15, 5), threads=THREADS, memory_bound=True
    )[name]
    over = measured.times_memory(decode.bytes)
    bench.rows.append(Row(name, over, "x", goal=goal, noisy=measured.noisy))


def against_peers(bench: Bench, decode: Decode) -> None:
    """Time a step and its peers in turn."""
    pairs = [decode.pair(b) for b in range(len(LENGTHS))]
    functions: dict[str, Callable[[], float]] = {"ours": decode.step}
    for name, (make, _) in PEERS.items():
        try:
            peer = make(decode.q, pairs, THREADS)
        except ImportError as error:
            bench.skipped[name] = f"{error.name} is not installed: make bench needs the extra [bench]"
            continue
        if not np.abs(np.asarray(peer()) - decode.out).max() <= decode.tolerance:
            raise AssertionError(f"{name}: the results differ")
        functions[name] = lambda peer=peer: elapsed_ms(peer)
    measured = bench.measure(functions, rounds=bench.rounds(9, 3), threads=THREADS, memory_bound=True)
    ours = measured.pop("ours")
    for name, found in measured.items():
        bench.rows.append(compared(name, ours, found, PEERS[name][1]))


def compared(name: str, ours: Measurement, peer: Measurement, goal: str | None) -> Row:
    """Return the row of a peer: how many times longer it takes."""
    noisy = ours.noisy or peer.noisy
    what = name.partition("_vs_")[2]
    return Row(name, ours.value, "ms", what, peer.value, peer.value / ours.value, goal, noisy)
