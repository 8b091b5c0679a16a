"""Folders that AWQ or GPTQ quantised: the scores have the bits of the same model with its elements in f32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.llm.config import UnknownModel
from examples.llm.folder import ROLES, ModelFolder
from examples.llm.model import Chunk, Model, load
from tests.python.examples.llm.test_folder import TOKENIZER
from tests.python.types.test_int_words import awq, gptq, random_parts, values
from tests.slow import mostly_slow

FIELDS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "vocab_size": 99, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
SIZES = {
    "Query": (128, 128), "Key": (128, 64), "Value": (128, 64), "Output": (128, 128), "Gate": (128, 256),
    "Up": (128, 256), "Down": (256, 128),
}  # fmt: skip
SETTINGS = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False},
    "column": {"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": True},
    "gptq_v2": {"quant_method": "gptq", "bits": 8, "group_size": 32, "checkpoint_format": "gptq_v2"},
}


def write(folder: Path, tensors: dict[str, np.ndarray], settings: dict[str, Any] | None) -> Path:
    from safetensors.numpy import save_file

    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(FIELDS | {"quantization_config": settings}))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder


def two_folders(path: Path, kind: str) -> tuple[Path, Path]:
    """Write one model twice: with words, and with elements in f32."""
    rng, settings = np.random.default_rng(0), SETTINGS[kind]
    both: dict[str, np.ndarray] = {
        "model.embed_tokens.weight": rng.standard_normal((99, 128), np.float32),
        "model.norm.weight": np.ones(128, np.float32),
    }
    packed, plain = {}, {}
    for layer in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            both[f"model.layers.{layer}.{norm}.weight"] = 1 + rng.standard_normal(128, np.float32) / 8
        for role, (k, n) in SIZES.items():
            name, bits = f"model.layers.{layer}.{ROLES[role]}", settings["bits"]
            group = settings["group_size"] if settings["group_size"] > 0 else k
            q, zeros, scales = random_parts(k, n, group, bits, middle=bool(settings.get("sym")))
            zeros = np.clip(zeros, 5, 11) if bits == 4 else zeros
            words = awq(q, zeros) if kind == "awq" else gptq(q, zeros, bits, kind != "gptq_v2")
            packed |= {f"{name}.qweight": words[0], f"{name}.qzeros": words[1], f"{name}.scales": scales}
            plain[f"{name}.weight"] = np.ascontiguousarray(values(q, zeros, scales).T)
            if kind == "gptq":
                packed[f"{name}.g_idx"] = np.arange(k, dtype=np.int32) // group
                packed[f"{name}.bias"] = np.zeros(n, np.float16)
    plain |= {f"{name}": array for name, array in packed.items() if name.endswith(".bias")}
    return write(path / "words", both | packed, settings), write(path / "plain", both | plain, None)


@pytest.mark.parametrize("kind", mostly_slow(SETTINGS, 1))
def test_scores_have_the_bits_of_elements(kind: str, tmp_path: Path) -> None:
    scores = []
    for folder in two_folders(tmp_path, kind):
        packed, _ = load(str(folder))
        chunk = Chunk(np.random.default_rng(1).integers(99, size=70).tolist(), 0, [1, 0], 70)
        scores.append(Model(packed, pages=2).run([chunk])[0].copy())
    assert np.isfinite(scores[0]).all() and scores[0].std() > 0.01
    assert scores[0].tobytes() == scores[1].tobytes()


def test_matrices_that_are_refused(tmp_path: Path) -> None:
    folder, _ = two_folders(tmp_path, "gptq")
    found = ModelFolder(folder)
    name = f"model.layers.0.{ROLES['Down']}"
    assert found.matrix(f"{name}.weight").kind == "i4g128z"
    with pytest.raises(UnknownModel, match="lm_head: expected tensors qweight, qzeros and scales"):
        found.matrix("lm_head.weight")
    from safetensors.numpy import load_file

    tensors = load_file(folder / "model.safetensors")
    tensors[f"{name}.g_idx"] = tensors[f"{name}.g_idx"][::-1].copy()
    other = write(tmp_path / "act", tensors, SETTINGS["gptq"] | {"desc_act": True})
    with pytest.raises(UnknownModel, match=rf"{name}: rows in the order of activations \(`desc_act`"):
        ModelFolder(other).matrix(f"{name}.weight")
    tensors[f"{name}.bias"] = np.ones(128, np.float16)
    with pytest.raises(UnknownModel, match=r"a bias of mlp.down_proj is not supported"):
        ModelFolder(write(tmp_path / "bias", tensors, SETTINGS["gptq"])).checkpoint()
