"""The case `models`: a product, a layer of LLaMA-7B, and SmolLM2-135M-Instruct with its real weights (Q4_1).

llama.cpp has the same files. SmolLM2's products round activations to i8 on both sides. The cache is f32 on
both sides.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.harness import THREADS, Bench, Measurement, Row, elapsed_ms
from benchmarks.models.layers import measure_layers
from benchmarks.models.load import LOAD_ROWS, measure_load
from benchmarks.models.peers import MISSING, PEER, LlamaCpp, answer_all, has_peer, llama_cpp, timings
from benchmarks.models.products import measure_product
from examples.llm.config import UnknownModel
from examples.llm.engine import Engine
from examples.llm.model import Chunk, Model, find, load
from pto_wsp import i8

PROMPT, NEW, LONG, REQUESTS, CONTEXT = 32, 128, 512, 32, 768
COMPARED = {
    "smollm_decode_vs_llamacpp": "ratio >= 1",
    "smollm_prefill_512_vs_llamacpp": "ratio >= 1",
    "smollm_batch32_vs_llamacpp": "ratio >= 1.5",
}
ALONE = {"smollm_first_token_ms": None, "smollm_overhead_pct": "<= 10", "smollm_start_s": "<= 1.5"}


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    measure_product(bench)
    measure_layers(bench)
    measure_smollm(bench)


def measure_smollm(bench: Bench) -> None:
    """Measure the model with real weights."""
    try:
        packed, _ = load("smollm2")
    except UnknownModel as error:
        bench.skipped["every row"] = str(error)
        bench.rows += [Row(name, None, "ms") for name in (*COMPARED, *ALONE, *LOAD_ROWS)]
        return
    model = Model(packed, i8, pages=REQUESTS * CONTEXT // 64, workers=THREADS)
    first_token(bench, model)
    overhead(bench, model)
    start(bench)
    if not has_peer():
        bench.skipped["llama.cpp"] = MISSING
        bench.rows += [Row(name, None, "tokens/s", PEER) for name in COMPARED]
        bench.rows += [Row(name, None, "ms", PEER) for name in LOAD_ROWS]
        return
    with llama_cpp(find("smollm2"), THREADS, 1, CONTEXT) as peer:
        decode(bench, model, peer)
        prefill(bench, model, peer)
    with llama_cpp(find("smollm2"), THREADS, REQUESTS, CONTEXT) as peer:
        mixed_batch(bench, model, peer)
    measure_load(bench, model)


def some_tokens(count: int, seed: int = 0) -> list[int]:
    """Return tokens of a prompt: their values do not change what is measured."""
    return np.random.default_rng(seed).integers(100, 49000, count).tolist()


def first_token(bench: Bench, model: Model) -> None:
    """Time a prompt of `PROMPT` tokens up to its first new token."""

    def once() -> float:
        tokens = Engine(model).generate(some_tokens(PROMPT), 2)
        found = elapsed_ms(lambda: next(tokens))
        tokens.close()
        return found

    once()
    measured = bench.measure({"first": once}, rounds=bench.rounds(15, 5), threads=THREADS)["first"]
    bench.add("smollm_first_token_ms", measured, "ms")


def overhead(bench: Bench, model: Model) -> None:
    """Measure the part of the workers' time outside kernels, in decode steps of one request."""
    chunk = Chunk(some_tokens(1), 100, [0, 1])

    def once() -> float:
        model.run([chunk], trace=True)
        trace = model.program.trace
        assert trace is not None
        busy, span = (trace.end_ns - trace.start_ns).sum(), trace.end_ns.max() - trace.start_ns.min()
        return float(100 - 100 * busy / (span * trace.num_workers))

    once()
    measured = bench.measure({"share": once}, rounds=bench.rounds(31, 7), threads=THREADS)["share"]
    bench.add("smollm_overhead_pct", measured, "%", goal=ALONE["smollm_overhead_pct"])


def start(bench: Bench) -> None:
    """Time a whole process up to its first token, with the packed weights and the kernels in their caches."""
    command = [
        sys.executable,
        "-m",
        "examples.llm",
        "smollm2",
        "--raw",
        "--prompt",
        "Hello",
        "--max-tokens",
        "1",
    ]

    def once() -> float:
        return elapsed_ms(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)) / 1e3

    once()
    measured = bench.measure({"start": once}, rounds=bench.rounds(7, 2))["start"]
    bench.add("smollm_start_s", measured, "s", goal=ALONE["smollm_start_s"])


def decode(bench: Bench, model: Model, peer: LlamaCpp) -> None:
    """Compare decode steps of one request."""
    prompt = some_tokens(PROMPT)

    def ours() -> float:
        tokens = Engine(model).generate(prompt, NEW, ignores_end=True)
        next(tokens)
        return (NEW - 1) / elapsed_ms(lambda: list(tokens)) * 1e3

    def theirs() -> float:
        return timings(peer, prompt, NEW)["predicted_per_second"]

    compare(bench, "smollm_decode_vs_llamacpp", ours, theirs)


def prefill(bench: Bench, model: Model, peer: LlamaCpp) -> None:
    """Compare a prompt of `LONG` tokens."""
    prompt = some_tokens(LONG)

    def ours() -> float:
        return LONG / elapsed_ms(lambda: list(Engine(model).generate(prompt, 1))) * 1e3

    def theirs() -> float:
        return timings(peer, prompt, 1)["prompt_per_second"]

    compare(bench, "smollm_prefill_512_vs_llamacpp", ours, theirs)


def mixed_batch(bench: Bench, model: Model, peer: LlamaCpp) -> None:
    """Compare requests of mixed lengths that come together: new tokens per second."""
    rng = np.random.default_rng(bench.seed)
    lengths, counts = (np.exp(rng.uniform(np.log(8), np.log(256), (2, REQUESTS)))).astype(int).tolist()
    prompts = [some_tokens(n, n) for n in lengths]

    def our_answers() -> None:
        engine = Engine(model)
        for prompt, count in zip(prompts, counts, strict=True):
            engine.add(prompt, count, ignores_end=True)
        while not engine.is_idle:
            engine.step()

    def ours() -> float:
        return sum(counts) / elapsed_ms(our_answers) * 1e3

    def theirs() -> float:
        return sum(counts) / elapsed_ms(lambda: answer_all(peer, prompts, counts)) * 1e3

    compare(bench, "smollm_batch32_vs_llamacpp", ours, theirs)


def compare(bench: Bench, row: str, ours: Callable[[], float], theirs: Callable[[], float]) -> None:
    """Add the row of two rates that are measured in turn."""
    functions = {"ours": ours, "peer": theirs}
    measured: dict[str, Measurement] = bench.measure(functions, rounds=bench.rounds(7, 2), threads=THREADS)
    mine, other = measured["ours"], measured["peer"]
    noisy = mine.noisy or other.noisy
    ratio = mine.value / other.value
    bench.rows.append(Row(row, mine.value, "tokens/s", PEER, other.value, ratio, COMPARED[row], noisy))
