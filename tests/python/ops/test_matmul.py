"""Products with packed matrices against numpy in f64: shapes with tails, types, epilogues, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp.errors import WrongDType, WrongRank, WrongShape, WrongValue
from pto_wsp.ops.matmul import PackedMatrix, matmul
from pto_wsp.targets.cpu.features import VARIABLE
from pto_wsp.targets.preferences import panel_cols
from pto_wsp.types import bf16, f16, f32
from pto_wsp.types.dtype import DType

SHAPES = [
    (1, 1, 1),
    (5, 3, 0),
    (0, 70, 9),
    (7, 0, 9),
    (1, 130, 600),
    (64, 64, 128),
    (65, 63, 129),
    (200, 333, 300),
]
"""m, n, k: less than a tile, whole tiles, one more and one less, nothing."""

EXACT = {f32: 1e-6, f16: 2**-10, bf16: 2**-7}


def normal(seed: int, *shape: int, dtype: DType = f32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype.to_numpy())


def assert_near(found: np.ndarray, x: np.ndarray, w: np.ndarray, b: Any = 0.0, bound: float = 1e-6) -> None:
    exact = x.astype(np.float64) @ w.astype(np.float64) + b
    sizes = np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)) + np.abs(b)
    assert found.shape == exact.shape
    assert (np.abs(found.astype(np.float64) - exact) <= bound * (sizes + 1e-30)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, w, b = normal(1, m, k), normal(2, k, n), normal(3, n)
    packed = PackedMatrix(w)
    assert np.array_equal(packed.unpack(), w) and packed.shape == (k, n)
    assert_near(matmul(x, packed, b), x, w, b)
    assert_near(matmul(x, packed), x, w)


def test_panels_follow_the_setting_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = normal(1, 3, 40), normal(2, 40, 70)
    own = PackedMatrix(w)
    for names, cols in (("", 32), (None, panel_cols())):
        if names is not None:
            monkeypatch.setenv(VARIABLE, names)
        else:
            monkeypatch.delenv(VARIABLE)
        packed = PackedMatrix(w)
        assert packed.panels.shape == (-(-70 // cols), 40, cols) and np.array_equal(packed.unpack(), w)
        assert_near(matmul(x, packed), x, w)
        assert_near(matmul(x, own), x, w)


@pytest.mark.parametrize(("x_dtype", "w_dtype"), [(f32, bf16), (bf16, bf16), (f16, f32)], ids=str)
def test_small_floats_add_up_in_f32(x_dtype: DType, w_dtype: DType) -> None:
    for m, n, k in ((1, 70, 300), (67, 129, 257)):
        x, w, b = normal(1, m, k, dtype=x_dtype), normal(2, k, n, dtype=w_dtype), normal(3, n)
        found = matmul(x, PackedMatrix(w), b)
        assert found.dtype == x.dtype
        assert_near(found, x, w, b, EXACT[x_dtype])
        # What is stored in another type is what products see.
        stored = PackedMatrix(w.astype(np.float32), w_dtype)
        assert stored.dtype is w_dtype and np.array_equal(matmul(x, stored, b), found)


@pytest.mark.parametrize("dtypes", [(f32, f32), (f32, bf16), (bf16, bf16)], ids=str)
def test_rows_have_the_same_bits_in_any_batch_and_with_any_workers(dtypes: tuple[DType, DType]) -> None:
    x, packed = normal(4, 150, 701, dtype=dtypes[0]), PackedMatrix(normal(5, 701, 200), dtypes[1])
    whole = matmul(x, packed, workers=1)
    for workers, m in ((2, 150), (3, 149), (1, 65), (2, 9), (2, 1)):
        assert matmul(x[:m], packed, workers=workers).tobytes() == whole[:m].tobytes()
    assert matmul(x.reshape(3, 50, 701), packed).tobytes() == whole.tobytes()


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_activations_are_those_of_the_result(activation: Any) -> None:
    x, w, b = normal(6, 70, 100), normal(7, 100, 90), normal(8, 90)
    found = matmul(x, PackedMatrix(w), b, activation=activation)
    plain = matmul(x, PackedMatrix(w), b)
    if activation == "relu":
        assert np.array_equal(found, np.maximum(plain, 0))
        return
    from pto_wsp.ops import functional

    assert np.array_equal(found, getattr(functional, activation)(plain))


class Lent:
    """An array of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_matrices_of_other_libraries_are_packed_in_any_strides() -> None:
    weight, x = normal(3, 70, 50), normal(4, 3, 50)
    assert np.array_equal(matmul(x, PackedMatrix(Lent(weight.T))), matmul(x, PackedMatrix(weight.T)))


def test_results_go_where_they_are_asked_to() -> None:
    x, packed = normal(9, 2, 3, 40), PackedMatrix(normal(10, 40, 70))
    out = np.full((2, 3, 70), np.nan, np.float32)
    assert matmul(x, packed, out=out) is out
    assert np.array_equal(out, matmul(x, packed))


def test_what_does_not_fit_is_refused() -> None:
    packed, x = PackedMatrix(normal(0, 8, 5)), normal(1, 3, 8)
    with pytest.raises(WrongShape, match="`x`"):
        matmul(normal(1, 3, 7), packed)
    with pytest.raises(WrongShape, match="`bias`"):
        matmul(x, packed, normal(1, 6))
    with pytest.raises(WrongDType, match="`x`"):
        matmul(x.astype(np.float64), packed)
    with pytest.raises(WrongDType, match="`bias`"):
        matmul(x, packed, normal(1, 5).astype(np.float16))
    with pytest.raises(WrongValue, match="activation"):
        matmul(x, packed, activation="tanh")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WrongShape, match="`out`"):
        matmul(x, packed, out=np.empty((3, 6), np.float32))
    with pytest.raises(WrongValue, match="out"):
        matmul(x, PackedMatrix(normal(0, 8, 8)), out=x)
    with pytest.raises(WrongValue, match="a PackedMatrix, found ndarray"):
        matmul(x, normal(0, 8, 5))  # pyright: ignore[reportArgumentType]
    with pytest.raises(WrongValue, match="a numpy array, found list"):
        matmul(x, packed, out=[1.0])  # pyright: ignore[reportArgumentType]
    with pytest.raises(WrongValue, match="found list"):
        PackedMatrix([[1.0, 2.0]])
    with pytest.raises(WrongValue, match="'bf16'"):
        PackedMatrix(normal(0, 8, 5), "bf16")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WrongRank, match="`matrix`"):
        PackedMatrix(normal(0, 8))
    with pytest.raises(WrongDType, match="`matrix`"):
        PackedMatrix(np.zeros((3, 3)))
