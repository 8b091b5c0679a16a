"""The case `dynamic`: what deciding costs, and the three operators of examples/ against numpy and torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.dynamic import operators, programs
from benchmarks.harness import THREADS, Bench, Measurement, Row, elapsed_ms
from pto_wsp import Program, Ragged

ROWS = 1_000_000


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    untaken_branches(bench)
    empty_rows(bench)
    ragged_rows(bench)
    compiles = 0
    for make in operators.OPERATORS:
        compiles += against_peers(bench, make(bench.quick, bench.seed))
    bench.rows.append(Row("compiles_after_first", compiles, "compiles", goal="<= 0"))


def untaken_branches(bench: Bench) -> None:
    """Time a condition that does not hold, with the check before the run."""
    program = programs.untaken_branches.compile(target="cpu")
    lengths = np.full(ROWS, programs.LIMIT + 1, np.int32)
    y = np.zeros((ROWS, programs.COLS), np.float32)
    per_row(bench, "untaken_branch_ns", program, {"Lengths": lengths, "Y": y})
    lengths[7] = 0
    program.run(Lengths=lengths, Y=y)
    if not (y[7] == 1.0).all() or y.sum() != programs.COLS:
        raise AssertionError("a branch was not taken where its condition holds, or elsewhere")


def empty_rows(bench: Bench) -> None:
    """Time a row of a ragged axis that has no elements."""
    program = programs.empty_rows.compile(target="cpu")
    y = np.zeros((1, programs.COLS), np.float32)
    rows = Ragged.lengths(np.zeros(ROWS, np.int64))
    per_row(bench, "empty_row_ns", program, {"rows": rows, "Y": y})
    lengths = np.zeros(ROWS, np.int64)
    lengths[ROWS // 2] = 1
    program.run(rows=Ragged.lengths(lengths), Y=y)
    if not (y == 1.0).all():
        raise AssertionError("the only element of a ragged axis was not visited")


def per_row(bench: Bench, name: str, program: Program, values: Mapping[str, Any]) -> None:
    """Add the row of a program that has `ROWS` iterations and no tasks, in ns per iteration."""

    def ns() -> float:
        return elapsed_ms(lambda: program.run(**values, workers=1)) * 1e6 / ROWS

    ns()
    if program.stats is None or program.stats.tasks:
        raise AssertionError("a task ran where data say that there is none")
    measured = bench.measure({name: ns}, rounds=bench.rounds(15, 3))
    bench.add(name, measured[name], "ns", goal="<= 50")


def ragged_rows(bench: Bench) -> None:
    """Time a million tasks on rows of 0 to 4 elements; compare with numpy's sum of all rows in one call."""
    program = programs.ragged_rows.compile(target="cpu")
    random = np.random.default_rng(bench.seed)
    lengths = random.integers(0, programs.MAX_ROW + 1, ROWS)
    x = random.random((int(lengths.sum()), programs.COLS), np.float32)
    y = np.full((ROWS, programs.COLS), np.nan, np.float32)
    values = {"rows": Ragged.lengths(lengths), "X": x, "Y": y}

    def numpy_sums() -> np.ndarray:
        starts = np.cumsum(lengths) - lengths
        sums = np.add.reduceat(np.concatenate([x, np.zeros((1, programs.COLS), np.float32)]), starts)
        sums[lengths == 0] = 0.0
        return sums

    program.run(**values)
    if not np.allclose(y, numpy_sums(), atol=1e-5):
        raise AssertionError("rows were added up wrongly")
    functions = {
        "ours": lambda: elapsed_ms(lambda: program.run(**values, workers=THREADS)),
        "numpy": lambda: elapsed_ms(numpy_sums),
    }
    measured = bench.measure(functions, rounds=bench.rounds(15, 3), threads=THREADS)
    bench.rows.append(compared("ragged_1m_rows_ms", "numpy", measured["ours"], measured["numpy"], "<= 300"))


def against_peers(bench: Bench, operator: operators.Operator) -> int:
    """Time an operator and its peers in turn; return how often it compiled after its first run."""
    operator.run()
    operator.verify()
    functions: dict[str, Callable[[], float]] = {"ours": lambda: elapsed_ms(operator.run)}
    for name, make in operator.peers.items():
        try:
            peer = make()
        except ImportError as error:
            bench.skipped[name] = f"{error.name} is not installed: make bench needs the extra [bench]"
            continue
        functions[name] = lambda peer=peer: elapsed_ms(peer)
    measured = bench.measure(functions, rounds=bench.rounds(9, 2), threads=THREADS)
    ours = measured.pop("ours")
    best = min(measured, key=lambda name: measured[name].value)
    bench.rows.append(compared(f"{operator.name}_ms", best, ours, measured[best], "ratio >= 1"))
    return operator.compiles_on_other_sizes()


def compared(row: str, name: str, ours: Measurement, peer: Measurement, goal: str) -> Row:
    """Return the row of two measurements of which less is better."""
    noisy = ours.noisy or peer.noisy
    return Row(row, ours.value, "ms", name, peer.value, peer.value / ours.value, goal, noisy)
