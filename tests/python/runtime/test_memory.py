"""`pto_wsp.empty`: arrays in huge pages."""

from __future__ import annotations

import numpy as np
import pytest

import pto_wsp
from pto_wsp import bf16, f16, f32, i64
from pto_wsp.runtime.memory import HUGE_PAGE


@pytest.mark.parametrize("dtype", [f32, f16, bf16, i64])
@pytest.mark.parametrize("shape", [0, 7, (0, 5), (3, 0), (1000, 1001), (HUGE_PAGE,), (3, 5, 70000)])
def test_is_an_ordinary_array(shape: int | tuple[int, ...], dtype: pto_wsp.types.DType) -> None:
    array = pto_wsp.empty(shape, dtype)
    assert array.shape == ((shape,) if isinstance(shape, int) else shape)
    assert array.dtype == dtype.to_numpy()
    assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
    assert not array.astype(np.float32).any()
    array[...] = 1
    assert (array.astype(np.float32) == 1).all()
    if array.nbytes >= HUGE_PAGE:
        assert array.ctypes.data % HUGE_PAGE == 0


def test_lives_as_long_as_a_view_of_it() -> None:
    view = pto_wsp.empty((1 << 20,), f32)[5:6]
    view[0] = 3
    assert view.tolist() == [3]


def test_negative_sizes_are_an_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        pto_wsp.empty((3, -1), f32)
