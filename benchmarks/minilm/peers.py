"""Other libraries on the same weights: each is made for sentences and returns their embeddings.

They are set up as their experts would. A missing package raises ImportError.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.minilm.graph import write_onnx
from examples.minilm.kernels import EPSILON, HEADS, HIDDEN, LAYERS, VOCABULARY
from examples.minilm.model import model_folder


@dataclass(frozen=True)
class Sentences:
    """What is embedded: texts, and their word pieces."""

    lines: list[str]
    ids: list[np.ndarray]


Peer = Callable[[], np.ndarray]
Maker = Callable[[Sentences, int], Peer]


def sentence_transformers(sentences: Sentences, threads: int) -> Peer:
    """`SentenceTransformer.encode`, which sorts by length and pads batches of 32."""
    library = import_module("sentence_transformers")
    transformers = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    import_module("torch").set_num_threads(threads)
    model = library.SentenceTransformer(str(model_folder()), device="cpu")
    model.max_seq_length = 256
    return lambda: np.asarray(model.encode(sentences.lines, batch_size=32, show_progress_bar=False))


def onnxruntime(sentences: Sentences, threads: int) -> Peer:
    """Fused attention; a session of one thread per core, and one sentence per call."""
    ort = import_module("onnxruntime")
    workers = min(threads, len(sentences.ids))
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads // workers
    with onnx_file(is_fused=True) as path:
        sessions = [
            ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for _ in range(workers)
        ]
    inputs = [dict(zip(("ids", "positions"), inputs_of(ids), strict=True)) for ids in sentences.ids]

    def share(number: int) -> list[np.ndarray]:
        return [sessions[number].run(None, given)[0] for given in inputs[number::workers]]

    def encode() -> np.ndarray:
        found = np.empty((len(inputs), HIDDEN), np.float32)
        with ThreadPoolExecutor(workers) as pool:
            for number, parts in enumerate(pool.map(share, range(workers))):
                found[number::workers] = np.concatenate(parts)
        return found

    return encode


def openvino(sentences: Sentences, threads: int) -> Peer:
    """Products of f32; see `_openvino`."""
    return _openvino(sentences, threads, "f32")


def openvino_bf16(sentences: Sentences, threads: int) -> Peer:
    """Products of bf16; see `_openvino`."""
    return _openvino(sentences, threads, "bf16")


def _openvino(sentences: Sentences, threads: int, precision: str) -> Peer:
    """One stream per thread and one sentence per request; one stream for one sentence."""
    library = import_module("openvino")
    core, streams = library.Core(), min(threads, len(sentences.ids))
    options = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": streams,
    }
    with onnx_file(is_fused=False) as path:
        compiled = core.compile_model(core.read_model(str(path)), "CPU", options)
    inputs = [inputs_of(ids) for ids in sentences.ids]
    found = np.empty((len(inputs), HIDDEN), np.float32)
    if streams == 1:
        request = compiled.create_infer_request()

        def encode_in_turn() -> np.ndarray:
            for i, given in enumerate(inputs):
                found[i] = request.infer(given)[0]
            return found

        return encode_in_turn
    queue = library.AsyncInferQueue(compiled, streams)

    def keep(request: Any, number: int) -> None:
        found[number] = request.get_output_tensor().data

    queue.set_callback(keep)

    def encode() -> np.ndarray:
        for number, given in enumerate(inputs):
            queue.start_async(given, number)
        queue.wait_all()
        return found

    return encode


def ctranslate2_i8(sentences: Sentences, threads: int) -> Peer:
    """Weights and rows of i8; a worker of one thread per core, and one sentence per call."""
    library = import_module("ctranslate2")
    with tempfile.TemporaryDirectory() as folder:
        _write_ctranslate2(Path(folder) / "model")
        encoder = library.Encoder(
            str(Path(folder) / "model"), compute_type="int8", inter_threads=threads, intra_threads=1
        )
    found = np.empty((len(sentences.ids), HIDDEN), np.float32)

    def run(number: int) -> None:
        hidden = encoder.forward_batch([sentences.ids[number].tolist()]).last_hidden_state
        mean = np.asarray(hidden)[0].mean(axis=0)
        found[number] = mean / np.linalg.norm(mean)

    def encode() -> np.ndarray:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(len(found))))
        return found

    return encode


def inputs_of(ids: np.ndarray) -> list[np.ndarray]:
    """Return the ids and positions of a sentence, as the graph takes them."""
    return [ids[None].astype(np.int64), np.arange(len(ids), dtype=np.int64)[None]]


@contextmanager
def onnx_file(is_fused: bool) -> Iterator[Path]:
    """Give the path of the model as an ONNX file; see `write_onnx`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        write_onnx(_tensors(), path, is_fused)
        yield path


def _tensors() -> dict[str, np.ndarray]:
    return import_module("safetensors.numpy").load_file(model_folder() / "model.safetensors")


def _write_ctranslate2(path: Path) -> None:
    """Write the model in the form of CTranslate2, as its converter for BERT does."""
    specs = import_module("ctranslate2.specs")
    common, fuse = specs.common_spec, import_module("ctranslate2.converters.utils").fuse_linear
    tensors = _tensors()
    encoder = specs.TransformerEncoderSpec(
        LAYERS, HEADS, pre_norm=False, activation=common.Activation.GELU, layernorm_embedding=True
    )
    spec = specs.TransformerEncoderModelSpec(encoder)

    def linear(to: Any, name: str) -> Any:
        to.weight, to.bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        return to

    def norm(to: Any, name: str) -> None:
        to.gamma, to.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = tensors["embeddings.word_embeddings.weight"]
    places = tensors["embeddings.position_embeddings.weight"]
    encoder.position_encodings.encodings = places + tensors["embeddings.token_type_embeddings.weight"][0]
    norm(encoder.layernorm_embedding, "embeddings.LayerNorm")
    for i, layer in enumerate(encoder.layer):
        name = f"encoder.layer.{i}."
        parts = [f"{name}attention.self.{part}" for part in ("query", "key", "value")]
        fuse(layer.self_attention.linear[0], [linear(common.LinearSpec(), part) for part in parts])
        linear(layer.self_attention.linear[1], f"{name}attention.output.dense")
        norm(layer.self_attention.layer_norm, f"{name}attention.output.LayerNorm")
        linear(layer.ffn.linear_0, f"{name}intermediate.dense")
        linear(layer.ffn.linear_1, f"{name}output.dense")
        norm(layer.ffn.layer_norm, f"{name}output.LayerNorm")
    spec.register_vocabulary([f"<{i}>" for i in range(VOCABULARY)])
    spec.config.unk_token, spec.config.layer_norm_epsilon = "<100>", EPSILON
    path.mkdir()
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(str(path))


PEERS: dict[str, Maker] = {
    "sentence_transformers": sentence_transformers,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "openvino_bf16": openvino_bf16,
    "ctranslate2_i8": ctranslate2_i8,
}
