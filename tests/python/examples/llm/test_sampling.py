"""Drawn tokens: the order of the steps, ties, and random numbers that depend on seed and position alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from examples.llm.config import UnknownModel
from examples.llm.sampling import Sampling, choosing_kernels, draw
from pto_wsp import P, Tensor, f32, i32, workload
from pto_wsp.runtime.program import Program
from tests.python.examples.llm.models import SMALL

VOCAB = SMALL.vocab


@pytest.fixture(scope="module")
def program() -> Program:
    _, _, sample = choosing_kernels(SMALL)

    @workload
    def drawn(
        Scores: Tensor[f32, "batch", VOCAB], How: Tensor[f32, "batch", 5], Token: Tensor[i32, "batch", 1]
    ):
        for i in P("batch"):
            sample[i](scores=Scores[i : i + 1], how=How[i : i + 1], token=Token[i : i + 1])

    return drawn.compile()


def draw_all(program: Program, scores: np.ndarray, settings: list[Sampling]) -> list[int]:
    token = np.full((len(scores), 1), -1, np.int32)
    how = [s.row(i, VOCAB) for i, s in enumerate(settings)]
    program(Scores=scores, How=np.array(how, np.float32), Token=token)
    return token[:, 0].tolist()


def kept(scores: np.ndarray, s: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that may be drawn, and their shares of the number that is drawn."""
    order = np.argsort(-scores, kind="stable")[: s.top_k or VOCAB]
    e = np.exp((scores[order].astype(np.float64) - scores.max()) / s.temperature)
    is_kept = (np.cumsum(e) - e < s.top_p * e.sum()) & (e >= s.min_p)
    return order[is_kept], np.cumsum(e[is_kept]) / e[is_kept].sum()


SETTINGS: list[dict[str, Any]] = [
    {}, {"top_k": 7}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 20, "top_p": 0.8, "min_p": 0.05},
    {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0},
]  # fmt: skip


def test_drawn_tokens_follow_the_shares(program: Program) -> None:
    rng = np.random.default_rng(0)
    settings = [Sampling(t, seed=seed, **s) for t in (0.3, 1.0, 5.0) for seed in range(9) for s in SETTINGS]
    scores = np.round(2 * rng.standard_normal((len(settings), VOCAB), np.float32), 1)  # with ties
    found = draw_all(program, scores, settings)
    for i, (token, row, setting) in enumerate(zip(found, scores, settings, strict=True)):
        order, shares = kept(row, setting)
        number = draw(setting.seed, i)
        assert np.abs(shares[:-1] - number).min(initial=1) > 1e-6, "take another seed"
        assert token == order[np.searchsorted(shares, number, side="right")]


def test_equal_scores_are_taken_in_order(program: Program) -> None:
    settings = [Sampling(1.0, top_k=4, seed=seed) for seed in range(200)]
    found = draw_all(program, np.zeros((200, VOCAB), np.float32), settings)
    assert set(found) == {0, 1, 2, 3}


def test_numbers_depend_on_seed_and_position() -> None:
    numbers = np.array([[draw(seed, position) for position in range(200)] for seed in range(20)])
    assert len(np.unique(numbers)) > 3990 and 0 <= numbers.min() and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.02 and abs(np.corrcoef(numbers[0], numbers[1])[0, 1]) < 0.2
    assert draw(3, 5) == draw(3, 5)


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_k": -1}, {"top_p": 0}, {"min_p": 1.5}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnknownModel, match="expected"):
        Sampling(**wrong)
