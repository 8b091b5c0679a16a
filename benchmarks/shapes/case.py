"""The case `shapes`: no shape of access takes longer with more workers than with one.

Every shape of shapes.py runs with 1, 2 and 4 workers, for sizes and lengths of bodies. A row names the worst.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import Bench, Row
from benchmarks.shapes import sharing
from benchmarks.shapes.shapes import SHAPES, Shape, arguments
from benchmarks.spine.case import fresh_cache
from pto_wsp import Program

WORKERS = (1, 2, 4)
LENGTHS = ((16, 0), (256, 0), (4096, 0), (16, 1000), (256, 1000), (2048, 1000), (16, 20_000), (256, 20_000))
"""Sizes, and ns of a body."""

WARM_RUNS = 5
"""By then the engine has tried both ways."""

WARM_S = 0.06
"""Longer runs are not tried both ways."""

BLOCK_S = 0.02
"""A measurement runs for so long: the system counts the time of threads every 4 ms."""

REST_S = 0.001
"""For so long idle threads may still look for work after a run; that time is counted."""

MAX_WALL, MAX_CPU, FASTER_WALL = 1.1, 1.2, 0.85
SHORT_S, SLACK_S = 200e-6, 20e-6
AGAIN = 5


@dataclass(frozen=True)
class Times:
    """Seconds of a run: of the clock, and of all threads."""

    wall: float
    cpu: float


@dataclass
class Point:
    """A shape with a size and a length of bodies, and its times by number of workers."""

    shape: Shape
    n: int
    work: int
    found: dict[int, list[Times]] = field(default_factory=lambda: {w: [] for w in WORKERS})

    @property
    def label(self) -> str:
        """How a row names it."""
        return f"{self.shape.name}, n = {self.n}, {self.work} ns"

    def times(self, workers: int) -> Times:
        """The medians."""
        found = self.found[workers]
        return Times(median(t.wall for t in found), median(t.cpu for t in found))

    def wall(self, workers: int) -> float:
        """Times as long as with one worker."""
        return times_as_long(self.times(workers).wall, self.times(1).wall)

    def cpu(self, workers: int) -> float:
        """Times as much of the processors as one worker takes; 1 where the time is well spent."""
        if self.wall(workers) <= FASTER_WALL:
            return 1.0
        return times_as_long(self.times(workers).cpu, self.times(1).cpu)

    def is_above(self, workers: int) -> bool:
        """Whether a limit is missed."""
        return self.wall(workers) > MAX_WALL or self.cpu(workers) > MAX_CPU


def times_as_long(many: float, one: float) -> float:
    """Return a ratio; short runs may differ by SLACK_S."""
    slack = SLACK_S if one < SHORT_S else 0.0
    return max(many - slack, min(many, one)) / one


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    points: list[Point] = []
    with fresh_cache():
        for shape in SHAPES:
            points += measure(bench, shape)
        sharing.run(bench)
    for workers in WORKERS[1:]:
        add_worst(bench, points, f"worst_wall_{workers}w", workers, Point.wall, MAX_WALL)
        add_worst(bench, points, f"worst_cpu_{workers}w", workers, Point.cpu, MAX_CPU)


def add_worst(
    bench: Bench,
    points: list[Point],
    name: str,
    workers: int,
    ratio: Callable[[Point, int], float],
    most: float,
) -> None:
    """Add the row of the worst point; more workers than cores have no goal."""
    worst = max(points, key=lambda point: ratio(point, workers))
    goal = f"<= {most}" if workers == 2 else None
    bench.rows.append(Row(name, ratio(worst, workers), f"x of one worker: {worst.label}", goal=goal))


def measure(bench: Bench, shape: Shape) -> list[Point]:
    """Return the points of a shape, measured."""
    program = shape.workload.compile(target="cpu")
    found = []
    for n, work in LENGTHS[:: 2 if bench.quick else 1]:
        if n > shape.most:
            continue
        point = Point(shape, n, work)
        arrays = arguments(shape, n, bench.seed)
        verify(program, point, arrays)
        sample(program, point, arrays, bench.rounds(3, 1))
        if any(point.is_above(workers) for workers in WORKERS[1:]):
            point.found = {w: [] for w in WORKERS}
            sample(program, point, arrays, AGAIN)
        found.append(point)
    return found


def sample(program: Program, point: Point, arrays: dict[str, Any], rounds: int) -> None:
    """Measure the numbers of workers in turn."""
    for _ in range(rounds):
        for workers in WORKERS:
            point.found[workers].append(
                block(lambda w=workers: program.run(**arrays, work=point.work, workers=w))
            )


def block(once: Callable[[], object]) -> Times:
    """Return the times of one of the runs that follow each other for BLOCK_S."""
    walls: list[float] = []
    began = time.perf_counter()
    for _ in range(WARM_RUNS):
        if time.perf_counter() - began < WARM_S:
            once()
    cpu, began = time.process_time(), time.perf_counter()
    while len(walls) < 3 or time.perf_counter() - began < BLOCK_S:
        start = time.perf_counter()
        once()
        walls.append(time.perf_counter() - start)
    time.sleep(REST_S)
    return Times(median(walls), (time.process_time() - cpu) / len(walls))


def verify(program: Program, point: Point, arrays: dict[str, Any]) -> None:
    """Run as often as the engine needs to choose its ways; results are those of one worker."""
    expected = None
    for workers in WORKERS:
        for _ in range(WARM_RUNS):
            fresh: dict[str, Any] = {
                name: value.copy() if isinstance(value, np.ndarray) else value
                for name, value in arrays.items()
            }
            program.run(**fresh, work=point.work, workers=workers)
            results = [value for value in fresh.values() if isinstance(value, np.ndarray)]
            expected = expected or results
            if not all(map(np.array_equal, results, expected)):
                raise AssertionError(f"{point.label}: {workers} workers change the result")
