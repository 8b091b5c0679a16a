"""Sizes of the attention, its rotary frequencies, and the quantiser's constants."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi

import numpy as np

EPSILON = 1e-6
"""Added to the mean square, or to the variance, of the norms."""

BLOCK = 128
"""Elements that share a scale of the quantiser."""

E4M3_MAX = 448.0
"""Largest number of the 8-bit float with 4 bits of exponent and 3 of mantissa."""

LEAST_AMAX = 1e-4
"""The quantiser takes blocks with smaller numbers for this one."""


@dataclass(frozen=True)
class Config:
    """Sizes of one attention layer: those of DeepSeek V3.2 unless said otherwise.

    Attributes:
        hidden: elements of a token.
        heads: query heads; all share one latent vector per token.
        q_rank: elements of a token's compressed query.
        kv_rank: elements of the latent vector without position; a multiple of 128.
        nope: elements of a head without position.
        rope: elements of a head, and of a key, with position.
        value: elements of a head's value.
        index_heads: heads of the indexer, each of 128 elements, of which the first `rope` have position.
        top_k: tokens that attention reads at most.
        is_extended: rotary frequencies are stretched (YaRN) from 4,096 positions to 163,840.
    """

    hidden: int = 7168
    heads: int = 128
    q_rank: int = 1536
    kv_rank: int = 512
    nope: int = 128
    rope: int = 64
    value: int = 128
    index_heads: int = 64
    top_k: int = 2048
    is_extended: bool = True

    index_dim = 128

    def __post_init__(self) -> None:
        if self.kv_rank % BLOCK or self.rope % 2 or self.rope > self.index_dim:
            raise ValueError(f"kv_rank is a multiple of {BLOCK}, rope is even and at most 128; found {self}")

    @property
    def key(self) -> int:
        """Elements of a cached row: the latent vector, then the part with position."""
        return self.kv_rank + self.rope

    @property
    def compressed(self) -> int:
        """Columns of the first product of a token: compressed query, latent vector, part with position."""
        return self.q_rank + self.key

    @property
    def indexed(self) -> int:
        """Columns of the indexer's product of a token: its key, and a weight for each of its heads."""
        return self.index_dim + self.index_heads

    @property
    def softmax_scale(self) -> float:
        """Factor of attention's scores."""
        scale = (self.nope + self.rope) ** -0.5
        return scale * (0.1 * log(40) + 1) ** 2 if self.is_extended else scale

    @property
    def index_scale(self) -> float:
        """Factor of the weights of the indexer's heads."""
        return self.index_heads**-0.5 * self.index_dim**-0.5


SMALL = Config(
    hidden=256, heads=4, q_rank=128, kv_rank=128, nope=32, rope=16, value=32, index_heads=8, top_k=64
)
"""Sizes at which the example ends in seconds; the code is that of the large ones."""


def frequencies(config: Config) -> np.ndarray:
    """Return the turn per position of each pair of elements: [rope / 2] f64.

    Source: YaRN (Peng et al. 2023), with base 1e4, factor 40, 4,096 positions, and 32 and 1 turns.
    """
    pairs = config.rope // 2
    plain = 1e4 ** (-np.arange(pairs) / pairs)
    if not config.is_extended:
        return plain

    def pair_of(turns: float) -> float:
        """Return the pair that makes this many turns in 4,096 positions."""
        return config.rope * log(4096 / (turns * 2 * pi)) / (2 * log(1e4))

    low, high = max(floor(pair_of(32)), 0), min(ceil(pair_of(1)), config.rope - 1)
    ramp = np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0, 1)
    return plain / 40 * ramp + plain * (1 - ramp)


def hadamard(size: int) -> np.ndarray:
    """Return the Hadamard matrix of a power of 2 in Sylvester's order, times size^-0.5: symmetric f64."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix * size**-0.5
