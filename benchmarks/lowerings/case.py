"""The case `lowerings`: what expands tasks fastest, and what that costs before a run."""

from __future__ import annotations

from benchmarks.harness import Bench
from benchmarks.lowerings import source


def run(bench: Bench) -> None:
    """Measure every row of the case."""
    source.run(bench)
