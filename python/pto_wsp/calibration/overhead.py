"""What the engine takes for a run and for a task on this machine, without the work of kernels."""

# Annotations use the shapes: they are evaluated here, and read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

import time
from typing import Any

import numpy as np

from pto_wsp import In, Out, P, Program, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload
from pto_wsp.support.record import record

SIDE, TASKS, TRIALS = 8, 50_000, 5
"""Elements of a task, tasks of a run, and runs of which the shortest counts."""


@record
class TaskOverhead:
    """Times of the engine in nanoseconds.

    Attributes:
        start_ns: of a run of one task.
        task_ns: of a task that waits for nothing.
        wait_ns: that a task takes longer if it waits for the one before, with all cores at work.
    """

    start_ns: float
    task_ns: float
    wait_ns: float


@kernel
def copy_row(x: In[Tile[1, SIDE, f32]], y: Out[Tile[1, SIDE, f32]]):
    """The least work."""
    pto.store(y, x)


@workload
def apart(X: Tensor[f32, "n", 1, SIDE], Y: Tensor[f32, "n", 1, SIDE], count: Scalar[i64]):
    """Tasks that do not wait."""
    for i in P(count):
        copy_row[i](x=X[i], y=Y[i])


@workload
def in_turn(X: Tensor[f32, "n", 1, SIDE], Y: Tensor[f32, "n", 1, SIDE], count: Scalar[i64]):
    """Tasks that each wait for the one before."""
    for i in P(count):
        copy_row[i](x=X[i], y=X[i + 1])


def measure_overhead(cores: int) -> TaskOverhead:
    """Return the times of the engine with that many workers."""
    arrays = {name: np.zeros((TASKS + 1, 1, SIDE), np.float32) for name in ("X", "Y")}
    free, chain = apart.compile("cpu"), in_turn.compile("cpu")
    start = _least_ns(free, arrays, 1, cores)
    task = max(_least_ns(free, arrays, TASKS, 1) - start, 0.0) / TASKS
    chained = max(_least_ns(chain, arrays, TASKS, cores) - start, 0.0) / TASKS
    return TaskOverhead(start, task, max(chained - task, 0.0))


def _least_ns(program: Program, arrays: dict[str, Any], count: int, workers: int) -> float:
    def once() -> float:
        began = time.perf_counter_ns()
        program.run(**arrays, count=count, workers=workers)
        return time.perf_counter_ns() - began

    return min(once() for _ in range(TRIALS))
