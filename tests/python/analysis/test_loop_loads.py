"""How many iterations a loop has at most, and which tiles it loads every time."""

from __future__ import annotations

import sys

import pytest

from pto_wsp import DYN, In, InOut, Scalar, Tensor, Tile, f32, i64, kernel, pto
from pto_wsp.analysis.loop_loads import loaded_tiles, most_turns
from pto_wsp.ir.kernel import For, walk_statements
from pto_wsp.ir.scalar import Const


@kernel
def loops(x: In[Tile[32, 8, f32]], y: In[Tensor[f32, 40, DYN, 8]], n: Scalar[i64], o: InOut[Tile[1, 8, f32]]):
    for r in pto.tiles(x.rows, 32):
        pto.store(o, o + pto.colsum(x[r]))
    for r in pto.tiles(x.rows, 16):
        pto.store(o, o + pto.colsum(x[r]))
    for i in range(y.shape[0]):
        pto.store(o, o + y[i, 0:1])
    for i in range(y.shape[1]):
        pto.store(o, o + y[0, i : i + 1])
    for i in range(n):
        pto.store(o, o + y[i, 0:1])
    for i in range(3):
        pto.store(o, o + y[i, 0:1])


LOOPS = loops.specialise({}, {})


def test_types_of_parameters_bound_loops() -> None:
    found = [s for s in walk_statements(LOOPS.body or ()) if isinstance(s, For)]
    assert [most_turns(loop, LOOPS) for loop in found] == [1, 2, 40, sys.maxsize, sys.maxsize, 3]
    of_loops = loaded_tiles(LOOPS).values()
    assert not any(loop is found[0] for loop in of_loops)
    assert any(loop is found[1] for loop in of_loops)


@pytest.mark.parametrize("step", [1, 7])
def test_the_start_of_a_loop_counts(step: int) -> None:
    loop = For("i", Const(2), Const(30), step, ())
    assert most_turns(loop, LOOPS) == len(range(2, 30, step))
