"""Folders of Hugging Face: `config.json`, weights in `.safetensors`, and a tokenizer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (bf16 of safetensors)
import numpy as np

from examples.llm.checkpoint import Checkpoint
from examples.llm.config import Config, Rope, UnknownModel
from examples.llm.int_words import PARTS, WordReader
from examples.llm.pieces import piece_tokenizer, read_pieces
from examples.llm.storage import Matrix, joined

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

ROUTERS = {"Router": "mlp.gate", "SharedRouter": "mlp.shared_expert_gate"}
"""Names of the matrices that choose experts."""

QWEN_EXPERTS = {
    "Gate": "mlp.experts.{e}.gate_proj",
    "Up": "mlp.experts.{e}.up_proj",
    "Down": "mlp.experts.{e}.down_proj",
    "SharedGate": "mlp.shared_expert.gate_proj",
    "SharedUp": "mlp.shared_expert.up_proj",
    "SharedDown": "mlp.shared_expert.down_proj",
}
MIXTRAL_EXPERTS = {
    "Router": "block_sparse_moe.gate",
    "Gate": "block_sparse_moe.experts.{e}.w1",
    "Up": "block_sparse_moe.experts.{e}.w3",
    "Down": "block_sparse_moe.experts.{e}.w2",
}

ARCHITECTURES: dict[str, dict[str, str]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {},
    "MixtralForCausalLM": MIXTRAL_EXPERTS,
    "Qwen2MoeForCausalLM": QWEN_EXPERTS,
    "Qwen3MoeForCausalLM": QWEN_EXPERTS,
}
"""Architectures, and the names of matrices in which they differ; `{e}` is the number of an expert."""

OTHER_TENSORS = {
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "self_attn.rotary_emb.inv_freq",
}
"""Tensors of a layer in addition to its matrices; any other would change results, and is refused by name."""

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
        for names in (("config.json",), ("tokenizer.json", "tokenizer.model")):
            if not any((path / name).exists() for name in names):
                raise UnknownModel(f"{path}: expected a file {' or '.join(names)}, found none")
        self._fields = self._json("config.json")
        found = (self._fields.get("architectures") or ["none"])[0]
        if found not in ARCHITECTURES:
            raise UnknownModel(f"{path}: architecture: expected {', '.join(ARCHITECTURES)}, found {found!r}")
        self._names = ROLES | ROUTERS | ARCHITECTURES[found]
        settings = self._fields.get("quantization_config")
        self._words = WordReader(settings, self._optional) if settings else None
        shards = [safe_open(file, "numpy") for file in sorted(path.glob("*.safetensors"))]
        self._shards = {name: shard for shard in shards for name in shard.keys()}
        kinds = ("weight", "bias", *(PARTS if self._words else ()))
        known = OTHER_TENSORS | {f"{n}.{kind}" for n in self._names.values() for kind in kinds}
        for name in self._shards:
            parts = re.sub(r"\bexperts\.\d+\.", "experts.{e}.", name).split(".", 3)
            if parts[:2] == ["model", "layers"] and parts[3] not in known:
                raise UnknownModel(f"{path}: tensor {name!r} is not one that these programs use")

    def _json(self, name: str) -> Any:
        return json.loads((self._path / name).read_text("utf-8"))

    def _optional(self, name: str) -> np.ndarray | None:
        return self._shards[name].get_tensor(name) if name in self._shards else None

    def _tensor(self, name: str) -> np.ndarray:
        found = self._optional(name)
        if found is None:
            raise UnknownModel(f"{self._path}: expected a tensor {name!r}, found none")
        return found

    def matrix(self, name: str) -> Matrix:
        """Return a matrix [n, k] by the name of its tensor of weights."""
        if self._words and name not in self._shards:
            return self._words.matrix(name.removesuffix(".weight"))
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
        experts, first = self._experts(), "model.layers.0."
        return Config(
            layers=fields["num_hidden_layers"],
            hidden=hidden,
            heads=heads,
            kv_heads=fields.get("num_key_value_heads") or heads,
            dim=fields.get("head_dim") or hidden // heads,
            inner=(experts and fields.get("moe_intermediate_size")) or fields["intermediate_size"],
            vocab=fields["vocab_size"],
            context=fields["max_position_embeddings"],
            epsilon=fields["rms_norm_eps"],
            rope=self._rope(),
            has_bias=any(name.endswith(f"{ROLES['Query']}.bias") for name in self._shards),
            has_head_norms=f"{first}self_attn.q_norm.weight" in self._shards,
            window=self._window(),
            experts=experts,
            chosen=fields["num_experts_per_tok"] if experts else 0,
            has_unit_gates=fields.get("norm_topk_prob", fields["architectures"][0] == "MixtralForCausalLM"),
            shared=fields.get("shared_expert_intermediate_size") or 0,
            end=tuple(end if isinstance(end, list) else [] if end is None else [end]),
        )

    def _experts(self) -> int:
        """Return the number of experts, or 0.

        Raises:
            UnknownModel: some layers have experts, others do not.
        """
        fields = self._fields
        if not ARCHITECTURES[fields["architectures"][0]]:
            return 0
        if fields.get("mlp_only_layers") or fields.get("decoder_sparse_step", 1) != 1:
            raise UnknownModel("experts: expected them in every layer, found layers without")
        return fields.get("num_local_experts") or fields["num_experts"]

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
            case "yarn":
                return self._yarn(theta, scaling)
            case _:
                raise UnknownModel(
                    f"rotary positions: expected default, linear, llama3, yarn, found {kind!r}"
                )

    def _yarn(self, theta: float, scaling: dict[str, Any]) -> Rope:
        unknown = {"mscale", "mscale_all_dim"} & set(scaling)
        if unknown or not scaling.get("truncate", True):
            raise UnknownModel(f"rotary positions: `{min(unknown, default='truncate')}` is not supported")
        original = scaling.get("original_max_position_embeddings") or self._fields["max_position_embeddings"]
        return Rope(
            theta, "yarn", float(scaling["factor"]), float(scaling.get("beta_slow") or 1),
            float(scaling.get("beta_fast") or 32), int(original), float(scaling.get("attention_factor") or 0),
        )  # fmt: skip

    def checkpoint(self) -> Checkpoint:
        """Return the model."""
        config = self.config()
        self._require_no_other_biases()

        def matrix(role: str, layer: int) -> Matrix:
            name = f"model.layers.{layer}.{self._names[role]}.weight"
            if "{e}" not in name:
                return self.matrix(name)
            return joined([self.matrix(name.format(e=e)) for e in range(config.experts)])

        embedding = self.matrix("model.embed_tokens.weight")
        is_tied = self._fields.get("tie_word_embeddings", "lm_head.weight" not in self._shards)
        head = embedding if is_tied else self.matrix("lm_head.weight")
        template, tokens = self._template()
        vectors = self._vectors(config)
        return Checkpoint(config, matrix, embedding, head, vectors, self._tokenizer(), template, tokens)

    def _tokenizer(self) -> str:
        """Return the text of `tokenizer.json`; without, that of the pieces of `tokenizer.model`."""
        if (self._path / "tokenizer.json").exists():
            return (self._path / "tokenizer.json").read_text("utf-8")
        return piece_tokenizer(read_pieces((self._path / "tokenizer.model").read_bytes()))

    def _require_no_other_biases(self) -> None:
        """Refuse biases that these programs do not add. Those of GPTQ may be zeros."""
        added = {ROLES[role] for role in BIASED}
        for name in self._shards:
            matrix = name.removesuffix(".bias").split(".", 3)[-1]
            if name.endswith(".bias") and matrix not in added and self._tensor(name).any():
                raise UnknownModel(f"a bias of {matrix} is not supported")

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
        if config.experts:
            routers = [layers(f"{self._names['Router']}.weight")]
            if config.shared:
                routers.append(layers(f"{self._names['SharedRouter']}.weight"))
            vectors["Router"] = np.concatenate(routers, axis=1).transpose(0, 2, 1)
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
