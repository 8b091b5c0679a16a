"""Quantised matrices: what packing keeps, and blocks of GGUF files as their definitions say."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.types.ggml_blocks import BLOCK_BYTES, from_ggml
from pto_wsp.types.quantised import FORMATS, Format, Numbers, pack, quantise, unpack

BY_NAME = pytest.mark.parametrize("form", FORMATS.values(), ids=str)
ONE_LEVEL = pytest.mark.parametrize("form", [f for f in FORMATS.values() if not f.level], ids=str)


def some_numbers(form: Format, blocks: int, n: int, seed: int = 0) -> Numbers:
    """Return random numbers of a matrix [blocks * block, n]."""
    rng, groups = np.random.default_rng(seed), blocks * form.groups

    def halves(rows: int) -> np.ndarray:
        return (rng.standard_normal((rows, n)) * 0.1).astype(np.float16)

    def of_groups() -> np.ndarray:
        if not form.level:
            return halves(groups)
        return rng.integers(-64 if form.level == "i1" else 0, 64, (groups, n)).astype(form.level)

    q = rng.integers(0, 1 << form.bits, (blocks * form.block, n)).astype(np.uint8)
    has_two = bool(form.level)
    return Numbers(
        form,
        q,
        of_groups(),
        of_groups() if form.has_minimum else None,
        halves(blocks) if has_two else None,
        halves(blocks) if has_two and form.has_minimum else None,
        rng.integers(0, 1 << form.bits, (groups, n)).astype(np.uint8) if form.has_zeros else None,
    )


@BY_NAME
@pytest.mark.parametrize("n", [1, 16, 37])
def test_packing_loses_nothing(form: Format, n: int) -> None:
    numbers, cols = some_numbers(form, 3, n), 16
    packed = pack(numbers, cols)
    assert packed.shape == (-(-n // cols), 3, cols * form.column_bytes) and packed.dtype == np.uint8
    for start in range(0, n, cols):
        found, count = unpack(packed[start // cols], form), min(cols, n - start)
        columns = slice(start, start + count)
        assert np.array_equal(found.q[:, :count], numbers.q[:, columns])
        assert np.array_equal(found.values()[:, :count], numbers.values()[:, columns])
        assert (found.scales[:, count:] == 0).all() and (found.q[:, count:] == 0).all()


@ONE_LEVEL
@pytest.mark.parametrize("by_column", [False, True])
def test_the_nearest_numbers_are_found(form: Format, by_column: bool) -> None:
    k = 2 * form.block
    matrix = np.random.default_rng(1).standard_normal((k, 5)).astype(np.float32)
    matrix[: k if by_column else form.group, 0] = 0
    numbers = quantise(matrix, form, by_column)
    values, step = numbers.values(), numbers.scales.repeat(form.group, axis=0)
    assert (values[: form.group, 0] == 0).all()
    if by_column:
        assert (numbers.scales == numbers.scales[:1]).all()
        assert numbers.minima is None or (numbers.minima == numbers.minima[:1]).all()
    zero = form.zero if numbers.zeros is None else numbers.zeros.astype(int).repeat(form.group, axis=0)
    inside = (matrix >= step * -zero) & (matrix <= step * ((1 << form.bits) - 1 - zero))
    rounded = inside if not form.has_minimum else np.ones_like(inside)
    slack = step * 0.51 + np.abs(matrix) * 2e-3  # scales and minima are rounded to f16
    assert (np.abs(values - matrix)[rounded] <= slack[rounded]).all()
    assert rounded.mean() > 0.8


@pytest.mark.parametrize(
    ("name", "most"), [("q8_0", 34), ("q4_0", 18), ("q4_1", 20), ("q4_k", 144), ("q6_k", 210)]
)
def test_formats_of_files_take_at_most_a_twentieth_more(name: str, most: int) -> None:
    assert BLOCK_BYTES[name] == most <= FORMATS[name].column_bytes <= 1.05 * most


# --- blocks of files, element by element as ggml defines them ---


def half(block: bytes, at: int) -> np.float32:
    return np.float32(np.frombuffer(block, np.float16, 1, at)[0])


def q8_0(b: bytes) -> list[np.float32]:
    return [half(b, 0) * np.float32(np.int8(np.uint8(x))) for x in b[2:]]


def q4_0(b: bytes) -> list[np.float32]:
    return [half(b, 0) * np.float32((b[2 + i % 16] >> i // 16 * 4 & 15) - 8) for i in range(32)]


def q4_1(b: bytes) -> list[np.float32]:
    return [half(b, 0) * np.float32(b[4 + i % 16] >> i // 16 * 4 & 15) + half(b, 2) for i in range(32)]


def q4_k(b: bytes) -> list[np.float32]:
    s, found = b[4:16], []
    for i in range(256):
        j = i // 32
        if j < 4:
            scale, minimum = s[j] & 63, s[j + 4] & 63
        else:
            scale = s[j + 4] & 15 | s[j - 4] >> 6 << 4
            minimum = s[j + 4] >> 4 | s[j] >> 6 << 4
        q = b[16 + i // 64 * 32 + i % 32] >> (i // 32 % 2 * 4) & 15
        found.append(half(b, 0) * np.float32(scale) * np.float32(q) - half(b, 2) * np.float32(minimum))
    return found


def q6_k(b: bytes) -> list[np.float32]:
    found = []
    for i in range(256):
        part, place = divmod(i, 128)
        low = b[part * 64 + place % 64] >> place // 64 * 4 & 15
        high = b[128 + part * 32 + place % 32] >> place // 32 * 2 & 3
        scale = np.int8(np.uint8(b[192 + i // 16]))
        found.append(half(b, 208) * np.float32(scale) * np.float32((low | high << 4) - 32))
    return found


@pytest.mark.parametrize("definition", [q8_0, q4_0, q4_1, q4_k, q6_k], ids=lambda f: f.__name__)
def test_blocks_of_files_have_the_values_of_their_definition(definition: object) -> None:
    assert callable(definition)
    form = FORMATS[definition.__name__]
    rng, n, count, size = np.random.default_rng(2), 5, 3, BLOCK_BYTES[form.name]
    blocks = rng.integers(0, 256, (n, count, size)).astype(np.uint8)
    for at in {"q4_1": (0, 2), "q4_k": (0, 2), "q6_k": (208,)}.get(form.name, (0,)):
        blocks[..., at : at + 2] = rng.standard_normal((n, count, 1)).astype(np.float16).view(np.uint8)
    numbers = from_ggml(blocks.reshape(n, -1), form)
    expected = [[v for block in row for v in definition(block.tobytes())] for row in blocks]
    assert np.array_equal(numbers.values(), np.array(expected, np.float32).T)
    found = unpack(pack(numbers, 8)[0], form)
    assert np.array_equal(found.values()[:, :n], numbers.values())
