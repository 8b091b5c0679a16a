"""Calls of the kernels of the examples, as target `sim` finds them, with arrays to repeat them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from examples.cases import Run, copied
from pto_wsp.device.kernel_cost import kernel_cost
from pto_wsp.errors import CompileError
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Value
from pto_wsp.runtime import device_costs
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.support.record import record
from pto_wsp.targets.ascend.generation import A2A3, A5, Generation
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.types.tile import ScalarType, ViewType

DEVICES = {A2A3.name: "ascend_910b", A5.name: "ascend_950"}
"""The preset of each generation."""


@record
class KernelRun:
    """A call of a kernel: the shapes of its views, and its scalars."""

    kernel: KernelFunction
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[Value, ...]

    def larger(self, factor: int) -> KernelRun:
        """Return the call with all sizes times `factor` that the kernel leaves open."""
        shapes = []
        for view, shape in zip(self.kernel.views, self.shapes, strict=True):
            dims = (view.type.dims if isinstance(view.type, ViewType) else None) or shape
            shapes.append(tuple(s * (factor if d is None else 1) for s, d in zip(shape, dims, strict=True)))
        return KernelRun(self.kernel, tuple(shapes), self.scalars)

    def arguments(self, *, zeros: bool = False) -> list[Any]:
        """Return arrays of the shapes, with random floats or zeros, and the scalars."""
        shapes, scalars = iter(self.shapes), iter(self.scalars)
        rng = np.random.default_rng(0)
        found: list[Any] = []
        for param in self.kernel.params:
            if isinstance(param.type, ScalarType):
                found.append(next(scalars))
            else:
                dtype = param.type.dtype
                assert dtype is not None
                shape = next(shapes)
                array = rng.random(shape) if dtype.is_float and not zeros else np.zeros(shape)
                found.append(array.astype(dtype.to_numpy()))
        return found


def runs_of(run: Run) -> list[KernelRun]:
    """Return the calls of an example whose costs target `sim` asks for: up to three per kernel."""
    found: dict[str, list[KernelRun]] = {}

    def noted(kernel: KernelFunction, device: Any, shapes: Any, scalars: Sequence[Value], *rest: Any) -> Any:
        made = KernelRun(kernel, tuple(map(tuple, shapes)), tuple(scalars))
        found.setdefault(kernel.name, []).append(made)
        return kernel_cost(kernel, device, shapes, scalars, *rest)

    with mock.patch.object(device_costs, "kernel_cost", noted):
        arguments = {key: copied(value) for key, value in run.arguments.items()}
        compile_module(run.module, "sim", "ascend_910b").run(**arguments)
    return [calls[n] for calls in found.values() for n in sorted({0, len(calls) // 2, len(calls) - 1})]


def accepted(calls: Iterable[KernelRun], generation: Generation) -> Iterator[KernelRun]:
    """Yield the calls of kernels that a target accepts."""
    for call in calls:
        try:
            write_kernel(call.kernel, generation)
        except CompileError:
            continue
        yield call
