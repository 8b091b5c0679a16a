"""Folders of Hugging Face: the scores of `transformers` for small random models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.llm.config import UnknownModel
from examples.llm.folder import ModelFolder
from examples.llm.model import Chunk, Model, load
from tests.slow import mostly_slow

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 99, "max_position_embeddings": 256, "head_dim": 16,
}  # fmt: skip
LLAMA_3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 5e5,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4,
}  # fmt: skip
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"sliding_window": 70}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2moe": ("Qwen2Moe", EXPERTS | {"shared_expert_intermediate_size": 48}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "yarn": ("Llama", {"rope_parameters": YARN}),
    "qwen3moe": ("Qwen3Moe", EXPERTS | {"norm_topk_prob": True}),
    "llama": ("Llama", {"rope_parameters": LLAMA_3}),
    "qwen3": ("Qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
}
TOKENIZER = {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}


def save(folder: Path, form: str, is_bf16: bool) -> Any:
    """Write a random model, and return it."""
    torch = pytest.importorskip("torch", reason="needs `make extras`")
    transformers = pytest.importorskip("transformers", reason="needs `make extras`")
    name, changes = FORMS[form]
    torch.manual_seed(0)
    made = getattr(transformers, f"{name}ForCausalLM")(
        getattr(transformers, f"{name}Config")(**SIZES, **changes)
    )
    for parameter in made.parameters():
        with torch.no_grad():
            parameter.mul_(4).add_(torch.randn_like(parameter) / 16)
    made.to(torch.bfloat16 if is_bf16 else torch.float32).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return type(made).from_pretrained(folder, dtype=torch.float32).eval()  # not of rounded frequencies


@pytest.mark.parametrize("form", mostly_slow(FORMS, 3))
def test_scores_of_transformers(form: str, tmp_path: Path) -> None:
    made = save(tmp_path, form, is_bf16=form == "qwen2")
    torch = pytest.importorskip("torch")
    ids = np.random.default_rng(0).integers(99, size=150)
    with torch.no_grad():
        expected = made(torch.tensor(ids[None])).logits[0].numpy()
    packed, _ = load(str(tmp_path))
    found, _ = Model(packed, pages=4).run([Chunk(ids.tolist(), 0, [2, 0, 1], 150)])
    assert np.abs(found - expected).max() < 1e-4 * max(1, np.abs(expected).max())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "architecture: expected LlamaForCausalLM, .*'GPT2LMHeadModel'",
        ),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "expected awq, gptq, found 'mxfp4'"),
        (
            {"quantization_config": {"quant_method": "awq", "version": "gemv"}},
            "`version`: expected gemm or GEMM, found 'gemv'",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "checkpoint_format": "marlin"}},
            "`checkpoint_format`: expected gptq or gptq_v2, found 'marlin'",
        ),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, "`bits`: expected 4 or 8, found 3"),
    ],
)
def test_folders_that_are_refused(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]} | changes))
    with pytest.raises(
        UnknownModel, match=r"expected a file tokenizer\.json or tokenizer\.model, found none"
    ):
        ModelFolder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    with pytest.raises(UnknownModel, match=says):
        ModelFolder(tmp_path)
