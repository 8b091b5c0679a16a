"""What the machine can do at this moment, for goals that are fractions of it."""

from __future__ import annotations

import os
import shlex
import shutil

from pto_wsp.calibration.machine import BURST_S, MachineMeter

READ_BYTES = 640 << 20  # far beyond any last-level cache


def compiler() -> list[str]:
    """Return the command of the C++ compiler that peers and calibrations are built with."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in (named, ["g++"], ["clang++"], ["c++"]):
        if command and shutil.which(command[0]):
            return command
    raise SystemExit("benchmarks need a C++ compiler: set CXX or install g++")


class Calibrator:
    """Measures the peaks; remembers the best of each for the rows of the run.

    Args:
        max_threads: highest number of threads that a case uses.
    """

    def __init__(self, max_threads: int) -> None:
        self.max_threads = max_threads
        self.best: dict[str, float] = {}
        self._meter = MachineMeter(compiler(), READ_BYTES)

    def peak_gflops(self, threads: int) -> float:
        """Return the f32 multiply-add rate of `threads` threads now, in GFLOP/s."""
        return self._note(f"peak_gflops_{threads}c", self._meter.fma_gflops(threads))

    def peak_bf16_gflops(self, threads: int) -> float:
        """Return the rate of the bf16 dot product in GFLOP/s, 0 where the processor has none."""
        return self._note(f"peak_bf16_gflops_{threads}c", self._meter.bf16_gflops(threads))

    def dram_read_gbs(self, threads: int) -> float:
        """Return the rate at which `threads` threads read memory now, in GB/s."""
        try:
            return self._note(f"dram_read_gbs_{threads}c", self._meter.read_gbs(threads))
        except MemoryError as error:
            raise SystemExit(f"benchmarks: {error}") from None

    def measure_all(self, repeats: int) -> None:
        """Bring the best of every calibration up to date."""
        for _ in range(repeats):
            for threads in range(1, self.max_threads + 1):
                self.peak_gflops(threads)
                self.dram_read_gbs(threads)
            self.peak_bf16_gflops(self.max_threads)

    def settle(self, limit_s: float) -> bool:
        """Wait for two calibrations in a row within 3 % of the best seen; False if there were none."""
        quiet = 0
        for _ in range(int(limit_s / BURST_S)):
            now = self.peak_gflops(1)
            quiet = quiet + 1 if now >= 0.97 * self.best["peak_gflops_1c"] else 0
            if quiet == 2:
                return True
        return False

    def close(self) -> None:
        """Give the memory back."""
        self._meter.close()

    def _note(self, name: str, value: float) -> float:
        self.best[name] = max(self.best.get(name, 0.0), value)
        return value
