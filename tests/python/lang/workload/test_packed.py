"""A range of one row does not index a dimension that packs all rows."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import In, Out, P, Ragged, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import BadIndex
from pto_wsp.lang.workload.workload import Workload


@kernel
def double(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x * 2.0)


@workload
def from_zero(kv: Ragged["batch"], X: Tensor[f32, "tokens", 8], Y: Tensor[f32, "tokens", 8]):
    for b in P("batch"):
        for t in P.tiles(kv[b], 4):
            double[b, t](x=X[t], y=Y[kv[b]][t])


@workload
def again(kv: Ragged["batch"], X: Tensor[f32, "tokens", 8], Y: Tensor[f32, "tokens", 8]):
    """The same name for a range of the whole dimension and for one of a row."""
    for t in P.tiles("tokens", 4):
        double[t](x=X[t], y=Y[t])
    for b in P("batch"):
        for t in P.tiles(kv[b], 4):
            double[b, t](x=X[kv[b]][t], y=Y[t])


@workload
def slices(kv: Ragged["batch"], X: Tensor[f32, "tokens", 8], Y: Tensor[f32, "tokens", 8]):
    for b in P("batch"):
        for t in P.tiles(kv[b], 4):
            double[b, t](x=X[slice(t.start, t.stop)], y=Y[kv[b]][t])


@workload
def table(kv: Ragged["batch"], X: Tensor[f32, "positions", 8], Y: Tensor[f32, "tokens", 8]):
    for b in P("batch"):
        for t in P.tiles(kv[b], 4):
            double[b, t](x=X[t], y=Y[kv[b]][t])


def test_a_range_of_a_row_is_refused_where_rows_are_packed() -> None:
    with pytest.raises(BadIndex) as caught:
        from_zero.trace()
    text = str(caught.value)
    assert "x=X[t]" in text and "`tokens`, which holds all rows of `kv`" in text
    assert "write `X[kv[...][t]]`" in text
    with pytest.raises(BadIndex, match=r"write `Y\[kv\[...\]\[t\]\]`") as caught:
        again.trace()
    assert "y=Y[t]" in str(caught.value) and caught.value.loc is not None


@pytest.mark.parametrize("meant", [slices, table], ids=["slice", "table"])
def test_other_tensors_are_indexed_from_zero(meant: Workload) -> None:
    x, y = np.random.default_rng(1).standard_normal((2, 12, 8), np.float32)
    meant.compile("interp")(kv=Ragged.lengths([5, 0, 7]), X=x, Y=y)
    assert np.array_equal(y, 2 * np.concatenate([x[:5], x[:7]]))
