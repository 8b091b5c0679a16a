"""Whole models on the target `cuda`, emulated: the results of the cpu."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples.llm.checkpoint import pack
from examples.llm.config import UnknownModel
from examples.llm.engine import Engine
from examples.llm.model import Chunk, Model, load
from pto_wsp import bf16
from tests.cuda.lent import LentByDlpack
from tests.python.examples.llm.models import SMALL, random_checkpoint
from tests.python.examples.test_minilm import FOLDER, needs_model

pytestmark = [pytest.mark.usefixtures("gpu"), pytest.mark.slow]

FORMS = {
    "llama": SMALL,
    "mixtral": replace(SMALL, experts=4, chosen=2),
    "qwen3": replace(SMALL, has_head_norms=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_decoder(form: str) -> None:
    """A prompt and a decode step in one run, from tokens to scores."""
    packed = pack(random_checkpoint(FORMS[form]))
    ids = np.random.default_rng(0).integers(SMALL.vocab, size=70).tolist()
    found, wanted = (Model(packed, pages=8, target=target, workers=2) for target in ("cuda", "cpu"))
    for chunks in ([Chunk(ids[:67], 0, [3, 5])], [Chunk(ids[67:68], 67, [3, 5]), Chunk(ids[:9], 0, [1])]):
        (a, a_tokens), (b, b_tokens) = (model.run(chunks) for model in (found, wanted))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        assert a_tokens.tolist() == b_tokens.tolist()


def test_decoder_of_bf16() -> None:
    """Products use tensor cores."""
    packed = pack(random_checkpoint(SMALL, dtype=bf16))
    ids = np.random.default_rng(1).integers(SMALL.vocab, size=20).tolist()
    found, wanted = (Model(packed, bf16, pages=8, target=target, workers=2) for target in ("cuda", "cpu"))
    a, b = (model.run([Chunk(ids, 0, [3], len(ids))])[0] for model in (found, wanted))
    np.testing.assert_allclose(a, b, rtol=0.02, atol=0.05)


def test_tokens_of_a_batch() -> None:
    """Requests that join and leave a batch get the tokens of the cpu; weights and cache stay on the GPU."""
    packed = pack(random_checkpoint(SMALL))
    answers = []
    for target, place in (("cuda", LentByDlpack), ("cpu", np.asarray)):
        engine = Engine(Model(packed, pages=6, target=target, workers=2, place=place))
        requests = [engine.add(list(range(1, n)), 4) for n in (6, 3, 40)]
        while not engine.is_idle:
            engine.step()
        answers.append([request.new for request in requests])
    assert answers[0] == answers[1]


def test_smollm2() -> None:
    """A token through the model with its real weights, quantised to 4 bits."""
    try:
        packed, _ = load("smollm2")
    except UnknownModel as error:
        pytest.skip(str(error))
    chunk = Chunk([5], 0, [0])
    a, b = (Model(packed, pages=4, target=target).run([chunk])[0].copy() for target in ("cuda", "cpu"))
    np.testing.assert_allclose(a, b, atol=1e-3)


@needs_model
def test_minilm() -> None:
    """Tiles of 64 x 384 f32 do not fit shared memory together: some lie in global memory."""
    from examples.minilm import model
    from examples.minilm.encoder import Encoder

    assert FOLDER is not None
    weights = model.load_weights(FOLDER)
    sentence = [np.array([101, 7592, 2088, 102], np.int32)]
    found = Encoder(weights, "cuda")
    embeddings = found.run(sentence, workers=2)
    assert found.program.stats.counters["tile_bytes"] > 0
    np.testing.assert_allclose(embeddings, Encoder(weights)(sentence), atol=1e-5)
