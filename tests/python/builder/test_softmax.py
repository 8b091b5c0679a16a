"""The fused softmax: its text builds, and runs with data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.python.builder.softmax import softmax_module

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_it_runs_with_data(target: str) -> None:
    x = RNG.standard_normal((56, 8)).astype(np.float32)
    y = np.empty_like(x)
    program = softmax_module().compile(target, entry="dynamic_softmax")
    program(input=x, output=y, num_tiles=7)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=2e-6)
    assert program.stats is not None and program.stats.tasks == 35


def test_intermediates_are_as_high_as_their_regions_reach() -> None:
    text = str(softmax_module())
    assert '%temp_max: !pto.memref<gm,"temp_max_rows"x1,f32> {local}' in text
    assert "%temp_max_rows: index := max(%num_tiles * 8, 0)" in text


def test_a_kernel_runs_as_one_task() -> None:
    x = RNG.standard_normal((5, 8)).astype(np.float32)
    y = np.empty((5, 1), np.float32)
    module = softmax_module()
    module.compile("cpu", entry="rowmax")(input=x, output=y)
    assert np.array_equal(y[:, 0], x.max(axis=1))
