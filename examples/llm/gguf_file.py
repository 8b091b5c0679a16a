"""GGUF files: metadata, matrices in their blocks, and the tokenizer that they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from examples.llm.checkpoint import Checkpoint
from examples.llm.config import Config, Rope, UnknownModel
from examples.llm.storage import FLOATS, Matrix
from examples.llm.tokenizer import gguf_tokenizer
from pto_wsp import bf16
from pto_wsp.types.ggml_blocks import BLOCK_BYTES

ROLES = {
    "Query": "attn_q",
    "Key": "attn_k",
    "Value": "attn_v",
    "Output": "attn_output",
    "Gate": "ffn_gate",
    "Up": "ffn_up",
    "Down": "ffn_down",
}
EXPERT_ROLES = {
    "Gate": "ffn_gate_exps",
    "Up": "ffn_up_exps",
    "Down": "ffn_down_exps",
    "SharedGate": "ffn_gate_shexp",
    "SharedUp": "ffn_up_shexp",
    "SharedDown": "ffn_down_shexp",
}
"""Names of a layer's matrices in files."""

ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral", "qwen2moe", "qwen3moe")
"""Architectures that these programs run. Queries and keys of `llama` are permuted; it may have experts."""

KNOWN_TENSORS = {f"{name}.weight" for name in (*ROLES.values(), *EXPERT_ROLES.values())} | {
    "ffn_gate_inp.weight",
    "ffn_gate_inp_shexp.weight",
    "attn_norm.weight",
    "ffn_norm.weight",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
}
"""Tensors of a layer; any other would change results, and is refused by name."""

KNOWN_SETTINGS = {"expert_gating_func": 1, "expert_weights_scale": 1.0, "expert_group_count": 1}
"""Settings of experts that change results, with the values that these programs have; 1 is softmax."""

REFUSED_OF_YARN = ("attn_factor", "yarn_attn_factor", "yarn_ext_factor", "yarn_log_multiplier")
"""Settings of "yarn" that these programs do not have."""


