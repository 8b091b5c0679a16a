"""Loads of the target `cuda` that begin one iteration ahead, in tiles with two places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_wsp import DYN, In, InOut, Out, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload
from pto_wsp.errors import KernelFailed
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.targets.cuda import kernels
from tests.cuda.test_races import code_of, kernels_of, run_checked

COLS = 32


@kernel
def add_rows(
    x: In[Tensor[f32, DYN, COLS]],
    w: In[Tensor[f32, DYN, COLS]],
    y: Out[Tile[1, COLS, f32]],
    first: Scalar[i64],
):
    acc = pto.zeros((1, COLS))
    for r in pto.tiles(x.rows, 8):
        acc = acc * 0.5 + pto.colsum(pto.load(x[r]) * w[r])
    for i in range(first, 7, 2):
        acc = acc + x[i : i + 1] * 3.0
    pto.store(y, acc)


@workload
def add_all(
    X: Tensor[f32, "n", COLS], W: Tensor[f32, "m", COLS], Y: Tensor[f32, 1, COLS], first: Scalar[i64]
):
    add_rows(x=X, w=W, y=Y, first=first)


@kernel
def double(x: InOut[Tensor[f32, DYN, COLS]]):
    for r in pto.tiles(x.rows, 8):
        pto.store(x[r], pto.load(x[r]) * 2.0)


@workload
def double_all(X: Tensor[f32, "n", COLS]):
    double(x=X)


@kernel
def jump(x: In[Tensor[f32, DYN, COLS]], y: Out[Tile[8, COLS, f32]]):
    acc, at = pto.zeros((8, COLS)), 0
    for i in range(3):
        acc = acc + x[at : at + 8]
        at = at + i
    pto.store(y, acc)


@workload
def jump_all(X: Tensor[f32, "n", COLS], Y: Tensor[f32, 8, COLS]):
    jump(x=X, y=Y)


@kernel
def add_large(x: In[Tensor[f32, DYN, 128]], w: In[Tensor[f32, DYN, 128]], y: Out[Tile[1, 128, f32]]):
    acc = pto.zeros((1, 128))
    for r in pto.tiles(x.rows, 64):
        acc = acc + pto.colsum(pto.load(x[r])) + pto.colsum(pto.load(w[r]))
    pto.store(y, acc)


@workload
def add_all_large(X: Tensor[f32, "n", 128], W: Tensor[f32, "n", 128], Y: Tensor[f32, 1, 128]):
    add_large(x=X, w=W, y=Y)


@kernel
def add_broadcast(x: In[Tensor[f32, DYN, COLS]], y: Out[Tile[16, 16, f32]]):
    acc = pto.zeros((16, 16))
    for i in range(x.rows):
        acc = acc + x[i : i + 1, 0:16]
    pto.store(y, acc)


@workload
def broadcast_all(X: Tensor[f32, "n", COLS], Y: Tensor[f32, 16, 16]):
    add_broadcast(x=X, y=Y)


@pytest.mark.parametrize(
    ("of", "loads"),
    [(add_all, 3), (broadcast_all, 1), (add_all_large, 1), (double_all, 0), (jump_all, 0)],
    ids=[
        "of two loops",
        "of rows",
        "as far as two places fit",
        "not of what it stores",
        "not of moving rows",
    ],
)
def test_which_loads_begin_ahead(of: Workload, loads: int) -> None:
    assert code_of(kernels_of(of)).count("+ place * ") == loads


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("n", [7, 8, 9, 16, 23, 40])
def test_results_have_the_bits_of_loads_in_place(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(n)
    x, w = rng.standard_normal((2, n, COLS)).astype(np.float32)
    found = []
    for is_ahead in (True, False):
        if not is_ahead:
            monkeypatch.setattr(kernels, "loads_ahead", lambda of: [])
        program = add_all.compile("cuda")
        for first in (0, 3, 6, 7, 9):
            y = np.full((1, COLS), np.nan, np.float32)
            program(X=x, W=w, Y=y, first=first)
            found.append(y)
    np.testing.assert_array_equal(found[:5], found[5:])
    assert np.isfinite(found).all()


@pytest.mark.usefixtures("gpu")
def test_a_load_that_fails_does_so_in_its_iteration() -> None:
    """The load ahead of it begins nothing, and the task's own check fails."""
    program = add_all.compile("cuda")
    x = np.ones((5, COLS), np.float32)
    y = np.zeros((1, COLS), np.float32)
    for first, fails in ((1, 5), (0, 6), (-2, -2)):
        with pytest.raises(KernelFailed, match=rf"i = {fails}\b"):
            program(X=x, W=x.copy(), Y=y, first=first)
    with pytest.raises(KernelFailed, match=r"r = 0\b"):
        program(X=x, W=x[:3].copy(), Y=y, first=7)


def test_copies_of_two_places_do_not_race(tmp_path: Path) -> None:
    kernels = kernels_of(add_all, broadcast_all, double_all, jump_all)
    done = run_checked(kernels, code_of(kernels), tmp_path)
    assert done.returncode == 0, done.stderr[:3000]
    kernels = kernels_of(broadcast_all)
    text, met = code_of(kernels), "finish_copies();\n    sync();"
    assert text.count(met) == 1
    assert "data race" in run_checked(kernels, text.replace(met, "finish_copies();"), tmp_path).stderr
