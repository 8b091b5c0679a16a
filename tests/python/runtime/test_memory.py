"""`pto_wsp.empty`: arrays in huge pages."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_wsp
from pto_wsp import In, Out, Tensor, Tile, bf16, f16, f32, i64, kernel, pto, workload
from pto_wsp.errors import WrongValue
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


@pytest.mark.parametrize("shape", [-1, (3, -1), 2.5, (1.0,), "34", None, True, {3}, np.float32(3)])
def test_what_is_no_size_is_named(shape: Any) -> None:
    with pytest.raises(WrongValue, match="integers >= 0"):
        pto_wsp.empty(shape, f32)


@pytest.mark.parametrize("shape", [np.int64(3), (np.int32(3),), [3]])
def test_any_integer_is_a_size(shape: Any) -> None:
    assert pto_wsp.empty(shape, f32).shape == (3,)


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("f4"), "f32", None])
def test_what_is_no_element_type_is_named(dtype: Any) -> None:
    with pytest.raises(WrongValue, match="an element type"):
        pto_wsp.empty(3, dtype)


# --- memory is touched by those who use it alone, so that it lies where they run ---

LARGE = 2048
"""Rows and columns of a tile of 16 MiB."""


@kernel
def turn_twice(x: In[Tile[LARGE, LARGE, f32]], y: Out[Tile[LARGE, LARGE, f32]]):
    turned = pto.transpose(x + 1)
    pto.store(y, pto.transpose(turned * 2))


@workload
def one_task(X: Tensor[f32, "n", "k"], Y: Tensor[f32, "n", "k"]):
    turn_twice(x=X, y=Y)


def resident_bytes() -> int:
    """Return how much memory of this process was touched."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


@needs_proc
def test_arrays_are_not_touched_before_their_user_does() -> None:
    before = resident_bytes()
    array = pto_wsp.empty((LARGE, LARGE), f32)
    assert resident_bytes() - before < array.nbytes // 4


@needs_proc
def test_workers_touch_of_their_tiles_what_is_valid() -> None:
    program = one_task.compile(target="cpu")
    x, y = np.ones((5, 7), np.float32), np.zeros((5, 7), np.float32)
    before = resident_bytes()
    program(X=x, Y=y)
    assert (y == 4).all()
    assert resident_bytes() - before < LARGE * LARGE * 4  # of two tiles