class GgufFile:
    """An open file.

    Args:
        path: of the file; its tensors are mapped.

    Raises:
        UnknownModel: an architecture, an element type or a tensor that these programs do not have.
    """

    def __init__(self, path: Path) -> None:
        try:
            from gguf import GGUFReader
        except ImportError as error:
            raise UnknownModel("GGUF files need the package `gguf`: pip install gguf") from error

        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.architecture = str(self.value("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            expected = ", ".join(ARCHITECTURES)
            raise UnknownModel(f"{path.name}: architecture: expected {expected}, found {self.architecture!r}")
        for name in self._tensors:
            block = name.split(".", 2)
            if block[0] == "blk" and block[2] not in KNOWN_TENSORS:
                raise UnknownModel(f"{path.name}: tensor {name!r} is not one that these programs use")

    def value(self, key: str, default: Any = None) -> Any:
        """Return a value of the metadata; `{arch}` in its key is the architecture."""
        field = self._reader.get_field(key.replace("{arch}", getattr(self, "architecture", "")))
        return default if field is None else field.contents()

    def matrix(self, name: str) -> Matrix:
        """Return a matrix [n, k]."""
        if name not in self._tensors:
            raise UnknownModel(f"expected a tensor {name!r}, found none")
        tensor = self._tensors[name]
        kind, k = tensor.tensor_type.name.lower(), int(tensor.shape[0])
        if kind == "bf16":
            return Matrix(kind, tensor.data.view(bf16.to_numpy()).reshape(-1, k), k)
        if kind not in FLOATS and kind not in BLOCK_BYTES:
            expected = ", ".join([*FLOATS, *BLOCK_BYTES])
            raise UnknownModel(f"tensor {name!r}: element type: expected {expected}, found {kind}")
        return Matrix(kind, tensor.data.reshape(-1, tensor.data.shape[-1]), k)

    def vector(self, name: str) -> np.ndarray:
        """Return the values of a vector, f32."""
        return self.matrix(name).values().reshape(-1)

    def config(self) -> Config:
        """Return sizes and constants."""
        heads = int(self.value("{arch}.attention.head_count"))
        hidden = int(self.value("{arch}.embedding_length"))
        dim = int(self.value("{arch}.attention.key_length", hidden // heads))
        turned = int(self.value("{arch}.rope.dimension_count", dim))
        if turned != dim:
            raise UnknownModel(f"rotary positions of {turned} of {dim} elements are not supported")
        experts = self._experts()
        shared = f"blk.0.{EXPERT_ROLES['SharedGate']}.weight"
        end = {int(self.value("tokenizer.ggml.eos_token_id"))}
        end |= {int(n) for n in [self.value("tokenizer.ggml.eot_token_id")] if n is not None}
        return Config(
            layers=int(self.value("{arch}.block_count")),
            hidden=hidden,
            heads=heads,
            kv_heads=int(self.value("{arch}.attention.head_count_kv", heads)),
            dim=dim,
            inner=int(
                (experts and self.value("{arch}.expert_feed_forward_length"))
                or self.value("{arch}.feed_forward_length")
            ),
            vocab=int(self._tensors["token_embd.weight"].shape[1]),
            context=int(self.value("{arch}.context_length")),
            epsilon=float(self.value("{arch}.attention.layer_norm_rms_epsilon")),
            rope=self._rope(),
            has_bias="blk.0.attn_q.bias" in self._tensors,
            has_head_norms="blk.0.attn_q_norm.weight" in self._tensors,
            window=int(self.value("{arch}.attention.sliding_window", 0)),
            experts=experts,
            chosen=int(self.value("{arch}.expert_used_count", 0)),
            has_unit_gates=bool(self.value("{arch}.expert_weights_norm", self.architecture != "qwen2moe")),
            shared=int(self._tensors[shared].shape[1]) if shared in self._tensors else 0,
            end=tuple(sorted(end)),
        )

    def _experts(self) -> int:
        """Return the number of experts, or 0.

        Raises:
            UnknownModel: a setting of their choice that these programs do not have.
        """
        for setting, expected in KNOWN_SETTINGS.items():
            found = self.value(f"{{arch}}.{setting}", expected)
            if found != expected:
                raise UnknownModel(f"experts: `{setting}`: expected {expected}, found {found}")
        return int(self.value("{arch}.expert_count", 0))

    def _rope(self) -> Rope:
        theta = float(self.value("{arch}.rope.freq_base", 10000.0))
        factors: tuple[float, ...] = ()
        if "rope_freqs.weight" in self._tensors:
            factors = tuple(float(f) for f in self.vector("rope_freqs.weight"))
        kind = self.value("{arch}.rope.scaling.type", "none")
        if kind == "none":
            return Rope(theta, factors=factors)
        if kind not in ("linear", "yarn"):
            raise UnknownModel(f"rotary positions: expected none, linear or yarn, found {kind!r}")
        factor = float(self.value("{arch}.rope.scaling.factor"))
        if kind == "linear":
            return Rope(theta, "linear", factor, factors=factors)
        for setting in REFUSED_OF_YARN:
            if self.value(f"{{arch}}.rope.scaling.{setting}") is not None:
                raise UnknownModel(f"rotary positions: `{setting}` is not supported")
        low = float(self.value("{arch}.rope.scaling.yarn_beta_slow", 1.0))
        high = float(self.value("{arch}.rope.scaling.yarn_beta_fast", 32.0))
        fallback = self.value("{arch}.context_length")
        original = int(self.value("{arch}.rope.scaling.original_context_length", fallback))
        return Rope(theta, "yarn", factor, low, high, original, factors=factors)

    def order(self, heads: int, dim: int) -> np.ndarray:
        """Return the order of the outputs of queries or keys in which pairs are (i, i + dim / 2)."""
        places = np.arange(heads * dim)
        if self.architecture not in ("llama", "mistral"):
            return places
        return places.reshape(heads, dim // 2, 2).transpose(0, 2, 1).reshape(-1)

    def checkpoint(self) -> Checkpoint:
        """Return the model."""
        config = self.config()
        orders = {
            "Query": self.order(config.heads, config.dim),
            "Key": self.order(config.kv_heads, config.dim),
        }

        names = ROLES | (EXPERT_ROLES if config.experts else {})

        def matrix(role: str, layer: int) -> Matrix:
            found = self.matrix(f"blk.{layer}.{names[role]}.weight")
            return found.rows(orders[role]) if role in orders else found

        embedding = self.matrix("token_embd.weight")
        head = self.matrix("output.weight") if "output.weight" in self._tensors else embedding
        texts = self.value("tokenizer.ggml.tokens")
        tokens = {
            f"{name}_token": texts[int(self.value(f"tokenizer.ggml.{name}_token_id"))]
            for name in ("bos", "eos")
            if self.value(f"tokenizer.ggml.{name}_token_id") is not None
        }
        return Checkpoint(
            config, matrix, embedding, head, self._vectors(config, orders), gguf_tokenizer(self.value),
            str(self.value("tokenizer.chat_template", "")), tokens,
        )  # fmt: skip

    def _vectors(self, config: Config, orders: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        def layers(name: str, order: np.ndarray | None = None) -> np.ndarray:
            found = [self.vector(f"blk.{i}.{name}") for i in range(config.layers)]
            return np.stack([v if order is None else v[order] for v in found])

        vectors = {
            "FirstGain": layers("attn_norm.weight"),
            "SecondGain": layers("ffn_norm.weight"),
            "LastGain": self.vector("output_norm.weight"),
        }
        if config.has_bias:
            for role in ("Query", "Key", "Value"):
                vectors[f"{role}Bias"] = layers(f"{ROLES[role]}.bias", orders.get(role))
        if config.has_head_norms:
            vectors["QueryGain"], vectors["KeyGain"] = (
                layers("attn_q_norm.weight"),
                layers("attn_k_norm.weight"),
            )
        if config.experts:
            names = ["ffn_gate_inp.weight"] + ["ffn_gate_inp_shexp.weight"] * bool(config.shared)
            routers = [layers(name).reshape(config.layers, -1, config.hidden) for name in names]
            vectors["Router"] = np.concatenate(routers, axis=1).transpose(0, 2, 1)
        return vectors
