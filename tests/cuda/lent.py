"""Arrays of another library in memory of the substitute for a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pto_wsp.runtime import dlpack
from pto_wsp.targets.cuda.driver import DeviceMemory, find_gpu


class Lent:
    """What both ways to lend have in common: memory, and what the owner knows of it.

    Attributes:
        array: the elements, which tests read: memory of the substitute is memory of the host.
        streams: the streams for which the array was asked.
    """

    def __init__(self, array: np.ndarray) -> None:
        with find_gpu().current():
            self._memory = DeviceMemory(find_gpu(), max(1, array.nbytes))
        of_memory = (ctypes.c_uint8 * array.nbytes).from_address(self._memory.address)
        self.array = np.frombuffer(of_memory, array.dtype).reshape(array.shape)
        self.array[...] = array
        self.streams: list[int | None] = []


class LentByInterface(Lent):
    """An array with `__cuda_array_interface__`."""

    stream: int | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the interface."""
        return {**self.array.__array_interface__, "version": 3, "stream": self.stream}


class LentByDlpack(Lent):
    """An array with `__dlpack__`, which says that its memory is that of GPU 0."""

    kind = 2

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind of device, and its number."""
        return self.kind, 0

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        """Return the capsule of numpy, with another device."""
        self.streams.append(stream)
        capsule = self.array.__dlpack__()
        tensor = dlpack._Tensor.from_address(dlpack._pointer(capsule, b"dltensor"))
        tensor.device.kind = self.kind
        return capsule
