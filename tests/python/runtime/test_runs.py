"""`Program.submit`: runs under way, waited for, cancelled, dropped and refused."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    InOut,
    P,
    Program,
    Run,
    RunStats,
    Schedule,
    StartPolicy,
    Tensor,
    Tile,
    f32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import ArraysInFlight, NestedRun, NotYetSupported, RunInterrupted

ROOT = Path(__file__).parents[3]


@kernel
def bump(x: InOut[Tile[8, 8, f32]]):
    t = pto.load(x)
    pto.store(x, t + 1.0)


@workload
def bump_often(X: Tensor[f32, "n", 8], k: DenseDyn):
    for i in P.range(k):
        for rows in P.tiles("n", 8):
            bump[i, rows](x=X[rows])


CPU, INTERP = bump_often.compile("cpu"), bump_often.compile("interp")
ENDLESS = 10**12


def zeros() -> np.ndarray:
    return np.zeros((64, 8), np.float32)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_run_is_waited_for(workers: int) -> None:
    x = zeros()
    run = CPU.submit(X=x, k=5, workers=workers)
    stats = run.wait()
    assert isinstance(run, Run) and isinstance(stats, RunStats)
    assert (run.done, stats.tasks, stats.workers, stats.run) == (True, 40, workers, run.number)
    assert run.wait() is stats and run.stats is stats
    assert CPU.stats == stats
    assert (x == 5).all()


def test_a_run_that_no_thread_waits_for_is_done() -> None:
    x = zeros()
    run = CPU.submit(X=x, k=5, workers=1)
    limit = time.monotonic() + 10
    while not run.done:
        assert time.monotonic() < limit
        time.sleep(0.001)
    assert run.stats is None
    assert (x == 5).all()
    assert run.wait().tasks == 40


def test_runs_of_one_program_are_under_way_at_once() -> None:
    arrays = [zeros() for _ in range(5)]
    endless = CPU.submit(X=zeros(), k=ENDLESS, workers=2)
    runs = [CPU.submit(X=x, k=i, workers=2) for i, x in enumerate(arrays)]
    numbers = [run.number for run in runs]
    assert numbers == sorted(set(numbers))
    for i, run in reversed(list(enumerate(runs))):
        assert run.wait().tasks == 8 * i
        assert (arrays[i] == i).all()
    assert not endless.done
    endless.cancel()
    with pytest.raises(RunInterrupted, match="cancelled"):
        endless.wait()
    assert endless.done


def test_runs_that_keep_graphs_are_under_way_at_once() -> None:
    program = bump_often.task_graph(start=StartPolicy.after_build()).compile("cpu")
    for _ in range(3):
        arrays = [zeros() for _ in range(3)]
        runs = [program.submit(X=x, k=20, workers=2) for x in arrays]
        for run in runs:
            run.wait()
        assert all((x == 20).all() for x in arrays)


def test_the_program_cancels_all_its_runs() -> None:
    runs = [CPU.submit(X=zeros(), k=ENDLESS, workers=workers) for workers in (1, 2)]
    CPU.cancel()
    for run in runs:
        with pytest.raises(RunInterrupted, match="cancelled"):
            run.wait()


def test_a_run_that_is_done_is_not_cancelled() -> None:
    run = CPU.submit(X=zeros(), k=1)
    run.wait()
    run.cancel()
    assert run.wait().tasks == 8


def test_a_dropped_run_stops() -> None:
    x = zeros()
    run = CPU.submit(X=x, k=ENDLESS, workers=2)
    while x[0, 0] == 0:
        time.sleep(0.001)
    del run
    gc.collect()
    before = x.copy()
    time.sleep(0.02)
    assert (x == before).all()
    CPU(X=x, k=1)


def test_a_run_holds_its_arrays() -> None:
    x = zeros()
    run = CPU.submit(X=x, k=100)
    view = x[:]
    del x
    run.wait()
    assert (view == 100).all()


def test_arrays_of_an_unfinished_run_are_refused() -> None:
    x = np.zeros((128, 8), np.float32)
    run = CPU.submit(X=x[:64], k=ENDLESS)
    other = bump_often.compile("cpu")
    for program in (CPU, other):
        with pytest.raises(ArraysInFlight) as caught:
            program.submit(X=x[32:96], k=1)
        assert caught.value.code == "arrays-in-flight"
        assert caught.value.loc is not None
        assert [place for _, place in caught.value.notes] == [run.location]
    with pytest.raises(ArraysInFlight):
        other(X=x[63:], k=1)
    other(X=x[64:], k=3)
    run.cancel()
    with pytest.raises(RunInterrupted):
        run.wait()
    other(X=x[32:96], k=1)
    assert (x[64:96] == 4).all()


def test_a_call_in_another_thread_is_named() -> None:
    x = zeros()
    CPU(X=x, k=0)

    def call() -> None:
        with pytest.raises(RunInterrupted):
            CPU(X=x, k=ENDLESS)

    thread = threading.Thread(target=call)
    thread.start()
    while x[0, 0] == 0:
        time.sleep(0.001)
    try:
        with pytest.raises(ArraysInFlight) as caught:
            CPU.submit(X=x, k=1)
    finally:
        CPU.cancel()
        thread.join()
    (_, place), *_ = caught.value.notes
    assert place is not None and place.source_line() == "            CPU(X=x, k=ENDLESS)"


def test_calls_of_one_program_wait_for_each_other() -> None:
    x = zeros()
    threads = [threading.Thread(target=lambda: [CPU(X=x, k=1) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (x == 80).all()


def test_a_run_is_traced() -> None:
    run = CPU.submit(X=zeros(), k=2, trace=True)
    assert run.trace is None
    run.wait()
    assert run.trace is not None and len(run.trace) == 16
    assert CPU.trace is run.trace


def test_an_exception_of_progress_is_raised_by_wait() -> None:
    threads: set[int] = set()

    def give_up(num_complete: int) -> None:
        threads.add(threading.get_ident())
        raise RuntimeError("enough")

    run = CPU.submit(X=zeros(), k=ENDLESS, workers=1, progress=give_up)
    while not run.done:
        time.sleep(0.001)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="enough"):
            run.wait()
    assert threads and threading.get_ident() not in threads


def test_a_run_cannot_be_waited_for_inside_a_run() -> None:
    first = CPU.submit(X=zeros(), k=ENDLESS)
    with pytest.raises(NestedRun):
        CPU.run(X=zeros(), k=1, progress=lambda done: first.wait())
    first.cancel()


@pytest.mark.parametrize("inner", [CPU, INTERP])
def test_the_interpreter_runs_nothing_inside_a_run(inner: Program) -> None:
    with pytest.raises(NestedRun):
        INTERP.run(X=zeros(), k=1, progress=lambda done: inner.run(X=zeros(), k=1))
    with pytest.raises(NestedRun):
        INTERP.run(X=zeros(), k=1, progress=lambda done: inner.task(0).run(X=zeros(), k=1))
    inner.run(X=zeros(), k=1)


def test_a_run_cannot_be_copied() -> None:
    run = CPU.submit(X=zeros(), k=1)
    with pytest.raises(NotYetSupported, match="pickling a Run"):
        copy.copy(run)
    run.wait()


def test_a_schedule_that_is_replaced_is_that_of_later_runs() -> None:
    x = zeros()
    run = CPU.submit(X=x, k=1000)
    CPU.reschedule(Schedule().task_graph(start=StartPolicy.after_build()))
    y = zeros()
    CPU(X=y, k=1000)
    run.wait()
    CPU.reschedule(Schedule())
    assert (x == 1000).all() and (y == 1000).all()


def test_the_interpreter_runs_at_once() -> None:
    x = zeros()
    run = INTERP.submit(X=x, k=2)
    assert run.done and (x == 2).all()
    assert run.wait().tasks == 16


INTERRUPTED = """
import os, signal, threading
import numpy as np
from tests.python.runtime.test_runs import CPU, ENDLESS, zeros
run = CPU.submit(X=zeros(), k=ENDLESS, workers=int(__import__("sys").argv[1]))
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    run.wait()
except KeyboardInterrupt:
    print("interrupted", run.done)
