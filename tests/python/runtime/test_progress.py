"""`progress=` is told how far a run is, and stops it by raising."""

import numpy as np
import pytest

from pto_wsp import DenseDyn, InOut, P, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import WrongValue


@kernel
def bump(x: InOut[Tile[8, 8, f32]]):
    t = pto.load(x)
    pto.store(x, t + 1.0)


@workload
def bump_often(X: Tensor[f32, "n", 8], k: DenseDyn):
    for rows in P.tiles("n", 8):
        for i in P.range(k):
            bump[rows, i](x=X[rows])


PROGRAM = bump_often.compile("cpu")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_it_ends_with_the_number_of_tasks(workers: int) -> None:
    told: list[int] = []
    x = np.zeros((128, 8), np.float32)
    PROGRAM.run(X=x, k=20, workers=workers, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 16 * 20
    assert (x == 20).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_stops_the_run_and_is_raised(workers: int) -> None:
    def give_up(num_complete: int) -> None:
        raise RuntimeError(f"enough after {num_complete > 0}")

    x = np.zeros((128, 8), np.float32)
    with pytest.raises(RuntimeError, match="enough after True"):
        PROGRAM.run(X=x, k=10**12, workers=workers, progress=give_up)
    PROGRAM.run(X=x, k=1, workers=workers)
    assert PROGRAM.stats.tasks == 16


def test_an_exception_at_the_end_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        PROGRAM.run(X=np.zeros((8, 8), np.float32), k=1, progress=lambda done: 1 // 0)


def test_the_interpreter_says_it_at_the_end() -> None:
    told: list[int] = []
    bump_often.compile("interp").run(X=np.zeros((16, 8), np.float32), k=3, progress=told.append)
    assert told == [6]


def test_it_must_be_a_function() -> None:
    with pytest.raises(WrongValue, match="progress"):
        PROGRAM.run(X=np.zeros((8, 8), np.float32), k=1, progress=5)  # pyright: ignore[reportArgumentType]
