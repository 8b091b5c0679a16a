"""Simulate the LLaMA layer of 128K tokens in a process of its own: prints seconds, MB and tasks."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from benchmarks.engine import native, programs


def peak_mb() -> float:
    """Return the largest size of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run a layer of one tile, and then the large one: the difference of sizes is what it takes."""
    tiles = int(sys.argv[1])
    program = programs.folding.compile("sim", device="ascend_910b", values=False)
    small: dict[str, Any] = {**native.zeros(programs.folding, {"n": 1})}
    arrays: dict[str, Any] = {**native.zeros(programs.folding, {"n": tiles})}
    program.run(**small, n=1)
    before = peak_mb()
    began = time.perf_counter()
    program.run(**arrays, n=tiles)
    assert program.stats is not None
    print(time.perf_counter() - began, peak_mb() - before, program.stats.tasks)


if __name__ == "__main__":
    main()
