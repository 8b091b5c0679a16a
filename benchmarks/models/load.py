"""Requests that arrive at random: time to the first token, and between tokens, of us and of llama.cpp."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import THREADS, Bench, Row
from benchmarks.models.peers import PEER, LlamaCpp, llama_cpp
from examples.llm.engine import Engine, Request
from examples.llm.model import Model, find

REQUESTS, CONTEXT, SHARE = 32, 768, 0.6
"""Requests, positions of each, and the part of our own rate of requests at which they arrive."""

LOAD_ROWS = ("smollm_load_first_p99_vs_llamacpp", "smollm_load_p99_vs_llamacpp")
"""Of the time to the first token, and of that between tokens."""

Times = list[list[float]]


@dataclass(frozen=True)
class Arrivals:
    """Requests: their prompts, numbers of new tokens, and times in seconds."""

    prompts: list[list[int]]
    counts: list[int]
    times: list[float]


def measure_load(bench: Bench, model: Model) -> None:
    """Add the 99th percentiles of both times, in ms."""
    rng = np.random.default_rng(bench.seed)
    lengths, counts = np.exp(rng.uniform(np.log(8), np.log(128), (2, REQUESTS))).astype(int).tolist()
    prompts = [rng.integers(100, 49000, n).tolist() for n in lengths]
    together = Arrivals(prompts, counts, [0.0] * REQUESTS)
    gap = max(times[-1] for times in ours(model, together)) / REQUESTS / SHARE
    arrivals = Arrivals(prompts, counts, rng.exponential(gap, REQUESTS).cumsum().tolist())
    with llama_cpp(find("smollm2"), THREADS, REQUESTS, CONTEXT) as peer:
        compare(bench, model, peer, arrivals)


def compare(bench: Bench, model: Model, peer: LlamaCpp, arrivals: Arrivals) -> None:
    """Add the rows of requests that arrive at given times."""
    found: dict[str, list[np.ndarray]] = {"ours": [], "peer": []}

    def record(name: str, run: Callable[[], Times]) -> float:
        times = run()
        firsts = [row[0] - at for row, at in zip(times, arrivals.times, strict=True)]
        between = np.concatenate([np.diff(row) for row in times])
        found[name].append(np.array([np.percentile(firsts, 99), np.percentile(between, 99)]) * 1e3)
        return float(found[name][-1][1])

    functions = {
        "ours": lambda: record("ours", lambda: ours(model, arrivals)),
        "peer": lambda: record("peer", lambda: peers(peer, arrivals)),
    }
    measured = bench.measure(functions, rounds=bench.rounds(3, 1), threads=THREADS)
    noisy = any(one.noisy for one in measured.values())
    mine, other = (np.median(found[name], axis=0).tolist() for name in ("ours", "peer"))
    for name, value, theirs in zip(LOAD_ROWS, mine, other, strict=True):
        bench.rows.append(Row(name, value, "ms", PEER, theirs, theirs / value, "ratio >= 1", noisy))


def ours(model: Model, arrivals: Arrivals) -> Times:
    """Return the times at which tokens of every request came, from the start on."""
    engine, start = Engine(model), time.perf_counter()
    requests: list[Request] = []
    times: Times = [[] for _ in arrivals.times]

    def now() -> float:
        return time.perf_counter() - start

    while len(requests) < len(times) or not engine.is_idle:
        while len(requests) < len(times) and arrivals.times[len(requests)] <= now():
            number = len(requests)
            requests.append(engine.add(arrivals.prompts[number], arrivals.counts[number], ignores_end=True))
        if engine.is_idle:
            time.sleep(max(0.0, arrivals.times[len(requests)] - now()))
            continue
        engine.step()
        for request, row in zip(requests, times, strict=False):
            row += [now()] * (len(request.new) - len(row))
    return times


def peers(peer: LlamaCpp, arrivals: Arrivals) -> Times:
    """Return the same of the peer."""
    start = time.perf_counter()
    times: Times = [[] for _ in arrivals.times]

    def answer(number: int) -> None:
        time.sleep(max(0.0, arrivals.times[number] - (time.perf_counter() - start)))
        peer.stream(
            arrivals.prompts[number],
            arrivals.counts[number],
            lambda: times[number].append(time.perf_counter() - start),
        )
        if not times[number]:  # the text of its only token is a part of a character
            times[number].append(time.perf_counter() - start)

    with ThreadPoolExecutor(len(times)) as pool:
        list(pool.map(answer, range(len(times))))
    return times
