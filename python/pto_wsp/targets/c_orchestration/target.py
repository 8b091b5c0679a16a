"""The target `c-orchestration`: programs as C that adds tasks by the C API."""

from __future__ import annotations

from functools import partial

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import KernelFunction, Print, walk_statements
from pto_wsp.ir.module import Module
from pto_wsp.targets.base import SourceTree, Target
from pto_wsp.targets.c_orchestration.makefile import build_files
from pto_wsp.targets.c_orchestration.walk import c_orchestration
from pto_wsp.targets.cpu.check import check_kernel
from pto_wsp.targets.cpu.emit import emit_library
from pto_wsp.targets.cpu.features import resolve_features
from pto_wsp.targets.cpu.tree import portable, program_tree


class COrchestrationTarget(Target):
    """Emits C that submits tasks by the C API, with kernels for this machine."""

    name = "c-orchestration"

    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first thing in the kernels of `module` that is refused."""
        for kernel in module.kernels:
            if kernel.body is not None or kernel.native is not None:
                self._check(kernel)

    def emit(self, module: Module) -> SourceTree:
        """Return a folder that builds the program with `make` and the library of the C API."""
        module, features = portable(module), resolve_features()
        for kernel in module.kernels:
            self._check(kernel)
        library = emit_library(module.kernels, features.lanes)
        files = partial(build_files, features=features)
        return program_tree(
            self.name, module, library, files, has_function=True, orchestration=c_orchestration
        )

    def _check(self, kernel: KernelFunction) -> None:
        check_kernel(kernel, self.name)
        for stmt in walk_statements(kernel.body or ()):
            if isinstance(stmt, Print):
                what, reason = f"`print` in kernel `{kernel.name}`", "tasks of the C API print nothing"
                raise UnsupportedByTarget(target=self.name, what=what, reason=reason, loc=stmt.loc)
