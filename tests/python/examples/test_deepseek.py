"""The example `deepseek_v32`, stage by stage: each is given what our stage before it made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from examples.deepseek_v32 import timeline
from examples.deepseek_v32.__main__ import main
from examples.deepseek_v32.config import SMALL, Config, frequencies, hadamard
from examples.deepseek_v32.kernels import rounded
from examples.deepseek_v32.model import Cache, Chunk, Graphs, Layer, Pairs, pack
from examples.deepseek_v32.reference import (
    Rope,
    Weights,
    attend,
    dense_layer,
    index_prolog,
    index_scores,
    mla_prolog,
    quantise,
    random_weights,
    rope_halves,
    rope_interleaved,
)
from examples.deepseek_v32.timeline import simulated
from pto_wsp import In, Out, P, Tensor, Tile, bf16, f32, kernel, pto, workload

LONGEST = 300
CLOSE = 1e-5
"""Relative to the largest element: f32 sums of a few hundred terms of order 1."""


@pytest.fixture(scope="module")
def plain() -> Weights:
    return random_weights(np.random.default_rng(1), SMALL)


@pytest.fixture(scope="module")
def exact(plain: Weights) -> Weights:
    return Weights(*(a.astype(np.float64) for a in plain))


@pytest.fixture(scope="module")
def layer(plain: Weights) -> Layer:
    return Layer(SMALL, pack(SMALL, plain))


@pytest.fixture(scope="module")
def unrounded(plain: Weights) -> Layer:
    return Layer(SMALL, pack(SMALL, plain), is_quantised=False)


def tokens_of(seed: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokens, SMALL.hidden), np.float32)


def assert_close(found: np.ndarray, expected: np.ndarray, rtol: float = CLOSE) -> None:
    assert np.abs(found - expected).max() <= rtol * np.abs(expected).max()


def assert_rounded(found: np.ndarray, exact: np.ndarray, relative: float = 1e-5) -> None:
    """Each element has 4 bits, and is as near to the exact one as 8-bit floats with their scale allow."""
    mantissas, _ = np.frexp(found)
    assert (mantissas * 16 == np.round(mantissas * 16)).all()
    amax = np.abs(exact).reshape(*exact.shape[:-1], -1, 128).max(-1).repeat(128, -1).reshape(exact.shape)
    step = np.maximum(np.abs(exact) * 2.0**-4, 2.0 ** np.ceil(np.log2(amax / 448)) * 2.0**-9)
    assert (np.abs(found - exact) <= step * (1 + 1e-6) + relative * amax).all()


# --- facts of the model ---


def test_frequencies_are_those_of_the_model() -> None:
    """Figures that the model's own code gives."""
    found = frequencies(Config())
    assert np.allclose(found[[16, 22, 31]], [0.0055, 1.7783e-4, 3.3338e-6], rtol=1e-4)
    assert np.isclose(Config().softmax_scale, 0.1352338)
    plain = frequencies(Config(is_extended=False))
    assert plain[0] == 1 and np.isclose(plain[16], 0.01)


def test_the_transform_is_orthogonal_in_sylvesters_order() -> None:
    matrix = hadamard(128)
    assert np.allclose(matrix @ matrix, np.eye(128))
    assert (np.sign(matrix[1, :4]) == [1, -1, 1, -1]).all() and (
        np.sign(matrix[2, :4]) == [1, 1, -1, -1]
    ).all()


@kernel
def round_blocks(x: In[Tile[8, 128, f32]], y: Out[Tile[8, 128, f32]]):
    pto.store(y, rounded(x))


