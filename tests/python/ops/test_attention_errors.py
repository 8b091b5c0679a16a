"""Bad input of planned attention: an error with a name, with what was expected and what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp.errors import (
    BadPlanConfig,
    InvalidPlanParams,
    KernelFailed,
    NotPlanned,
    PtoError,
    ReadOnlyArray,
    UnusableArray,
    WrongDType,
    WrongRank,
    WrongShape,
    WrongValue,
)
from pto_wsp.ops.attention import BatchDecode, BatchPrefill
from pto_wsp.types import i32

PAGED, RAGGED = BatchDecode(4, 2, 16, workers=2), BatchDecode(4, 2, 16, page_size=None, workers=2)
PREFILL = BatchPrefill(4, 2, 16, page_size=None, workers=2)


class Elsewhere:
    """An array on a device that DLPack does not know."""

    def __dlpack__(self, **options: Any) -> object:
        raise AssertionError(options)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("no such device")


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"num_qo_heads": 5},
            "num_qo_heads is out of range\n  = expected a multiple of num_kv_heads=2, found 5",
        ),
        ({"num_kv_heads": 0}, "num_kv_heads"),
        ({"head_dim": -1}, "head_dim"),
        ({"page_size": 0}, "page_size"),
        ({"workers": 0}, "workers is out of range\n  = expected an integer in 1..1024, found 0"),
        ({"workers": 1025}, "workers is out of range"),
        ({"kv_layout": "DHN"}, "expected 'NHD' or 'HND', found 'DHN'"),
        ({"window_left": -2}, "window_left"),
        ({"logits_soft_cap": -1.0}, "expected 0, or a number from 1.18e-38 to 8.51e+37, found -1.0"),
        ({"logits_soft_cap": 1e-39}, "expected 0, or a number from 1.18e-38 to 8.51e+37, found 1e-39"),
        ({"logits_soft_cap": True}, "logits_soft_cap"),
        ({"sm_scale": 1e38}, "sm_scale"),
        ({"sm_scale": float("nan")}, "sm_scale"),
        ({"sm_scale": "0.1"}, "sm_scale"),
        ({"kv_dtype": i32}, "kv_dtype is out of range\n  = expected f32, f16 or bf16, found i32"),
        ({"batch_invariant": True, "page_size": 24}, "a power of two up to 1024"),
        ({"batch_invariant": 1}, "batch_invariant"),
    ],
)
@pytest.mark.parametrize("kind", [BatchDecode, BatchPrefill])
def test_parameters(kind: Any, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(BadPlanConfig) as caught:
        kind(**{"num_qo_heads": 4, "num_kv_heads": 2, "head_dim": 16, **parameters})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (
            lambda: PAGED.plan([0, 1], [-1], [3]),
            "kv_indices[0] cannot be planned\n  = expected 0..2147483647, found -1",
        ),
        (lambda: PAGED.plan([0, 1, 3], [1, 0], [3, 3]), "at least kv_indptr[-1] = 3 pages, found 2"),
        (lambda: PAGED.plan([0, 2, 1], [1, 0], [3, 3]), "expected no less than the element before, found 1"),
        (lambda: PAGED.plan([1, 2], [1, 0], [3]), "kv_indptr[0] cannot be planned\n  = expected 0, found 1"),
        (
            lambda: PAGED.plan([0, 1], [1], [17]),
            "kv_last_page_len[0] cannot be planned\n  = expected 1..16, found 17",
        ),
        (lambda: PAGED.plan([0, 0, 1], [1], [0, 0]), "kv_last_page_len[1]"),
        (lambda: PAGED.plan([0, 1], [1], [3, 4]), "expected 1 elements, found 2"),
        (lambda: PAGED.plan([0, 1]), "the argument kv_indices"),
        (lambda: PAGED.plan([], [], []), "expected at least one element, found none"),
        (
            lambda: PAGED.plan([0.0, 1.0], [1], [1]),
            "expected a flat sequence of integers, found float64 of rank 1",
        ),
        (lambda: PAGED.plan([[0, 1]], [1], [1]), "found int64 of rank 2"),
        (lambda: RAGGED.plan([0, -5]), "kv_indptr[1:][0] cannot be planned"),
        (lambda: RAGGED.plan([0, 2**31]), "expected at most 2147483647, found 2147483648"),
        (lambda: RAGGED.plan([0, 2], [0, 1], [1]), "expected none: keys are ragged, found an array"),
        (lambda: PREFILL.plan([0, 1], [0, 2, 3]), "qo_indptr of 3 elements, as kv_indptr has, found 2"),
        (lambda: PREFILL.plan([0, 3, 1], [0, 2, 3]), "qo_indptr[1:][1]"),
    ],
)
def test_plans(plan: Callable[[], None], text: str) -> None:
    with pytest.raises(InvalidPlanParams) as caught:
        plan()
    assert text in str(caught.value)


def test_no_plan_is_left_of_one_that_failed() -> None:
    attn = BatchDecode(4, 2, 16, page_size=None, workers=2)
    attn.plan([0, 1])
    with pytest.raises(InvalidPlanParams):
        attn.plan([0, -1])
    with pytest.raises(NotPlanned):
        attn.run(zeros(1, 4, 16), (zeros(9, 2, 16), zeros(9, 2, 16)))


def misaligned() -> np.ndarray:
    return np.zeros(4 * 192 + 1, np.uint8)[1:].view(np.float32).reshape(3, 4, 16)


def read_only() -> np.ndarray:
    array = zeros(3, 4, 16)
    array.flags.writeable = False
    return array


Q, CACHE = zeros(3, 4, 16), (zeros(5, 16, 2, 16), zeros(5, 16, 2, 16))


@pytest.mark.parametrize(
    ("q", "cache", "options", "error", "text"),
    [
        (
            zeros(2, 4, 16),
            CACHE,
            {},
            WrongShape,
            "expected 3, found 2",
        ),
        (zeros(3, 8, 16), CACHE, {}, WrongShape, "expected 4, found 8"),
        (zeros(3, 64), CACHE, {}, WrongRank, "expected 3, found 2"),
        (zeros(3, 4, 16, dtype=np.float64), CACHE, {}, WrongDType, "expected f32, found float64"),
        ([[1.0]], CACHE, {}, WrongValue, "found list"),
        (Q, CACHE[:1], {}, WrongValue, "expected a pair of keys and values, found 1 arrays"),
        (
            Q,
            (zeros(4, 16, 2, 16), CACHE[1]),
            {},
            WrongShape,
            "expected at least 5 pages, as the plan names, found 4",
        ),
        (Q, (CACHE[0], zeros(6, 16, 2, 16)), {}, WrongShape, "expected 5, as `k` has, found 6"),
        (Q, (CACHE[0], zeros(5, 2, 16, 16)), {}, WrongShape, "dimension 1 of array `v`"),
        (Q, zeros(5, 3, 16, 2, 16), {}, WrongShape, "dimension 1 of array `kv_cache`"),
        (Q, CACHE, {"lse_base": "10"}, WrongValue, "expected 'e' or '2', found '10'"),
        (Q, CACHE, {"out": zeros(3, 4, 17)}, WrongShape, "array `out`"),
        (Q, CACHE, {"out": zeros(3, 4, 32)[:, :, ::2]}, WrongValue, "C-contiguous"),
        (Q, CACHE, {"lse": zeros(3, 4, dtype=np.float16)}, WrongDType, "array `lse`"),
        (Q, CACHE, {"out": read_only()}, ReadOnlyArray, "read-only"),
        (Q, (zeros(5, 16, 2, 32)[..., ::2], CACHE[1]), {}, UnusableArray, "array `k`"),
        (Q, (CACHE[0], CACHE[1][::-1]), {}, UnusableArray, "array `v`"),
        (Q[::-1], CACHE, {}, UnusableArray, "array `q` cannot be used as it is"),
        (misaligned(), CACHE, {}, UnusableArray, "array `q`"),
        (Elsewhere(), CACHE, {}, UnusableArray, "its owner refuses to lend it: no such device"),
        (Q, (CACHE[0], zeros(5, 16, 3, 16)[:, :, 1:]), {}, WrongValue, "expected the strides of `k`"),
    ],
)
def test_runs(q: Any, cache: Any, options: dict[str, Any], error: type[PtoError], text: str) -> None:
    attn = BatchDecode(4, 2, 16, workers=2)
    attn.plan([0, 1, 1, 3], [4, 0, 1], [3, 0, 16])
    with pytest.raises(error) as caught:
        attn.run(q, cache, **options)
    assert text in str(caught.value)


def test_offsets_on_another_device() -> None:
    with pytest.raises(UnusableArray, match="array `kv_indices` cannot be used as it is"):
        PAGED.plan([0, 1], Elsewhere(), [3])


def test_outputs_that_are_inputs() -> None:
    attn = BatchDecode(4, 2, 16, workers=2)
    attn.plan([0, 1, 1, 3], [4, 0, 1], [3, 0, 16])
    attn.run(Q, CACHE, out=zeros(3, 4, 16))
    with pytest.raises(PtoError):
        attn.run(
            CACHE[0].reshape(-1)[: Q.size].reshape(Q.shape),
            CACHE,
            out=CACHE[0].reshape(-1)[64 : 64 + Q.size].reshape(Q.shape),
        )


def test_a_plan_that_somebody_wrote_to_reads_nothing_outside() -> None:
    attn = BatchDecode(4, 2, 16, workers=2)
    attn.plan([0, 2], [0, 1], [16])
    attn._arrays["Pages"][1] = 99
    with pytest.raises(KernelFailed, match="a row outside `v` is named"):
        attn.run(zeros(1, 4, 16), CACHE)
