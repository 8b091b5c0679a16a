"""The case `loops`: kernels compared with the same loops in plain C++, on one core.

The loops are compiled with `-O3 -march=native`, know that their arrays do not overlap, and take their sizes
at run time; kernels are tasks of a program. Both work on the same arrays, which stay in the second cache and
begin in different lines of a page, so that stores do not look as if they were to what is loaded next.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.calibrate import compiler
from benchmarks.harness import Bench, Row
from benchmarks.loops.programs import LOOPS, Loop
from pto_wsp.types import DType

FLAGS = ["-std=c++17", "-O3", "-march=native", "-fPIC", "-shared"]
SOURCE = Path(__file__).with_name("loops.cpp")
ELEMENTS = 1 << 24
"""Of the first operand, in one repetition: the fixed cost of a run is then below a hundredth."""
PAGE, LINE = 4096, 64


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "loops.so"
        subprocess.run([*compiler(), *FLAGS, str(SOURCE), "-o", str(library)], check=True)
        plain = ctypes.CDLL(str(library))
    for loop in LOOPS:
        compare(bench, loop, getattr(plain, loop.name))


def compare(bench: Bench, loop: Loop, plain: Callable[..., None]) -> None:
    """Add the row of one kernel and its loop."""
    rng = np.random.default_rng(bench.seed)
    x, z = placed(loop.shape, loop.dtype, 0), placed(loop.shape, loop.dtype, 21)
    x[...], z[...] = operand(rng, loop), operand(rng, loop)
    y, exact = placed(loop.out_shape, loop.out_dtype, 42), placed(loop.out_shape, loop.out_dtype, 42)
    program, times = loop.program(), ELEMENTS // x.size
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, z, exact)]
    sizes = [ctypes.c_long(size) for size in loop.shape]

    def kernel() -> None:
        program.run(X=x, Z=z, Y=y, times=times, workers=1)

    def loops() -> None:
        plain(*pointers, *sizes, ctypes.c_long(times))

    measured = bench.measure(
        {"kernel": per_element(kernel), "loops": per_element(loops)}, rounds=bench.rounds(15, 5)
    )
    verify(loop, y, exact)
    ours, theirs = measured["kernel"], measured["loops"]
    bench.rows.append(
        Row(
            f"{loop.name}_vs_plain_cpp", ours.value, "ns per element", "plain C++", theirs.value,
            theirs.value / ours.value, "ratio >= 1", noisy=ours.noisy or theirs.noisy,
        )
    )  # fmt: skip


def operand(rng: np.random.Generator, loop: Loop) -> np.ndarray:
    """Return random values that overflow in no kernel, and divide."""
    if loop.dtype.is_float:
        return rng.uniform(0.5, 2, loop.shape)
    return rng.integers(1, 100, loop.shape)


def placed(shape: tuple[int, int], dtype: DType, lines: int) -> np.ndarray:
    """Return an array that begins at this cache line of a page."""
    memory = np.empty(2 * PAGE + shape[0] * shape[1] * dtype.itemsize, np.uint8)
    start = -memory.ctypes.data % PAGE + lines * LINE
    return memory[start:][: shape[0] * shape[1] * dtype.itemsize].view(dtype.to_numpy()).reshape(shape)


def per_element(function: Callable[[], None]) -> Callable[[], float]:
    """Return a function that times one call, in ns per element of the first operand."""
    function()

    def once() -> float:
        began = time.perf_counter()
        function()
        return (time.perf_counter() - began) * 1e9 / ELEMENTS

    return once


def verify(loop: Loop, y: np.ndarray, exact: np.ndarray) -> None:
    """Compare the two results."""
    difference = np.abs(y.astype(np.float64) - exact.astype(np.float64)).max()
    if difference > loop.tolerance * np.abs(exact.astype(np.float64)).max():
        raise AssertionError(f"{loop.name}: the kernel and the loop differ by {difference}")
