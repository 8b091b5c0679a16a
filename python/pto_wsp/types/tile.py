"""Types of kernel parameters and tiles, and of workload tensors."""

from __future__ import annotations

from typing import Final

from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType
from pto_wsp.types.space import Space


class _Dyn:
    """The type of `DYN`."""

    def __repr__(self) -> str:
        return "DYN"


DYN: Final = _Dyn()
"""A dimension of a kernel's tensor view whose extent is known only at run time."""


MAX_TILE_BYTES = 1 << 24
"""A tile larger than this is a mistake: it would not fit the scratch memory of any core."""


@record
class TileType:
    """A tile: static shape [rows, cols] (its capacity); the valid part is known at run time.

    Without a `space`, the target chooses where it lies.
    """

    rows: int
    cols: int
    dtype: DType
    space: Space | None = None

    def __str__(self) -> str:
        space = "" if self.space is None else f",{self.space.value}"
        return f"tile<{self.rows}x{self.cols}x{self.dtype}{space}>"

    @property
    def shape(self) -> tuple[int, int]:
        """Static rows and columns."""
        return (self.rows, self.cols)

    @property
    def num_bytes(self) -> int:
        """Bytes of its elements."""
        return self.rows * self.cols * self.dtype.itemsize


@record
class ViewType:
    """A kernel's strided view of a tensor. A dimension is an int, or None when known only at run time.

    `dims` is None for a bare `Tensor`: the kernel is specialised per element type and rank when it is used;
    `dtype` is then None too.
    """

    dtype: DType | None
    dims: tuple[int | None, ...] | None

    def __str__(self) -> str:
        if self.dims is None:
            return "view<...>"
        return "view<" + "x".join("?" if d is None else str(d) for d in self.dims) + f"x{self.dtype}>"


@record
class ScalarType:
    """A scalar parameter of a kernel or workload."""

    dtype: DType

    def __str__(self) -> str:
        return str(self.dtype)


@record
class TensorType:
    """A tensor of a workload. A dimension is an int, or the name of a size shared by all that use it.

    Tensors of a call are in global memory. Those that the run makes lie in `space`, or where the target
    chooses.
    """

    dtype: DType
    dims: tuple[int | str, ...]
    space: Space | None = None

    def __str__(self) -> str:
        return "tensor<" + "x".join(str(d) for d in self.dims) + f"x{self.dtype}>"
