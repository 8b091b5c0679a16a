"""What the tasks of a program cost on a device, as the simulator asks for it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, cached_property

from pto_wsp import _native
from pto_wsp.device.kernel_cost import KernelCost, kernel_cost
from pto_wsp.device.kernel_facts import buffers_that_fit, is_stated, scalars_that_matter
from pto_wsp.device.kernel_places import places_of_views
from pto_wsp.device.model import Device
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Value
from pto_wsp.types.dtype import DType, f32
from pto_wsp.types.tile import ScalarType

Find = Callable[[int, Sequence[tuple[int, ...]], Sequence[int]], _native.SimCost]


class DeviceCosts:
    """Costs of calls of kernels, found once for all calls with the same shapes and scalars that matter."""

    def __init__(self, kernels: Sequence[KernelFunction], device: Device) -> None:
        self._kernels = kernels
        self._device = device
        self._kinds = {kind.name: i for i, kind in enumerate(device.cores)}
        self._buffers = cache(lambda number: buffers_that_fit(self._kernels[number], device))
        self._known: dict[object, tuple[KernelCost, _native.SimCost]] = {}

    @property
    def matters(self) -> list[list[bool]]:
        """Whether each scalar of each kernel has a part in its cost."""
        return [list(scalars_that_matter(kernel)) for kernel in self._kernels]

    @cached_property
    def places(self) -> list[list[tuple[list[int], list[int]]]]:
        """What decides which part of each view each kernel moves: numbers of scalars and of views."""
        return [[] if is_stated(kernel) else places_of_views(kernel) for kernel in self._kernels]

    def of_run(self) -> tuple[Find, list[tuple[KernelFunction, KernelCost]]]:
        """Return what finds the costs of one run, and the list in which it notes them in order."""
        noted: list[tuple[KernelFunction, KernelCost]] = []

        def find(number: int, shapes: Sequence[tuple[int, ...]], bits: Sequence[int]) -> _native.SimCost:
            cost, result = self.find(number, shapes, bits)
            noted.append((self._kernels[number], cost))
            return result

        return find, noted

    def find(
        self, number: int, shapes: Sequence[tuple[int, ...]], bits: Sequence[int]
    ) -> tuple[KernelCost, _native.SimCost]:
        """Return what a call of kernel `number` costs.

        Raises:
            NoCost: its cycles cannot be found.
        """
        key = (number, *map(tuple, shapes), *bits)
        if key not in self._known:
            self._known[key] = self._find(number, shapes, bits)
        return self._known[key]

    def _find(
        self, number: int, shapes: Sequence[tuple[int, ...]], bits: Sequence[int]
    ) -> tuple[KernelCost, _native.SimCost]:
        kernel = self._kernels[number]
        types = [p.type.dtype for p in kernel.scalar_params if isinstance(p.type, ScalarType)]
        scalars = [_value(word, dtype) for word, dtype in zip(bits, types, strict=True)]
        cost = kernel_cost(kernel, self._device, shapes, scalars, self._buffers(number))
        result = _native.SimCost()
        result.kinds = sum(1 << self._kinds[unit] for unit in cost.units)
        result.cycles = cost.cycles
        result.ends = cost.cycles - max(cost.busy.values(), default=cost.cycles)
        result.loaded = list(cost.loaded)
        result.stored = list(cost.stored)
        result.spilled = cost.spilled
        result.operations = cost.operations
        return cost, result


def _value(bits: int, dtype: DType) -> Value:
    if dtype is f32:
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    return bits


def machine(device: Device) -> _native.SimMachine:
    """Return the figures of a device that the simulator reads."""
    result = _native.SimMachine()
    result.cores = [kind.count for kind in device.cores]
    result.gm_rate, result.gm_core_rate = device.gm_rate, device.gm_core_rate
    result.l2_bytes = device.l2.size
    result.l2_rate, result.l2_core_rate = device.l2.rate, device.l2.core_rate
    result.own_bytes = device.core_caches[-1].size if device.core_caches else 0
    result.l2_hit, result.l2_miss = device.l2.hit, device.l2.miss
    result.dispatchers = device.dispatchers.count
    result.generate = device.cycles(device.dispatchers.generate)
    result.skip = device.cycles(device.dispatchers.skip)
    result.dispatch = device.cycles(device.dispatchers.dispatch)
    result.complete = device.cycles(device.dispatchers.complete)
    result.records = device.dispatchers.records
    result.hz = device.clock_ghz * 1e9
    result.begin = device.cycles(device.host.latency)
    return result
