"""Orchestrations in C: equal to the workload's results bit for bit, and to numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from examples.c_api.__main__ import Result, bgemm, bgemm_tree, programs, softmax
from examples.pto_programs.__main__ import TOLERANCE, llama_tensors
from examples.pto_programs.llama import LARGE_ROWS, ROWS, llama_module


@pytest.mark.parametrize("run", [softmax, bgemm, bgemm_tree])
@pytest.mark.parametrize(("workers", "threshold"), [(1, 0), (3, 20)])
def test_equal_to_numpy(
    tmp_path: Path, run: Callable[[Path, int, int, int], Result], workers: int, threshold: int
) -> None:
    tasks, _, found, expected = run(tmp_path, 256, workers, threshold)
    assert tasks > 100
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_layer_is_that_of_the_workload(tmp_path: Path) -> None:
    module = llama_module(min_range=ROWS)
    program = module.compile()
    layer = programs(tmp_path, module)
    for tiles, rows in ((2, ROWS), (32, LARGE_ROWS)):
        first, second = (llama_tensors(tiles, np.random.default_rng(tiles)) for _ in range(2))
        layer.llama(first, rows, workers=2, threshold=tiles)
        program(**second, seq_len=tiles * ROWS, num_tiles=tiles)
        assert np.array_equal(first["output"], second["output"])
