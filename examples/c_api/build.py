"""Building the orchestrations of this folder, and calling them."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from examples.pto_programs.llama import MEMREFS
from pto_wsp import _native

HERE = Path(__file__).parent
PACKAGE = Path(_native.__file__).parent
"""Where the package has its headers and `libpto_wsp`."""

NAMES = (
    "rmsnorm_tile tile_matmul rope_tile flash_attn_init_state flash_attn_score_block "
    "flash_attn_softmax_update flash_attn_output_update flash_attn_normalize residual_add_tile swiglu_tile"
).split()
"""Kernels of the layer, in the order of `LlamaLayer.names`."""

Pointer = ctypes.c_void_p
Arrays = Mapping[str, np.ndarray]


class LlamaLayer(ctypes.Structure):
    """`LlamaLayer` of llama_layer.h."""

    _fields_ = (
        ("tensors", Pointer * len(MEMREFS)),
        ("names", ctypes.c_char_p * len(NAMES)),
        ("n", ctypes.c_int),
        ("rows", ctypes.c_int),
    )


class Softmax(ctypes.Structure):
    """`Softmax` of softmax.h."""

    _fields_ = (("tensors", Pointer * 6), ("rows", ctypes.c_int))


class Bgemm(ctypes.Structure):
    """`Bgemm` of bgemm.h."""

    _fields_ = (("tensors", Pointer * 6), ("sizes", ctypes.c_int * 7))


class Programs:
    """The orchestrations, compiled into `folder`, with the kernels of the library `kernels`."""

    def __init__(self, folder: Path, kernels: Path) -> None:
        self._library = ctypes.CDLL(
            str(compile_c(HERE / "programs.c", folder / "programs.so", "-shared", "-fPIC"))
        )
        self._kernels = str(kernels).encode()

    def llama(self, tensors: Arrays, rows: int, workers: int = 0, threshold: int = 0) -> float:
        """Run the layer on tiles of 32 or 64 `rows`; `tensors` are those of the builder's program.

        Returns, as the other functions do, the seconds that it took.
        """
        wide = ("flash_attn_score_block", "flash_attn_softmax_update", "flash_attn_output_update")
        names = [name + ("" if rows == 32 else "_64_64" if name in wide else "_64") for name in NAMES]
        layer = LlamaLayer()
        layer.tensors[:] = _addresses([tensors[name] for name in MEMREFS])
        layer.names[:] = [name.encode() for name in names]
        layer.n, layer.rows = len(tensors["input"]) // rows, rows
        return self._run("run_llama", layer, workers, threshold)

    def softmax(self, x: np.ndarray, y: np.ndarray, workers: int = 0, threshold: int = 0) -> float:
        """Write the softmax of the rows of `x` [n, 8] to `y`."""
        column = (len(x), 1)
        temp = [np.empty(shape, np.float32) for shape in (column, x.shape, x.shape, column)]
        call = Softmax(rows=len(x))
        call.tensors[:] = _addresses([x, y, *temp])
        return self._run("run_softmax", call, workers, threshold)

    def bgemm(
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray, workers: int = 0, threshold: int = 0
    ) -> float:
        """Add the products of `a` [batch, m, k, rows, inner] and `b` [batch, k, n, inner, cols] to `c`."""
        return self._bgemm("run_bgemm", a, b, c, [1, 0, 0], workers, threshold)

    def bgemm_tree(
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray, workers: int = 0, threshold: int = 0
    ) -> float:
        """Write these products, for k = 8, to `c`."""
        return self._bgemm("run_bgemm_tree", a, b, c, [8, 4, 2], workers, threshold)

    def _bgemm(
        self,
        name: str,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        parts: Sequence[int],
        workers: int,
        threshold: int,
    ) -> float:
        partial = [np.empty((part, *c.shape), np.float32) for part in parts]
        batch, m, k, rows, inner = a.shape
        call = Bgemm()
        call.tensors[:] = _addresses([a, b, c, *partial])
        call.sizes[:] = (batch, m, b.shape[2], k, rows, inner, b.shape[4])
        return self._run(name, call, workers, threshold)

    def _run(self, name: str, call: ctypes.Structure, workers: int, threshold: int) -> float:
        start = time.perf_counter()
        code = self._library[name](self._kernels, ctypes.byref(call), workers, threshold)
        seconds = time.perf_counter() - start
        if code != 0:
            raise RuntimeError(f"{name} failed with {code}")
        return seconds


def compile_c(source: Path, output: Path, *options: str) -> Path:
    """Compile C that uses the C API with `CC` or `cc`; return `output`."""
    library = PACKAGE / "lib"
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        "-std=c99",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        *options,
    ]
    command += [
        "-I",
        str(PACKAGE / "include" / "pto" / "wsp"),
        "-I",
        str(HERE),
        str(source),
        "-o",
        str(output),
    ]
    command += ["-L", str(library), "-lpto_wsp", "-lm", f"-Wl,-rpath,{library}"]
    subprocess.run(command, check=True)
    return output


def _addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    for array in arrays:
        assert array.dtype == np.float32 and array.flags.c_contiguous
    return [array.ctypes.data for array in arrays]