@workload
def round_all(X: Tensor[f32, "n", 128], Y: Tensor[f32, "n", 128]):
    for r in P.tiles("n", 8):
        round_blocks[r](x=X[r], y=Y[r])


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_the_quantiser_is_exact(target: str) -> None:
    """Every 8-bit float, everything half-way between two, their neighbours, and blocks of any size."""
    floats = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    floats = np.unique(floats[np.isfinite(floats)])
    middles = (floats[1:] + floats[:-1]) / 2
    points = np.concatenate(
        [floats, middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, 1e9)]
    )
    blocks = np.zeros((-(-len(points) // 127), 128), np.float32)
    blocks[:, :127].reshape(-1)[: len(points)] = points[: blocks[:, :127].size]
    for row, start in enumerate(range(0, len(points), 127)):
        blocks[row, : len(points[start : start + 127])] = points[start : start + 127]
    blocks[:, 127] = 448
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-12, 12, (100, 1)))
    x = np.concatenate([blocks, rng.standard_normal((100, 128)) * sizes, np.zeros((1, 128))]).astype(
        np.float32
    )
    y = np.empty_like(x)
    round_all.compile(target)(X=x, Y=y)
    assert np.array_equal(y, quantise(x).astype(np.float32))


# --- stages ---


@pytest.fixture(scope="module")
def made(layer: Layer) -> dict[str, Any]:
    """The arrays of a batch of three chunks, one of which follows tokens that are in the cache."""
    cache = Cache.of(SMALL, 4, LONGEST)
    layer(tokens_of(0, 130), [Chunk(2, 0, 130)], cache)
    x = tokens_of(1, 76)
    return layer(x, [Chunk(0, 0, 5), Chunk(2, 130, 70), Chunk(1, 0, 1)], cache)


POSITIONS = np.concatenate([np.arange(5), 130 + np.arange(70), [0]])
SLOTS = np.repeat([0, 2, 1], [5, 70, 1])


def test_mla_prolog(made: dict[str, Any], exact: Weights) -> None:
    expected = mla_prolog(SMALL, exact, made["X"].astype(float), POSITIONS)
    assert_close(made["Qr"], expected.qr)
    to_latent = exact.wkv_b.reshape(SMALL.heads, -1, SMALL.kv_rank)[:, : SMALL.nope]
    q = np.einsum("thd,hdc->thc", expected.q[..., : SMALL.nope], to_latent)
    assert_close(made["Q"][..., : SMALL.kv_rank], q * SMALL.softmax_scale)
    rows = made["Latent"][SLOTS, POSITIONS]
    assert_rounded(rows[:, : SMALL.kv_rank], expected.c)
    for found, wanted in ((made["Q"], expected.q * SMALL.softmax_scale), (rows, expected.k_pe)):
        wanted = wanted[..., -SMALL.rope :]
        assert_close(found[..., SMALL.kv_rank :], np.concatenate([wanted[..., 0::2], wanted[..., 1::2]], -1))


def test_index_prolog(made: dict[str, Any], exact: Weights) -> None:
    x, qr = made["X"].astype(float), made["Qr"].astype(float)
    expected = index_prolog(SMALL, exact, x, qr, POSITIONS)
    assert_rounded(made["IndexQ"], expected.q, relative=2.0**-8)
    assert_rounded(made["IndexK"][SLOTS, POSITIONS], expected.k, relative=2.0**-8)
    assert_close(made["Indexed"][:, SMALL.index_dim :], expected.weights)


def assert_chosen(made: dict[str, Any], token: int) -> np.ndarray:
    """Each chosen key is as good as the last of the best, within the error of a score; return them."""
    keys, slot = int(made["Keys"][token]), int(made["Owner"][token])
    count = min(keys, SMALL.top_k)
    picks = made["TopK"][token, 0, :count]
    assert len(set(picks)) == count and 0 <= picks.min() and picks.max() < keys
    weights = made["Indexed"][token, SMALL.index_dim :].astype(float)
    scores = index_scores(
        made["IndexQ"][token].astype(float), weights, made["IndexK"][slot, :keys].astype(float)
    )
    assert (scores[picks] >= np.sort(scores)[-count] - CLOSE * np.abs(scores).max()).all()
    return picks


def test_lightning_indexer(made: dict[str, Any]) -> None:
    for token in range(len(POSITIONS)):
        assert_chosen(made, token)


def test_sparse_attention(made: dict[str, Any], exact: Weights) -> None:
    """Queries are taken back from the latent space, so that the form of prefill checks that of decode."""
    prolog = mla_prolog(SMALL, exact, made["X"].astype(float), POSITIONS)
    for token in range(len(POSITIONS)):
        picks = assert_chosen(made, token)
        rows = made["Latent"][SLOTS[token], picks].astype(float)
        pe = rows[:, SMALL.kv_rank :]
        k_pe = np.empty_like(pe)
        k_pe[:, 0::2], k_pe[:, 1::2] = np.split(pe, 2, axis=1)
        heads = attend(SMALL, prolog.q[token], rows[:, : SMALL.kv_rank], k_pe, exact.wkv_b)
        assert_close(made["Heads"][token], heads.ravel())
        assert_close(made["Y"][token], exact.wo @ heads.ravel())


@pytest.mark.parametrize("keys", [2049, 8192, 8193, 20000])
def test_every_tier_chooses_the_best(layer: Layer, keys: int) -> None:
    """Long requests, with a cache that is filled by hand; one token, and a prefill chunk."""
    rng, cache = np.random.default_rng(keys), Cache.of(SMALL, 1, keys + 2)
    for array in cache:
        array[0, : keys - 1] = rng.standard_normal((keys - 1, array.shape[2]))
    made = layer(tokens_of(3, 3), [Chunk(0, keys - 1, 3)], cache)
    for token in range(3):
        assert_chosen(made, token)


# --- the whole ---


def test_few_keys_are_dense_attention(unrounded: Layer, exact: Weights) -> None:
    x = tokens_of(4, SMALL.top_k)
    found = unrounded(x, [Chunk(0, 0, len(x))], Cache.of(SMALL, 1, LONGEST))["Y"]
    assert_close(found, dense_layer(SMALL, exact, x.astype(float)))


def test_decode_equals_prefill(unrounded: Layer) -> None:
    """The same chosen keys but for ties, hence outputs within 1e-4."""
    x, whole, steps = tokens_of(5, 200), Cache.of(SMALL, 1, LONGEST), Cache.of(SMALL, 1, LONGEST)
    expected = unrounded(x, [Chunk(0, 0, 200)], whole)
    unrounded(x[:150], [Chunk(0, 0, 150)], steps)
    for t in range(150, 200):
        found = unrounded(x[t : t + 1], [Chunk(0, t, 1)], steps)
        same = set(found["TopK"][0, 0]) == set(expected["TopK"][t, 0])
        assert same and np.abs(found["Y"][0] - expected["Y"][t]).max() < 1e-4
    for one, other in zip(whole, steps, strict=True):
        assert_close(one[0, :200], other[0, :200])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_do_not_change_bits(layer: Layer, workers: int) -> None:
    x, chunks = tokens_of(6, 90), [Chunk(0, 0, 70), Chunk(1, 0, 20)]
    expected = layer(x, chunks, Cache.of(SMALL, 2, LONGEST), workers=1)["Y"]
    found = layer(x, chunks, Cache.of(SMALL, 2, LONGEST), workers=workers)["Y"]
    assert np.array_equal(found, expected)


def test_four_programs_in_a_session_have_the_same_bits(layer: Layer, plain: Weights) -> None:
    separate = Graphs(SMALL, pack(SMALL, plain))
    for x, chunks in (
        (tokens_of(6, 90), [Chunk(0, 0, 70), Chunk(1, 0, 20)]),
        (tokens_of(9, 3), [Chunk(0, 0, 3)]),
    ):
        caches = Cache.of(SMALL, 2, LONGEST), Cache.of(SMALL, 2, LONGEST)
        expected, found = layer(x, chunks, caches[0])["Y"], separate(x, chunks, caches[1])["Y"]
        assert np.array_equal(found, expected)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*caches, strict=True))


