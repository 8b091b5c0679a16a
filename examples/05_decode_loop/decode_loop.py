"""A decode loop: requests come and go, every step adds a token to each, and attention is planned again.

python examples/05_decode_loop/decode_loop.py [--steps N] [--batch N] [--kv f32|bf16] [--workers N]
"""

import argparse
import time
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

import pto_wsp
from pto_wsp import bf16, f32
from pto_wsp.ops.attention import BatchDecode

Q_HEADS, KV_HEADS, DIM = 32, 8, 128
PAGE = 16  # tokens
TOLERANCE = 1e-5  # absolute, against f64: scores and values are of order 1


class Cache:
    """Keys and values of all requests in pages, and the pages of each request."""

    def __init__(self, pages: int, kv: Any) -> None:
        self.data = pto_wsp.empty((pages, 2, PAGE, KV_HEADS, DIM), kv)
        self.free = list(range(pages))
        self.pages: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}

    def append(self, request: int, tokens: np.ndarray) -> None:
        """Write keys and values `[tokens, 2, KV_HEADS, DIM]` after those that a request has."""
        pages, length = self.pages.setdefault(request, []), self.lengths.get(request, 0)
        for token in tokens:
            if length % PAGE == 0:
                pages.append(self.free.pop())
            self.data[pages[-1], :, length % PAGE] = token
            length += 1
        self.lengths[request] = length

    def release(self, request: int) -> None:
        """Give the pages of a request back."""
        self.free += self.pages.pop(request)
        del self.lengths[request]

    def room(self) -> int:
        """Return how many tokens fit into the free pages."""
        return len(self.free) * PAGE

    def plan_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return kv_indptr, kv_indices and kv_last_page_len of all requests."""
        counts = [len(pages) for pages in self.pages.values()]
        indices = np.array([page for pages in self.pages.values() for page in pages], np.int32)
        last = np.array([(n - 1) % PAGE + 1 for n in self.lengths.values()], np.int32)
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int32)]), indices, last


class Step(NamedTuple):
    """What one step took and found."""

    requests: int
    tokens: int
    plan_us: float
    run_ms: float
    compiles: int
    partials: int
    off_by: float


def reference(cache: Cache, q: np.ndarray) -> np.ndarray:
    """Return the output as numpy computes it in f64, request after request."""
    out = np.zeros(q.shape)
    for b, (request, pages) in enumerate(cache.pages.items()):
        kv = cache.data[pages].swapaxes(1, 2).reshape(-1, 2, KV_HEADS, DIM)[: cache.lengths[request]]
        k, v = kv.astype(np.float64).transpose(1, 2, 0, 3)
        scores = q[b].reshape(KV_HEADS, -1, DIM) @ k.swapaxes(1, 2) / sqrt(DIM)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        out[b] = (weights / weights.sum(axis=2, keepdims=True) @ v).reshape(Q_HEADS, DIM)
    return out


def serve(steps: int, batch: int, kv: Any, workers: int | None, seed: int = 0) -> list[Step]:
    """Run a number of steps with at most `batch` requests at a time; return what each took."""
    rng = np.random.default_rng(seed)
    attn = BatchDecode(Q_HEADS, KV_HEADS, DIM, page_size=PAGE, kv_dtype=kv, workers=workers)
    cache, names, found = Cache(256 * batch, kv), iter(range(1 << 30)), []

    def new_tokens(count: int) -> np.ndarray:
        return rng.standard_normal((count, 2, KV_HEADS, DIM), np.float32)

    for _ in range(steps):
        for request in [r for r in cache.pages if rng.random() < 0.1]:  # some are done
            cache.release(request)
        while len(cache.pages) < batch and (
            not cache.pages or rng.random() < 0.6
        ):  # others come with a prompt
            prompt = int(np.exp(rng.uniform(0, np.log(3000))))
            if prompt + PAGE * batch > cache.room():
                break
            cache.append(next(names), new_tokens(prompt))
        for request in cache.pages:  # and each has a new token
            cache.append(request, new_tokens(1)[0:1])
        q = rng.standard_normal((len(cache.pages), Q_HEADS, DIM), np.float32)
        arrays = cache.plan_arrays()
        began = time.perf_counter()
        attn.plan(*arrays)
        planned = time.perf_counter()
        out = attn.run(q, cache.data)
        ended = time.perf_counter()
        stats, plan = attn.program.stats, attn.current
        assert stats is not None and plan is not None
        off_by = float(np.nan_to_num(np.abs(out - reference(cache, q)), nan=np.inf).max())
        found.append(
            Step(
                len(q), sum(cache.lengths.values()), 1e6 * (planned - began), 1e3 * (ended - planned),
                stats.compiles, plan.num_partials, off_by,
            )
        )  # fmt: skip
    return found


def main() -> None:
    """Serve, and compare every step with numpy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="most requests at a time")
    parser.add_argument("--kv", choices=["f32", "bf16"], default="bf16", help="element type of the cache")
    parser.add_argument("--workers", type=int, default=None, help="threads; all cores by default")
    options = parser.parse_args()
    if min(options.steps, options.batch) < 1:
        parser.error("sizes are at least 1")
    print(f"{Q_HEADS} query heads, {KV_HEADS} KV heads of {DIM}, {options.kv} cache, pages of {PAGE}\n")
    print("  requests  tokens  plan us  run ms partials compiles   off by")
    for step in serve(options.steps, options.batch, {"f32": f32, "bf16": bf16}[options.kv], options.workers):
        print(
            f"  {step.requests:>8} {step.tokens:>7,} {step.plan_us:>8.0f} {step.run_ms:>7.2f} "
            f"{step.partials:>8} {step.compiles:>8}   {step.off_by:.1e}"
        )
        if not step.off_by <= TOLERANCE:
            raise SystemExit(f"differs from numpy by more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
