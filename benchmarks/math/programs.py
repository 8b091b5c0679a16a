"""A workload for each function: y = f(x), any number of times over the same rows."""

from __future__ import annotations

from typing import Any

from pto_wsp import DenseDyn, In, Out, P, Tensor, Tile, f32, kernel, pto, workload

COLS = 128
ROWS = 32
"""Rows per task: what is read and written stays in the first cache."""


def elementwise(name: str) -> Any:
    """Return the workload of the function `pto.<name>`."""
    function = getattr(pto, name)

    @kernel
    def apply(x: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
        pto.store(y, function(x))

    @workload
    def apply_all(times: DenseDyn, X: Tensor[f32, "n", COLS], Y: Tensor[f32, "n", COLS]):
        for i in P.range(times):
            for rows in P.tiles("n", ROWS):
                apply[i, rows](x=X[rows], y=Y[rows])

    return apply_all
