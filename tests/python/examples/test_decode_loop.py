"""The example `05_decode_loop`."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from pto_wsp import bf16, f32
from tests.slow import mostly_slow

example = importlib.import_module("examples.05_decode_loop.decode_loop")


@pytest.mark.parametrize("kv", mostly_slow([bf16, f32]), ids=str)
def test_steps_agree_with_numpy_and_compile_nothing(kv: object) -> None:
    steps = example.serve(steps=12, batch=6, kv=kv, workers=3, seed=1)
    assert all(step.off_by <= example.TOLERANCE for step in steps)
    assert all(step.compiles == 0 for step in steps[1:])
    assert len({step.requests for step in steps}) > 2 and any(step.partials for step in steps)


def test_pages_come_back() -> None:
    cache = example.Cache(8, f32)
    token = np.zeros((17, 2, example.KV_HEADS, example.DIM), np.float32)
    cache.append(1, token)
    cache.append(2, token[:16])
    assert cache.room() == 5 * example.PAGE
    indptr, indices, last = cache.plan_arrays()
    assert indptr.tolist() == [0, 2, 3] and len(set(indices.tolist())) == 3 and last.tolist() == [1, 16]
    cache.release(1)
    assert cache.room() == 7 * example.PAGE and list(cache.pages) == [2]
