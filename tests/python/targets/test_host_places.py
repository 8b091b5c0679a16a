"""Errors of emitted programs name the file, the line, the argument and the iteration, as those of runs do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import DenseDyn, In, Out, P, Tensor, Tile, errors, f32, i32, kernel, pto, workload
from tests.python.targets.host_program import ProgramFailed, run_host_program
from tests.slow import mostly_slow

HERE = Path(__file__).name


@kernel
def double(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x * 2.0)


@workload
def stencil(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], C: Tensor[i32, 4], k: DenseDyn):
    for i in P(k):
        for j in P.range(2):
            double(x=X[4 * i + j : 4 * i + j + 4], y=Y[4 * i : 4 * i + 4])
    with P.when(C[k - 1] > 0):
        double(x=X[0:4], y=Y[0:4])


@pytest.mark.parametrize("expander", mostly_slow(["bytecode", "source"]))
def test_places(tmp_path: Path, expander: str) -> None:
    program = stencil.compile("cpu", expander=expander)
    program.export(tmp_path)
    done = subprocess.run(["make", "stencil"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    x, numbers = np.ones((17, 8), np.float32), np.zeros(4, np.int32)
    cases = {
        (17, 5): "argument `x` of `double` in iteration i = 4, j = 0",
        (8, 2): "argument `x` of `double` in iteration i = 1, j = 1",
        (17, 0): "",
    }
    for (rows, k), where in cases.items():
        values = {"X": x[:rows].copy(), "Y": np.zeros((rows, 8), np.float32), "C": numbers, "k": k}
        with pytest.raises(errors.PtoError) as wanted:
            program.run(**values, workers=1)
        line = re.search(r"--> \S+:(\d+):", str(wanted.value))
        assert line is not None and where.partition(" in ")[2] in str(wanted.value)
        with pytest.raises(ProgramFailed) as found:
            run_host_program(["./stencil", "--workers", "1"], program.module, tmp_path, values)
        said = str(found.value)
        place = f"at {HERE}:{line[1]}" + (f", {where}" if where else "")
        assert f"\n  {place}\n" in f"{said}\n" and "\n  pc " not in said and "\n  io " not in said, said
