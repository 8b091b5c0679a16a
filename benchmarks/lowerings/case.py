"""The case `lowerings`: what expands tasks fastest, what that costs, and what is proved before a run."""

from __future__ import annotations

from benchmarks.harness import Bench
from benchmarks.lowerings import calendars, proofs, source, symbolic


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    source.run(bench)
    symbolic.run(bench)
    calendars.run(bench)
    proofs.run(bench)
