"""Section 2 of the tour: ragged attention, one query per sequence."""

from math import sqrt

import numpy as np
import pytest

from pto_wsp import Ragged, bf16
from tests.python.lang.typing_samples.attend import decode


def attention(q, k, v):
    """Return the output and log-sum-exp of queries over one sequence, in f64."""
    scores = q.astype(np.float64) @ k.astype(np.float64).T / sqrt(128)
    if not len(k):
        return np.zeros(q.shape), np.full((len(q), 1), -np.inf)
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total @ v.astype(np.float64), top + np.log(total)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_length_with_one_compilation(workers):
    program = decode.compile("cpu")
    rng = np.random.default_rng(workers)
    for number, lengths in enumerate(([3, 0, 100, 64, 65, 1], [0], [], [1000, 2])):
        batch, tokens = len(lengths), sum(lengths) + 5
        q = rng.standard_normal((batch, 8, 4, 128)).astype(np.float32)
        k, v = (rng.standard_normal((tokens, 8, 128)).astype(bf16.to_numpy()) for _ in range(2))
        o, lse = np.empty_like(q), np.empty((batch, 8, 4, 1), np.float32)
        program.run(kv=Ragged.lengths(lengths), Q=q, K=k, V=v, O=o, LSE=lse, workers=workers)
        assert program.stats is not None
        assert program.stats.tasks == 8 * batch and (number == 0 or program.stats.compiles == 0)
        ends = np.cumsum(lengths).astype(int)
        for b, (end, n) in enumerate(zip(ends, lengths, strict=True)):
            for h in range(8):
                expected, expected_lse = attention(q[b, h], k[end - n : end, h], v[end - n : end, h])
                np.testing.assert_allclose(o[b, h], expected, atol=2e-6)
                np.testing.assert_allclose(lse[b, h], expected_lse, atol=2e-6)
