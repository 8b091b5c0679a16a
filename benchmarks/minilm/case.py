"""The case `minilm`: 256 sentences, and one, against the peak of the machine and against other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.harness import THREADS, Bench, Row, elapsed_ms
from benchmarks.minilm import peers
from examples.minilm.__main__ import LEAST_COSINES, REFERENCE, SENTENCES
from examples.minilm.encoder import Encoder
from examples.minilm.kernels import HIDDEN, INNER, LAYERS, WEIGHTINGS
from examples.minilm.model import ModelMissing, load_weights, model_folder
from examples.minilm.tokens import WordPieces, read_lines


@dataclass(frozen=True)
class PeerRow:
    """A row with a peer.

    Attributes:
        row: its name.
        peer: a name of `PEERS`.
        goal: of the ratio.
        weights: of ours, as the option of the example.
        length: tokens of the one sentence; 0: all sentences.
        has_text: both begin with text, not with word pieces.
    """

    row: str
    peer: str
    goal: float = 1
    weights: str = "f32"
    length: int = 0
    has_text: bool = False


COMPARISONS = (
    PeerRow("minilm_vs_sentence_transformers", "sentence_transformers", 4, has_text=True),
    PeerRow("minilm_vs_onnxruntime", "onnxruntime", 1.1),
    PeerRow("minilm_vs_openvino", "openvino", 1.1),
    PeerRow("minilm_1_vs_openvino", "openvino", length=23),
    PeerRow("minilm_1x256_vs_openvino", "openvino", length=256),
    PeerRow("minilm_bf16_vs_openvino_bf16", "openvino_bf16", weights="bf16"),
    PeerRow("minilm_i8_vs_ctranslate2_i8", "ctranslate2_i8", weights="i8"),
)


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    try:
        folder = model_folder()
    except ModelMissing as error:
        bench.skipped["every row"] = str(error)
        bench.rows += [Row(name, None, "ms") for name in ("minilm_ms", "minilm_1_ms")]
        bench.rows.append(Row("minilm_pct_peak", None, "%"))
        return
    lines, pieces = read_lines(SENTENCES), WordPieces(folder)
    sentences = peers.Sentences(lines, list(pieces(lines)))
    encoders = {weights: Encoder(load_weights(folder, weights)) for weights in WEIGHTINGS}
    verify(encoders["f32"](sentences.ids), np.load(REFERENCE), "f32")
    throughput(bench, encoders["f32"], sentences.ids)
    one_sentence(bench, encoders["f32"], sentences.ids)
    for comparison in COMPARISONS:
        compare(bench, comparison, encoders[comparison.weights], pieces, sentences)


def verify(embeddings: np.ndarray, reference: np.ndarray, weights: str) -> None:
    """Check what is measured against the stored reference."""
    if (embeddings.astype(np.float64) * reference).sum(axis=1).min() < LEAST_COSINES[weights]:
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


def compare(
    bench: Bench, of: PeerRow, encoder: Encoder, pieces: WordPieces, sentences: peers.Sentences
) -> None:
    """Time a peer and us in turn."""
    lengths = [len(ids) for ids in sentences.ids]
    chosen = [lengths.index(of.length)] if of.length else range(len(lengths))
    some = peers.Sentences([sentences.lines[i] for i in chosen], [sentences.ids[i] for i in chosen])
    reference = np.load(REFERENCE)[list(chosen)]
    try:
        peer = peers.PEERS[of.peer](some, THREADS)
    except ImportError as error:
        bench.skipped[of.peer] = f"{error.name} is not installed: make bench needs the extra [bench]"
        bench.rows.append(Row(of.row, None, "ms", of.peer, goal=f"ratio >= {of.goal:g}"))
        return

    def ours() -> np.ndarray:
        return encoder(pieces(some.lines) if of.has_text else some.ids)

    verify(peer(), reference, of.weights)
    verify(ours(), reference, of.weights)
    calls = 20 if of.length else 1
    functions: dict[str, Callable[[], float]] = {
        name: lambda function=function: median(elapsed_ms(function) for _ in range(calls))
        for name, function in (("ours", ours), ("peer", peer))
    }
    measured = bench.measure(functions, rounds=bench.rounds(7, 2), threads=THREADS)
    mine, other = measured["ours"], measured["peer"]
    noisy, ratio = mine.noisy or other.noisy, other.value / mine.value
    goal = f"ratio >= {of.goal:g}"
    bench.rows.append(Row(of.row, mine.value, "ms", of.peer, other.value, ratio, goal, noisy))
