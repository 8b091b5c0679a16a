"""Products with packed matrices of i8 and of quantised formats."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import bf16, f32, i8
from pto_wsp.errors import WrongDType, WrongRank, WrongShape, WrongValue
from pto_wsp.ops.matmul import PackedMatrix, matmul
from pto_wsp.types.ggml_blocks import BLOCK_BYTES
from pto_wsp.types.quantised import FORMATS, round_rows, rounded_values
from tests.python.types.test_int_words import awq, gptq, random_parts, values
from tests.slow import mostly_slow


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_blocks(name: str, n: int, count: int) -> np.ndarray:
    """Return random blocks of a file whose scales are finite."""
    rng, size = np.random.default_rng(2), BLOCK_BYTES[name]
    blocks = rng.integers(0, 256, (n, count, size)).astype(np.uint8)
    halves = {"q4_1": (0, 2), "q4_k": (0, 2), "q6_k": (208,)}.get(name, (0,))
    for at in halves:
        blocks[..., at : at + 2] = rng.standard_normal((n, count, 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(n, -1)


@pytest.mark.parametrize(
    "name", mostly_slow(["q4_0", "q8_0", "q4_1", "i8g16", "i4g16m", "i4g64", "i4g128z"], 2)
)
def test_products_are_those_with_the_elements(name: str) -> None:
    k, n = 256 + FORMATS[name].block, 150
    packed = PackedMatrix(normal(1, k, n), name)
    plain, x, bias = PackedMatrix(packed.unpack()), normal(2, 150, k), normal(3, n)
    assert packed.shape == (k, n) and packed.dtype is FORMATS[name] and packed.scale is None
    for m in (1, 3, 9, 64, 150):
        found = matmul(x[:m], packed, bias, activation="relu")
        assert found.tobytes() == matmul(x[:m], plain, bias, activation="relu").tobytes(), m
    small = x[:5].astype(bf16.to_numpy())
    assert np.array_equal(matmul(small, packed), matmul(small, plain))


@pytest.mark.parametrize("name", mostly_slow(["q4_k", "q6_k", "q8_0", "q4_0", "q4_1"], 2))
def test_blocks_of_files_are_packed(name: str) -> None:
    count = 3 if FORMATS[name].level else 11
    packed = PackedMatrix.from_ggml(random_blocks(name, 70, count), name)
    x = normal(4, 70, packed.shape[0])
    assert packed.shape == (count * FORMATS[name].block, 70)
    plain = PackedMatrix(packed.unpack())
    for m in (1, 70):
        assert matmul(x[:m], packed).tobytes() == matmul(x[:m], plain).tobytes()


@pytest.mark.parametrize(("k", "form"), mostly_slow([(384, "i4g128"), (192, "i4g64"), (160, "q4_0")], 1))
def test_numbers_of_4_bits_with_a_scale_per_column(k: int, form: str) -> None:
    w, x = normal(1, k, 70), normal(2, 9, k)
    packed = PackedMatrix(w, "i4")
    values = packed.unpack()
    assert packed.dtype is FORMATS[form]
    step = (np.abs(w).max(axis=0) / np.float32(7)).astype(np.float16).astype(np.float32)
    assert np.array_equal(values, np.clip(np.rint(w / step), -8, 7) * step)
    assert matmul(x, packed).tobytes() == matmul(x, PackedMatrix(values)).tobytes()


@pytest.mark.parametrize("kind", mostly_slow(["awq", "gptq"], 1))
def test_words_of_checkpoints_are_packed(kind: str) -> None:
    q, zeros, scales = random_parts(384, 72, 128)
    if kind == "awq":
        packed = PackedMatrix.from_awq(*awq(q, zeros), scales)
    else:
        packed = PackedMatrix.from_gptq(*gptq(q, zeros, 4, True), scales)
    x, plain = normal(3, 40, 384), PackedMatrix(values(q, zeros, scales))
    assert np.array_equal(packed.unpack(), values(q, zeros, scales))
    for m in (1, 40):
        assert matmul(x[:m], packed).tobytes() == matmul(x[:m], plain).tobytes()


def test_words_that_are_refused() -> None:
    q, zeros, scales = random_parts(256, 32, 64)
    words, of_zeros = gptq(q, zeros, 4, False)
    with pytest.raises(WrongValue, match="desc_act"):
        PackedMatrix.from_gptq(words, of_zeros, scales, np.zeros(256, np.int32), version=2)
    with pytest.raises(WrongValue, match="`version`"):
        PackedMatrix.from_gptq(words, of_zeros, scales, version=3)
    with pytest.raises(WrongValue, match="`qzeros`"):
        PackedMatrix.from_awq(words, of_zeros.astype(np.int64), scales)


@pytest.mark.parametrize("name", mostly_slow(["q4_1", "q6_k", "q8_0", "i4g128"], 2))
def test_rows_can_be_rounded_to_i8(name: str) -> None:
    form, n = FORMATS[name], 150
    if form.level:
        packed = PackedMatrix.from_ggml(random_blocks(name, n, 3), name)
    else:
        packed = PackedMatrix(normal(1, 256 + form.block, n), name)
    x, bias = normal(2, 150, packed.shape[0]), normal(3, n)
    values = packed.unpack().astype(np.float64)
    whole = matmul(x, packed, bias, x_dtype=i8, workers=1)
    near = rounded_values(round_rows(x))
    scale = np.abs(near) @ np.abs(values) + np.abs(bias)
    assert (np.abs(whole - (near @ values + bias)) <= scale * 60 * 2.0**-23).all()
    for workers, m in ((2, 150), (1, 65), (2, 9), (2, 1)):
        found = matmul(x[:m], packed, bias, x_dtype=i8, workers=workers)
        assert found.tobytes() == whole[:m].tobytes(), m
    small = x.astype(bf16.to_numpy())
    wide = matmul(small.astype(np.float32), packed, bias, x_dtype=i8)
    assert np.array_equal(matmul(small, packed, bias, x_dtype=i8), wide.astype(small.dtype))


def test_matrices_of_i8_are_multiplied_as_they_are() -> None:
    w = np.random.default_rng(5).integers(-128, 128, (300, 90)).astype(np.int8)
    packed, x = PackedMatrix(w), normal(6, 70, 300)
    assert packed.dtype is i8 and packed.scale is None and np.array_equal(packed.unpack(), w)
    assert np.array_equal(PackedMatrix(w, i8).panels, packed.panels)
    plain = PackedMatrix(w.astype(np.float32))
    for m in (1, 70):
        assert matmul(x[:m], packed).tobytes() == matmul(x[:m], plain).tobytes()
    assert np.array_equal(PackedMatrix(w, f32).unpack(), w)


def test_floats_become_i8_by_a_scale_per_column() -> None:
    w, x, bias = normal(7, 300, 90), normal(8, 70, 300), normal(9, 90)
    w[:, 3] = 0
    packed = PackedMatrix(w, i8)
    assert packed.scale is not None and packed.scale.shape == (1, 90)
    values = packed.unpack()
    assert (np.abs(values - w) <= packed.scale * 0.5001).all() and (values[:, 3] == 0).all()
    found, exact = matmul(x, packed, bias), x.astype(np.float64) @ values + bias
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)


def test_what_has_no_numbers_is_refused() -> None:
    with pytest.raises(WrongShape, match="`matrix`"):
        PackedMatrix(normal(0, 40, 5), "q8_0")
    with pytest.raises(WrongShape, match="`matrix`"):
        PackedMatrix(normal(0, 40, 5), "i4")
    with pytest.raises(WrongValue, match="q4_k"):
        PackedMatrix(normal(0, 256, 5), "q4_k")
    for bad in (np.inf, np.nan, 1e30):
        w = normal(0, 32, 5)
        w[3, 2] = bad
        with pytest.raises(WrongValue, match="finite"):
            PackedMatrix(w, "q4_1")
        if not bad == 1e30:
            with pytest.raises(WrongValue, match="finite"):
                PackedMatrix(w, i8)
    x, packed = normal(1, 2, 32), PackedMatrix(normal(2, 32, 5), "q8_0")
    for other, x_dtype in ((packed, f32), (PackedMatrix(normal(2, 32, 5)), i8)):
        with pytest.raises(WrongValue, match="x_dtype"):
            matmul(x, other, x_dtype=x_dtype)
    blocks = random_blocks("q8_0", 4, 2)
    with pytest.raises(WrongValue, match="q5_0"):
        PackedMatrix.from_ggml(blocks, "q5_0")
    with pytest.raises(WrongShape, match="`blocks`"):
        PackedMatrix.from_ggml(blocks[:, :-1].copy(), "q8_0")
    with pytest.raises(WrongRank, match="`blocks`"):
        PackedMatrix.from_ggml(blocks[0], "q8_0")
    with pytest.raises(WrongDType, match="`blocks`"):
        PackedMatrix.from_ggml(blocks.astype(np.int8), "q8_0")


@pytest.mark.parametrize("name", ["q4_0", "q8_0", "q4_1", "i8g64", "i4g128z"])
def test_matrices_that_a_format_loses_are_refused(name: str) -> None:
    k = FORMATS[name].block
    with pytest.raises(WrongValue, match="scales of f16"):
        PackedMatrix(normal(0, k, 8) * np.float32(1e-30), name)
    for shape in ((0, 8), (k, 0)):
        with pytest.raises(WrongValue, match="expected elements"):
            PackedMatrix(np.zeros(shape, np.float32), name)
    for value in (0.0, 0.5):
        held = PackedMatrix(np.full((k, 8), value, np.float32), name).unpack()
        assert np.abs(held - value).max() <= 0.05
