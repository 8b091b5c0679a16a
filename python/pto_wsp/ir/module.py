"""The module: the unit that is verified, printed and compiled."""

from __future__ import annotations

from collections.abc import Iterable

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.printer import print_module
from pto_wsp.ir.workload import WorkloadFunction
from pto_wsp.support.record import record, replace


@record
class Module:
    """Functions, of which one workload (or kernel) is the entry. Names are unique."""

    name: str
    kernels: tuple[KernelFunction, ...] = ()
    workloads: tuple[WorkloadFunction, ...] = ()
    entry: str = ""

    def kernel(self, name: str) -> KernelFunction:
        """Return the kernel called `name`."""
        return next(k for k in self.kernels if k.name == name)

    @property
    def entry_workload(self) -> WorkloadFunction:
        """The workload that a program runs."""
        return next(w for w in self.workloads if w.name == self.entry)

    def with_kernels(self, kernels: Iterable[KernelFunction]) -> Module:
        """Return the module with other kernels."""
        return replace(self, kernels=tuple(kernels))

    def __str__(self) -> str:
        """Return the module as `.pto` text."""
        return print_module(self.name, self.entry, self.kernels, self.workloads)
