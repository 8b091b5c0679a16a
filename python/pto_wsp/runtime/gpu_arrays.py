"""Arrays in memory of a GPU: address, shape, strides and owner."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from pto_wsp.errors import UnusableArray
from pto_wsp.location import Location


class GpuArray(np.ndarray):
    """Shape, strides and address of memory of a GPU. Its elements cannot be read on the host.

    Attributes:
        gpu: number of the GPU.
    """

    gpu: int

    def __array_finalize__(self, source: object) -> None:
        """Take the GPU of the array that this is a view of."""
        self.gpu = getattr(source, "gpu", 0)

    def __repr__(self) -> str:
        return f"<{self.dtype} {list(self.shape)} on GPU {self.gpu}>"

    def __array_ufunc__(self, *_: object, **__: object) -> NoReturn:
        """Refuse: the host cannot read it.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} cannot be read on the host")

    def __getitem__(self, key: object) -> NoReturn:
        """Refuse: the host cannot read it.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} cannot be read on the host")


class ForeignMemory:
    """Memory of another library as numpy's array interface; holds the owner of the memory."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def on_gpu(array: np.ndarray, gpu: int) -> GpuArray:
    """Return an array whose address is one of a GPU."""
    found = array.view(GpuArray)
    found.gpu = gpu
    return found


def interface_array(name: str, value: Any, loc: Location | None) -> tuple[np.ndarray, int | None]:
    """Return the array that `__cuda_array_interface__` describes, and the stream that it is ready in.

    Raises:
        UnusableArray: it has a mask.
    """
    found = value.__cuda_array_interface__
    if found.get("mask") is not None:
        raise UnusableArray(name=name, reason="it has a mask, and tasks would not see it", loc=loc)
    interface = {key: found[key] for key in ("shape", "typestr", "data")}
    interface |= {"version": 3, "strides": found.get("strides")}
    if 0 in found["shape"]:
        return np.empty(found["shape"], np.dtype(found["typestr"])), None
    return np.asarray(ForeignMemory(value, interface)), found.get("stream")
