"""Other libraries on the same weights: each is made from the sentences and returns their embeddings.

They are set up as their own documentation advises. A missing package raises ImportError.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from examples.minilm.model import model_folder
from examples.minilm.tokens import WordPieces

Peer = Callable[[], np.ndarray]
Maker = Callable[[list[str], int], Peer]

ONNX_BATCH = 4
"""Sorted by length, the fastest of 1, 2, 4, 8, 32 and 256 sentences per call."""


def sentence_transformers(lines: list[str], threads: int) -> Peer:
    """`SentenceTransformer.encode`, which sorts by length and pads batches of 32."""
    library = import_module("sentence_transformers")
    _transformers()
    import_module("torch").set_num_threads(threads)
    model = library.SentenceTransformer(str(model_folder()), device="cpu")
    model.max_seq_length = 256
    return lambda: np.asarray(model.encode(lines, batch_size=32, show_progress_bar=False))


def onnxruntime(lines: list[str], threads: int) -> Peer:
    """The model exported by PyTorch, run on batches of similar length, padded to their longest."""
    ort = import_module("onnxruntime")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's notes on its own translation
        path = Path(folder) / "minilm.onnx"
        _export(path)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    pieces = WordPieces(model_folder())

    def encode() -> np.ndarray:
        ids = list(pieces(lines))
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        found = np.empty((len(ids), 384), np.float32)
        for start in range(0, len(order), ONNX_BATCH):
            group = order[start : start + ONNX_BATCH]
            tokens, mask = _padded([ids[i] for i in group])
            (hidden,) = session.run(None, {"input_ids": tokens, "attention_mask": mask})
            found[group] = _pooled(np.asarray(hidden), mask)
        return found

    return encode


def _transformers() -> Any:
    """Return the library without its bars and notes about weights that embeddings do not need."""
    library = import_module("transformers")
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library


def _export(path: Path) -> None:
    import_module("onnx")  # the exporter needs it, and says so only when it is half done
    torch = import_module("torch")
    bert = _transformers().BertModel.from_pretrained(model_folder(), add_pooling_layer=False).eval()

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    names = ["input_ids", "attention_mask"]
    example = torch.ones((2, 8), dtype=torch.int64)
    torch.onnx.export(
        Hidden().eval(),
        (example, example),
        str(path),
        input_names=names,
        output_names=["hidden"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in (*names, "hidden")},
        opset_version=18,
        dynamo=False,
    )


def _padded(ids: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    longest = max(map(len, ids))
    tokens = np.zeros((len(ids), longest), np.int64)
    mask = np.zeros_like(tokens)
    for row, sentence in enumerate(ids):
        tokens[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = 1
    return tokens, mask


def _pooled(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    weights = mask[:, :, None].astype(np.float32)
    mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


PEERS: dict[str, Maker] = {"sentence_transformers": sentence_transformers, "onnxruntime": onnxruntime}
