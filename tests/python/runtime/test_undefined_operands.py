"""Instructions without a meaning for their operands fail with shapes and places, the same on every target."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload
from pto_wsp.errors import KernelFailed


@kernel
def reshaped(x: In[Tile[8, 8, f32]], row: Scalar[i64], col: Scalar[i64], y: Out[Tile[8, 8, f32]]):
    wide = pto.reshape(pto.load(x), (4, 16))
    pto.store(y, pto.load(x) + wide[row, col])


@kernel
def extracted(x: In[Tile[8, 8, f32]], row: Scalar[i64], col: Scalar[i64], y: Out[Tile[8, 8, f32]]):
    part = pto.extract(pto.load(x), (2, 4), row, col)
    pto.store(y, pto.load(x) + part[0, 0])


@kernel
def inserted(x: In[Tile[8, 8, f32]], row: Scalar[i64], col: Scalar[i64], y: Out[Tile[8, 8, f32]]):
    pto.store(y, pto.insert(pto.load(x), pto.zeros((2, 4)), row, col))


@kernel
def replaced(x: In[Tile[8, 8, f32]], row: Scalar[i64], col: Scalar[i64], y: Out[Tile[8, 8, f32]]):
    pto.store(y, pto.setval(pto.load(x), 1.0, row, col))


PLACED = "the part reaches outside of the tile: found 2 x 4 at"


@pytest.mark.parametrize(
    ("body", "rows", "place", "says"),
    [
        (reshaped, 6, (0, 0), "the tile has not as many elements as its new shape: found 6 x 8 as 4 x 16"),
        (extracted, 6, (5, 0), f"{PLACED} [5, 0] of 6 x 8"),
        (extracted, 6, (4, -1), f"{PLACED} [4, -1] of 6 x 8"),
        (inserted, 6, (3, 5), f"{PLACED} [3, 5] of 6 x 8"),
        (inserted, 1, (0, 0), f"{PLACED} [0, 0] of 1 x 8"),
        (
            replaced,
            6,
            (6, 2),
            "the element lies outside of the valid part of the tile: found [6, 2] of 6 x 8",
        ),
        (reshaped, 8, (3, 15), ""),
        (extracted, 6, (4, 4), ""),
        (inserted, 2, (0, 4), ""),
        (replaced, 6, (5, 7), ""),
    ],
)
def test_the_failure_has_shapes_and_places(body, rows: int, place: tuple[int, int], says: str) -> None:
    @workload
    def run(X: Tensor[f32, "n", 8], row: Scalar[i64], col: Scalar[i64], Y: Tensor[f32, "n", 8]):
        for r in P.tiles("n", 8):
            body[r](x=X[r], row=row, col=col, y=Y[r])

    found = []
    for target in ("cpu", "interp"):
        y = np.zeros((rows, 8), np.float32)
        arguments = {"X": np.ones((rows, 8), np.float32), "row": place[0], "col": place[1], "Y": y}
        if not says:
            run.compile(target).run(**arguments)
            found.append(y)
            continue
        with pytest.raises(KernelFailed) as caught:
            run.compile(target).run(**arguments)
        assert caught.value.fields["reason"] == says
    assert says or np.array_equal(*found)
