"""Ctrl-C: a run on the main thread ends between two tasks, and the engine stays usable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SCRIPT = """
import os, signal, sys, threading, time
import numpy as np
from pto_wsp import DenseDyn, InOut, P, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload

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
    if case == "tasks":
        program.run(X=x, k=10**12, turns=10, workers=workers)
    elif case == "chain":
        program.run(X=x[:1], k=10**12, turns=1000, workers=workers)
    elif case == "loops without tasks":
        program.run(X=np.zeros((2**40, 0), np.float32), k=10**9, turns=1, workers=workers)
    else:
        values = dict(X=np.zeros((64, 8), np.float32), k=10**12, turns=10, workers=workers)
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


@pytest.mark.parametrize("workers", ["1", "3"])
@pytest.mark.parametrize("case", ["tasks", "chain", "loops without tasks", "another thread's run"])
def test_a_run_is_interrupted(case: str, workers: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path), workers, case],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
