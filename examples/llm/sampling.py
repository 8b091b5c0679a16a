"""How the next token is chosen: the most likely one, or one drawn from the most likely ones."""

# Annotations depend on the configuration, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from dataclasses import dataclass
from math import inf
from typing import Any

from examples.llm.config import Config, UnknownModel
from pto_wsp import In, InOut, Out, Tile, f32, i8, i32, kernel, pto

TEMPERATURE, TOP_K, TOP_P, MIN_P, DRAW = range(5)
"""Columns of what `sample` reads about a request."""


@dataclass(frozen=True)
class Sampling:
    """How the tokens of a request are drawn, in this order of steps.

    Attributes:
        temperature: scores are divided by it; 0: the most likely token is chosen, and the rest has no effect.
        top_k: number of most likely tokens that stay; 0: all.
        top_p: as many most likely tokens stay as together reach this part of the probability.
        min_p: tokens stay that have this part of the probability of the most likely one.
        seed: of random numbers. A number depends on the seed and the position alone.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.temperature < 1e6 and 0 <= self.top_k < 1 << 24):
            raise UnknownModel(f"expected a temperature and a top_k that are not negative, found {self}")
        if not (0 < self.top_p <= 1 and 0 <= self.min_p <= 1):
            raise UnknownModel(f"expected top_p above 0 and min_p from 0, both up to 1, found {self}")

    def row(self, position: int, vocab: int) -> tuple[float, ...]:
        """Return the columns that `sample` reads for the token at a position."""
        top_k = min(self.top_k or vocab, vocab)
        return self.temperature, top_k, self.top_p, self.min_p, draw(self.seed, position)


GREEDY = Sampling()


def draw(seed: int, position: int) -> float:
    """Return a number from 0 to below 1 with 24 bits, by the mixing function of SplitMix64."""
    most = (1 << 64) - 1
    state = (seed * 0xD1342543DE82EF95 + (position + 1) * 0x9E3779B97F4A7C15) & most
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state >> shift) * factor & most
    return ((state ^ state >> 31) >> 40) / (1 << 24)


def choosing_kernels(config: Config) -> tuple[Any, Any, Any]:
    """Return the kernels that take the scores of tokens that a mask excludes, and that choose a token.

    The second one takes the largest score, the third one draws.
    """
    VOCAB = config.vocab

    @kernel
    def exclude(allowed: In[Tile[1, VOCAB, i8]], scores: InOut[Tile[1, VOCAB, f32]]):
        """Tokens that are not allowed get the score -infinity."""
        is_allowed = pto.cast(pto.load(allowed), f32) > 0.0
        pto.store(scores, pto.where(is_allowed, pto.load(scores), -inf))

    @kernel
    def choose(scores: In[Tile[1, VOCAB, f32]], token: Out[Tile[1, 1, i32]]):
        """The token with the largest score, the lowest of equal ones."""
        pto.store(token, pto.rowargmax(scores))

    @kernel
    def sample(scores: In[Tile[1, VOCAB, f32]], how: In[Tile[1, 5, f32]], token: Out[Tile[1, 1, i32]]):
        """The tokens in falling order, the lower first of equal ones; one of the first is drawn."""
        order = pto.sort(pto.load(scores))
        values = pto.extract_topk_values(order, VOCAB)
        indices = pto.extract_topk_indices(order, VOCAB)
        settings = pto.load(how)
        most = pto.rowmax(values)
        weights = pto.exp((values - most) / settings[0, TEMPERATURE])
        count = int(settings[0, TOP_K])  # pyright: ignore[reportArgumentType]
        stay = pto.where(pto.iota((1, VOCAB), 0) < count, weights, 0.0)
        together = pto.rowsum(stay)
        enough = together[0, 0] * settings[0, TOP_P]
        least = settings[0, MIN_P]
        kept, mass, weight = 0, 0.0, stay[0, 0]
        while kept < count and mass < enough and weight >= least:
            mass, kept = mass + weight, kept + 1
            weight = stay[0, min(kept, VOCAB - 1)]
        drawn = mass * settings[0, DRAW]
        place, passed = 0, stay[0, 0]
        while passed <= drawn and place + 1 < kept:
            place = place + 1
            passed = passed + stay[0, place]
        pto.store(token, indices[0, place])

    return exclude, choose, sample
