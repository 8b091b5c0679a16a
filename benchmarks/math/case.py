"""The case `math`: what the functions of kernels cost on one core, and how far they are from exact."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Bench, Row
from benchmarks.math.accuracy import Accuracy
from benchmarks.math.programs import COLS, ROWS, elementwise
from pto_wsp import Program

MAX_ULP = {
    "exp": 2, "expm1": 2, "log": 2, "log1p": 2, "tanh": 2, "erf": 2, "sigmoid": 2.5, "silu": 2.5, "gelu": 4,
    "rsqrt": 2, "sqrt": 0.5,
}  # fmt: skip
"""What the instruction table promises."""

TIMES = 2000
STEP, QUICK_STEP = 13, 997
"""The stride between tested floats; odd, so that every mantissa meets many exponents."""


def run(bench: Bench) -> None:
    """Measure time and error of every function."""
    programs = {name: elementwise(name).compile(target="cpu") for name in MAX_ULP}
    random = np.random.default_rng(bench.seed)
    x = random.uniform(0.01, 8, (ROWS, COLS)).astype(np.float32)
    measured = bench.measure(
        {name: nanoseconds(program, x) for name, program in programs.items()}, rounds=bench.rounds(15, 5)
    )
    accuracy = Accuracy(bench.calibrator.max_threads)
    for name, program in programs.items():
        bench.add(f"{name}_ns_per_elem", measured[name], "ns")

        def function(x: np.ndarray, y: np.ndarray, program: Program = program) -> None:
            program.run(X=x, Y=y, times=1, workers=1)

        worst = accuracy.max_ulp(name, function, QUICK_STEP if bench.quick else STEP, COLS)
        bench.rows.append(Row(f"{name}_max_ulp", worst, "ulp", goal=f"<= {MAX_ULP[name]}"))


def nanoseconds(program: Program, x: np.ndarray) -> Callable[[], float]:
    """Return a function that times the program over `x`, again and again, in ns per element."""
    y = np.empty_like(x)

    def once() -> float:
        began = time.perf_counter()
        program.run(X=x, Y=y, times=TIMES, workers=1)
        return (time.perf_counter() - began) * 1e9 / (TIMES * x.size)

    once()
    return once
