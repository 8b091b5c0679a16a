"""Whole decoders of small sizes: what they compute, and that a request's bits are its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples.llm.checkpoint import pack
from examples.llm.config import Config, Rope, UnknownModel
from examples.llm.kernels import PAGE
from examples.llm.model import Chunk, Model
from pto_wsp import bf16, f32, i8
from pto_wsp.types import DType
from tests.python.examples.llm.models import SMALL, random_checkpoint, scores
from tests.slow import mostly_slow

FORMS = {
    "llama": SMALL,
    "mistral": replace(SMALL, window=70, kv_heads=1),
    "experts": replace(SMALL, experts=6, chosen=2, has_unit_gates=False, shared=32),
    "qwen2": replace(SMALL, has_bias=True, rope=Rope(1e6)),
    "qwen3": replace(SMALL, has_head_norms=True, dim=32),
    "mixtral": replace(SMALL, experts=4, chosen=2),
    "llama3": replace(SMALL, kv_heads=4, rope=Rope(5e5, "llama3", 8.0, original=64)),
}
LENGTH = 150


def tokens_of(config: Config, count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(config.vocab, size=count).tolist()


def answer(model: Model, ids: list[int], cuts: list[int], pages: list[int]) -> np.ndarray:
    """Return the scores of all tokens, whose chunks end at `cuts`."""
    found = []
    for start, end in zip([0, *cuts[:-1]], cuts, strict=True):
        found.append(model.run([Chunk(ids[start:end], start, pages, end - start)])[0].copy())
    return np.concatenate(found)


@pytest.mark.parametrize("form", mostly_slow(FORMS, 3))
def test_scores_of_every_form(form: str) -> None:
    checkpoint = random_checkpoint(FORMS[form])
    model, ids = Model(pack(checkpoint), pages=8), tokens_of(SMALL, LENGTH)
    found = answer(model, ids, [100, LENGTH - 1, LENGTH], [5, 0, 3])
    assert np.abs(found - scores(checkpoint, ids)).max() < 1e-4


def test_positions_can_be_scaled_for_longer_contexts() -> None:
    yarn = SMALL.with_rope("yarn", 4)
    assert yarn.rope == Rope(SMALL.rope.theta, "yarn", 4, 1.0, 32.0, original=512) and yarn.context == 2048
    assert SMALL.with_rope("llama3", 2).rope == Rope(SMALL.rope.theta, "llama3", 2, 1.0, 4.0, 512)
    for kind, factor in (("plain", 2), ("dynamic", 2), ("linear", 0.5)):
        with pytest.raises(UnknownModel, match=f"linear, llama3, yarn with a factor .* found '{kind}'"):
            SMALL.with_rope(kind, factor)
    with pytest.raises(UnknownModel, match="expected plain ones to scale, found yarn"):
        yarn.with_rope("linear", 2)


@pytest.mark.parametrize("dtype", mostly_slow([bf16, f32]))
def test_scores_of_tied_embeddings(dtype: DType) -> None:
    checkpoint = random_checkpoint(SMALL, dtype=dtype, is_tied=True)
    ids = tokens_of(SMALL, 20)
    found = answer(Model(pack(checkpoint)), ids, [20], [0])
    assert np.abs(found - scores(checkpoint, ids)).max() < 1e-4


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(pack(random_checkpoint(FORMS["mistral"])), pages=32)


@pytest.mark.parametrize(
    "cuts", [[1, 2, LENGTH], [63, 64, 65, LENGTH], [*range(1, LENGTH + 1)], [PAGE, 2 * PAGE, LENGTH]]
)
def test_bits_do_not_depend_on_chunks(model: Model, cuts: list[int]) -> None:
    ids = tokens_of(SMALL, LENGTH)
    whole = answer(model, ids, [LENGTH], [0, 1, 2])
    assert np.array_equal(answer(model, ids, cuts, [7, 4, 9]), whole)


def test_bits_do_not_depend_on_the_batch(model: Model) -> None:
    ids = tokens_of(SMALL, LENGTH)
    whole = answer(model, ids, [LENGTH], [0, 1, 2])
    others = [tokens_of(SMALL, n, n) for n in (1, 5, 90)]
    for past, end in ((0, 77), (77, 78), (78, LENGTH)):
        chunks = [Chunk(other, 0, [10 + 2 * i, 11 + 2 * i]) for i, other in enumerate(others)]
        chunks.insert(past % 4, Chunk(ids[past:end], past, [3, 8, 5], end - past))
        found, _ = model.run(chunks)
        assert np.array_equal(found[past % 4 : past % 4 + end - past], whole[past:end])


def test_the_chosen_token_is_the_lowest_of_equal_ones(model: Model) -> None:
    found, token = model.run([Chunk([3], 0, [0]), Chunk([4, 5], 0, [1])])
    assert token.tolist() == found.argmax(axis=1).tolist()


def test_activations_of_i8_need_quantised_matrices() -> None:
    with pytest.raises(UnknownModel, match="need quantised matrices, found f32"):
        Model(pack(random_checkpoint(SMALL)), i8)


def test_activations_of_bf16_need_matrices_of_bf16() -> None:
    with pytest.raises(UnknownModel, match="need matrices of bf16, found f32"):
        Model(pack(random_checkpoint(SMALL)), bf16)


@pytest.mark.parametrize("form", mostly_slow(FORMS, 2))
def test_activations_of_bf16(form: str) -> None:
    """Scores are those of f32 within the rounding of rows, and equal for any cut of the prompt."""
    checkpoint, ids = random_checkpoint(FORMS[form], dtype=bf16), tokens_of(SMALL, LENGTH)
    model = Model(pack(checkpoint), bf16, pages=12)
    whole = answer(model, ids, [LENGTH], [5, 0, 3])
    assert np.abs(whole - scores(checkpoint, ids)).max() < 0.2
    for cuts in ([1, 37, LENGTH], [64, 128, LENGTH - 1, LENGTH]):
        assert np.array_equal(answer(model, ids, cuts, [7, 8, 9]), whole), cuts
