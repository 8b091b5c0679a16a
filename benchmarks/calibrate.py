"""What the machine can do at this moment, for goals that are fractions of it."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("calibrate.cpp")
FLAGS = ["-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-pthread"]
READ_BYTES = 640 << 20  # far beyond any last-level cache
BURST_S = 0.015


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
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "calibrate.so"
            subprocess.run([*compiler(), *FLAGS, str(SOURCE), "-o", str(library)], check=True)
            self._native = ctypes.CDLL(str(library))
        for name in ("pto_fma_gflops", "pto_bf16_gflops"):
            function = getattr(self._native, name)
            function.argtypes, function.restype = [ctypes.c_int, ctypes.c_double], ctypes.c_double
        self._native.pto_map.argtypes, self._native.pto_map.restype = [ctypes.c_longlong], ctypes.c_void_p
        self._native.pto_unmap.argtypes, self._native.pto_unmap.restype = (
            [ctypes.c_void_p, ctypes.c_longlong],
            None,
        )
        self._native.pto_read_gbs.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong]
        self._native.pto_read_gbs.restype = ctypes.c_double
        self._memory: int | None = None

    def peak_gflops(self, threads: int) -> float:
        """Return the f32 multiply-add rate of `threads` threads now, in GFLOP/s."""
        return self._note(f"peak_gflops_{threads}c", self._native.pto_fma_gflops(threads, BURST_S))

    def peak_bf16_gflops(self, threads: int) -> float:
        """Return the rate of the bf16 dot product in GFLOP/s, 0 where the processor has none."""
        return self._note(f"peak_bf16_gflops_{threads}c", self._native.pto_bf16_gflops(threads, BURST_S))

    def dram_read_gbs(self, threads: int) -> float:
        """Return the rate at which `threads` threads read memory now, in GB/s."""
        if self._memory is None:
            self._memory = self._native.pto_map(READ_BYTES)
            if self._memory is None:
                raise SystemExit(f"benchmarks need {READ_BYTES >> 20} MiB of free memory")
        rate = self._native.pto_read_gbs(threads, self._memory, READ_BYTES)
        return self._note(f"dram_read_gbs_{threads}c", rate)

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
        if self._memory is not None:
            self._native.pto_unmap(self._memory, READ_BYTES)
            self._memory = None

    def _note(self, name: str, value: float) -> float:
        self.best[name] = max(self.best.get(name, 0.0), value)
        return value
