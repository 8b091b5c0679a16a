"""Memory layouts: where pack puts every element, and that unpack brings it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp.errors import WrongRank, WrongShape, WrongValue
from pto_wsp.types.layout import MemLayout

PANELS = MemLayout.panels(4)


@pytest.mark.parametrize("columns", [0, 1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_panels_hold_every_column_once_and_zeros_after_the_last(
    leading: tuple[int, ...], rows: int, columns: int
) -> None:
    array = np.random.default_rng(0).random((*leading, rows, columns), np.float32) + 1
    packed = PANELS.pack(array)
    assert packed.shape == PANELS.physical_dims(array.shape) == (*leading, -(-columns // 4), rows, 4)
    assert packed.flags.c_contiguous and packed.dtype == array.dtype
    for column in range(columns):
        assert np.array_equal(packed[..., column // 4, :, column % 4], array[..., column])
    assert np.count_nonzero(packed) == array.size
    back = PANELS.unpack(packed, columns)
    assert back.flags.c_contiguous and np.array_equal(back, array)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_pack_takes_any_strides_and_element_type(dtype: type) -> None:
    array = np.arange(5 * 6).reshape(6, 5).astype(dtype)
    for view in (array.T, array[::-1], array[:, ::2]):
        packed = PANELS.pack(view)
        assert packed.dtype == dtype
        assert np.array_equal(PANELS.unpack(packed, view.shape[1]), view)


def test_row_major_packs_to_a_contiguous_copy() -> None:
    layout = MemLayout.row_major()
    array = np.arange(12).reshape(3, 4)
    packed = layout.pack(array.T)
    assert packed.flags.c_contiguous and not np.shares_memory(packed, array)
    assert np.array_equal(packed, array.T) and np.array_equal(layout.unpack(packed, 3), array.T)
    assert layout.physical_dims(("n", 4)) == ("n", 4) and layout.accepts(("n",))


def test_layouts_are_values_that_show_how_they_are_made() -> None:
    assert MemLayout.panels(4) == PANELS != MemLayout.panels(8)
    assert repr(PANELS) == "MemLayout.panels(4)" and repr(MemLayout.row_major()) == "MemLayout.row_major()"
    assert len({PANELS, MemLayout.panels(4), MemLayout.row_major()}) == 2
    assert PANELS.physical_dims(("layers", "k", 9)) == ("layers", 3, "k", 4)
    assert not PANELS.accepts(("k", "n")) and not PANELS.accepts((4,))
    with pytest.raises(AttributeError, match="frozen"):
        PANELS.cols = 8  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("cols", [0, -1, 1.5, True, "4", None])
def test_panels_have_a_positive_number_of_columns(cols: Any) -> None:
    with pytest.raises(WrongValue, match="a positive integer"):
        MemLayout.panels(cols)


def test_arrays_that_cannot_be_packed_or_unpacked() -> None:
    with pytest.raises(WrongRank):
        PANELS.pack(np.zeros(4))
    with pytest.raises(WrongRank):
        PANELS.unpack(np.zeros((4, 4)), 4)
    with pytest.raises(WrongRank):
        MemLayout.row_major().unpack(np.zeros(()), 4)
    with pytest.raises(WrongShape, match="dimension 1 "):
        PANELS.unpack(np.zeros((9, 2, 3, 4)), 9)
    with pytest.raises(WrongShape, match="dimension 3 "):
        PANELS.unpack(np.zeros((9, 2, 3, 5)), 8)
    with pytest.raises(WrongShape, match="dimension 1 "):
        MemLayout.row_major().unpack(np.zeros((3, 4)), 5)
