"""Rows of the case `shapes`: two workers share the tasks that they can share, in first runs too.

Bodies wait for a time by the clock, so the least time of a shape is known: its critical path, or half of its
work. Those of one shape read memory: its least time is that of two threads that read as much.
`worst_share_2w` names the shape that takes longest compared with that, of bodies of 100 us and more.
`worst_first_run_2w` names the shape whose first run takes longest compared with later ones. Times are those
of the engine: loading the library of a program is another matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.engine import programs as short_programs
from benchmarks.engine.ours import Layer, Ours
from benchmarks.harness import Bench, Row
from benchmarks.shapes import programs
from pto_wsp import Program, empty, i32, i64
from pto_wsp.lang.workload.workload import Workload

BODY_NS = 100_000
WARM_RUNS = 4
MAX_SHARE, MAX_FIRST_RUN = 1.15, 1.5
SHORT_S, SLACK_S = 200e-6, 20e-6
AGAIN = 5
WORKERS = 2


@dataclass(frozen=True)
class Shape:
    """A workload with its least time.

    Attributes:
        sizes: of its symbols and scalars.
        work: of all tasks, in bodies.
        path: of the critical path, in bodies.
        read_bytes: that all tasks read from memory; then bodies do not wait by the clock.
    """

    workload: Workload
    sizes: Mapping[str, int]
    work: float
    path: float
    read_bytes: int = 0

    @property
    def name(self) -> str:
        """How a row names it."""
        return self.workload.name

    def least_s(self, bench: Bench) -> float:
        """Return the time that two workers need at least."""
        if self.read_bytes:
            return self.read_bytes / 1e9 / bench.calibrator.dram_read_gbs(WORKERS)
        return max(self.path, self.work / WORKERS) * BODY_NS / 1e9

    def arguments(self) -> dict[str, Any]:
        """Return arrays of zeros, and scalars."""
        entry = self.workload.trace().module.entry_workload
        sizes = {**self.sizes, "ns": BODY_NS}
        found: dict[str, Any] = {}
        for tensor in entry.tensors:
            dims = tuple(sizes.get(d, 0) if isinstance(d, str) else int(d) for d in tensor.type.dims)
            found[tensor.name] = np.zeros(dims, np.int64 if tensor.type.dtype is i64 else np.int32)
        if self.read_bytes:
            found["X"] = empty(found["X"].shape, i32)
            found["X"][:] = 1  # memory that was never written shares one page
        if "Length" in found:
            found["Length"][:] = 1
            found["Length"][2] = sizes["n"]
        names = {p.name for p in entry.params}
        found |= {name: size for name, size in sizes.items() if name in names}
        return {name: value for name, value in found.items() if "." not in name}

    def program(self) -> Callable[[], float]:
        """Compile it again; return a function that runs it and returns the seconds of the engine."""
        return runs(self.workload.compile(target="cpu"), self.arguments())


SHAPES = (
    Shape(programs.independent, {"n": 60}, 60, 1),
    Shape(programs.mixed, {"n": 70}, 70 + 60, 7),
    Shape(programs.one_long_row, {"batch": 16, "n": 45}, 60, 1),
    Shape(programs.chains, {"n": 30}, 60, 30),
    Shape(programs.gated_chains, {"n": 200}, 401, 201),
    Shape(programs.braid, {"n": 30}, 60, 30),
    Shape(programs.fan, {"n": 12}, 4 * 14, 4 * 8),
    Shape(programs.heads, {"n": 6}, 4 * 28, 4 * 3),
    Shape(programs.wavefront, {"rows": 13, "n": 12}, 144, 144 / 2 + 6),
    Shape(programs.stencil, {"rows": 10, "n": 8}, 64, 8),
    Shape(programs.sequence, {"n": 20}, 40, 20),
    Shape(programs.units, {"n": 20}, 60, 2),
    Shape(programs.decided, {"n": 10}, 40, 0),
    Shape(programs.short_between, {"n": 40}, 40, 1),
    Shape(programs.streamed, {"n": 64}, 0, 0, read_bytes=64 << 22),
)
"""The path of `wavefront` counts steps in which one task can run."""

SHORT = (
    ("chain", lambda: Ours(short_programs.chain, {"n": 100_000})),
    ("independent", lambda: Ours(short_programs.independent, {"n": 100_000})),
    ("fan", lambda: Ours(short_programs.fan, {"n": 10_000, "rounds": 10})),
    ("wavefront", lambda: Ours(short_programs.wavefront, {"n": 300, "rows": 301})),
    ("LLaMA layer", lambda: Layer(64)),
)


def run(bench: Bench) -> None:
    """Measure every row of this file."""
    rounds = bench.rounds(3, 1)
    shares = {shape.name: share_of(bench, shape, rounds) for shape in SHAPES}
    add_worst(bench, "worst_share_2w", "the least time", shares, MAX_SHARE)
    firsts = {shape.name: first_run(shape.program, rounds) for shape in SHAPES}
    firsts |= {name: first_run(short(make), rounds) for name, make in SHORT}
    add_worst(bench, "worst_first_run_2w", "later runs", firsts, MAX_FIRST_RUN)


def add_worst(bench: Bench, row: str, of: str, found: Mapping[str, float], most: float) -> None:
    """Add a row that names the worst."""
    worst = max(found, key=lambda name: found[name])
    bench.rows.append(Row(row, found[worst], f"x of {of}: {worst}", goal=f"<= {most}"))


def share_of(bench: Bench, shape: Shape, rounds: int) -> float:
    """Return how many times as long as it must a shape takes, after the engine has chosen a way."""
    once = shape.program()
    for _ in range(WARM_RUNS):
        once()

    def value(rounds: int) -> float:
        return median(once() for _ in range(3 * rounds)) / shape.least_s(bench)

    found = value(rounds)
    return found if found <= MAX_SHARE else value(AGAIN)


def first_run(make: Callable[[], Callable[[], float]], rounds: int) -> float:
    """Return how many times as long as later ones a first run takes; short runs may differ by SLACK_S."""

    def value() -> float:
        once = make()
        first = once()
        for _ in range(WARM_RUNS):
            once()
        later = median(once() for _ in range(3))
        slack = SLACK_S if later < SHORT_S else 0.0
        return max(first - slack, min(first, later)) / later

    found = median(value() for _ in range(rounds))
    return found if found <= MAX_FIRST_RUN else median(value() for _ in range(AGAIN))


def runs(program: Program, values: Mapping[str, Any]) -> Callable[[], float]:
    """Return a function that runs a program and returns the seconds of the engine."""

    def once() -> float:
        program.run(**values, workers=WORKERS)
        assert program.stats is not None
        return program.stats.run_ms / 1e3

    return once


def short(make: Callable[[], Ours]) -> Callable[[], Callable[[], float]]:
    """Return a program of short tasks, whose arrays are in memory; each call compiles it again."""

    def program() -> Callable[[], float]:
        ours = make()
        for value in ours.values.values():
            if isinstance(value, np.ndarray):
                value.fill(0)
        return runs(ours.program, ours.values)

    return program
