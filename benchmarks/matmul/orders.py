"""One product in three orders of its tasks, which differ in what the caches still hold for the next one."""

from __future__ import annotations

from typing import Any

from pto_wsp import In, Out, P, Program, Tensor, Tile, f32, kernel, panel_cols, pto, workload
from pto_wsp.ops.matmul_program import ROWS, SLAB_COLS

COLS = panel_cols()
M, N, K = 1024, 4096, 4096
PANELS = N // COLS
"""The rows take 16 MB, the matrix 64 MB."""


@kernel
def multiply(x: In[Tile[ROWS, K, f32]], w: In[Tile[K, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]):
    """Some rows by one panel."""
    pto.store(y, pto.matmul(x, w))


def program(panels_together: int) -> Program:
    """Return a program in which all rows meet a group of panels, one per task, then the next group."""

    @workload
    def product(X: Tensor[f32, "m", K], W: Tensor[f32, PANELS, K, COLS], Y: Tensor[f32, "m", N]):
        def task(r: Any, panel: Any) -> None:
            multiply[r, panel](x=X[r], w=W[panel], y=Y[r, COLS * panel : COLS * panel + COLS])

        for slab in P.tiles(PANELS, panels_together):
            for r in P.tiles("m", ROWS):
                for i in P(slab.extent):
                    task(r, slab.start + i)

    return product.compile(target="cpu")


ORDERS = {"slabs": SLAB_COLS // COLS, "rows_first": PANELS, "panels_first": 1}
"""By name: panels that all rows meet before the next ones. Those of `ops.matmul`, all, and one."""
