"""One fresh process: `python -m benchmarks.engine.first_run cold | peak | bytes` prints one number."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.engine.ours import Layer
from pto_wsp import StartPolicy


def resident_mb(field: str) -> float:
    """Return a field of this process' memory in MB: `VmRSS` (now) or `VmHWM` (at most)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def main(mode: str) -> float:
    """Return what a first run shows: seconds, MB over the arrays, or bytes per task of a kept graph."""
    layer = Layer(256, start=StartPolicy.after_build()) if mode == "bytes" else Layer(2048)
    for array in layer.values.values():
        if not isinstance(array, int):
            array.fill(0)  # its pages exist before the run
    before = resident_mb("VmRSS")
    began = time.perf_counter()
    layer.program.run(**layer.values, workers=2)
    seconds = time.perf_counter() - began
    if mode == "cold":
        return seconds
    if mode == "peak":
        return resident_mb("VmHWM") - before
    return (resident_mb("VmRSS") - before) * 2**20 / layer.stats.tasks


if __name__ == "__main__":
    print(main(sys.argv[1]))