@pytest.mark.parametrize(
    "pairs, rope", [("interleaved", rope_interleaved), ("halves", rope_halves)], ids=["interleaved", "halves"]
)
def test_both_forms_of_pairs(plain: Weights, exact: Weights, pairs: Pairs, rope: Rope) -> None:
    """Models differ in them, for attention and for the indexer, and a wrong form is hard to see."""
    x, cache = tokens_of(7, 40), Cache.of(SMALL, 1, LONGEST)
    made = Layer(SMALL, pack(SMALL, plain, attention_rope=pairs, index_rope=pairs), is_quantised=False)(
        x, [Chunk(0, 0, 40)], cache
    )
    positions, x = np.arange(40), x.astype(float)
    expected = mla_prolog(SMALL, exact, x, positions, rope)
    scores = np.einsum("thd,sd->hts", expected.q[..., SMALL.nope :], expected.k_pe) * SMALL.softmax_scale
    found = np.einsum("thd,sd->hts", made["Q"][..., SMALL.kv_rank :], cache.Latent[0, :40, SMALL.kv_rank :])
    assert_close(found, scores)
    index = index_prolog(SMALL, exact, x, made["Qr"].astype(float), positions, rope)
    found = np.einsum("thd,sd->hts", made["IndexQ"], cache.IndexK[0, :40])
    assert_close(found, np.einsum("thd,sd->hts", index.q, index.k))


def test_bf16_weights(plain: Weights) -> None:
    stored = Weights(*(a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in plain))
    gains = {n: getattr(plain, n) for n in ("q_gain", "kv_gain", "index_gain", "index_bias")}
    stored = stored._replace(**gains)
    x = tokens_of(8, 50)
    found = Layer(SMALL, pack(SMALL, stored, bf16), bf16, is_quantised=False)(
        x, [Chunk(0, 0, 50)], Cache.of(SMALL, 1, LONGEST)
    )
    exact = Weights(*(a.astype(np.float64) for a in stored))
    assert_close(found["Y"], dense_layer(SMALL, exact, x.astype(float)))


def test_graphs_overlap_on_a_simulated_device() -> None:
    """Attention of short requests runs while the indexer works on long ones, and the picture shows it."""
    trace = simulated()
    events = list(trace)
    scored = [e for e in events if e.kernel == "score"]
    attended = [e for e in events if e.kernel == "attend"]
    assert sum(e.start_ns < max(s.end_ns for s in scored) for e in attended) >= 4
    assert any(s.start_ns < e.end_ns and e.start_ns < s.end_ns for e in attended for s in scored)
    chosen = {e.keys[0]: e.end_ns for e in events if e.kernel.startswith("select")}
    assert all(chosen[e.keys[0]] <= e.start_ns for e in attended)
    assert Path(timeline.__file__).with_suffix(".svg").read_text("utf-8") == trace.to_svg()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--small", "--requests", "3", "--longest", "500"])
    assert "checked against numpy: worst error" in capsys.readouterr().out
