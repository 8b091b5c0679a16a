"""Section 3 of the tour, as printed: routing made by the run, and tiers chosen by lengths."""

from __future__ import annotations

import numpy as np
import pytest

from tests.python.lang.typing_samples.data_decides import indexer, moe, tiered_indexer

RNG = np.random.default_rng(3)
HIDDEN, INNER, EXPERTS = 2048, 32, 64


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


WEIGHTS = {
    "Router": normal(HIDDEN, EXPERTS) / np.float32(HIDDEN**0.5),
    "W1": normal(EXPERTS, HIDDEN, INNER) / np.float32(HIDDEN**0.5),
    "W3": normal(EXPERTS, HIDDEN, INNER) / np.float32(HIDDEN**0.5),
    "W2": normal(EXPERTS, INNER, HIDDEN) / np.float32(INNER**0.5),
}


def run_moe(program, x: np.ndarray, **options: object) -> dict[str, np.ndarray]:
    arrays = {
        "X": x,
        "Y": np.full_like(x, np.nan),
        "Part": np.full((len(x), 2, HIDDEN), np.nan, np.float32),
        "Experts": np.full((len(x), 2), -1, np.int32),
        "Gates": np.full((len(x), 2), np.nan, np.float32),
    }
    program.run(**arrays, **WEIGHTS, **options)
    return arrays


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_moe(target: str) -> None:
    program = moe.compile(target)
    for tokens in (0, 1, 70) if target == "interp" else (0, 1, 64, 300):
        found = run_moe(program, normal(tokens, HIDDEN))
        x, w = found["X"].astype(np.float64), {n: a.astype(np.float64) for n, a in WEIGHTS.items()}
        scores = x @ w["Router"]
        chosen = np.take_along_axis(scores, found["Experts"], axis=1)
        best = np.sort(scores, axis=1)[:, ::-1][:, :2]
        np.testing.assert_allclose(chosen, best, atol=1e-4)
        expected = np.zeros_like(x)
        for t in range(tokens):
            for slot in range(2):
                e = found["Experts"][t, slot]
                gate = x[t] @ w["W1"][e]
                part = (gate / (1 + np.exp(-gate)) * (x[t] @ w["W3"][e])) @ w["W2"][e]
                expected[t] += part / (1 + np.exp(-chosen[t, slot]))
        np.testing.assert_allclose(found["Y"], expected, atol=1e-4)


def test_moe_has_the_same_bits_for_any_number_of_workers() -> None:
    program = moe.compile("cpu")
    x = normal(500, HIDDEN)
    first = run_moe(program, x, workers=1)
    assert program.stats is not None
    busy = np.bincount(first["Experts"].ravel(), minlength=EXPERTS)
    assert program.stats.tasks == 2 * -(-500 // 64) + 1 + (-(-busy // 64)).sum()
    for workers in (2, 3, 5):
        again = run_moe(program, x, workers=workers)
        assert all(again[name].tobytes() == array.tobytes() for name, array in first.items())


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("form", [indexer, tiered_indexer], ids=["conditions", "tier"])
def test_indexer(target: str, form) -> None:
    program = form.compile(target)
    for lengths in ([], [1, 2048, 2049, 8192, 8193, 10**6, 0], [5]):
        batch = len(lengths)
        q, k = normal(batch, 4, 64), normal(batch, 40, 64)
        top = np.full((batch, 1, 16), -7, np.int32)
        program(lengths=np.array(lengths, np.int32), Q=q, K=k, TopK=top)
        for b in range(batch):
            scores = np.maximum(q[b].astype(np.float64) @ k[b].T, 0).sum(axis=0)
            np.testing.assert_allclose(scores[top[b, 0]], np.sort(scores)[::-1][:16], rtol=1e-5)
            assert len(np.unique(top[b, 0])) == 16
