"""A random program that fails is made smaller."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.kernels import random_kernel
from tests.generators.source import kernels as source

GENERATORS: dict[str, tuple[Callable[[Draw], str], str]] = {
    "kernels": (lambda draw: "\n".join(map(str, random_kernel(draw, "k", has_all=True).body or ())), "If("),
    "source": (lambda draw: source.random_kernel(draw, "k").text, "while"),
}
"""What writes a program, and what the program of each must not have for its test to pass."""


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_what_fails_is_made_smaller(name: str) -> None:
    write, unwanted = GENERATORS[name]
    failed: list[int] = []

    @settings(tries(1500), database=None, derandomize=True)
    @given(DRAWS)
    def check(draw: Draw) -> None:
        text = write(draw)
        if unwanted in text:
            failed.append(len(text))
            raise AssertionError

    with pytest.raises(AssertionError):
        check()
    assert failed[-1] < 0.7 * max(failed) and failed[-1] <= failed[0]
