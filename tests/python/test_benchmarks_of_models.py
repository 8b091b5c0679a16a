"""What the cases `models` and `minilm` measure: files, arrivals, and peers that give the same embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.minilm import peers as minilm
from benchmarks.models import layers, load
from examples.llm.gguf_file import GgufFile
from examples.llm.model import Model
from examples.minilm.__main__ import LEAST_COSINES, REFERENCE, SENTENCES
from examples.minilm.model import ModelMissing, model_folder
from examples.minilm.tokens import WordPieces, read_lines

HIDDEN, INNER = 128, 256


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of layers are small."""
    pytest.importorskip("gguf", reason="needs `pip install gguf`")
    sizes = {layers.HIDDEN: HIDDEN, layers.INNER: INNER}
    smaller = {name: (sizes[n], sizes[k]) for name, (n, k) in layers.MATRICES.items()}
    for name, value in (("HIDDEN", HIDDEN), ("INNER", INNER), ("HEADS", 2), ("MATRICES", smaller)):
        monkeypatch.setattr(layers, name, value)


def model_of(folder: Path, name: str, count: int = 1) -> Model:
    kind, path = layers.KINDS[name], folder / "model.gguf"
    layers.write_model(path, kind.stored, count)
    return layers.our_model(path, kind.activations)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", layers.KINDS)
def test_synthetic_models_run(tmp_path: Path, name: str) -> None:
    model = model_of(tmp_path, name, 3)
    config = model.packed.config
    assert (config.layers, config.hidden, config.inner, config.heads) == (3, HIDDEN, INNER, 2)
    assert layers.prompt_ms(model) > 0 and layers.decode_ms(model) > 0
    scores = model._buffers["Scores"]
    assert np.isfinite(scores).all() and scores.std() > 0
    values = GgufFile(tmp_path / "model.gguf").matrix("blk.0.ffn_down.weight").values()
    assert values.shape == (HIDDEN, INNER) and 0 < np.abs(values).max() < 1


@pytest.mark.usefixtures("small")
def test_bytes_of_a_layer() -> None:
    assert [layers.row_bytes(kind.stored, 256) for kind in layers.KINDS.values()] == [1024, 512, 272, 144]


@pytest.mark.usefixtures("small")
def test_tokens_of_requests_come_after_their_arrival(tmp_path: Path) -> None:
    arrivals = load.Arrivals([[5] * 9, [7] * 70, [9]], [4, 1, 3], [0.0, 0.01, 0.3])
    found = load.ours(model_of(tmp_path, "q8"), arrivals)
    assert [len(row) for row in found] == arrivals.counts
    for row, at in zip(found, arrivals.times, strict=True):
        assert row == sorted(row) and row[0] > at


@pytest.mark.parametrize(
    ("name", "package", "least"),
    [
        ("onnxruntime", "onnxruntime", LEAST_COSINES["f32"]),
        ("openvino", "openvino", LEAST_COSINES["f32"]),
        ("openvino_bf16", "openvino", LEAST_COSINES["bf16"]),
        ("ctranslate2_i8", "ctranslate2", LEAST_COSINES["i8"]),
    ],
)
@pytest.mark.parametrize("count", [1, 5])
def test_peers_give_the_embeddings_of_the_reference(
    name: str, package: str, least: float, count: int
) -> None:
    pytest.importorskip(package)
    pytest.importorskip("onnx")
    try:
        pieces = WordPieces(model_folder())
    except ModelMissing as error:
        pytest.skip(str(error))
    lines = read_lines(SENTENCES)[:count]
    found = minilm.PEERS[name](minilm.Sentences(lines, list(pieces(lines))), 2)()
    reference = np.load(REFERENCE)[:count]
    assert (found.astype(np.float64) * reference).sum(axis=1).min() >= least
