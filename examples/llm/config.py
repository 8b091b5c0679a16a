"""What a model is: its sizes, its constants, and how positions turn queries and keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


class UnknownModel(Exception):
    """A file needs something that these programs do not have; the message names it."""


@dataclass(frozen=True)
class Rope:
    """How positions become angles.

    Attributes:
        theta: base of the frequencies.
        kind: "plain", "linear" (positions divided by `factor`), or "llama3".
        factor: by which the context was extended.
        low: of "llama3", waves longer than `original / low` positions are slowed by `factor`.
        high: of "llama3", waves shorter than `original / high` stay.
        original: context of the training before.
        factors: [dim / 2] divisors of the frequencies that a file holds, or empty.
    """

    theta: float = 10000.0
    kind: str = "plain"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192
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
        raise UnknownModel(f"rotary positions: expected plain, linear or llama3, found {self.kind!r}")

    def angles(self, dim: int, context: int) -> tuple[np.ndarray, np.ndarray]:
        """Return cosines and sines of every position, each [context, dim / 2] f32."""
        turns = np.arange(context)[:, None] * self.frequencies(dim)
        return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


@dataclass(frozen=True)
class Config:
    """Sizes and constants of a decoder of the family of LLaMA.

    Attributes:
        layers: number of layers.
        hidden: elements of a token.
        heads: heads of queries.
        kv_heads: heads of keys and values; it divides `heads`.
        dim: elements of a head, an even number.
        inner: elements of the feed-forward network.
        vocab: number of tokens.
        context: largest number of positions.
        epsilon: of the norms.
        rope: rotary positions.
        has_bias: queries, keys and values have a bias (Qwen2).
        has_head_norms: queries and keys are normalised per head (Qwen3).
        window: positions that a query attends to; 0: all.
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
    end: tuple[int, ...] = ()

    @property
    def group(self) -> int:
        """Heads of queries per head of keys."""
        return self.heads // self.kv_heads

    def to_json(self) -> dict[str, Any]:
        """Return every field, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Config:
        """Return the configuration that `to_json` wrote."""
        rope = Rope(**(fields["rope"] | {"factors": tuple(fields["rope"]["factors"])}))
        return cls(**(fields | {"rope": rope, "end": tuple(fields["end"])}))
