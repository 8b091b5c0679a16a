"""Requests that share a model: admission, preemption, shared prefixes, and the same tokens in every case."""

from __future__ import annotations

import numpy as np
import pytest

from examples.llm.checkpoint import pack
from examples.llm.config import UnknownModel
from examples.llm.engine import Engine, Request, TooLong
from examples.llm.kernels import PAGE
from examples.llm.model import Chunk, Model
from examples.llm.pages import Pages
from examples.llm.sampling import GREEDY, Sampling
from pto_wsp import bf16, i8
from pto_wsp.types import DType
from tests.python.examples.llm.models import SMALL, random_checkpoint, scores
from tests.slow import mostly_slow

NEW = 40


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(pack(random_checkpoint(SMALL)), pages=8)


def prompt(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(SMALL.vocab, size=count).tolist()


def finish(engine: Engine) -> None:
    while not engine.is_idle:
        engine.step()


def alone(model: Model, ids: list[int], most: int = NEW) -> list[int]:
    return list(Engine(model).generate(ids, most))


def test_tokens_are_the_same_alone_and_in_a_batch(model: Model) -> None:
    prompts = [prompt(n, n) for n in (1, 30, 64, 65, 100)]
    engine = Engine(model)
    requests = [engine.add(ids, NEW) for ids in prompts]
    finish(engine)
    assert [r.new for r in requests] == [alone(model, ids) for ids in prompts]
    assert all(len(r.new) == NEW for r in requests)


@pytest.mark.parametrize("most_tokens", [1, 7, 64, 100])
def test_tokens_do_not_depend_on_chunks(model: Model, most_tokens: int) -> None:
    ids = prompt(150)
    assert list(Engine(model, most_tokens).generate(ids, 5)) == alone(model, ids, 5)


def test_preempted_requests_go_on_with_the_same_tokens(model: Model) -> None:
    prompts = [prompt(50, seed) for seed in range(6)]
    engine = Engine(model)
    requests = [engine.add(ids, 130) for ids in prompts]
    finish(engine)
    assert sum(r.preemptions for r in requests) > 0
    assert [r.new for r in requests] == [alone(model, ids, 130) for ids in prompts]
    assert engine.figures() == {"waiting": 0, "running": 0, "free_pages": 8}


def test_full_pages_of_a_prefix_are_shared(model: Model) -> None:
    common = prompt(2 * PAGE)
    expected = [alone(model, [*common, *prompt(9, seed)]) for seed in (1, 2)]
    engine = Engine(model)
    first = engine.add([*common, *prompt(9, 1)], NEW)
    engine.step()
    second = engine.add([*common, *prompt(9, 2)], NEW)
    engine.step()
    assert second.reused == 2 * PAGE and second.pages[:2] == first.pages[:2]
    finish(engine)
    assert [first.new, second.new] == expected
    third = engine.add(first.ids, 1)
    finish(engine)
    assert third.reused == len(first.ids) // PAGE * PAGE


def test_the_last_token_is_always_computed(model: Model) -> None:
    engine, ids = Engine(model), prompt(PAGE)
    found = [list(engine.generate(ids, 3)) for _ in range(2)]
    assert found[0] == found[1] == alone(model, ids, 3)


def test_an_end_token_ends_a_request_unless_it_is_ignored(model: Model) -> None:
    ids = prompt(20)
    expected = alone(model, ids)
    place = next(i for i in range(5, NEW) if expected[i] not in expected[:i])
    engine = Engine(model)
    engine._end = frozenset({expected[place]})
    assert list(engine.generate(ids, NEW)) == expected[:place]
    assert list(engine.generate(ids, NEW, ignores_end=True)) == expected


def test_a_cancelled_request_frees_its_pages(model: Model) -> None:
    engine = Engine(model)
    tokens = engine.generate(prompt(70), NEW)
    next(tokens)
    assert engine.figures()["free_pages"] == 6
    tokens.close()
    waiting = engine.add(prompt(3), NEW)
    engine.cancel(waiting)
    assert waiting.is_done and engine.is_idle and engine.figures()["free_pages"] == 8


@pytest.mark.parametrize(
    ("ids", "most", "error", "says"),
    [
        (prompt(500), 14, TooLong, "at most 512 positions, found a prompt of 500 tokens and 14 new ones"),
        ([], 1, UnknownModel, "one or more tokens below 99"),
        ([99], 1, UnknownModel, "one or more tokens below 99"),
    ],
)
def test_refused_requests(model: Model, ids: list[int], most: int, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Engine(model).add(ids, most)


@pytest.mark.parametrize("most", [1, 13])
def test_a_request_that_fills_the_cache(model: Model, most: int) -> None:
    engine = Engine(model)
    request: Request = engine.add(prompt(513 - most), most)
    for _ in range(most + 1):
        engine.step()
    assert engine.is_idle and len(request.new) == most


def test_a_reused_page_is_no_longer_found() -> None:
    pages = Pages(2)
    first = pages.take()
    prefix = pages.fill(first, 0, range(PAGE))
    assert pages.share([*range(PAGE), 0]) == ([first], prefix)
    pages.release([first, first])
    pages.take()
    assert pages.take() == first
    assert pages.share([*range(PAGE), 0]) == ([], 0)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.1, seed=3)])
