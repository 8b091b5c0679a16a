"""Which scalars and views decide what part of a view a kernel moves."""

import pytest

from pto_wsp import DYN, In, InOut, Out, Scalar, Tensor, Tile, f32, i32, i64, kernel, pto
from pto_wsp.device.kernel_places import Place, places_of_views
from pto_wsp.lang.kernel.kernel import Kernel


@kernel
def whole(x: In[Tensor[f32, DYN, 8]], y: Out[Tensor[f32, DYN, 8]], rows: Scalar[i64]):
    for r in pto.tiles(x.rows, 4):
        pto.store(y[r], x[r])
    for i in range(rows):
        pto.store(y[i : i + 1], x[i : i + 1])


@kernel
def offset(x: In[Tensor[f32, DYN, 8]], y: InOut[Tile[4, 8, f32]], n: Scalar[i64], at: Scalar[i64]):
    first = at * 2 + 1
    for i in range(n):
        pto.store(y, x[first + i : first + i + 4])


@kernel
def range_of_loop(x: In[Tensor[f32, DYN, 8]], y: InOut[Tensor[f32, DYN, 8]], n: Scalar[i64], at: Scalar[i64]):
    for i in range(at, n):
        pto.store(y[i : i + 1], x[i : i + 1])


@kernel
def paged(
    table: In[Tensor[i32, DYN]],
    k: In[Tensor[f32, DYN, 4, 8]],
    y: Out[Tile[4, 8, f32]],
    first: Scalar[i64],
    tokens: Scalar[i64],
):
    acc = pto.zeros((4, 8))
    for i in range((tokens + 3) // 4):
        page = table[first + i]
        acc = acc + k[page]
    pto.store(y, acc)


@kernel
def from_the_end(x: In[Tensor[f32, DYN, 8]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x[x.rows - 4 : x.rows])


@kernel
def gathered(
    x: In[Tensor[f32, DYN, 8]], rows: In[Tile[1, 4, i32]], z: InOut[Tensor[f32, DYN, 8]], by: Scalar[i64]
):
    picked = rows + by
    pto.scatter(z, rows, pto.gather(x, picked))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (whole, {}),
        (offset, {"x": ([1], [])}),
        (range_of_loop, {"x": ([1], []), "y": ([1], [])}),
        (paged, {"k": ([0], [0])}),
        (from_the_end, {"x": ([], [0])}),
        (gathered, {"x": ([0], [1]), "z": ([], [1])}),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else "",
)
def test_what_decides_where_a_kernel_reads_and_writes(made: Kernel, expected: dict[str, Place]) -> None:
    function = made.specialise({}, {})
    found = dict(zip((p.name for p in function.views), places_of_views(function), strict=True))
    assert {name: place for name, place in found.items() if place != ([], [])} == expected
