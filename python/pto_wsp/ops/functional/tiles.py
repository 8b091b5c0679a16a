"""Workloads that apply a kernel to matrices tile by tile."""

# Annotations depend on the element type, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from __future__ import annotations

from typing import Any, Final

from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.workload.loops import P
from pto_wsp.lang.workload.tensor import Tensor
from pto_wsp.lang.workload.workload import Workload, workload
from pto_wsp.types import f32
from pto_wsp.types.dtype import DType

ROWS: Final = 8
COLS: Final = 8192
"""Elements of an elementwise task: they pass through registers, so that a tile takes no memory."""


def over_tiles(kernel: Any, dtype: DType, scalars: int = 0) -> Workload:
    """Return the workload y = kernel(x, numbers): as many numbers as `scalars`, called a and b."""

    @workload
    def plain(X: Tensor[dtype, "n", "m"], Y: Tensor[dtype, "n", "m"]):
        for r in P.tiles("n", ROWS):
            for c in P.tiles("m", COLS):
                kernel[r, c](x=X[r, c], y=Y[r, c])

    @workload
    def with_a(X: Tensor[dtype, "n", "m"], Y: Tensor[dtype, "n", "m"], a: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            for c in P.tiles("m", COLS):
                kernel[r, c](x=X[r, c], y=Y[r, c], a=a)

    @workload
    def with_a_b(X: Tensor[dtype, "n", "m"], Y: Tensor[dtype, "n", "m"], a: Scalar[f32], b: Scalar[f32]):
        for r in P.tiles("n", ROWS):
            for c in P.tiles("m", COLS):
                kernel[r, c](x=X[r, c], y=Y[r, c], a=a, b=b)

    return (plain, with_a, with_a_b)[scalars].named(kernel.name.removeprefix("tile_"))


def over_pairs(kernel: Any, dtype: DType, scalars: int = 0) -> Workload:
    """Return the workload y = kernel(x, t, numbers): as many numbers as `scalars`, called a."""

    @workload
    def plain(X: Tensor[dtype, "n", "m"], T: Tensor[dtype, "n", "m"], Y: Tensor[dtype, "n", "m"]):
        for r in P.tiles("n", ROWS):
            for c in P.tiles("m", COLS):
                kernel[r, c](x=X[r, c], t=T[r, c], y=Y[r, c])

    @workload
    def with_a(
        X: Tensor[dtype, "n", "m"], T: Tensor[dtype, "n", "m"], Y: Tensor[dtype, "n", "m"], a: Scalar[f32]
    ):
        for r in P.tiles("n", ROWS):
            for c in P.tiles("m", COLS):
                kernel[r, c](x=X[r, c], t=T[r, c], y=Y[r, c], a=a)

    return (plain, with_a)[scalars].named(kernel.name.removeprefix("tile_"))
