"""Folders of Hugging Face: `config.json`, weights in `.safetensors`, and `tokenizer.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (bf16 of safetensors)
import numpy as np

from examples.llm.checkpoint import Checkpoint
from examples.llm.config import Config, Rope, UnknownModel
from examples.llm.storage import Matrix

ROLES = {
    "Query": "self_attn.q_proj",
    "Key": "self_attn.k_proj",
    "Value": "self_attn.v_proj",
    "Output": "self_attn.o_proj",
    "Gate": "mlp.gate_proj",
    "Up": "mlp.up_proj",
    "Down": "mlp.down_proj",
}
"""Names of a layer's matrices in files."""

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

KNOWN_TENSORS = {f"{name}.{kind}" for name in ROLES.values() for kind in ("weight", "bias")} | {
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "self_attn.rotary_emb.inv_freq",
}
"""Tensors of a layer; any other would change results, and is refused by name."""

BIASED = ("Query", "Key", "Value")


class ModelFolder:
    """An open folder.

    Args:
        path: of the folder.

    Raises:
        UnknownModel: a missing file, or an architecture or a tensor that these programs do not have.
    """

    def __init__(self, path: Path) -> None:
        try:
            from safetensors import safe_open
        except ImportError as error:
            raise UnknownModel("folders need the package `safetensors`: pip install safetensors") from error

        self._path = path
        for name in ("config.json", "tokenizer.json"):
            if not (path / name).exists():
                raise UnknownModel(f"{path}: expected a file {name}, found none")
        self._fields = self._json("config.json")
        found = (self._fields.get("architectures") or ["none"])[0]
        if found not in ARCHITECTURES:
            raise UnknownModel(f"{path}: architecture: expected {', '.join(ARCHITECTURES)}, found {found!r}")
        if self._fields.get("quantization_config"):
            kind = self._fields["quantization_config"].get("quant_method")
            raise UnknownModel(f"{path}: quantisation by {kind!r} is not supported; use a GGUF file")
        shards = [safe_open(file, "numpy") for file in sorted(path.glob("*.safetensors"))]
        self._shards = {name: shard for shard in shards for name in shard.keys()}
        for name in self._shards:
            parts = name.split(".", 3)
            if parts[:2] == ["model", "layers"] and parts[3] not in KNOWN_TENSORS:
                raise UnknownModel(f"{path}: tensor {name!r} is not one that these programs use")

    def _json(self, name: str) -> Any:
        return json.loads((self._path / name).read_text("utf-8"))

    def _tensor(self, name: str) -> np.ndarray:
        if name not in self._shards:
            raise UnknownModel(f"{self._path}: expected a tensor {name!r}, found none")
        return self._shards[name].get_tensor(name)

    def matrix(self, name: str) -> Matrix:
        """Return a matrix [n, k]."""
        array = self._tensor(name)
        kinds = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
        if array.dtype.name not in kinds:
            raise UnknownModel(
                f"tensor {name!r}: element type: expected {', '.join(kinds)}, found {array.dtype}"
            )
        return Matrix(kinds[array.dtype.name], array, array.shape[1])

    def config(self) -> Config:
        """Return sizes and constants."""
        fields = self._fields
        if fields.get("hidden_act", "silu") != "silu":
            raise UnknownModel(f"activation: expected silu, found {fields['hidden_act']!r}")
        heads, hidden = fields["num_attention_heads"], fields["hidden_size"]
        end = fields.get("eos_token_id")
        if (self._path / "generation_config.json").exists():
            end = self._json("generation_config.json").get("eos_token_id", end)
        first = "model.layers.0."
        return Config(
            layers=fields["num_hidden_layers"],
            hidden=hidden,
            heads=heads,
            kv_heads=fields.get("num_key_value_heads") or heads,
            dim=fields.get("head_dim") or hidden // heads,
            inner=fields["intermediate_size"],
            vocab=fields["vocab_size"],
            context=fields["max_position_embeddings"],
            epsilon=fields["rms_norm_eps"],
            rope=self._rope(),
            has_bias=f"{first}{ROLES['Query']}.bias" in self._shards,
            has_head_norms=f"{first}self_attn.q_norm.weight" in self._shards,
            window=self._window(),
            end=tuple(end if isinstance(end, list) else [] if end is None else [end]),
        )

    def _window(self) -> int:
        """Return the window of all layers.

        Raises:
            UnknownModel: layers have different windows.
        """
        fields = self._fields
        kinds = set(fields.get("layer_types") or [])
        if not fields.get("sliding_window") or fields.get("use_sliding_window") is False:
            return 0
        if len(kinds) > 1:
            raise UnknownModel(f"windows: expected one kind of layers, found {', '.join(sorted(kinds))}")
        return 0 if kinds == {"full_attention"} else fields["sliding_window"]

    def _rope(self) -> Rope:
        given = self._fields.get("rope_parameters") or {}
        scaling = self._fields.get("rope_scaling") or given
        theta = float(given.get("rope_theta") or self._fields.get("rope_theta") or 10000.0)
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        if scaling.get("partial_rotary_factor", 1.0) != 1.0:
            raise UnknownModel("rotary positions of a part of a head are not supported")
        match kind:
            case "default":
                return Rope(theta)
            case "linear":
                return Rope(theta, "linear", float(scaling["factor"]))
            case "llama3":
                return Rope(
                    theta, "llama3", float(scaling["factor"]), float(scaling["low_freq_factor"]),
                    float(scaling["high_freq_factor"]), int(scaling["original_max_position_embeddings"]),
                )  # fmt: skip
            case _:
                raise UnknownModel(f"rotary positions: expected default, linear or llama3, found {kind!r}")

    def checkpoint(self) -> Checkpoint:
        """Return the model."""
        config = self.config()
        for role in ROLES:
            if role not in BIASED and f"model.layers.0.{ROLES[role]}.bias" in self._shards:
                raise UnknownModel(f"a bias of {ROLES[role]} is not supported")

        def matrix(role: str, layer: int) -> Matrix:
            return self.matrix(f"model.layers.{layer}.{ROLES[role]}.weight")

        embedding = self.matrix("model.embed_tokens.weight")
        is_tied = self._fields.get("tie_word_embeddings", "lm_head.weight" not in self._shards)
        head = embedding if is_tied else self.matrix("lm_head.weight")
        template, tokens = self._template()
        tokenizer = (self._path / "tokenizer.json").read_text("utf-8")
        return Checkpoint(config, matrix, embedding, head, self._vectors(config), tokenizer, template, tokens)

    def _vectors(self, config: Config) -> dict[str, np.ndarray]:
        def layers(name: str) -> np.ndarray:
            return np.stack([self._tensor(f"model.layers.{i}.{name}") for i in range(config.layers)])

        vectors = {
            "FirstGain": layers("input_layernorm.weight"),
            "SecondGain": layers("post_attention_layernorm.weight"),
            "LastGain": self._tensor("model.norm.weight"),
        }
        if config.has_bias:
            vectors |= {f"{role}Bias": layers(f"{ROLES[role]}.bias") for role in BIASED}
        if config.has_head_norms:
            vectors |= {
                "QueryGain": layers("self_attn.q_norm.weight"),
                "KeyGain": layers("self_attn.k_norm.weight"),
            }
        return vectors

    def _template(self) -> tuple[str, dict[str, str]]:
        """Return the template of conversations and the special tokens that it may name."""
        name = self._path / "tokenizer_config.json"
        fields = self._json(name.name) if name.exists() else {}
        template = fields.get("chat_template") or ""
        if (self._path / "chat_template.jinja").exists():
            template = (self._path / "chat_template.jinja").read_text("utf-8")
        if not isinstance(template, str):
            template = next((t["template"] for t in template if t["name"] == "default"), "")
        found = {name: fields.get(name) for name in ("bos_token", "eos_token")}
        texts = {name: t["content"] if isinstance(t, dict) else t for name, t in found.items() if t}
        return template, texts
