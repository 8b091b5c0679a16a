"""The module: the unit that is verified, printed and compiled."""

from __future__ import annotations

from collections.abc import Iterable

from pto_wsp.ir.core import Region
from pto_wsp.ir.kernel import IN, KernelCall, KernelFunction, walk_statements
from pto_wsp.ir.printer import print_module
from pto_wsp.ir.schedule import DEFAULT, Directives
from pto_wsp.ir.workload import WorkloadCall, WorkloadFunction, tasks, walk_nodes
from pto_wsp.support.record import record, replace


def called_functions(function: KernelFunction | WorkloadFunction) -> frozenset[str]:
    """Return the names of the functions whose bodies `function` calls; tasks do not count."""
    if isinstance(function, KernelFunction):
        statements = walk_statements(function.body or ())
        return frozenset(stmt.kernel for stmt in statements if isinstance(stmt, KernelCall))
    return frozenset(node.workload for node in walk_nodes(function.body) if isinstance(node, WorkloadCall))


def used_functions(function: KernelFunction | WorkloadFunction) -> frozenset[str]:
    """Return the names of the functions that `function` calls for, and of the kernels of its tasks."""
    if isinstance(function, KernelFunction):
        return called_functions(function)
    return called_functions(function) | {task.kernel for task in tasks(function.body)}


@record
class Module:
    """Functions, of which one workload (or kernel) is the entry, and how its tasks run. Names are unique."""

    name: str
    kernels: tuple[KernelFunction, ...] = ()
    workloads: tuple[WorkloadFunction, ...] = ()
    entry: str = ""
    schedule: Directives = DEFAULT

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

    @property
    def reached(self) -> Module:
        """The module with the functions alone that its entry comes to; all of one without an entry."""
        if not self.entry:
            return self
        functions = {f.name: f for f in (*self.kernels, *self.workloads)}
        found, pending = {self.entry}, [self.entry]
        while pending:
            new = used_functions(functions[pending.pop()]) - found
            found |= new
            pending += new
        kernels = tuple(kernel for kernel in self.kernels if kernel.name in found)
        workloads = tuple(workload for workload in self.workloads if workload.name in found)
        return replace(self, kernels=kernels, workloads=workloads)

    def with_kernels(self, kernels: Iterable[KernelFunction]) -> Module:
        """Return the module with other kernels."""
        return replace(self, kernels=tuple(kernels))

    def with_schedule(self, schedule: Directives) -> Module:
        """Return the module with another schedule."""
        return replace(self, schedule=schedule)

    def __str__(self) -> str:
        """Return the module as `.pto` text."""
        return print_module(self.name, self.entry, self.kernels, self.workloads, self.schedule)
