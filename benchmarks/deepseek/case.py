"""The case `deepseek`: a decode step of one attention layer of DeepSeek V3.2, against its bound and torch.

Sizes are those of the model, weights are bf16 and random. 32 requests have 128 to 16,384 positions, one new
token each. Times include the arrays that plan the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.deepseek.parts import PARTS
from benchmarks.deepseek.peers import TorchLayer
from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from benchmarks.ragged_decode.case import LENGTHS
from examples.deepseek_v32.__main__ import TOLERANCE, check, filled
from examples.deepseek_v32.config import Config
from examples.deepseek_v32.model import Chunk, Layer, pack
from examples.deepseek_v32.reference import Weights, random_weights
from pto_wsp import bf16
from pto_wsp.runtime.trace import Trace

WHOLE, PART = "ratio >= 1.2", "ratio >= 2"
STAGES = {"score": "indexer", "rank": "top_k", "select": "top_k", "attend": "attention", "merge": "attention"}
"""By the first word of a kernel's name; products with weights belong to the prolog or to the output."""

FLIPPED = 0.05
"""Difference of whole layers: both round queries of the indexer to 8-bit floats, and choose by the scores."""

Bounds = dict[str, tuple[float, float]]
"""Operations and bytes of each stage."""


class Step:
    """A decode step over a random cache.

    Args:
        config: sizes.
        lengths: positions of each request, the new one among them.
        seed: of weights, cache and tokens.
    """

    def __init__(self, config: Config, lengths: np.ndarray, seed: int) -> None:
        rng = np.random.default_rng(seed)
        stored = [a.astype(bf16.to_numpy()).astype(np.float32) for a in random_weights(rng, config)]
        self.weights = Weights(*stored)
        self.layer = Layer(config, pack(config, self.weights, bf16), bf16)
        self.cache = filled(rng, config, lengths - 1, int(lengths.max()))
        self.lengths = lengths
        self.chunks = [Chunk(slot, int(n) - 1, 1) for slot, n in enumerate(lengths)]
        self.x = rng.standard_normal((len(lengths), config.hidden), np.float32)
        self.arrays = self()

    def __call__(self, workers: int = THREADS, **options: Any) -> dict[str, Any]:
        """Plan and run; return all arrays."""
        return self.layer(self.x, self.chunks, self.cache, workers=workers, **options)

    def verify(self) -> None:
        """Raise unless the first and the last token agree with numpy in f64."""
        for token in (0, len(self.x) - 1):
            if not (error := check(self.layer.config, self.weights, self.arrays, token)) <= TOLERANCE:
                raise AssertionError(f"token {token} differs from numpy by {error:.1e}")


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    step = Step(Config(), LENGTHS, bench.seed)
    step.verify()
    against_bound(bench, step)
    names = {f"deepseek_{part}_vs_torch": PART for part in PARTS}
    try:
        peer = TorchLayer(step.layer.config, step.layer.weights, step.cache, 1)
    except ImportError as error:
        bench.skipped["torch"] = f"{error.name} is not installed: make extras"
        bench.rows += [
            Row(name, None, "ms", "torch", goal=goal)
            for name, goal in {"deepseek_vs_torch": WHOLE, **names}.items()
        ]
        return
    pairs = compared(step, peer)
    for name, (ours, theirs) in pairs.items():
        against_torch(bench, name, ours, theirs, names.get(name, WHOLE))


def bounds(config: Config, lengths: np.ndarray) -> Bounds:
    """Return the operations and bytes that each stage needs at least.

    Products with weights read the weights once. The indexer reads keys of requests with more than `top_k`.
    """
    c, tokens, attended = config, len(lengths), int(np.minimum(lengths, config.top_k).sum())
    scored = int(lengths[lengths > c.top_k].sum())
    first = c.hidden * (c.compressed + c.indexed) + c.index_heads * c.q_rank * c.index_dim
    first += c.heads * (c.q_rank * (c.nope + c.rope) + c.nope * c.kv_rank)
    last = c.heads * c.value * (c.kv_rank + c.hidden)
    return {
        "prolog": (2 * tokens * first, bf16.itemsize * first),
        "indexer": (2 * c.index_heads * c.index_dim * scored, 4 * c.index_dim * scored),
        "top_k": (0, 4 * (scored + attended)),
        "attention": (2 * c.heads * (c.key + c.kv_rank) * attended, 4 * c.key * attended),
        "output": (2 * tokens * last, bf16.itemsize * last),
    }


def least_ms(needed: Bounds, gflops: float, gbs: float) -> dict[str, float]:
    """Return the least time of each stage. Activations are f32, so operations are counted at that peak."""
    return {name: max(flops / gflops, num_bytes / gbs) / 1e6 for name, (flops, num_bytes) in needed.items()}


def shares(trace: Trace) -> dict[str, float]:
    """Return the percentage of the workers' time in tasks that each stage takes."""
    spent: dict[str, int] = {}
    stage = "prolog"
    for event in trace:
        named = STAGES.get(event.kernel.split("_")[0])
        stage = named or ("output" if stage in ("attention", "output") else "prolog")
        spent[stage] = spent.get(stage, 0) + event.end_ns - event.start_ns
    return {name: 100 * ns / sum(spent.values()) for name, ns in spent.items()}


