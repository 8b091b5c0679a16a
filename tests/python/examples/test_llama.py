"""The example `llama`, at sizes that numpy computes at once: the code is that of LLaMA-7B."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from examples.llama.__main__ import main
from examples.llama.kernels import QUERIES, ROWS, Shape, Types
from examples.llama.model import Cache, Chunk, Layer, Plain, pack, random_weights, reference
from pto_wsp import bf16, f32
from pto_wsp.types import DType
from tests.python.examples.delays import run_delayed
from tests.slow import mostly_slow

SHAPE = Shape(heads=2, dim=16, inner=80)
LONGEST = 400
RTOL = 1e-4


@pytest.fixture(scope="module")
def plain() -> Plain:
    return random_weights(np.random.default_rng(1), SHAPE)


@pytest.fixture(scope="module")
def layer(plain: Plain) -> Layer:
    return Layer(SHAPE, pack(plain, SHAPE))


def random_hidden(seed: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokens, SHAPE.hidden), np.float32)


def exact(plain: Plain, hidden: np.ndarray) -> np.ndarray:
    return reference(plain, SHAPE, hidden.astype(np.float64))


def close(found: np.ndarray, expected: np.ndarray, rtol: float = RTOL) -> bool:
    return bool((np.abs(found - expected) <= rtol * np.abs(expected).max()).all())


def run(layer: Layer, hidden: np.ndarray, chunks: list[Chunk], cache: Cache, **options: Any) -> np.ndarray:
    found = hidden.copy()
    layer(found, chunks, cache, **options)
    return found


@pytest.mark.parametrize("tokens", [1, 2, 8, 9, 63, ROWS, QUERIES + 1, 300])
def test_prefill(layer: Layer, plain: Plain, tokens: int) -> None:
    hidden, cache = random_hidden(tokens, tokens), Cache.of(SHAPE, 2, LONGEST)
    found = run(layer, hidden, [Chunk(1, 0, tokens)], cache)
    assert close(found, exact(plain, hidden))
    assert np.isnan(cache.K[0]).all() and np.isnan(cache.V[1, :, tokens:]).all()


def test_four_decode_steps_equal_one_longer_prefill(layer: Layer, plain: Plain) -> None:
    hidden, cache = random_hidden(0, 204), Cache.of(SHAPE, 1, LONGEST)
    expected = exact(plain, hidden)
    assert close(run(layer, hidden[:200], [Chunk(0, 0, 200)], cache), expected[:200])
    for i in range(200, 204):
        assert close(run(layer, hidden[i : i + 1], [Chunk(0, i, 1)], cache), expected[i : i + 1])


def test_batches_that_mix_chunks_and_steps(layer: Layer, plain: Plain) -> None:
    """Requests come in random pieces; what comes out is what each request gives alone."""
    rng = np.random.default_rng(3)
    requests = [random_hidden(10 + i, int(rng.integers(1, LONGEST))) for i in range(5)]
    expected = [exact(plain, hidden) for hidden in requests]
    cache, past = Cache.of(SHAPE, len(requests), LONGEST), [0] * len(requests)
    compiled = 0
    while left := [b for b, hidden in enumerate(requests) if past[b] < len(hidden)]:
        chunks = []
        for b in rng.permutation(left)[: rng.integers(1, len(left) + 1)]:
            most = len(requests[b]) - past[b]
            chunks.append(Chunk(b, past[b], min(most, int(rng.choice([1, 1, 7, 150, 200])))))
        pieces = [slice(past, past + count) for _, past, count in chunks]
        batch = np.concatenate([requests[c.slot][piece] for c, piece in zip(chunks, pieces, strict=True)])
        found = run(layer, batch, chunks, cache)
        wanted = np.concatenate([expected[c.slot][piece] for c, piece in zip(chunks, pieces, strict=True)])
        assert close(found, wanted)
        assert layer.program.stats is not None
        compiled += layer.program.stats.compiles
        for chunk in chunks:
            past[chunk.slot] += chunk.tokens
    assert compiled == 0


def test_several_chunks_of_one_request_and_empty_ones_in_one_batch(layer: Layer, plain: Plain) -> None:
    hidden, cache = random_hidden(4, 220), Cache.of(SHAPE, 3, LONGEST)
    chunks = [(1, 0, 0), (0, 0, 20), (0, 20, 1), (2, 0, 0), (0, 21, 199)]
    found = run(layer, hidden, [Chunk(*chunk) for chunk in chunks], cache)
    assert close(found, exact(plain, hidden))


@pytest.mark.parametrize(
    "shape", mostly_slow([Shape(3, 36, 90), Shape(1, 4, 6), Shape(5, 16, 8), Shape(1, 256, 256)]), ids=str
)
def test_layers_of_other_sizes(shape: Shape) -> None:
    plain = random_weights(np.random.default_rng(8), shape)
    layer, cache = Layer(shape, pack(plain, shape)), Cache.of(shape, 1, 140)
    hidden = np.random.default_rng(9).standard_normal((140, shape.hidden), np.float32)
    found = hidden.copy()
    for start, end in ((0, 7), (7, 137), (137, 138), (138, 140)):
        layer(found[start:end], [Chunk(0, start, end - start)], cache)
    assert close(found, reference(plain, shape, hidden.astype(np.float64)))


@pytest.mark.parametrize("shape", [Shape(2, 33, 99), Shape(2, 34, 85), Shape(2, 32, 100)])
def test_sizes_that_are_not_in_whole_panels_are_refused(shape: Shape) -> None:
    with pytest.raises(ValueError, match="found Shape"):
        Layer(shape, {})


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "activations"), [("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16")])
def test_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], weights: str, activations: str
) -> None:
    options = ["--heads", "2", "--dim", "16", "--inner", "40", "--requests", "3", "--longest", "20"]
    options += ["--chunk", "7", "--weights", weights, "--activations", activations]
    monkeypatch.setattr(sys, "argv", ["llama", *options])
    main()
    first, *batches = capsys.readouterr().out.splitlines()
    assert f"{weights} weights, {activations} activations" in first and len(batches) > 5


def test_an_empty_batch(layer: Layer) -> None:
    layer = Layer(SHAPE, layer.weights)
    run(layer, random_hidden(0, 0), [], Cache.of(SHAPE, 1, 1))
    assert layer.program.stats is not None and layer.program.stats.tasks == 0


@pytest.mark.parametrize("types", mostly_slow([Types(bf16, bf16), Types()]), ids=str)
def test_the_same_bits_for_any_number_of_workers(plain: Plain, types: Types) -> None:
    layer = Layer(SHAPE, pack(plain, SHAPE, types.weights), types)
    chunks = [Chunk(0, 0, 150), Chunk(2, 0, 1), Chunk(1, 0, 40)]
    results = set()
    for workers in (1, 2, 3, 5):
        hidden, cache = random_hidden(5, 191), Cache.of(SHAPE, 3, LONGEST)
        run_delayed(layer.program, layer.arguments(hidden, chunks, cache), workers, seed=workers)
        results.add(tuple(array.tobytes() for array in (hidden, *cache)))
    assert len(results) == 1


def test_the_interpreter_agrees(plain: Plain) -> None:
    hidden, cache = random_hidden(0, 140), Cache.of(SHAPE, 1, LONGEST)
    layer = Layer(SHAPE, pack(plain, SHAPE), target="interp")
    assert close(run(layer, hidden, [Chunk(0, 0, 140)], cache), exact(plain, hidden))


@pytest.mark.parametrize(("activations", "rtol"), mostly_slow([(bf16, 4e-3), (f32, RTOL)]), ids=str)
def test_bf16_weights(plain: Plain, activations: DType, rtol: float) -> None:
    hidden, cache = random_hidden(0, 160), Cache.of(SHAPE, 2, LONGEST)
    ones = plain._replace(FirstGain=np.ones(SHAPE.hidden), SecondGain=np.ones(SHAPE.hidden))
    rounded = Plain(*(a.astype(bf16.to_numpy()).astype(np.float32) for a in ones))
    layer = Layer(SHAPE, pack(ones, SHAPE, bf16), Types(bf16, activations))

    def expected_of(hidden: np.ndarray) -> np.ndarray:
        return reference(rounded, SHAPE, hidden.astype(np.float64), activations)

    expected = expected_of(hidden)
    other, whole = hidden[:30], expected_of(hidden[:30])
    assert close(run(layer, hidden[:150], [Chunk(0, 0, 150)], cache), expected[:150], rtol)
    mixed = np.concatenate([hidden[150:151], other[:29], hidden[151:159]])
    found = run(layer, mixed, [Chunk(0, 150, 1), Chunk(1, 0, 29), Chunk(0, 151, 8)], cache)
    assert close(found, np.concatenate([expected[150:151], whole[:29], expected[151:159]]), rtol)
    found = run(layer, np.stack([other[29], hidden[159]]), [Chunk(1, 29, 1), Chunk(0, 159, 1)], cache)
    assert close(found, np.stack([whole[29], expected[159]]), rtol)
