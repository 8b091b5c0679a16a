"""One layer of LLaMA-7B from synthetic GGUF files: half the difference of three layers and one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import THREADS, Bench, Measurement, Row, elapsed_ms
from benchmarks.models.peers import MISSING, PEER, LlamaCpp, has_peer, llama_cpp, timings
from examples.llm.checkpoint import pack
from examples.llm.gguf_file import GgufFile
from examples.llm.kernels import PAGE
from examples.llm.model import Chunk, Model
from pto_wsp import bf16, f32, i8
from pto_wsp.types.dtype import DType

HIDDEN, HEADS, INNER, VOCABULARY = 4096, 32, 11008, 320
LAYERS = (1, 3)
PROMPT, PAST, DECODED, CONTEXT = 512, 32, 16, 768

MATRICES = {
    "attn_q": (HIDDEN, HIDDEN), "attn_k": (HIDDEN, HIDDEN), "attn_v": (HIDDEN, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}  # fmt: skip
"""Matrices of a layer by their names in files, [out, in]."""


@dataclass(frozen=True)
class LayerKind:
    """How matrices are stored, and what our products round activations to; llama.cpp does the same."""

    stored: str
    activations: DType


KINDS = {
    "f32": LayerKind("F32", f32),
    "bf16": LayerKind("BF16", bf16),
    "q8": LayerKind("Q8_0", i8),
    "q4": LayerKind("Q4_0", i8),
}
"""By the name in rows."""


def measure_layers(bench: Bench) -> None:
    """Measure prompts and decode steps of every kind."""
    for name, kind in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{layers}.gguf" for layers in LAYERS]
            for path, layers in zip(paths, LAYERS, strict=True):
                write_model(path, kind.stored, layers)
            measure_kind(bench, name, kind, paths)


def measure_kind(bench: Bench, name: str, kind: LayerKind, paths: list[Path]) -> None:
    """Measure the layers of one kind."""
    models = [our_model(path, kind.activations) for path in paths]
    with ExitStack() as stack:
        peers: list[LlamaCpp] = []
        if has_peer():
            peers = [stack.enter_context(llama_cpp(path, THREADS, 1, CONTEXT)) for path in paths]
        else:
            bench.skipped["llama.cpp"] = MISSING
        for length, ours, theirs in ((PROMPT, prompt_ms, peer_prompt_ms), (1, decode_ms, peer_decode_ms)):
            functions: dict[str, Callable[[], float]] = {
                f"ours {layers}": lambda model=model, ours=ours: ours(model)
                for layers, model in zip(LAYERS, models, strict=True)
            } | {
                f"peer {layers}": lambda peer=peer, theirs=theirs: theirs(peer)
                for layers, peer in zip(LAYERS, peers, strict=False)
            }
            measured = bench.measure(functions, rounds=bench.rounds(7, 2), threads=THREADS)
            add_row(bench, f"layer_{name}_{length}_vs_llamacpp", measured)
            if name == "q4" and length == 1:
                add_share_of_memory(bench, kind, one_layer(measured, "ours"))


def add_row(bench: Bench, row: str, measured: dict[str, Measurement]) -> None:
    """Add the row of one layer."""
    noisy = any(found.noisy for found in measured.values())
    mine, has_peer = one_layer(measured, "ours"), "peer 1" in measured
    other = one_layer(measured, "peer") if has_peer else None
    ratio = other / mine if other is not None else None
    bench.rows.append(Row(row, mine, "ms", PEER, other, ratio, "ratio >= 1", noisy))


def one_layer(measured: dict[str, Measurement], side: str) -> float:
    """Return the time of one layer, in ms."""
    few, many = (measured[f"{side} {layers}"].value for layers in LAYERS)
    return (many - few) / (LAYERS[1] - LAYERS[0])


def add_share_of_memory(bench: Bench, kind: LayerKind, layer_ms: float) -> None:
    """Add the rate at which a decode step reads a layer, of the best rate of reads in this run."""
    num_bytes = sum(row_bytes(kind.stored, k) * n for n, k in MATRICES.values())
    best = max(bench.calibrator.dram_read_gbs(THREADS) for _ in range(3))
    share = 100 * num_bytes / (layer_ms * 1e6) / best
    bench.rows.append(Row("layer_q4_1_pct_dram", share, "%", goal=">= 75"))


# --- ours ---


def our_model(path: Path, activations: DType) -> Model:
    """Return a model of a file, packed in memory."""
    packed = pack(GgufFile(path).checkpoint(), lambda _: None)
    return Model(packed, activations, pages=CONTEXT // PAGE, workers=THREADS)


def prompt_ms(model: Model) -> float:
    """Time a prompt."""
    chunk = Chunk(some_tokens(PROMPT), 0, list(range(PROMPT // PAGE)))
    return elapsed_ms(lambda: model.run([chunk]))


def decode_ms(model: Model) -> float:
    """Time a decode step, the mean of several."""
    chunks = [Chunk(some_tokens(1), PAST + i, [0]) for i in range(DECODED)]
    return elapsed_ms(lambda: [model.run([chunk]) for chunk in chunks]) / DECODED


def some_tokens(count: int) -> list[int]:
    """Return tokens of a prompt: their values do not change what is measured."""
    return np.random.default_rng(count).integers(8, VOCABULARY, count).tolist()


# --- llama.cpp ---


def peer_prompt_ms(peer: LlamaCpp) -> float:
    """Return the server's own time of a prompt."""
    return timings(peer, some_tokens(PROMPT), 1)["prompt_ms"]


