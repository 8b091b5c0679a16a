"""Operators on f16 and bf16 compute in f32 and round once: numbers among their arguments are not rounded."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp.ops import functional as F
from pto_wsp.types import bf16, f16, f32
from pto_wsp.types.dtype import DType

Array = np.ndarray

CALLS: dict[str, Callable[[Array, Array], Array]] = {
    "leaky_relu": lambda x, t: F.leaky_relu(x, 0.3),
    "elu": lambda x, t: F.elu(x, 0.3),
    "celu": lambda x, t: F.celu(x, 0.3),
    "softplus": lambda x, t: F.softplus(x, 0.3, 2.1),
    "hardtanh": lambda x, t: F.hardtanh(x, -0.3, 0.7),
    "threshold": lambda x, t: F.threshold(x, 0.1, 0.3),
    "hardshrink": lambda x, t: F.hardshrink(x, 0.3),
    "softshrink": lambda x, t: F.softshrink(x, 0.3),
    "dropout": lambda x, t: F.dropout(x, 0.3),
    "smooth_l1_loss": lambda x, t: F.smooth_l1_loss(x, t, "none", 0.3),
    "huber_loss": lambda x, t: F.huber_loss(x, t, "none", 0.3),
    "hinge_embedding_loss": lambda x, t: F.hinge_embedding_loss(x, np.sign(t), "none", 0.3),
    "cosine_similarity": lambda x, t: F.cosine_similarity(x, t, 60.1),
    "pairwise_distance": lambda x, t: F.pairwise_distance(x, t, 0.3),
    "layer_norm": lambda x, t: F.layer_norm(x, eps=0.3),
    "rms_norm": lambda x, t: F.rms_norm(x, eps=0.3),
    "group_norm": lambda x, t: F.group_norm(x, 7, eps=0.3),
    "batch_norm": lambda x, t: F.batch_norm(x, t[0], np.abs(t[1]), eps=0.3),
    "normalize": lambda x, t: F.normalize(x, eps=60.1),
}
"""Every operator with numbers among its arguments. No number is exact in f16 or bf16."""


def numbers(name: str) -> list[str]:
    """Return the parameters of an operator that are numbers."""
    parameters = inspect.signature(F.OPERATORS[name].function).parameters.values()
    return [p.name for p in parameters if p.annotation in (float, "float")]


def test_every_operator_with_numbers_is_compared() -> None:
    assert {name for name in F.OPERATORS if numbers(name)} == CALLS.keys()


@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_narrow_result_is_the_rounded_f32_result(name: str, dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x, t = ((rng.standard_normal((40, 350)) * 3).astype(dtype.to_numpy()) for _ in range(2))
    found = CALLS[name](x, t)
    wanted = CALLS[name](x.astype(np.float32), t.astype(np.float32)).astype(found.dtype)
    assert found.dtype == x.dtype and np.isfinite(found.astype(np.float32)).all()
    np.testing.assert_array_equal(found, wanted)
