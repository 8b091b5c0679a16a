"""Decode attention under several schedules: one program, nothing compiled twice, the same bits.

python examples/06_tuned_decode/tuned_decode.py [--batch N] [--longest N] [--workers N] [--report OUT.html]
"""

import argparse
from math import inf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import (
    DYN,
    Dense,
    DispatchPolicy,
    In,
    Out,
    P,
    Program,
    Ragged,
    Schedule,
    Strategies,
    Tensor,
    Tile,
    bf16,
    f32,
    kernel,
    pto,
    workload,
)

KV_HEADS, GROUP, DIM = 8, 4, 128  # GROUP query heads share one KV head
TOLERANCE = 1e-5  # absolute, against f64: scores and values are of order 1


@kernel
def attend(
    q: In[Tile[GROUP, DIM, f32]],
    k: In[Tensor[bf16, DYN, DIM]],
    v: In[Tensor[bf16, DYN, DIM]],
    o: Out[Tile[GROUP, DIM, f32]],
):
    """Attend to all keys of one sequence and KV head."""
    m, l, acc = pto.full((GROUP, 1), -inf), pto.zeros((GROUP, 1)), pto.zeros((GROUP, DIM))  # noqa: E741
    for r in pto.tiles(k.rows, 64):
        s = pto.matmul(q, k[r].T) * (1 / sqrt(DIM))
        m_new = pto.maximum(m, pto.rowmax(s))
        p, alpha = pto.exp(s - m_new), pto.exp(m - m_new)
        l = l * alpha + pto.rowsum(p)  # noqa: E741
        acc = acc * alpha + pto.matmul(p, v[r])
        m = m_new
    pto.store(o, pto.where(l > 0, acc / l, 0.0))


@workload
def decode(
    kv: Ragged["batch"],
    Q: Tensor[f32, "batch", KV_HEADS, GROUP, DIM],
    K: Tensor[bf16, "tokens", KV_HEADS, DIM],
    V: Tensor[bf16, "tokens", KV_HEADS, DIM],
    O: Tensor[f32, "batch", KV_HEADS, GROUP, DIM],  # noqa: E741
):
    """Attend for every sequence and KV head."""
    for b, h in P("batch", Dense[KV_HEADS]):
        attend[b, h](q=Q[b, h], k=K[kv[b], h], v=V[kv[b], h], o=O[b, h])


SCHEDULES = {
    "the default": Schedule(),
    "heads stay together": Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.h)),
    "sequences in turn": Schedule().dispatch(DispatchPolicy.dispatch_by(lambda t: t.batch % 4, 4)),
    "long sequences first": Schedule().order_by(lambda t: -t.args.k.rows),
    "long sequences apart": Schedule().dispatch(
        DispatchPolicy.threshold(lambda t: t.args.k.rows, [64, 1024])
    ),
    "four sequences in turn": Schedule().interleave(lambda t: t.batch, 4),
    "four sequences in flight": Schedule().concurrent(lambda t: t.batch, max=4),
}


def choose(sizes: Any) -> str:
    """Choose a schedule by the number of sequences and their mean length."""
    if sizes.batch >= 8 and sizes.kv.mean() > 4096:
        return "four sequences in flight"
    return "long sequences first" if sizes.batch >= 4 else "the default"


STRATEGIES = Strategies(SCHEDULES, choose=choose)


class Batch(NamedTuple):
    """Sequences of different lengths, and their queries."""

    kv: Ragged
    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray


def make_batch(batch: int, longest: int, seed: int = 0) -> Batch:
    """Return a batch with a few long sequences at its end."""
    rng = np.random.default_rng(seed)
    lengths = np.sort(np.exp(rng.uniform(0, np.log(longest), batch)).astype(np.int64))
    shape = (int(lengths.sum()), KV_HEADS, DIM)
    k, v = (rng.standard_normal(shape, np.float32).astype(bf16.to_numpy()) for _ in range(2))
    return Batch(
        Ragged.lengths(lengths), rng.standard_normal((batch, KV_HEADS, GROUP, DIM), np.float32), k, v
    )


def run(program: Program, batch: Batch, workers: int | None, trace: str = "off") -> np.ndarray:
    """Return the output of one run."""
    out = np.empty_like(batch.Q)
    program.run(**batch._asdict(), O=out, workers=workers, trace=trace)
    return out


def reference(batch: Batch) -> np.ndarray:
    """Return the output as numpy computes it in f64."""
    out = np.zeros(batch.Q.shape)
    for b, (start, stop) in enumerate(zip(batch.kv.offsets[:-1], batch.kv.offsets[1:], strict=True)):
        for h in range(KV_HEADS):
            scores = batch.Q[b, h] @ batch.K[start:stop, h].astype(np.float64).T / sqrt(DIM)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[b, h] = (
                weights / weights.sum(axis=1, keepdims=True) @ batch.V[start:stop, h].astype(np.float64)
            )
    return out


def main() -> None:
    """Run under every schedule, compare bits, and the first with numpy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--longest", type=int, default=4096, help="tokens of the longest sequence, about")
    parser.add_argument("--workers", type=int, default=None, help="threads; all cores by default")
    parser.add_argument("--report", type=Path, metavar="OUT.html", help="write a report of a last run")
    options = parser.parse_args()
    if min(options.batch, options.longest) < 1:
        parser.error("sizes are at least 1")
    batch = make_batch(options.batch, options.longest)
    program = decode.compile("cpu")
    expected = run(program, batch, options.workers)
    print("  run ms  compiles  schedule")
    for name, schedule in SCHEDULES.items():
        program.reschedule(schedule)
        found = min((run_timed(program, batch, options.workers) for _ in range(5)), key=lambda one: one[0])
        print(f"  {found[0]:>6.2f}  {found[1]:>8}  {name}: {schedule}")
        if found[2].tobytes() != expected.tobytes():
            raise SystemExit("a schedule changed the result")
    program.reschedule(STRATEGIES)
    for size in sorted({1, min(options.batch, 4), options.batch}):
        run(program, make_batch(size, options.longest), options.workers)
        assert program.stats is not None
        print(f"  {size} sequences choose: {program.stats.schedule}")
    program.reschedule(Schedule())
    if options.report is not None:
        run(program, batch, options.workers, trace="full")
        assert program.trace is not None
        program.trace.save_html(options.report)
        print(f"\n  report: {options.report} (any browser)")
    off_by = float(np.abs(expected - reference(batch)).max())
    print(f"\n  off by {off_by:.1e} from numpy in f64")
    if not off_by <= TOLERANCE:
        raise SystemExit(f"differs from numpy by more than {TOLERANCE:.0e}")


def run_timed(program: Program, batch: Batch, workers: int | None) -> tuple[float, int, np.ndarray]:
    """Return milliseconds, compiles and the output of one run."""
    out = run(program, batch, workers)
    assert program.stats is not None
    return program.stats.run_ms, program.stats.compiles, out


if __name__ == "__main__":
    main()
