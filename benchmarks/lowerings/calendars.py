"""Calendars: against dispatchers on workers of this machine, and against directives in simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Row
from examples.deepseek_v32.__main__ import filled
from examples.deepseek_v32.config import SMALL
from examples.deepseek_v32.graphs import whole
from examples.deepseek_v32.model import Chunk, batch_arrays, pack
from examples.deepseek_v32.reference import random_weights
from pto_wsp import InOut, P, Program, Schedule, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.runtime.calendar import Calendar

LAYERS, COLUMNS = 40, 64
"""Steps and tasks per step: 2,560 tasks."""
REQUESTS, LONGEST = 32, 8000
DIRECTIVES: dict[str, Schedule] = {
    "default": Schedule(),
    "load_balance": Schedule().load_balance(),
    "order_by": Schedule().order_by(lambda t: t.kernel),
    "order_by, load_balance": Schedule().order_by(lambda t: t.kernel).load_balance(),
}
"""Schedules that decide in the run which task starts."""


@kernel
def smooth(y: InOut[Tile[32, 32, f32]]):
    """About 2 us: eight steps of a recurrence."""
    t = y * 1.0
    for _ in range(8):
        t = pto.exp(t * -0.5)
    pto.store(y, t)


@workload
def steps(Y: Tensor[f32, COLUMNS, 32, 32]):
    """Each task follows the same column's task of the step before."""
    for s in P.range(LAYERS):
        for i in P(COLUMNS):
            smooth[s, i](y=Y[i])


def run(bench: Bench) -> None:
    """Measure both rows."""
    against_dispatchers(bench)
    against_directives(bench)


def against_dispatchers(bench: Bench) -> None:
    """Whole runs of fixed sizes on two workers, by a calendar and by dispatchers."""
    program, y = steps.compile(), np.zeros((COLUMNS, 32, 32), np.float32)
    for _ in range(3):
        program.run(Y=y, workers=2)  # measures the tasks
    calendar = program.calendar(Y=y, workers=2)
    runs = {"calendar": whole_run(program, y, calendar), "dispatchers": whole_run(program, y, None)}
    found = bench.measure(runs, rounds=bench.rounds(15, 5), threads=2)
    ours, theirs = found["calendar"], found["dispatchers"]
    ratio, noisy = ours.value / theirs.value, ours.noisy or theirs.noisy
    bench.rows.append(Row("calendar_vs_dynamic", ratio, "of the time", goal="<= 1.02", noisy=noisy))


def whole_run(program: Program, y: np.ndarray, calendar: Calendar | None) -> Callable[[], float]:
    """Return a function that runs the steps and returns milliseconds."""

    def elapsed_ms() -> float:
        began = time.perf_counter()
        program.run(Y=y, workers=2, calendar=calendar)
        return 1e3 * (time.perf_counter() - began)

    elapsed_ms()
    return elapsed_ms


def against_directives(bench: Bench) -> None:
    """A decode step of DeepSeek V3.2, small sizes, on all cores of a simulated device."""
    program = whole(SMALL).compile("sim", device="ascend_910b", values=False)
    arrays, cycles = decode_step(), dict[str, int]()
    for name, schedule in DIRECTIVES.items():
        program.reschedule(schedule)
        program.run(**arrays)
        assert program.stats is not None
        cycles[name] = program.stats.cycles
    program.reschedule(Schedule())
    program.run(**arrays, calendar=program.calendar(**arrays))
    assert program.stats is not None
    best = min(cycles, key=lambda name: cycles[name])
    ours, theirs = program.stats.cycles, cycles[best]
    row = Row("calendar_sim_gain", theirs / ours, f"times faster than {best}", goal=">= 1.05")
    bench.rows.append(row)


def decode_step() -> dict[str, Any]:
    """Return the arrays of a step: requests of 40 to 8,000 tokens, of all orders of magnitude alike."""
    draw = np.random.default_rng(0)
    lengths = np.exp(draw.uniform(np.log(40), np.log(LONGEST), REQUESTS)).astype(int)
    longest = int(lengths.max())
    cache = filled(draw, SMALL, lengths - 1, longest)
    chunks = [Chunk(slot, int(n) - 1, 1) for slot, n in enumerate(lengths)]
    weights = pack(SMALL, random_weights(draw, SMALL), f32)
    x = draw.standard_normal((REQUESTS, SMALL.hidden), np.float32)
    return weights | batch_arrays(SMALL, chunks, longest) | cache._asdict() | {"X": x}
