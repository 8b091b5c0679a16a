"""A kernel that never ends is stopped in its loop: by Ctrl-C, `cancel`, a time limit, or a dropped run."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import DenseDyn, InOut, P, Program, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload
from pto_wsp.errors import RunInterrupted, TimeLimitReached, WrongValue
from tests.python.runtime.test_interrupts import run_script

TARGETS = ("cpu", "interp")


@kernel
def spin(x: InOut[Tile[1, 8, f32]], turns: Scalar[i64]):
    t, i = pto.load(x), 0
    while i < turns:
        t, i = t * 0.5, i * 1
    pto.store(x, t)


@workload
def spins(X: Tensor[f32, "n", 8], turns: Scalar[i64]):
    for i in P("n"):
        spin[i](x=X[i : i + 1], turns=turns)


@kernel
def count(x: InOut[Tile[1, 8, f32]], turns: Scalar[i64]):
    t = pto.load(x)
    for _i in range(turns):
        for _j in range(4):
            t = t + 1
    pto.store(x, t)


@workload
def counts(X: Tensor[f32, "n", 8], turns: Scalar[i64], k: DenseDyn):
    for _ in P.range(k):
        for i in P("n"):
            count[i](x=X[i : i + 1], turns=turns)


@pytest.fixture(scope="module", params=TARGETS)
def program(request: pytest.FixtureRequest) -> Program:
    return spins.compile(request.param)


def rows(n: int = 3) -> np.ndarray:
    return np.ones((n, 8), np.float32)


def works(program: Program) -> None:
    """The program runs to its end when nothing is endless."""
    x = rows()
    program.run(X=x, turns=0, workers=2)
    assert (x == 1).all()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_time_limit_ends_a_kernel(program: Program, workers: int) -> None:
    start = time.perf_counter()
    with pytest.raises(TimeLimitReached, match=r"time limit of 0\.2 s"):
        program.run(X=rows(), turns=1, workers=workers, time_limit=0.2)
    assert 0.2 <= time.perf_counter() - start < 10
    works(program)


@pytest.mark.parametrize("workers", [1, 2])
def test_cancel_ends_a_kernel(program: Program, workers: int) -> None:
    timer = threading.Timer(0.1, program.cancel)
    timer.start()
    with pytest.raises(RunInterrupted, match="it was cancelled"):
        program.run(X=rows(), turns=1, workers=workers)
    timer.join()
    works(program)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_submitted_run_is_stopped(workers: int) -> None:
    program = spins.compile("cpu")
    run = program.submit(X=rows(), turns=1, workers=workers, time_limit=0.1)
    with pytest.raises(TimeLimitReached, match=r"kernel `spin` was stopped in a loop, in task [012] in"):
        run.wait()
    run = program.submit(X=rows(), turns=1, workers=workers)
    time.sleep(0.05)
    run.cancel()
    with pytest.raises(RunInterrupted, match="kernel `spin` was stopped in a loop"):
        run.wait()
    run = program.submit(X=rows(), turns=1, workers=workers)
    time.sleep(0.05)
    del run  # waits until no task runs
    works(program)


def test_a_time_limit_ends_a_run_between_tasks_and_in_long_loops() -> None:
    program = counts.compile("cpu")
    with pytest.raises(TimeLimitReached):
        program.run(X=rows(), turns=2**40, k=1, workers=1, time_limit=0.1)
    with pytest.raises(TimeLimitReached):
        program.run(X=rows(), turns=1, k=10**12, workers=2, time_limit=0.1)


def test_a_run_within_its_limit_is_not_stopped() -> None:
    for target in TARGETS:
        x = rows()
        counts.compile(target).run(X=x, turns=10, k=2, workers=2, time_limit=60)
        assert (x == 81).all()


@pytest.mark.parametrize("limit", [0, -1, float("nan"), True, "1", 1e30])
def test_a_time_limit_is_a_positive_number(program: Program, limit: object) -> None:
    with pytest.raises(WrongValue, match="time_limit"):
        program.run(X=rows(), turns=0, time_limit=limit)  # pyright: ignore[reportArgumentType]


@kernel(cpp_src="while (!pto::wsp::tile::must_stop(&context)) {}")
def spin_in_cpp(x: InOut[Tile[1, 8, f32]]): ...


@workload
def spins_in_cpp(X: Tensor[f32, "n", 8]):
    for i in P("n"):
        spin_in_cpp[i](x=X[i : i + 1])


def test_a_cpp_kernel_can_ask() -> None:
    program = spins_in_cpp.compile("cpu")
    with pytest.raises(TimeLimitReached):
        program.run(X=rows(), workers=2, time_limit=0.1)


SCRIPT = """
import os, signal, sys, threading
import numpy as np
from tests.python.runtime.test_stopped_kernels import rows, spins, works

program = spins.compile(sys.argv[1])
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    program.run(X=rows(), turns=1, workers=int(sys.argv[2]))
except KeyboardInterrupt:
    works(program)
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("target", "workers"), [("cpu", "1"), ("cpu", "2"), ("interp", "1")])
def test_one_ctrl_c_ends_a_kernel(target: str, workers: str, tmp_path: Path) -> None:
    done = run_script(SCRIPT, tmp_path, target, workers)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
