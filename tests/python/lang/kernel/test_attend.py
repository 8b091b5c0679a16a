"""The kernel of the tour: online softmax over a cache of any length, against a direct computation."""

from __future__ import annotations

import runpy
from math import sqrt

import numpy as np
import pytest

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.ir.kernel import Instr, walk_statements
from pto_wsp.types import bf16
from tests.python.lang.programs import ir_of
from tests.python.lang.test_typing import SAMPLES

KERNEL = ir_of(runpy.run_path(str(SAMPLES / "attend.py"))["attend"])


@pytest.mark.parametrize("tokens", [0, 1, 63, 64, 65, 200])
def test_attention(tokens: int) -> None:
    random = np.random.default_rng(tokens)
    q = random.standard_normal((4, 128), np.float32)
    k, v = (random.standard_normal((tokens, 128)).astype(bf16.to_numpy()) for _ in range(2))
    o, lse = np.full((4, 128), np.nan, np.float32), np.full((4, 1), np.nan, np.float32)
    run_kernel(KERNEL, [q, k, v, o, lse])
    weights = np.exp(q.astype(np.float64) @ k.astype(np.float64).T / sqrt(128))
    total = weights.sum(1, keepdims=True)
    expected = weights @ v.astype(np.float64) / total if tokens else np.zeros((4, 128))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse, np.log(total), rtol=1e-5)
    np.testing.assert_allclose(o, expected, rtol=1e-4, atol=1e-5)


def test_only_one_small_copy_is_left() -> None:
    copies = [s for s in walk_statements(KERNEL.body or ()) if isinstance(s, Instr) and s.op == "mov"]
    assert [dict(KERNEL.tiles)[s.dst].shape for s in copies] == [(4, 1)]
