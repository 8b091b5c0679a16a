"""Families: operators whose kernels are compiled together, one library per element type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from pto_wsp.types.dtype import DType


class Family:
    """Workloads that are made for an element type, by the names of their operators.

    Their kernels are one library: it is compiled by the first call of any of them, and kept in the cache.
    """

    def __init__(self, name: str, make: Callable[[DType], Iterable[Workload]]) -> None:
        self.name = name
        self._make = make
        self.workloads = lru_cache(maxsize=None)(self._workloads)
        self.module = lru_cache(maxsize=None)(self._module)
        self.program = lru_cache(maxsize=None)(self._program)

    def _workloads(self, dtype: DType) -> dict[str, Workload]:
        return {workload.name: workload for workload in self._make(dtype)}

    def _module(self, dtype: DType) -> Module:
        """Return all kernels and workloads of the family; it has no entry."""
        traced = [workload.trace().module for workload in self.workloads(dtype).values()]
        kernels = {kernel.name: kernel for module in traced for kernel in module.kernels}
        workloads = tuple(module.entry_workload for module in traced)
        return Module(f"{self.name}_{dtype}", tuple(kernels.values()), workloads)

    def _program(self, dtype: DType, name: str) -> Program:
        """Return the compiled workload `name`."""
        return compile_module(replace(self.module(dtype), entry=name))

    def run(self, dtype: DType, name: str, **values: Any) -> None:
        """Run an operator on arrays that fit its tensors."""
        self.program(dtype, name)(**values)
