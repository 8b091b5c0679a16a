"""The targets `ascend_a2a3` and `ascend_a5`: programs as sources for Ascend processors."""

from __future__ import annotations

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.targets.ascend.generation import GENERATIONS, Generation
from pto_wsp.targets.ascend.orchestration import require_expandable
from pto_wsp.targets.ascend.policies import support
from pto_wsp.targets.ascend.tree import program, written
from pto_wsp.targets.base import SourceTree, Support, Target
from pto_wsp.targets.cpu.emit import MAX_RANK
from pto_wsp.targets.cpu.tree import portable
from pto_wsp.types.space import Space
from pto_wsp.types.tile import ViewType


class AscendTarget(Target):
    """Programs are emitted for one generation of Ascend processors.

    Args:
        generation: the processors.
    """

    spaces = frozenset({Space.UB})
    runs_networks = True

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.name = generation.name  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def about(self) -> str:
        """What the list of targets says about it."""
        return f"Emits sources for Ascend, generation {self.generation.arch}."

    @classmethod
    def of(cls, name: str) -> AscendTarget:
        """Return the target called `name`."""
        return cls(GENERATIONS[name])

    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first thing in `module` that is refused."""
        for kernel in module.kernels:
            self._check_kernel(kernel)
        self._require_no_workspace(module)
        defined = (k for k in module.kernels if k.body is not None or k.native is not None)
        codes = written(defined, self.generation)
        if module.entry:
            require_expandable(module, codes, self.generation)

    def emit(self, module: Module) -> SourceTree:
        """Return a folder with one file per kernel, and a program that simulates them on the host."""
        module = portable(module)
        for kernel in module.kernels:
            self._check_kernel(kernel)
        self._require_no_workspace(module)
        return program(module, self.generation)

    def policies(self, policy: Policy[..., Directive]) -> Support:
        """Return what the device makes of a directive."""
        return support(policy)

    def _require_no_workspace(self, module: Module) -> None:
        for workload in module.workloads:
            for task in w.tasks(workload.body):
                if task.workspace is not None:
                    reason = "declare a tensor of the workload instead, and pass a part of it"
                    raise UnsupportedByTarget(
                        target=self.name, what="a workspace of a task", reason=reason, loc=task.loc
                    )

    def _check_kernel(self, kernel: KernelFunction) -> None:
        for param in kernel.views:
            dims = param.type.dims if isinstance(param.type, ViewType) else (0, 0)
            if dims is None or param.type.dtype is None:
                raise self._refused(f"the parameter `{param.name}`", "its type is not decided", kernel)
            if len(dims) > MAX_RANK:
                raise self._refused(f"views of more than {MAX_RANK} dimensions", "", kernel)

    def _refused(self, what: str, reason: str, kernel: KernelFunction) -> UnsupportedByTarget:
        return UnsupportedByTarget(target=self.name, what=what, reason=reason, loc=kernel.loc)
