"""The example `07_pipeline`."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

example = importlib.import_module("examples.07_pipeline.pipeline")


@pytest.mark.parametrize("replicas", [1, 3])
def test_depths_and_workers_do_not_change_bits(replicas: int) -> None:
    x = np.random.default_rng(1).standard_normal((17, example.ROWS, example.COLS)).astype(np.float32)
    found = []
    for depth in (1, 2, 3):
        program = example.build(depth, replicas).compile()
        for workers in (1, 3):
            y = np.empty_like(x)
            program(X=x, Y=y, workers=workers)
            found.append(y)
    assert np.abs(found[0] - example.expected(x)).max() < 1e-6
    assert all(np.array_equal(y, found[0]) for y in found)
