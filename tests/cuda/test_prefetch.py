"""Prefetches of the target `cuda`: which lines of global memory they ask for."""

from __future__ import annotations

import numpy as np

from pto_wsp import DYN, In, Out, Scalar, Tensor, Tile, f32, i32, i64, kernel, pto, workload
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.cuda.emit import emit_device_code
from tests.cuda.emulated import EmulatedCuda, asked
from tests.python.targets import ctypes_abi

ROWS, COLS, PART = 4, 211, 70


@kernel
def ask(x: In[Tensor[f32, DYN, DYN]], rows: In[Tile[1, 3, i32]], at: Scalar[i64], y: Out[Tile[1, 1, f32]]):
    pto.prefetch(x[:, at : at + 70], pto.load(rows))
    pto.prefetch(x[1:3, 0:1])
    pto.store(y, pto.zeros((1, 1)))


@workload
def ask_all(X: Tensor[f32, "n", "m"], R: Tensor[i32, 1, 3], Y: Tensor[f32, 1, 1], at: Scalar[i64]):
    ask(x=X, rows=R, at=at, y=Y)


def test_lines(cache: ArtifactCache) -> None:
    """All lines of the parts, and no others: parts that begin inside a line, rows by number, a column."""
    (function,) = ask_all.trace().module.kernels
    assert "prefetch(" in emit_device_code([function]).text
    x, y = np.zeros((ROWS, COLS), np.float32), np.ones((1, 1), np.float32)
    artifact = EmulatedCuda().build([function], cache)
    asked(artifact)  # other tests of the process
    for start in (*range(33), COLS - PART):
        values = [x, np.array([[3, 0, 3]], np.int32), start, y]
        assert ctypes_abi.load(artifact).call(function, values) == 0
        places = [(i, j) for i in (0, 3) for j in range(start, start + PART)] + [(1, 0), (2, 0)]
        wanted = {(x.ctypes.data + 4 * (COLS * i + j)) // 128 for i, j in places}
        assert {address // 128 for address in asked(artifact)} == wanted, start
