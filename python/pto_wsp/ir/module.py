"""The module: the unit that is verified, printed and compiled."""

from __future__ import annotations

from collections.abc import Iterable

from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel import IN, KernelFunction
from pto_wsp.ir.printer import print_module
from pto_wsp.ir.workload import WorkloadFunction, tasks
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

    @property
    def written(self) -> frozenset[str]:
        """Names of the tensors that some task of the entry writes."""
        found: set[str] = set()
        for task in tasks(self.entry_workload.body):
            for param, arg in zip(self.kernel(task.kernel).params, task.args, strict=True):
                if isinstance(arg, Region) and param.role != IN:
                    found.add(arg.tensor)
        return frozenset(found)

    def with_kernels(self, kernels: Iterable[KernelFunction]) -> Module:
        """Return the module with other kernels."""
        return replace(self, kernels=tuple(kernels))

    def __str__(self) -> str:
        """Return the module as `.pto` text."""
        return print_module(self.name, self.entry, self.kernels, self.workloads)