"""

LEFT = """
from tests.python.runtime.test_runs import CPU, ENDLESS, zeros
run = CPU.submit(X=zeros(), k=ENDLESS, workers=2)
print("left")
"""


FORKED = """
import gc, os, sys
from pto_wsp.errors import RunInterrupted
from tests.python.runtime.test_runs import ENDLESS, bump_often, zeros
program = bump_often.compile("cpu")
run = program.submit(X=zeros(), k=ENDLESS, workers=2)
child = os.fork()
if child == 0:
    print("done", run.done)
    for begin in (run.wait, lambda: program(X=zeros(), k=1)):
        try:
            begin()
        except RunInterrupted:
            print("interrupted")
    del run, program, begin
    gc.collect()
    for _ in range(100):  # a new program may not be taken for the one that was running
        bump_often.compile("cpu")(X=zeros(), k=1)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
run.cancel()
"""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (INTERRUPTED, "interrupted True\n"),
        (LEFT, "left\n"),
        (FORKED, "done True\ninterrupted\ninterrupted\n"),
    ],
    ids=["ctrl-c", "exit", "fork"],
)
def test_the_end_of_a_process_ends_its_runs(script: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, "2"],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def round_upwards() -> None:
    """Change a floating-point mode of this thread, as a library that is loaded could do."""
    ctypes.CDLL(None).fesetround(0x800)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the mode is that of x86")
@pytest.mark.parametrize("program", [CPU, INTERP], ids=["cpu", "interp"])
def test_modes_of_the_calling_thread_change_no_bit(program: object) -> None:
    assert program in (CPU, INTERP)
    x = np.full((64, 8), 2.0**24, np.float32)  # plus one is half-way between two numbers
    round_upwards()
    try:
        (CPU if program is CPU else INTERP)(X=x, k=1)
    finally:
        ctypes.CDLL(None).fesetround(0)
    assert (x == 2.0**24).all()
