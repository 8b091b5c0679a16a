"""The case `lowerings`: how much of the examples is proved, how fast, and that nothing unsafe is."""

from __future__ import annotations

from benchmarks.harness import Bench
from benchmarks.lowerings import proofs


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    proofs.run(bench)