def against_bound(bench: Bench, step: Step) -> None:
    """Add the row of the step over its bound, and of each stage's share of the time and of the bound."""
    measured = bench.measure({"step": lambda: elapsed_ms(step)}, rounds=bench.rounds(15, 5), threads=THREADS)[
        "step"
    ]
    needed, gbs = bounds(step.layer.config, step.lengths), bench.calibrator.best[f"dram_read_gbs_{THREADS}c"]
    over = measured.times_bound(lambda gflops: sum(least_ms(needed, gflops, gbs).values()))
    bench.add("deepseek_decode_ms", measured, "ms")
    bench.rows.append(Row("deepseek_decode_vs_bound", over, "x", goal="<= 1.5", noisy=measured.noisy))
    step(trace=True)
    trace = step.layer.program.trace
    assert trace is not None
    least = least_ms(needed, bench.calibrator.best[f"peak_gflops_{THREADS}c"], gbs)
    spent = shares(trace)
    for name, ms in least.items():
        of_bound = 100 * ms / sum(least.values())
        row = Row(f"deepseek_{name}_share", spent[name], "% of the time", "% of the bound", of_bound)
        bench.rows.append(row)


Pair = tuple[Callable[[], object], Callable[[], object]]
"""What we and a peer do."""


def compared(step: Step, peer: TorchLayer) -> dict[str, Pair]:
    """Return our and torch's function of each row, after a comparison of their results."""
    torch, x, made = peer.torch, peer.torch.from_numpy(step.x), step.arrays
    close("the layer", peer(x, step.chunks).numpy(), made["Y"], FLIPPED)
    step()  # both append to the caches; the rows there are ours again
    ours = {}
    for name, make in PARTS.items():
        program = make(step.layer.config).compile("cpu")
        arguments = {n: made[n] for n in names_of(program) if n in made}
        ours[name] = lambda p=program, given=arguments: p.run(**given, workers=1)
        ours[name]()
    q, index_q, picks = (torch.from_numpy(made[name]) for name in ("Q", "IndexQ", "TopK"))
    weights = torch.from_numpy(made["Indexed"][:, step.layer.config.index_dim :])
    plan = peer.plan(step.chunks)
    chosen = [row[0, : min(n, picks.shape[-1])] for row, n in zip(picks, plan["keys"], strict=True)]
    scores = peer.indexer(index_q, weights, plan)
    theirs = {
        "indexer": lambda: peer.indexer(index_q, weights, plan),
        "top_k": lambda: peer.top_k(scores, plan),
        "attention": lambda: peer.attention(q, chosen, plan),
    }
    same_scores(scores.numpy(), made, plan["keys"], step.layer.config.top_k)
    same_choice(peer.top_k(scores, plan), made, step.layer.config.top_k)
    close("attention", theirs["attention"]().numpy(), made["Summed"], TOLERANCE)
    pairs = {f"deepseek_{name}_vs_torch": (ours[name], theirs[name]) for name in PARTS}
    return {"deepseek_vs_torch": (lambda: step(workers=1), lambda: peer(x, step.chunks)), **pairs}


def names_of(program: Any) -> list[str]:
    """Return the names of a program's tensors."""
    return [tensor.name for tensor in program.module.entry_workload.params]


def close(what: str, found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Raise unless arrays agree, relative to the largest element."""
    error = np.abs(found - expected).max() / np.abs(expected).max()
    if not error <= tolerance:
        raise AssertionError(f"{what}: torch differs by {error:.1e}")


def same_scores(scores: np.ndarray, made: dict[str, Any], keys: Sequence[int], top_k: int) -> None:
    """Raise unless torch's scores are ours."""
    long = [t for t, n in enumerate(keys) if n > top_k]
    for row, t in zip(scores, long, strict=True):
        close("scores", row[: keys[t]], made["Scores"][t, 0, : keys[t]], TOLERANCE)


def same_choice(picks: Sequence[Any], made: dict[str, Any], top_k: int) -> None:
    """Raise unless the least chosen score is the same."""
    for t, row in enumerate(picks):
        if len(row) < top_k:
            continue
        ours, theirs = (made["Scores"][t, 0, p].min() for p in (made["TopK"][t, 0], row.numpy()))
        if made["Keys"][t] > top_k and abs(ours - theirs) > TOLERANCE * abs(ours):
            raise AssertionError(f"top-k of token {t}: least score {ours}, torch {theirs}")


def processor_ms(function: Callable[[], object]) -> float:
    """Return the processor time of one call in ms: other programs may interrupt it."""
    began = time.process_time()
    function()
    return 1e3 * (time.process_time() - began)


def against_torch(
    bench: Bench, name: str, ours: Callable[[], object], theirs: Callable[[], object], goal: str
) -> None:
    """Time both in turn on one thread and add their row."""
    functions = {"ours": lambda: processor_ms(ours), "torch": lambda: processor_ms(theirs)}
    found = bench.measure(functions, rounds=bench.rounds(9, 3))
    mine, other = found["ours"], found["torch"]
    noisy = mine.noisy or other.noisy
    ratio = other.value / mine.value
    bench.rows.append(Row(name, mine.value, "ms", "torch", other.value, ratio, goal, noisy))
