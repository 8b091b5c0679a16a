"""How tests draw random programs, and make a program that fails smaller.

A generator takes a `random.Random`. `DRAWS` gives it one whose choices hypothesis records: when a test fails,
hypothesis repeats it with fewer and smaller choices, and prints the smallest program that still fails. Where
an example costs seconds, because a compiler runs, that happens with `SHRINK=1` in the environment only.
"""

from __future__ import annotations

import os
import random
from functools import cache

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.slow import examples

Draw = random.Random
"""What generators draw from."""


class _Recorded(random.Random):
    """Draws each choice from hypothesis, as one small whole number."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__()
        self._draw = draw

    def __repr__(self) -> str:
        return "<the choices of the program above>"

    def random(self) -> float:
        return self._randbelow(100) / 100

    def _randbelow(self, n: int) -> int:
        return self._draw(_below(n))


@cache
def _below(n: int) -> st.SearchStrategy[int]:
    return st.integers(0, n - 1)


@st.composite
def _draws(draw: st.DrawFn) -> Draw:
    return _Recorded(draw)


DRAWS: st.SearchStrategy[Draw] = _draws()
"""Random generators whose choices can be made smaller."""

SHRINKS = bool(os.environ.get("SHRINK"))


def tries(count: int, *, compiles: bool = False) -> settings:
    """Return settings for `count` examples, fewer where slow tests are left out.

    Args:
        count: examples in the slow tier.
        compiles: whether every example starts a compiler.
    """
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    shrinks = SHRINKS or not compiles
    return settings(
        max_examples=examples(count),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[*phases, Phase.shrink] if shrinks else phases,
    )
