"""The case `minilm`: 256 sentences, and one, against the peak of the machine and against other libraries."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

from benchmarks.harness import THREADS, Bench, Measurement, Row, elapsed_ms
from benchmarks.minilm import peers
from examples.minilm.__main__ import MAX_DIFFERENCE, REFERENCE, SENTENCES
from examples.minilm.encoder import Encoder
from examples.minilm.kernels import HIDDEN, INNER, LAYERS
from examples.minilm.model import ModelMissing, load_weights, model_folder
from examples.minilm.tokens import WordPieces, read_lines

GOALS = {"onnxruntime": "ratio >= 1.1", "sentence_transformers": "ratio >= 4"}


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    try:
        folder = model_folder()
    except ModelMissing as error:
        bench.skipped["every row"] = str(error)
        bench.rows += [Row(name, None, "ms") for name in ("minilm_ms", "minilm_1_ms")]
        bench.rows.append(Row("minilm_pct_peak", None, "%"))
        return
    lines = read_lines(SENTENCES)
    pieces, encoder = WordPieces(folder), Encoder(load_weights(folder))
    ids = list(pieces(lines))
    verify(encoder(ids))
    throughput(bench, encoder, ids)
    one_sentence(bench, encoder, ids)
    for name, make in peers.PEERS.items():
        against(bench, name, make, encoder, pieces, lines)


def verify(embeddings: np.ndarray) -> None:
    """Check what is measured against the stored reference."""
    if np.abs(embeddings - np.load(REFERENCE)).max() > MAX_DIFFERENCE:
        raise AssertionError("the embeddings are not those of the reference")


def useful_flops(lengths: np.ndarray) -> float:
    """Return the operations of the linear layers and of attention, without any for padding."""
    linear = 2 * LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER)
    attention = 4 * LAYERS * HIDDEN
    return float(linear * lengths.sum() + attention * (lengths**2).sum())


def throughput(bench: Bench, encoder: Encoder, ids: list[np.ndarray]) -> None:
    """Time 256 sentences from word pieces to embeddings; compare the rate with the peak around it."""
    ours = {"minilm": lambda: elapsed_ms(lambda: encoder(ids))}
    measured = bench.measure(ours, rounds=bench.rounds(15, 5), threads=THREADS)["minilm"]
    bench.add("minilm_ms", measured, "ms")
    flops = useful_flops(np.array([len(i) for i in ids]))
    share = measured.percent_of_peak(flops)
    bench.rows.append(Row("minilm_pct_peak", share, "%", goal=">= 72", noisy=measured.noisy))


def one_sentence(bench: Bench, encoder: Encoder, ids: list[np.ndarray]) -> None:
    """Time the sentence of median length alone."""
    sentence = sorted(ids, key=len)[len(ids) // 2]
    ours = {"one": lambda: median(elapsed_ms(lambda: encoder([sentence])) for _ in range(20))}
    bench.add("minilm_1_ms", bench.measure(ours, rounds=bench.rounds(15, 5), threads=THREADS)["one"], "ms")


def against(
    bench: Bench,
    name: str,
    make: peers.Maker,
    encoder: Encoder,
    pieces: WordPieces,
    lines: list[str],
) -> None:
    """Time a peer and us in turn, both from text to embeddings."""
    row = f"minilm_vs_{name}"
    try:
        peer = make(lines, THREADS)
    except ImportError as error:
        bench.skipped[name] = f"{error.name} is not installed: make bench needs the extra [bench]"
        bench.rows.append(Row(row, None, "ms", name))
        return
    verify(peer())
    functions: dict[str, Callable[[], float]] = {
        "ours": lambda: elapsed_ms(lambda: encoder(pieces(lines))),
        "peer": lambda: elapsed_ms(peer),
    }
    measured = bench.measure(functions, rounds=bench.rounds(7, 2), threads=THREADS)
    bench.rows.append(compared(row, name, measured["ours"], measured["peer"]))


def compared(row: str, name: str, ours: Measurement, peer: Measurement) -> Row:
    """Return the row of two measurements of which less is better."""
    noisy = ours.noisy or peer.noisy
    return Row(row, ours.value, "ms", name, peer.value, peer.value / ours.value, GOALS[name], noisy)
