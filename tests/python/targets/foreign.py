"""Kernels for another processor, called under an emulator: what `ctypes_abi` does for this one.

Nothing is emulated where the tools are missing: `apt-get install g++-aarch64-linux-gnu qemu-user-static`.
"""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pto_wsp.ir.kernel import OUT, KernelFunction
from pto_wsp.targets.cpu import toolchain
from pto_wsp.types.tile import ScalarType

COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = ("qemu-aarch64-static", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu")
SOURCE = Path(__file__).with_name("call_kernels.cpp")
RANK = 4
LINE = 64
_AARCH64 = 183
"""`e_machine` of an ELF file."""


def is_emulated() -> bool:
    """Return whether kernels for aarch64 can be built and called here."""
    return all(map(shutil.which, (COMPILER, EMULATOR[0])))


def is_foreign(path: Path) -> bool:
    """Return whether a library is one for aarch64."""
    with path.open("rb") as file:
        return struct.unpack_from("<H", file.read(20), 18)[0] == _AARCH64


@functools.cache
def caller() -> Path:
    """Return the program that loads a library and calls its kernels."""
    path = Path(tempfile.mkdtemp(prefix="pto-wsp-tests-")) / "call_kernels"
    include = f"-I{toolchain.include_directory()}"
    subprocess.run([COMPILER, "-std=c++17", "-O1", include, str(SOURCE), "-ldl", "-o", str(path)], check=True)
    return path


class ForeignLibrary:
    """A library that an emulated process has loaded."""

    def __init__(self, path: Path) -> None:
        command = [*EMULATOR, str(caller()), str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __del__(self) -> None:
        self._process.kill()
        self._process.communicate()

    def call(
        self,
        kernel: KernelFunction,
        args: Sequence[object],
        rows: Mapping[str, np.ndarray] | None = None,
        scratch_fill: int = 0xFF,
    ) -> int:
        """Call a kernel as `ctypes_abi.Library.call` does: on copies of the memory, which come back."""
        views: list[tuple[np.ndarray, np.ndarray | None, bool]] = []
        scalars = b""
        for param, arg in zip(kernel.params, args, strict=True):
            if isinstance(param.type, ScalarType):
                scalars += struct.pack("<f4x" if param.type.dtype.is_float else "<q", arg)
            else:
                assert isinstance(arg, np.ndarray)
                views.append((arg, (rows or {}).get(param.name), param.role == OUT))
        arrays = [array for view in views for array in view[:2] if array is not None]
        regions = _regions(arrays)
        name = kernel.name.encode()
        request = struct.pack("<I", len(name)) + name + struct.pack("<I", len(regions))
        for start, memory in regions:
            request += struct.pack("<QQ", memory.size, start % LINE) + memory.tobytes()
        request += struct.pack("<I", len(views))
        for array, picked, streams in views:
            request += _view(array, picked, streams, regions)
        request += struct.pack("<I", len(scalars) // 8) + scalars + struct.pack("<i", scratch_fill)
        assert self._process.stdin is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()
        status, is_whole = struct.unpack("<ii", self._read(8))
        for _, memory in regions:
            memory[...] = np.frombuffer(self._read(memory.size), np.uint8)
        assert is_whole, "scratch was overrun"
        return status

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(size)
        assert len(found) == size, "the emulated process has died"
        return found


def _extent(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses that an array's elements lie between."""
    start = array.ctypes.data
    if array.size == 0:
        return start, start
    steps = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(0, s) for s in steps), start + sum(max(0, s) for s in steps) + array.itemsize


def _regions(arrays: Sequence[np.ndarray]) -> list[tuple[int, np.ndarray]]:
    """Return the address and the bytes of all memory that arrays lie in; what overlaps is one region."""
    merged: list[list[int]] = []
    for start, end in sorted(map(_extent, arrays)):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return [(start, _bytes_at(start, end - start)) for start, end in merged]


def _bytes_at(address: int, size: int) -> np.ndarray:
    import ctypes

    return np.frombuffer((ctypes.c_ubyte * size).from_address(address), np.uint8)


def _place(array: np.ndarray, regions: Sequence[tuple[int, np.ndarray]]) -> tuple[int, int]:
    """Return the region that an array begins in, and where in it."""
    start, end = _extent(array)
    for number, (base, memory) in enumerate(regions):
        if base <= start and end <= base + memory.size:
            return number, array.ctypes.data - base
    raise AssertionError("an array without memory")


def _view(
    array: np.ndarray, rows: np.ndarray | None, streams: bool, regions: Sequence[tuple[int, np.ndarray]]
) -> bytes:
    region, offset = _place(array, regions)
    rows_region, rows_offset = (-1, 0) if rows is None else _place(rows, regions)
    shape, stride = [1] * RANK, [0] * RANK
    shape[: array.ndim] = array.shape
    stride[: array.ndim] = [step // array.itemsize for step in array.strides]
    if rows is not None:
        shape[0] = len(rows)
    numbers = (offset, rows_offset, *shape, *stride, int(streams))
    return struct.pack("<ii11q", region, rows_region, *numbers)
