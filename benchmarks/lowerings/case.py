"""The case `lowerings`: what expands tasks, how much of the examples is proved, and how fast."""

from __future__ import annotations

from benchmarks.harness import Bench
from benchmarks.lowerings import proofs, source


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    source.run(bench)
    proofs.run(bench)
