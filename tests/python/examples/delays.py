"""Runs with random delays before tasks, so that workers meet in other orders."""

from __future__ import annotations

from typing import Any

from pto_wsp import Program
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.outcome import RunRequest


def run_delayed(program: Program, values: dict[str, Any], workers: int, seed: int) -> None:
    """Run a compiled program on `workers` threads; another seed (> 0), other delays."""
    bound = program._binder.bind(values)
    assert isinstance(program._runner, EngineRunner)
    program._runner.run(RunRequest(bound.arrays, bound.scalars, workers, jitter=seed))
