"""Memory layouts: how the elements of a workload's tensor lie in the array that a run binds to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.errors import WrongRank, WrongShape, WrongValue
from pto_wsp.location import caller_location
from pto_wsp.support.arrays import is_masked
from pto_wsp.support.record import record


@record
class MemLayout:
    """How a tensor lies in memory: `MemLayout.row_major()`, or `MemLayout.panels(cols)`.

    In panels, the last two dimensions [K, N] lie as [ceil(N / cols), K, cols]: the columns of a panel are
    side by side in every row, and what the last panel has beyond N is zero.

    Attributes:
        cols: columns of a panel, or None in row-major order.
    """

    cols: int | None = None

    @classmethod
    def row_major(cls) -> MemLayout:
        """The layout that tensors have unless they say another."""
        return cls()

    @classmethod
    def panels(cls, cols: int) -> MemLayout:
        """Panels of `cols` columns.

        Raises:
            WrongValue: `cols` is not a positive integer.
        """
        if isinstance(cols, bool) or not isinstance(cols, (int, np.integer)) or cols <= 0:
            raise WrongValue(
                name="cols", expected="a positive integer", found=repr(cols), loc=caller_location()
            )
        return cls(int(cols))

    def __repr__(self) -> str:
        return "MemLayout.row_major()" if self.cols is None else f"MemLayout.panels({self.cols})"

    def accepts(self, dims: Sequence[int | str]) -> bool:
        """Whether a tensor of these sizes can lie so: panels need two dimensions, the last one a number."""
        return self.cols is None or (len(dims) >= 2 and isinstance(dims[-1], int))

    def physical_dims(self, dims: Sequence[int | str]) -> tuple[int | str, ...]:
        """Return the sizes of the array that holds a tensor of sizes `dims`, which the layout accepts."""
        if self.cols is None:
            return tuple(dims)
        *leading, rows, columns = dims
        assert isinstance(columns, int)
        return (*leading, -(-columns // self.cols), rows, self.cols)

    def pack(self, array: np.ndarray) -> np.ndarray:
        """Return a new C-contiguous array that holds `array` in this layout.

        Args:
            array: [..., K, N] in any strides.

        Returns:
            [..., ceil(N / cols), K, cols], or [..., K, N] in row-major order.

        Raises:
            WrongValue: `array` is not an array of numpy, or has a mask.
            WrongRank: fewer than two dimensions, for panels.
        """
        if not isinstance(array, np.ndarray) or is_masked(array):
            found = "a masked array" if is_masked(array) else type(array).__name__
            raise WrongValue(name="array", expected="a numpy array", found=found, loc=caller_location())
        if self.cols is None:
            return np.array(array, order="C")
        if array.ndim < 2:
            raise WrongRank(name="array", expected="at least 2", found=array.ndim, loc=caller_location())
        packed = np.empty([int(d) for d in self.physical_dims(array.shape)], array.dtype)
        self.pack_into(packed, array)
        return packed

    def pack_into(self, packed: np.ndarray, array: np.ndarray) -> None:
        """Write `array` [..., K, N] into `packed`, which has the shape of `physical_dims` and any type."""
        if self.cols is None:
            packed[...] = array
            return
        whole = array.shape[-1] // self.cols
        for panel in range(whole):
            start = panel * self.cols
            packed[..., panel, :, :] = array[..., start : start + self.cols]
        if whole < packed.shape[-3]:
            rest = array.shape[-1] - whole * self.cols
            packed[..., whole, :, :rest] = array[..., whole * self.cols :]
            packed[..., whole, :, rest:] = 0

    def unpack(self, array: np.ndarray, n: int) -> np.ndarray:
        """Return a new C-contiguous array [..., K, n] from one that `pack` made of it.

        Raises:
            WrongRank, WrongShape: `array` does not hold `n` columns in this layout.
        """
        rank = 1 if self.cols is None else 3
        if array.ndim < rank:
            raise WrongRank(
                name="array", expected=f"at least {rank}", found=array.ndim, loc=caller_location()
            )
        wanted = (n,) if self.cols is None else (-(-n // self.cols), array.shape[-2], self.cols)
        for dim, (expected, found) in enumerate(
            zip(wanted, array.shape[-rank:], strict=True), array.ndim - rank
        ):
            if expected != found:
                raise WrongShape(name="array", dim=dim, expected=expected, found=found, loc=caller_location())
        if self.cols is None:
            return np.array(array, order="C")
        logical = np.empty((*array.shape[:-3], array.shape[-2], n), array.dtype)
        for panel in range(wanted[0]):
            part = logical[..., panel * self.cols : (panel + 1) * self.cols]
            part[...] = array[..., panel, :, : part.shape[-1]]
        return logical


ROW_MAJOR = MemLayout.row_major()
