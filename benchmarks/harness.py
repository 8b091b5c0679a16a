"""Rows, goals, interleaved rounds and the quiet gate: what every case is measured with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from benchmarks.calibrate import Calibrator

MAX_SPREAD = 0.05  # calibrations around one repetition that differ by more mark a disturbed moment
SETTLE_S = 3.0
REST_S = 0.01  # how long a process that rests is watched: the system adds up the time of threads every 4 ms
LONGEST_REST_S = 0.5


@dataclass(frozen=True)
class Row:
    """One line of the result.

    Attributes:
        name: stable, as issues and goals name it.
        value: ours, in `unit`; None where the machine cannot run it.
        peer: what it is compared to; `peer_value` in the same unit, `ratio` how many times better ours is.
        goal: `>= 1e6`, `<= 200`, or on the ratio: `ratio >= 2`; None if there is none.
        noisy: no repetition passed the quiet gate.
    """

    name: str
    value: float | None
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    goal: str | None = None
    noisy: bool = False

    @property
    def ok(self) -> bool | None:
        """Whether the goal is reached; None without a goal or without a value."""
        if self.goal is None:
            return None
        *subject, operator, bound = self.goal.split()
        measured = self.ratio if subject == ["ratio"] else self.value
        if measured is None:
            return None
        return measured >= float(bound) if operator == ">=" else measured <= float(bound)

    def to_json(self) -> dict[str, Any]:
        """Return the row as the JSON schema has it; `noisy` only where it is so."""
        names = ("name", "value", "unit", "peer", "peer_value", "ratio", "goal", "ok")
        return {name: getattr(self, name) for name in names} | ({"noisy": True} if self.noisy else {})


@dataclass(frozen=True)
class Measurement:
    """The repetitions of one function that counted.

    Attributes:
        values: what the function returned, in its own unit.
        calibrations: the machine's rate around each of them: GFLOP/s, or GB/s for memory-bound work.
        dropped: repetitions outside the quiet gate.
        noisy: every repetition was outside; the best-agreeing one is kept.
    """

    values: list[float]
    calibrations: list[float]
    dropped: int
    noisy: bool

    @property
    def value(self) -> float:
        """The median."""
        return median(self.values)

    def percent_of_peak(self, flops: float) -> float:
        """Return how much of the peak around them repetitions in ms reach, which do `flops` operations."""
        return median(100 * flops / (ms * 1e6 * peak) for ms, peak in self._pairs())

    def times_memory(self, num_bytes: float) -> float:
        """Return how many times longer repetitions in ms take than memory takes to read `num_bytes`."""
        return median(ms * 1e6 * rate / num_bytes for ms, rate in self._pairs())

    def times_bound(self, bound_ms: Callable[[float], float]) -> float:
        """Return how many times longer repetitions in ms take than a bound, given the rate around them."""
        return median(ms / bound_ms(rate) for ms, rate in self._pairs())

    def _pairs(self) -> Iterator[tuple[float, float]]:
        return zip(self.values, self.calibrations, strict=True)


@dataclass
class _Repetition:
    value: float
    before: float
    after: float

    @property
    def spread(self) -> float:
        return abs(self.before - self.after) / max(self.before, self.after)


@dataclass
class Bench:
    """One run of a case.

    Attributes:
        quick: fewer repetitions, to end within 50 s on two cores.
        seed: of the random inputs with which a case verifies its results.
        rows: the result so far, in the order of the table.
        dropped: repetitions that the quiet gate dropped so far.
        skipped: peers that did not take part, with the reason.
    """

    calibrator: Calibrator
    quick: bool = False
    seed: int = 0
    rows: list[Row] = field(default_factory=list)
    dropped: int = 0
    skipped: dict[str, str] = field(default_factory=dict)

    def rounds(self, full: int, quick: int) -> int:
        """Return the number of rounds for this run."""
        return quick if self.quick else full

    def add(self, name: str, measurement: Measurement, unit: str, goal: str | None = None) -> None:
        """Add the row of one measurement that has no peer."""
        self.rows.append(Row(name, measurement.value, unit, goal=goal, noisy=measurement.noisy))

    def measure(
        self,
        functions: Mapping[str, Callable[[], float]],
        *,
        rounds: int,
        threads: int = 1,
        memory_bound: bool = False,
    ) -> dict[str, Measurement]:
        """Call every function once per round, in turn, each between two calibrations of the machine.

        Threads that peers leave spinning (OpenBLAS 0.11 s, libgomp 0.01 s) sleep before each calibration.
        What memory does not bound is called once before the call that counts: its threads are awake then, and
        caches are as a loop finds them. What memory bounds finds them cold.

        Args:
            functions: each does one repetition and returns its value (a time, a rate).
            rounds: repetitions of each.
            threads: how many threads the functions and the calibrations use.
            memory_bound: calibrate the read rate of memory instead of the multiply-add peak.
        """
        rate = self.calibrator.dram_read_gbs if memory_bound else self.calibrator.peak_gflops

        def calibrate() -> float:
            rest()
            return rate(threads)

        self.calibrator.settle(SETTLE_S)
        repetitions: dict[str, list[_Repetition]] = {name: [] for name in functions}
        for _ in range(rounds):
            for name, function in functions.items():
                before = calibrate()
                if not memory_bound:
                    function()
                value = function()
                repetitions[name].append(_Repetition(value, before, calibrate()))
        measured = {name: _gate(found) for name, found in repetitions.items()}
        self.dropped += sum(m.dropped for m in measured.values())
        return measured


def _gate(repetitions: list[_Repetition]) -> Measurement:
    kept = [r for r in repetitions if r.spread <= MAX_SPREAD]
    noisy = not kept
    if noisy:
        kept = [min(repetitions, key=lambda r: r.spread)]
    return Measurement(
        values=[r.value for r in kept],
        calibrations=[mean((r.before, r.after)) for r in kept],
        dropped=len(repetitions) - len(kept),
        noisy=noisy,
    )


def rest() -> None:
    """Wait until no thread of this process computes, or `LONGEST_REST_S` have passed."""
    began = time.perf_counter()
    while time.perf_counter() - began < LONGEST_REST_S:
        wall, computed = time.perf_counter(), time.process_time()
        time.sleep(REST_S)
        if time.process_time() - computed < 0.1 * (time.perf_counter() - wall):
            return


def calibration_rows(calibrator: Calibrator) -> list[Row]:
    """Return the best of every calibration of the run, as rows; a missing bf16 unit has no row."""
    units = {"peak": "GFLOP/s", "dram": "GB/s"}
    order = sorted(calibrator.best.items(), key=lambda item: (item[0].split("_")[0] != "peak", item[0]))
    return [Row(name, value, units[name.split("_")[0]]) for name, value in order if value > 0]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


THREADS = min(2, available_cores())
"""How many threads most rows are measured with."""


def elapsed_ms(function: Callable[[], object]) -> float:
    """Return the milliseconds that one call takes."""
    began = time.perf_counter()
    function()
    return 1e3 * (time.perf_counter() - began)
