"""What a model is: its sizes, its constants, and how positions turn queries and keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

ROLES = ("Query", "Key", "Value", "Output", "Gate", "Up", "Down")
"""Matrices of a layer."""

SCALINGS = ("plain", "linear", "llama3", "yarn")
"""Kinds of rotary positions."""

SHARED_ROLES = ("SharedGate", "SharedUp", "SharedDown")
"""Matrices of the expert that all tokens pass."""


class UnknownModel(Exception):
    """A file needs something that these programs do not have; the message names it."""


@dataclass(frozen=True)
class Rope:
    """How positions become angles.

    Attributes:
        theta: base of the frequencies.
        kind: "plain", "linear" (positions divided by `factor`), "llama3", or "yarn".
        factor: by which the context was extended.
        low: waves longer than `original / low` positions are slowed by `factor`; waves of "llama3" between
            both limits by a part of it, and the elements of "yarn" between both.
        high: waves shorter than `original / high` stay.
        scale: of "yarn", of cosines and sines; 0: 1 + ln(factor) / 10.
        original: context of the training before.
        factors: [dim / 2] divisors of the frequencies that a file holds, or empty.
    """

    theta: float = 10000.0
    kind: str = "plain"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192
    scale: float = 0.0
    factors: tuple[float, ...] = ()

    def frequencies(self, dim: int) -> np.ndarray:
        """Return the angle per position of each pair of elements, [dim / 2] f64.

        Raises:
            UnknownModel: another kind.
        """
        found = self.theta ** (-2 * np.arange(dim // 2) / dim)
        if self.factors:
            found = found / np.array(self.factors)
        if self.kind == "plain":
            return found
        if self.kind == "linear":
            return found / self.factor
        if self.kind == "llama3":
            waves = 2 * np.pi / found
            blend = (self.original / waves - self.low) / (self.high - self.low)
            return found * (1 / self.factor + np.clip(blend, 0, 1) * (1 - 1 / self.factor))
        if self.kind == "yarn":
            slowed = self._slowed(dim)
            return found * (1 - slowed) + found / self.factor * slowed
        raise UnknownModel(f"rotary positions: expected {', '.join(SCALINGS)}, found {self.kind!r}")

    def _slowed(self, dim: int) -> np.ndarray:
        """Return how much each pair of "yarn" is slowed, [dim / 2] from 0 to 1."""
        places = [
            dim * np.log(self.original / (turns * 2 * np.pi)) / (2 * np.log(self.theta))
            for turns in (self.high, self.low)
        ]
        first, last = max(np.floor(places[0]), 0), min(np.ceil(places[1]), dim - 1)
        return np.clip((np.arange(dim // 2) - first) / max(last - first, 0.001), 0, 1)

    def angles(self, dim: int, context: int) -> tuple[np.ndarray, np.ndarray]:
        """Return cosines and sines of every position, each [context, dim / 2] f32."""
        turns = np.arange(context)[:, None] * self.frequencies(dim)
        scale = self.scale or 1 + np.log(self.factor) / 10 if self.kind == "yarn" else 1.0
        return (np.cos(turns) * scale).astype(np.float32), (np.sin(turns) * scale).astype(np.float32)


@dataclass(frozen=True)
class Config:
    """Sizes and constants of a decoder of the family of LLaMA.

    Attributes:
        layers: number of layers.
        hidden: elements of a token.
        heads: heads of queries.
        kv_heads: heads of keys and values; it divides `heads`.
        dim: elements of a head, an even number.
        inner: elements of the feed-forward network, or of an expert.
        vocab: number of tokens.
        context: largest number of positions.
        epsilon: of the norms.
        rope: rotary positions.
        has_bias: queries, keys and values have a bias (Qwen2).
        has_head_norms: queries and keys are normalised per head (Qwen3).
        window: positions that a query attends to; 0: all.
        experts: feed-forward networks of which the run chooses some per token; 0: one network for all tokens.
        chosen: experts per token.
        has_unit_gates: the factors of the chosen experts add up to 1, not those of all experts.
        shared: inner elements of an expert that all tokens pass, with a factor of its own; 0: none.
        end: tokens that end an answer.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    dim: int
    inner: int
    vocab: int
    context: int
    epsilon: float = 1e-5
    rope: Rope = Rope()
    has_bias: bool = False
    has_head_norms: bool = False
    window: int = 0
    experts: int = 0
    chosen: int = 0
    has_unit_gates: bool = True
    shared: int = 0
    end: tuple[int, ...] = ()

    def with_rope(self, kind: str, factor: float) -> Config:
        """Return the configuration with other rotary positions, for a context that is `factor` times as long.

        The frequencies have the same base as before.

        Args:
            kind: "linear", "llama3" or "yarn".
            factor: 1 or more.

        Raises:
            UnknownModel: another kind, a factor below 1, or a file that scales positions itself.
        """
        if kind not in SCALINGS[1:] or not 1 <= factor < 1e6:
            expected = f"{', '.join(SCALINGS[1:])} with a factor of 1 or more"
            raise UnknownModel(f"rotary positions: expected {expected}, found {kind!r} with {factor}")
        if self.rope.kind != "plain" or self.rope.factors:
            raise UnknownModel(f"rotary positions: expected plain ones to scale, found {self.rope.kind}")
        high = 32.0 if kind == "yarn" else 4.0
        rope = Rope(self.rope.theta, kind, factor, 1.0, high, self.context)
        return replace(self, rope=rope, context=int(self.context * factor))

    @property
    def group(self) -> int:
        """Heads of queries per head of keys."""
        return self.heads // self.kv_heads

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of a layer's matrices. The rows of a matrix of experts are those of expert 0, then 1, ..."""
        return ROLES + (SHARED_ROLES if self.shared else ())

    def dims(self, role: str) -> tuple[int, int]:
        """Return k and n of the matrix of a role, of a network without experts."""
        heads = {"Query": self.heads, "Key": self.kv_heads, "Value": self.kv_heads}
        if role in heads:
            return self.hidden, heads[role] * self.dim
        if role == "Output":
            return self.heads * self.dim, self.hidden
        return (self.inner, self.hidden) if role == "Down" else (self.hidden, self.inner)

    def to_json(self) -> dict[str, Any]:
        """Return every field, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Config:
        """Return the configuration that `to_json` wrote."""
        rope = Rope(**(fields["rope"] | {"factors": tuple(fields["rope"]["factors"])}))
        return cls(**(fields | {"rope": rope, "end": tuple(fields["end"])}))
