"""Control waits for what writes the element that it reads, in whatever way it is written."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import Sparse
from pto_wsp.errors import RegionOutside
from tests.python.lang.programs import execute
from tests.python.whole.test_random_data import run

TEXT = """
@kernel
def add(x: InOut[Tile[4, 1, i32]], v: Scalar[i64]):
    pto.store(x, x + v)

@kernel
def add_all(x: InOut[Tensor[i32, DYN, 1]], v: Scalar[i64]):
    for r in pto.tiles(x.rows, 64):
        pto.store(x[r], x[r] + v)

@kernel
def count(y: InOut[Tile[1, 1, f32]], v: Scalar[i64]):
    pto.store(y, y * 0.5 + v)

@workload
def w(rows: Sparse["e"], K: Tensor[i32, 640, 1], M: Tensor[i32, 640, 1], Y: Tensor[f32, "n", 1]):
    for i in P.range("n"):
        WRITE
        with P.when(READ % 3 != 1):
            count(Y[i : i + 1], READ)
        with P.otherwise():
            count(Y[i : i + 1], 100)
"""
WRITES = {
    "rows": ("for r in P.tiles(rows[0], 4): add(K[rows.rows(r)], i + 1)", "K[636, 0]"),
    "whole": ("add_all(M, i + 1)\n        add(M[0:1], 1)", "M[500, 0]"),
    "part": ("add_all(M[0:600], i + 1)\n        add(M[639:640], 1)", "M[512, 0]"),
    "tile": ("for r in P.tiles(640, 4): add(M[r], i + 1)", "M[639, 0]"),
}


@pytest.mark.parametrize("how", WRITES)
def test_control_reads_what_has_been_written(how: str) -> None:
    write, read = WRITES[how]
    program = execute(TEXT.replace("WRITE", write).replace("READ", read))["w"].compile("cpu")  # pyright: ignore
    n, value = 12, 0
    expected = np.zeros((n, 1), np.float32)
    for i in range(n):
        value += i + 1
        expected[i] = value if value % 3 != 1 else 100
    for jitter in range(1, 9):
        y, k, m = np.zeros((n, 1), np.float32), np.zeros((640, 1), np.int32), np.zeros((640, 1), np.int32)
        values = {"rows": Sparse.lists([[4, 636, 7]]), "K": k, "M": m, "Y": y}
        run(program, values, workers=3, jitter=jitter)
        np.testing.assert_array_equal(y, expected)


LATE = """
@kernel
def add(x: InOut[Tile[4, 1, i32]], v: Scalar[i64]):
    pto.store(x, x + v)

@kernel
def count(y: InOut[Tile[1, 1, f32]]):
    pto.store(y, y + 1)

@workload
def w(K: Tensor[i32, 1, 1], Y: Tensor[f32, 4, 1]):
    slot_set_i64(0, 2)
    add(K, 200)
    with P.when(K[0, 0] SIGN 100):
        slot_set_i64(0, 99)
    count(Y[slot_i64(0) : slot_i64(0) + 1])
"""


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_what_late_control_sets_is_late(target: str) -> None:
    k, y = np.zeros((1, 1), np.int32), np.zeros((4, 1), np.float32)
    execute(LATE.replace("SIGN", "<"))["w"].compile(target)(K=k, Y=y)  # pyright: ignore
    assert y.ravel().tolist() == [0, 0, 1, 0]
    k[:] = 0
    with pytest.raises(RegionOutside) as caught:
        execute(LATE.replace("SIGN", ">"))["w"].compile(target)(K=k, Y=y)  # pyright: ignore
    assert caught.value.tasks_before == 1
    assert k[0, 0] == 200
