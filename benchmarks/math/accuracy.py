"""The largest error of a function over the floats."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.calibrate import compiler

FLAGS = ["-std=c++17", "-O2", "-fno-math-errno", "-fPIC", "-shared"]
CHUNK = 1 << 20
FLOATS = 1 << 32

Function = Callable[[np.ndarray, np.ndarray], None]
"""Writes f(x) to y; both are f32[n, cols]."""


class Accuracy:
    """Compares functions with the C++ library's, in double, on a number of threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "accuracy.so"
            source = Path(__file__).with_suffix(".cpp")
            subprocess.run([*compiler(), *FLAGS, str(source), "-o", str(library)], check=True)
            self._native = ctypes.CDLL(str(library))
        array = ctypes.c_void_p
        self._native.pto_floats.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int64, array]
        self._native.pto_floats.restype = None
        self._native.pto_max_ulp.argtypes = [ctypes.c_char_p, ctypes.c_int64, array, array]
        self._native.pto_max_ulp.restype = ctypes.c_double

    def max_ulp(self, name: str, function: Function, step: int, cols: int) -> float:
        """Return the largest error over every `step`-th float of all 2^32, in units of the last place."""
        count = -(-FLOATS // step)
        starts = range(0, count, CHUNK)
        with ThreadPoolExecutor(self.threads) as pool:
            return max(pool.map(lambda i: self._chunk(name, function, i, step, cols), starts))

    def _chunk(self, name: str, function: Function, index: int, step: int, cols: int) -> float:
        # The last chunk goes on with the first floats: the bits wrap.
        x = np.empty((CHUNK // cols, cols), np.float32)
        y = np.full_like(x, np.nan)
        self._native.pto_floats((index * step) % FLOATS, step, CHUNK, x.ctypes.data)
        function(x, y)
        worst = self._native.pto_max_ulp(name.encode(), CHUNK, x.ctypes.data, y.ctypes.data)
        if worst < 0:
            raise ValueError(f"accuracy.cpp has no function `{name}`")
        return worst
