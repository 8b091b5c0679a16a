"""Clock, peak, read rates and latencies of this machine, measured at this moment."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("machine.cpp")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-pthread")
BURST_S = 0.015

_INT, _LONG, _DOUBLE, _POINTER = ctypes.c_int, ctypes.c_longlong, ctypes.c_double, ctypes.c_void_p
_FUNCTIONS: dict[str, tuple[list[object], object]] = {
    "pto_count_cpu_time": ([ctypes.c_bool], None),
    "pto_fma_gflops": ([_INT, _DOUBLE], _DOUBLE),
    "pto_bf16_gflops": ([_INT, _DOUBLE], _DOUBLE),
    "pto_map": ([_LONG], _POINTER),
    "pto_unmap": ([_POINTER, _LONG], None),
    "pto_read_gbs": ([_INT, _POINTER, _LONG, _LONG], _DOUBLE),
    "pto_clock_ghz": ([], _DOUBLE),
    "pto_latency_ns": ([_POINTER, _LONG, _LONG], _DOUBLE),
}


class MachineMeter:
    """Measures this machine. The code that measures is compiled for its processor.

    Args:
        compiler: the command of a C++ compiler.
        most_bytes: memory that is read, far beyond the last cache.
        counts_cpu_time: count the time of threads on processors. Otherwise time passes, too, while other
            programs have the processors.

    Raises:
        CalledProcessError: the compiler does not compile it.
        MemoryError: there is not so much memory.
    """

    def __init__(self, compiler: Sequence[str], most_bytes: int, counts_cpu_time: bool = False) -> None:
        self.most_bytes = most_bytes
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "machine.so"
            subprocess.run([*compiler, *FLAGS, str(SOURCE), "-o", str(library)], check=True)
            self._native = ctypes.CDLL(str(library))
        for name, (arguments, result) in _FUNCTIONS.items():
            function = getattr(self._native, name)
            function.argtypes, function.restype = arguments, result
        self._native.pto_count_cpu_time(counts_cpu_time)
        self._memory: int | None = None

    def fma_gflops(self, threads: int) -> float:
        """Return the f32 multiply-add rate of `threads` threads, in GFLOP/s."""
        return self._native.pto_fma_gflops(threads, BURST_S)

    def bf16_gflops(self, threads: int) -> float:
        """Return the rate of the bf16 dot product in GFLOP/s, 0 where the processor has none."""
        return self._native.pto_bf16_gflops(threads, BURST_S)

    def read_gbs(self, threads: int, num_bytes: int | None = None, repeats: int = 1) -> float:
        """Return the rate at which threads read memory, each its part, in GB/s.

        Args:
            threads: that read together.
            num_bytes: of memory that they read, at most `most_bytes`; all of it by default.
            repeats: times that they read it.
        """
        unit = 1024 * threads
        num_bytes = (num_bytes or self.most_bytes) // unit * unit
        return self._native.pto_read_gbs(threads, self.memory, num_bytes, repeats)

    def clock_ghz(self) -> float:
        """Return the clock of a core that works, in GHz."""
        return self._native.pto_clock_ghz()

    def latency_ns(self, num_bytes: int, reads: int) -> float:
        """Return the nanoseconds of one of `reads` reads in random order over `num_bytes` of memory."""
        return self._native.pto_latency_ns(self.memory, num_bytes, reads)

    @property
    def memory(self) -> int:
        """The address of `most_bytes` bytes, which are taken when they are first asked for."""
        if self._memory is None:
            self._memory = self._native.pto_map(self.most_bytes)
        if self._memory is None:
            raise MemoryError(f"{self.most_bytes >> 20} MiB of free memory are needed")
        return self._memory

    def close(self) -> None:
        """Give the memory back."""
        if self._memory is not None:
            self._native.pto_unmap(self._memory, self.most_bytes)
            self._memory = None
