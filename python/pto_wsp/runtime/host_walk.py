"""The walk of a launch, repeated on the host for the names of tasks and the texts of errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pto_wsp.interp.workload import BoundTask, TensorReader, expand
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.runtime.gpu_arrays import GpuArray
from pto_wsp.targets.cuda.driver import find_gpu


def decides_itself(module: Module) -> bool:
    """Return whether elements that tasks write decide what runs: the host cannot walk again."""
    return not module.written.isdisjoint(w.deciding_tensors(module.entry_workload.body))


def on_host(module: Module, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a run, with the elements that decide what runs."""
    deciding = w.deciding_tensors(module.entry_workload.body)
    return {
        name: _copied(array) if name in deciding and isinstance(array, GpuArray) else array
        for name, array in arrays.items()
    }


def tasks_of(
    module: Module, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Value]
) -> Iterator[BoundTask]:
    """Yield the tasks of a launch in program order."""
    return expand(module.entry_workload, sizes, TensorReader(on_host(module, arrays)))


def _copied(array: GpuArray) -> np.ndarray:
    """Return the elements of an array that lies on a GPU."""
    first, last = np.lib.array_utils.byte_bounds(array)
    found = np.empty(last - first, np.uint8)
    with find_gpu(array.gpu).current() as driver:
        driver.call("cuMemcpyDtoHAsync_v2", found.ctypes.data, first, found.nbytes, None)
        driver.call("cuStreamSynchronize", None)
    return np.lib.stride_tricks.as_strided(found.view(array.dtype), array.shape, array.strides)