def peer_decode_ms(peer: LlamaCpp) -> float:
    """Return the server's own time of a decode step."""
    return timings(peer, some_tokens(PAST), DECODED)["predicted_per_token_ms"]


# --- files ---


def row_bytes(stored: str, cols: int) -> int:
    """Return the bytes of a row of elements."""
    gguf = import_module("gguf")
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[stored]]
    return cols // block * size


def write_model(path: Path, stored: str, layers: int) -> None:
    """Write a model with random matrices."""
    gguf, rng = import_module("gguf"), np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_context_length(CONTEXT)
    writer.add_feed_forward_length(INNER)
    writer.add_layer_norm_rms_eps(2.0**-17)
    writer.add_rope_freq_base(10000.0)
    write_vocabulary(writer)

    def matrix(name: str, n: int, k: int) -> None:
        kind = gguf.GGMLQuantizationType[stored]
        writer.add_tensor(f"{name}.weight", random_rows(rng, stored, n, k), raw_dtype=kind)

    def ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))

    matrix("token_embd", VOCABULARY, HIDDEN)
    matrix("output", VOCABULARY, HIDDEN)
    ones("output_norm")
    for layer in range(layers):
        for name, (n, k) in MATRICES.items():
            matrix(f"blk.{layer}.{name}", n, k)
        ones(f"blk.{layer}.attn_norm")
        ones(f"blk.{layer}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_vocabulary(writer: Any) -> None:
    """Write a vocabulary of bytes and more pieces."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [f"piece{i}" for i in range(VOCABULARY - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (VOCABULARY - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def random_rows(rng: np.random.Generator, stored: str, n: int, k: int) -> np.ndarray:
    """Return rows as files store them: floats, or blocks with one f16 scale and random numbers."""
    if stored in ("F32", "BF16"):
        values = rng.standard_normal((n, k), np.float32) / np.float32(64)
        return values if stored == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    block = row_bytes(stored, 32)
    rows = rng.integers(0, 256, (n, k // 32, block), np.uint8)
    rows[:, :, :2] = np.array([2.0**-10 if stored == "Q8_0" else 2.0**-7], np.float16).view(np.uint8)
    return rows.reshape(n, -1)
