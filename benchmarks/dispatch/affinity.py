"""Tiles that every step changes: what it is worth that a tile stays with a worker, in its second cache."""

from __future__ import annotations

from pto_wsp import DispatchPolicy, InOut, P, Program, Tensor, Tile, f32, kernel, pto, workload

ROWS, COLS = 64, 256
"""Of a tile, 64 KB."""

TILES, STEPS = 8, 500
"""Half of the tiles fit the second cache of a worker."""


@kernel
def change(y: InOut[Tile[ROWS, COLS, f32]]):
    """One step of one tile."""
    pto.store(y, y + 1.0)


def program(dispatch: DispatchPolicy) -> Program:
    """Return the program: every step has one task per tile, which follows that of the step before."""

    @workload
    def steps(Y: Tensor[f32, TILES, ROWS, COLS]):
        for s, i in P(STEPS, TILES):
            change[s, i](y=Y[i])

    return steps.dispatch(dispatch).compile(target="cpu")


POLICIES = {
    "affinity": DispatchPolicy.affinity(lambda t: t.i, 2),
    "stealing": DispatchPolicy.work_steal(2),
    "turns": DispatchPolicy.affinity(lambda t: t.s + t.i, 2),
}
"""By name: a tile stays with a worker, work goes where there is time, and workers take turns with a tile."""
