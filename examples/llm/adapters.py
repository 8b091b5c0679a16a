"""Adapters of PEFT (LoRA): a low-rank product that a request adds to the matrices of a model."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from examples.llm.config import Config, UnknownModel
from examples.llm.folder import ROLES
from examples.llm.weights import AdapterPlan

REFUSED = (
    "alpha_pattern", "fan_in_fan_out", "layer_replication", "lora_bias", "modules_to_save",
    "target_parameters", "trainable_token_indices", "use_dora", "use_qalora",
)  # fmt: skip
"""Settings of PEFT that change results, and that these programs do not have."""

NAME = re.compile(r"base_model\.model\.model\.layers\.(\d+)\.(.+)\.lora_([AB])\.weight")


@dataclass(frozen=True)
class Adapter:
    """The low-rank products of one adapter: y + (x @ A) @ B.

    Attributes:
        name: by which requests choose it.
        parts: per role and layer A [k, rank] and B [rank, n], both f32; B has the scale of the adapter.
    """

    name: str
    parts: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]


def read_adapter(name: str, folder: Path, config: Config) -> Adapter:
    """Read a folder with `adapter_config.json` and `adapter_model.safetensors`.

    Args:
        name: by which requests choose it.
        folder: as PEFT writes it.
        config: of the model.

    Raises:
        UnknownModel: a missing file, a setting or a tensor that these programs do not have, or another shape.
    """
    files = [folder / "adapter_config.json", folder / "adapter_model.safetensors"]
    for file in files:
        if not file.exists():
            raise UnknownModel(f"adapter {name!r}: expected a file {file}, found none")
    try:
        from safetensors.numpy import load_file
    except ImportError as error:
        raise UnknownModel("adapters need the package `safetensors`: pip install safetensors") from error
    if config.experts:
        raise UnknownModel(f"adapter {name!r}: adapters of models with experts are not supported")
    fields = json.loads(files[0].read_text("utf-8"))
    _require_known(name, fields)
    found: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    roles = {of: role for role, of in ROLES.items()}
    for tensor, array in load_file(files[1]).items():
        match = NAME.fullmatch(tensor)
        if match is None or match[2] not in roles or int(match[1]) >= config.layers:
            raise UnknownModel(f"adapter {name!r}: tensor {tensor!r} is not one that these programs use")
        found.setdefault((roles[match[2]], int(match[1])), {})[match[3]] = array.astype(np.float32)
    parts = {key: _part(name, key[0], pair, fields, config) for key, pair in found.items()}
    return Adapter(name, parts)


def _require_known(name: str, fields: dict[str, Any]) -> None:
    if fields.get("peft_type") != "LORA":
        raise UnknownModel(f"adapter {name!r}: `peft_type`: expected LORA, found {fields.get('peft_type')!r}")
    for setting in REFUSED:
        if fields.get(setting):
            raise UnknownModel(f"adapter {name!r}: `{setting}` is not supported")
    if fields.get("bias", "none") != "none":
        raise UnknownModel(f"adapter {name!r}: `bias`: expected none, found {fields['bias']!r}")


def _part(
    name: str, role: str, pair: dict[str, np.ndarray], fields: dict[str, Any], config: Config
) -> tuple[np.ndarray, np.ndarray]:
    (k, n), shapes = config.dims(role), {which: array.shape for which, array in pair.items()}
    rank = shapes.get("A", (0,))[0]
    if shapes != {"A": (rank, k), "B": (n, rank)}:
        raise UnknownModel(
            f"adapter {name!r}: {role}: expected A [rank, {k}] and B [{n}, rank], found {shapes}"
        )
    scale = fields["lora_alpha"] / (rank**0.5 if fields.get("use_rslora") else rank)
    return np.ascontiguousarray(pair["A"].T), np.ascontiguousarray(pair["B"].T * np.float32(scale))


def stack(adapters: Sequence[Adapter], config: Config) -> tuple[AdapterPlan, dict[str, np.ndarray]]:
    """Return the plan for adapters, and per role the arrays A [layers, adapters, k, rank] and B."""
    used = {role for adapter in adapters for role, _ in adapter.parts}
    used |= {"Gate", "Up"} if used & {"Gate", "Up"} else set()
    rank = max((a.shape[1] for adapter in adapters for a, _ in adapter.parts.values()), default=1)
    arrays: dict[str, np.ndarray] = {}
    for role in used:
        k, n = config.dims(role)
        down = np.zeros((config.layers, len(adapters), k, rank), np.float32)
        up = np.zeros((config.layers, len(adapters), rank, n), np.float32)
        for i, adapter in enumerate(adapters):
            for layer in range(config.layers):
                if (part := adapter.parts.get((role, layer))) is not None:
                    own = part[0].shape[1]
                    down[layer, i, :, :own], up[layer, i, :own] = part
        arrays |= {f"{role}_A": down, f"{role}_B": up}
    return AdapterPlan(tuple(role for role in ROLES if role in used), rank), arrays
