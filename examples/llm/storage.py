"""How a matrix of weights lies in memory: panels of columns, in a quantised format or as floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_wsp import MemLayout, Tensor, bf16, f16, f32, u8
from pto_wsp.types.dtype import DType
from pto_wsp.types.ggml_blocks import from_ggml
from pto_wsp.types.quantised import FORMATS, Format, Numbers, joined_numbers, pack

FLOATS: dict[str, DType] = {"f32": f32, "f16": f16, "bf16": bf16}


@dataclass(frozen=True)
class Storage:
    """A matrix [k, n] in panels.

    Attributes:
        kind: a name of `FLOATS`, or of a quantised format.
        k: rows, which products add up.
        n: columns.
        cols: columns of a panel; those of the last panel after column n are zeros.
    """

    kind: str
    k: int
    n: int
    cols: int

    @property
    def form(self) -> Format | None:
        """The quantised format, or None for floats."""
        return FORMATS.get(self.kind)

    @property
    def dtype(self) -> DType:
        """Element type of the array."""
        return u8 if self.form else FLOATS[self.kind]

    @property
    def dims(self) -> tuple[int, int, int]:
        """Sizes of the array: panels, blocks or rows, and bytes or columns."""
        panels = -(-self.n // self.cols)
        if self.form is None:
            return panels, self.k, self.cols
        return panels, self.k // self.form.block, self.cols * self.form.column_bytes

    def view(self, panels: Any) -> Any:
        """Return the type of a kernel's parameter for some panels."""
        _, depth, row = self.dims
        return Tensor[self.dtype, panels, depth, row]

    def pack(self, matrix: Matrix) -> np.ndarray:
        """Return the array that holds a matrix."""
        if self.form is not None:
            return pack(matrix.numbers(), self.cols)
        array = matrix.floats().T.astype(self.dtype.to_numpy())
        panels = self.dims[0]
        padded = np.pad(array, ((0, 0), (0, panels * self.cols - self.n)))
        return MemLayout.panels(self.cols).pack(padded)


@dataclass(frozen=True)
class Matrix:
    """A matrix as files hold it, [n, k]: a row per output.

    Attributes:
        kind: as `Storage.kind`.
        array: [n, k] floats; [n, bytes] u8 with blocks of a format; or the numbers of a matrix [k, n].
        k: elements of a row.
    """

    kind: str
    array: np.ndarray | Numbers
    k: int

    @classmethod
    def of(cls, numbers: Numbers) -> Matrix:
        """Return the matrix of numbers."""
        return cls(numbers.format.name, numbers, len(numbers.q))

    @property
    def n(self) -> int:
        """Outputs."""
        return self.array.q.shape[1] if isinstance(self.array, Numbers) else len(self.array)

    def rows(self, order: np.ndarray) -> Matrix:
        """Return the matrix with its outputs in another order."""
        if isinstance(self.array, Numbers):
            return Matrix.of(self.array.columns(order))
        return Matrix(self.kind, self.array[order], self.k)

    def floats(self) -> np.ndarray:
        """Return the elements of a matrix that is not quantised, [n, k] as stored."""
        assert not isinstance(self.array, Numbers) and self.kind in FLOATS
        return self.array

    def numbers(self) -> Numbers:
        """Return the numbers of a quantised matrix [k, n]."""
        if isinstance(self.array, Numbers):
            return self.array
        return from_ggml(self.array, FORMATS[self.kind])

    def values(self) -> np.ndarray:
        """Return the elements, [n, k] f32."""
        if self.kind in FLOATS:
            return self.floats().astype(np.float32)
        return self.numbers().values().T

    def stored(self, cols: int) -> Storage:
        """Return how it is stored in panels of `cols` columns."""
        return Storage(self.kind, self.k, self.n, cols)


def joined(parts: Sequence[Matrix]) -> Matrix:
    """Return the outputs of matrices one after the other."""
    first = parts[0]
    if isinstance(first.array, Numbers):
        return Matrix.of(joined_numbers([part.numbers() for part in parts]))
    return Matrix(first.kind, np.concatenate([part.floats() for part in parts]), first.k)


def divisor(count: int, most: int, step: int = 1) -> int:
    """Return the largest multiple of `step` that divides `count` and is at most `most`, or 0."""
    return max((d for d in range(step, most + 1, step) if count % d == 0), default=0)
