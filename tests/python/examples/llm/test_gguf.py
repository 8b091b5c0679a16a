"""GGUF files of small random models: names, orders and settings that architectures give them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.llm.checkpoint import Checkpoint, pack
from examples.llm.config import Config, Rope, UnknownModel
from examples.llm.gguf_file import EXPERT_ROLES, ROLES, GgufFile
from examples.llm.model import Chunk, Model
from pto_wsp import i8
from tests.python.examples.llm.models import SMALL, random_checkpoint, scores
from tests.slow import mostly_slow

gguf: Any = pytest.importorskip("gguf", reason="needs `pip install gguf`")

SIZES = replace(SMALL, epsilon=2.0**-17)  # as f32 holds it
EXPERTS = replace(SIZES, experts=4, chosen=2, inner=32)
FORMS: dict[str, tuple[str, Config]] = {
    "mixtral": ("llama", EXPERTS),
    "qwen2moe": ("qwen2moe", replace(EXPERTS, has_bias=True, has_unit_gates=False, shared=64)),
    "qwen3moe": ("qwen3moe", replace(EXPERTS, has_head_norms=True)),
    "yarn": ("qwen2", replace(SIZES, has_bias=True, rope=Rope(1e4, "yarn", 4.0, high=24.0, original=64))),
}
VECTORS = {
    "FirstGain": "attn_norm.weight", "SecondGain": "ffn_norm.weight", "QueryGain": "attn_q_norm.weight",
    "KeyGain": "attn_k_norm.weight", "QueryBias": "attn_q.bias", "KeyBias": "attn_k.bias",
    "ValueBias": "attn_v.bias",
}  # fmt: skip


def in_pairs(array: np.ndarray, dim: int) -> np.ndarray:
    """Return rows of heads in the order of pairs (2i, 2i + 1), as files of `llama` hold them."""
    return array.reshape(-1, 2, dim // 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)


def settings(writer: Any, config: Config) -> None:
    """Write sizes, constants and a tokenizer."""
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.dim)
    writer.add_context_length(config.context)
    writer.add_feed_forward_length(9 if config.experts else config.inner)
    writer.add_layer_norm_rms_eps(config.epsilon)
    writer.add_rope_freq_base(config.rope.theta)
    if config.rope.kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(config.rope.factor)
        writer.add_rope_scaling_orig_ctx_len(config.rope.original)
        writer.add_rope_scaling_yarn_beta_fast(config.rope.high)
    if config.experts:
        writer.add_expert_weights_norm(config.has_unit_gates)
        writer.add_expert_count(config.experts)
        writer.add_expert_used_count(config.chosen)
        writer.add_expert_feed_forward_length(config.inner)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ab", *(chr(256 + i) for i in range(config.vocab - 3))])
    writer.add_token_types([1] * config.vocab)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)


def matrices(architecture: str, model: Checkpoint) -> dict[str, np.ndarray]:
    """Return the matrices of a file that may be quantised."""
    config = model.config
    names = ROLES | (EXPERT_ROLES if config.experts else {})
    found = {"token_embd": model.embedding.array, "output": model.head.array}
    for layer in range(config.layers):
        for role in config.roles:
            array = model.matrix(role, layer).array
            if architecture == "llama" and role in ("Query", "Key"):
                array = in_pairs(array, config.dim)
            if config.experts and role in ("Gate", "Up", "Down"):
                array = array.reshape(config.experts, -1, array.shape[1])
            found[f"blk.{layer}.{names[role]}"] = array
    return {f"{name}.weight": array for name, array in found.items()}


def vectors(model: Checkpoint) -> dict[str, np.ndarray]:
    """Return the tensors of a file that are f32 in any file."""
    config, found = model.config, {"output_norm.weight": model.vectors["LastGain"]}
    for layer in range(config.layers):
        given = {name: model.vectors[role][layer] for role, name in VECTORS.items() if role in model.vectors}
        if config.experts:
            router = model.vectors["Router"][layer].T
            given["ffn_gate_inp.weight"] = router[: config.experts]
            if config.shared:
                given["ffn_gate_inp_shexp.weight"] = router[config.experts]
        found |= {f"blk.{layer}.{name}": array for name, array in given.items()}
    return found


def write(
    path: Path, architecture: str, model: Checkpoint, is_quantised: bool = False, **others: float
) -> None:
    """Write a file; its matrices are of Q8_0 or f32, and `others` are more settings."""
    writer, kind = gguf.GGUFWriter(path, architecture), gguf.GGMLQuantizationType.Q8_0
    settings(writer, model.config)
    for name, value in others.items():
        writer.add_float32(f"{architecture}.{name}", value)
    for name, array in matrices(architecture, model).items():
        if is_quantised:
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    for name, array in vectors(model).items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("form", mostly_slow(FORMS))
def test_scores_of_files(form: str, tmp_path: Path) -> None:
    architecture, config = FORMS[form]
    made = random_checkpoint(config)
    write(tmp_path / "model.gguf", architecture, made)
    opened = GgufFile(tmp_path / "model.gguf").checkpoint()
    assert opened.config == replace(config, end=(0,))
    ids = np.random.default_rng(0).integers(config.vocab, size=90).tolist()
    found, _ = Model(pack(opened), pages=2).run([Chunk(ids, 0, [1, 0], 90)])
    assert np.abs(found - scores(made, ids)).max() < 1e-4


def test_quantised_experts_with_activations_of_i8(tmp_path: Path) -> None:
    """A token has the same bits alone and in a batch: its parts are added in the order of its choice."""
    made = random_checkpoint(replace(FORMS["qwen2moe"][1], dim=32))
    write(tmp_path / "model.gguf", "qwen2moe", made, is_quantised=True)
    model = Model(pack(GgufFile(tmp_path / "model.gguf").checkpoint()), i8, pages=8)
    ids = np.random.default_rng(0).integers(SMALL.vocab, size=90).tolist()
    whole = model.run([Chunk(ids, 0, [1, 0], 90)])[0].copy()
    expected = scores(made, ids)
    cosines = (whole * expected).sum(1) / np.linalg.norm(whole, axis=1) / np.linalg.norm(expected, axis=1)
    assert np.median(cosines) > 0.99  # a choice that is close may differ
    model.run([Chunk(ids[:41], 0, [3, 5])])
    one = model.run([Chunk([5, 6, 7], 0, [2]), Chunk(ids[41:42], 41, [3, 5])])[0][1].copy()
    rest = model.run([Chunk(ids[42:], 42, [3, 5], 48), Chunk([8], 3, [2])])[0][:48]
    assert np.array_equal(np.vstack([one, rest]), whole[41:])


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", "mamba", random_checkpoint(SMALL))
    with pytest.raises(UnknownModel, match=r"architecture: expected llama, .*qwen3moe, found 'mamba'"):
        GgufFile(tmp_path / "model.gguf")


def test_unknown_settings_of_experts_are_named(tmp_path: Path) -> None:
    made = random_checkpoint(EXPERTS)
    write(tmp_path / "model.gguf", "llama", made, expert_weights_scale=2.5)
    with pytest.raises(UnknownModel, match=r"`expert_weights_scale`: expected 1.0, found 2.5"):
        GgufFile(tmp_path / "model.gguf").checkpoint()