def test_drafts_change_no_token(model: Model, sampling: Sampling) -> None:
    """The prompt is what the model made before, so that most guesses are right."""
    first = prompt(10)
    expected = list(Engine(model).generate(first, 200, sampling=sampling))
    engine = Engine(model, drafts=6)
    requests = [engine.add(first, 200, sampling=sampling), engine.add(prompt(30, 5), 30)]
    finish(engine)
    assert [r.new for r in requests] == [expected, alone(model, prompt(30, 5), 30)]
    again = Engine(model, drafts=6)
    repeated = [*first, *expected[:100], *first]
    found = list(again.generate(repeated, 60))
    assert found == alone(model, repeated, 60) and again.steps <= 61
    assert engine.figures()["free_pages"] == 8


def test_right_drafts_save_steps(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = prompt(10)
    expected = alone(model, ids)
    engine = Engine(model, drafts=5)
    monkeypatch.setattr(
        engine, "_draft", lambda r: expected[len(r.new) : len(r.new) + min(5, NEW - len(r.new) - 1)]
    )
    assert list(engine.generate(ids, NEW)) == expected
    assert engine.steps == 1 + -(-(NEW - 1) // 6)


def test_drawn_tokens_do_not_depend_on_the_batch(model: Model) -> None:
    ways = [Sampling(1.5, seed=seed) for seed in (1, 2)]
    expected = [list(Engine(model).generate(prompt(10), NEW, sampling=way)) for way in ways]
    assert expected[0] != expected[1]
    engine = Engine(model, 16)
    requests = [engine.add(prompt(10), NEW, sampling=way) for way in (GREEDY, *reversed(ways))]
    finish(engine)
    assert [r.new for r in reversed(requests)] == [*expected, alone(model, prompt(10))]


@pytest.mark.parametrize("cache", mostly_slow([i8, bf16]))
def test_tokens_with_smaller_caches(cache: DType) -> None:
    """They are the same alone, in chunks, with preemption, with shared prefixes and with drafts."""
    checkpoint = random_checkpoint(SMALL)
    model = Model(pack(checkpoint), pages=8, cache=cache)
    assert model.run([Chunk(prompt(5), 0, [0])])[0].dtype == np.float32
    common = prompt(PAGE + 3)
    prompts = [[*common, *prompt(9, 1)], [*common, *prompt(9, 2)], prompt(70), prompt(1)]
    expected = [alone(model, ids, 130) for ids in prompts]
    for options in ({"most_tokens": 7}, {"drafts": 3}, {}):
        engine = Engine(model, **options)
        requests = [engine.add(prompts[0], 130)]
        while not requests[0].new:
            engine.step()
        requests += [engine.add(ids, 130) for ids in prompts[1:]]
        finish(engine)
        assert [r.new for r in requests] == expected
        assert requests[1].reused >= PAGE and sum(r.preemptions for r in requests) > 0
    ids = prompt(150)
    found = model.run([Chunk(ids, 0, [2, 0, 1], 150)])[0]
    limit = 0.02 if cache is bf16 else 0.1
    assert 1e-5 < np.abs(found - scores(checkpoint, ids)).max() < limit
