"""Ctrl-C, and threads that the system refuses: a run ends between two tasks, and the engine stays usable."""

import sys
from pathlib import Path

import pytest

from tests.python.runtime.scripts import run_script
from tests.slow import mostly_slow

SCRIPT = """
import os, signal, sys, threading, time
import numpy as np
from pto_wsp import DenseDyn, InOut, P, Scalar, Schedule, StartPolicy, Tensor, Tile, f32, i64
from pto_wsp import kernel, pto, workload

@kernel
def slow(x: InOut[Tile[8, 8, f32]], turns: Scalar[i64]):
    t = pto.load(x)
    for i in range(turns):
        t = t * 0.999 + 0.001
    pto.store(x, t)

@workload
def again(X: Tensor[f32, "n", "m"], k: DenseDyn, turns: Scalar[i64]):
    for i in P.range(k):
        for rows in P.tiles("n", 8):
            for cols in P.tiles("m", 8):
                slow[i, rows, cols](x=X[rows, cols], turns=turns)

program = again.compile("cpu")
x = np.zeros((64, 8), np.float32)
workers, case = int(sys.argv[1]), sys.argv[2]
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    if case == "building":
        program.reschedule(Schedule().task_graph(start=StartPolicy.after_build()))
        program.run(X=x, k=10**12, turns=10, workers=workers)
    elif case == "tasks":
        program.run(X=x, k=10**12, turns=10, workers=workers)
    elif case == "chain":
        program.run(X=x[:1], k=10**12, turns=1000, workers=workers)
    elif case == "loops without tasks":
        program.run(X=np.zeros((2**40, 0), np.float32), k=10**9, turns=1, workers=workers)
    else:
        values = dict(X=x, k=10**12, turns=10, workers=workers)  # the same array: the second call waits
        threading.Thread(target=lambda: program.run(**values), daemon=True).start()
        time.sleep(0.1)
        program.run(X=x, k=1, turns=1, workers=workers)
except KeyboardInterrupt:
    if case != "another thread's run":
        program.run(X=x, k=2, turns=1, workers=workers)
        assert program.stats.tasks == 16
    print("interrupted", flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("workers", mostly_slow(["3", "1"]))
@pytest.mark.parametrize(
    "case", ["tasks", "chain", "building", "loops without tasks", "another thread's run"]
)
def test_a_run_is_interrupted(case: str, workers: str, tmp_path: Path) -> None:
    done = run_script(SCRIPT, tmp_path, workers, case)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


REFUSED = """
import resource
import numpy as np
from pto_wsp import InOut, P, Tensor, Tile, f32, kernel, workload

@kernel(cpp_src="std::this_thread::sleep_for(std::chrono::microseconds(300)); x(0, 0) += 1;",
        cpp_includes=["<chrono>", "<thread>"])
def bump(x: InOut[Tile[1, 8, f32]]): ...

@workload
def bumps(X: Tensor[f32, "n", 8]):
    for i in P("n"):
        bump[i](x=X[i : i + 1])

program = bumps.compile("cpu")
x = np.zeros((400, 8), np.float32)
program.run(X=x, workers=1)
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 40_000_000, -1))
x[:] = 0
program.run(X=x, workers=100)
print((x[:, 0] == 1).all(), program.stats.workers)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
x[:] = 0
program.run(X=x, workers=3)
print((x[:, 0] == 1).all())
"""


LARGE_GRAPH = """
import resource
import numpy as np
from pto_wsp import InOut, P, Schedule, StartPolicy, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import OutOfMemory

@kernel
def twice(x: InOut[Tile[1, 1, f32]]):
    pto.store(x, x * 2)

@workload
def all_twice(X: Tensor[f32, "n", 1]):
    for i in P("n"):
        twice[i](x=X[i : i + 1])

program = all_twice.compile("cpu")
program.reschedule(Schedule().task_graph(start=StartPolicy.after_build()))
x = np.ones((4_000_000, 1), np.float32)
program.run(X=x[:10], workers=2)
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 30_000_000, -1))
try:
    program.run(X=x, workers=2)
except OutOfMemory as error:
    message = str(error)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print("there is no memory for a run of `all_twice`" in message)
x[:] = 1
program.run(X=x, workers=2)
print((x == 2).all())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are those of Linux")
def test_a_graph_that_does_not_fit_is_an_error_by_name(tmp_path: Path) -> None:
    done = run_script(LARGE_GRAPH, tmp_path)
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are those of Linux")
def test_a_run_goes_on_without_threads_that_the_system_refuses(tmp_path: Path) -> None:
    done = run_script(REFUSED, tmp_path)
    assert (done.returncode, done.stdout) == (0, "True 100\nTrue\n"), done.stderr
