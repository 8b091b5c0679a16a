"""Matrices of AWQ and GPTQ: elements as the definitions of these files say."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.types.int_words import AWQ_ORDER, UnknownWords, from_awq, from_gptq
from pto_wsp.types.quantised import joined_numbers, pack, unpack

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def random_parts(k: int, n: int, group: int, bits: int = 4, middle: bool = False) -> tuple[np.ndarray, ...]:
    """Return numbers [k, n], zeros and scales [k / group, n]."""
    rng, most = np.random.default_rng(k + n + bits), (1 << bits) - 1
    zeros = rng.integers(1, most + 1, (k // group, n))
    scales = (rng.random((k // group, n)) / 8 + 0.01).astype(np.float16)
    return (
        rng.integers(0, most + 1, (k, n)),
        np.full_like(zeros, (most + 1) // 2) if middle else zeros,
        scales,
    )


def words(fields: np.ndarray, bits: int) -> np.ndarray:
    """Return numbers [..., fields of a word] in words, from the low bits on."""
    return sum(fields[..., i].astype(np.uint32) << np.uint32(bits * i) for i in range(32 // bits)).view(
        np.int32
    )


def gptq(q: np.ndarray, zeros: np.ndarray, bits: int, adds_one: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as AutoGPTQ packs it: words of rows, and words of columns of zeros."""
    each, n = 32 // bits, q.shape[1]
    rows = q.reshape(-1, each, n).transpose(0, 2, 1)
    return words(rows, bits), words((zeros - adds_one).reshape(len(zeros), -1, each), bits)


def awq(q: np.ndarray, zeros: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as AutoAWQ packs it: field i of a word has column `AWQ_ORDER[i]` of eight."""
    first, second = (words(part.reshape(len(part), -1, 8)[..., AWQ_ORDER], 4) for part in (q, zeros))
    return first, second


def values(q: np.ndarray, zeros: np.ndarray, scales: np.ndarray) -> np.ndarray:
    group = len(q) // len(zeros)
    whole = scales.astype(np.float32).repeat(group, axis=0)
    return (q - zeros.repeat(group, axis=0)).astype(np.float32) * whole


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("group", "form"), [(32, "g32z"), (64, "g64z"), (128, "g128z"), (384, "g128z")])
@pytest.mark.parametrize("adds_one", [True, False])
def test_matrices_of_gptq(bits: int, group: int, form: str, adds_one: bool) -> None:
    q, zeros, scales = random_parts(384, 40, group, bits)
    found = from_gptq(*gptq(q, zeros, bits, adds_one), scales, None, bits, adds_one=adds_one)
    assert found.format.name == f"i{bits}{form}"
    assert np.array_equal(found.values(), values(q, zeros, scales))
    again = [unpack(panel, found.format).values() for panel in pack(found, 16)]
    assert np.array_equal(np.concatenate(again, axis=1)[:, :40], values(q, zeros, scales))


@pytest.mark.parametrize(("group", "name"), [(128, "i4g128z"), (64, "i4g64z"), (256, "i4g128z")])
def test_matrices_of_awq(group: int, name: str) -> None:
    q, zeros, scales = random_parts(256, 48, group)
    found = from_awq(*awq(q, zeros), scales)
    assert found.format.name == name and np.array_equal(found.values(), values(q, zeros, scales))


def test_zeros_in_the_middle_take_no_memory() -> None:
    for group, name in ((128, "i4g128"), (32, "q4_0")):
        q, zeros, scales = random_parts(256, 48, group, middle=True)
        found = from_awq(*awq(q, zeros), scales)
        assert found.format.name == name and found.zeros is None
        assert np.array_equal(found.values(), values(q, zeros, scales))
        other = random_parts(256, 16, group)
        both = joined_numbers([found, from_awq(*awq(*other[:2]), other[2])])
        assert both.format.has_zeros
        assert np.array_equal(both.values(), np.hstack([values(q, zeros, scales), values(*other)]))


def test_formats_take_at_most_a_twentieth_more_than_files() -> None:
    for bits, group in ((4, 32), (4, 64), (4, 128), (8, 128)):
        q, zeros, scales = random_parts(256, 64, group, bits)
        parts = gptq(q, zeros, bits, True)
        found = from_gptq(*parts, scales, None, bits)
        assert pack(found, 64).nbytes <= 1.05 * sum(part.nbytes for part in (*parts, scales))


def test_matrices_that_are_refused() -> None:
    q, zeros, scales = random_parts(256, 32, 64)
    parts = gptq(q, zeros, 4, False)
    order = np.random.default_rng(0).permutation(256).astype(np.int32) // 64
    in_order = np.arange(256, dtype=np.int32) // 64
    assert from_gptq(*parts, scales, in_order, 4, adds_one=False).q.shape == (256, 32)
    with pytest.raises(UnknownWords, match="desc_act"):
        from_gptq(*parts, scales, order, 4, adds_one=False)
    with pytest.raises(UnknownWords, match="zero of 16"):
        from_gptq(*gptq(q, np.full_like(zeros, 16), 4, True), scales, None, 4)
    with pytest.raises(UnknownWords, match="4 or 8 bits, found 3"):
        from_gptq(*parts, scales, None, 3)
    with pytest.raises(UnknownWords, match="AWQ: expected numbers of 4 bits, found 8"):
        from_awq(*awq(q, zeros), scales, 8)
    with pytest.raises(UnknownWords, match="f16"):
        from_awq(*awq(q, zeros), scales.astype(np.float32) * np.float32(1.0001))
    with pytest.raises(UnknownWords, match="do not fit"):
        from_awq(*awq(q, zeros), scales[:, :16])
    with pytest.raises(UnknownWords, match="multiple of 32 rows"):
        from_awq(*awq(q, zeros.repeat(4, axis=0)), scales.repeat(4, axis=0))
    with pytest.raises(UnknownWords, match="equal sizes"):
        from_awq(*awq(q, zeros[:3]), scales[:3])
