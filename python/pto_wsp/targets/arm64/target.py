"""The target `arm64`: programs as C++17 with NEON, for machines with 64-bit ARM processors and Linux."""

from __future__ import annotations

from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.targets.arm64.cmake import build_files
from pto_wsp.targets.base import Enforced, SourceTree, Target
from pto_wsp.targets.cpu.check import check_kernel
from pto_wsp.targets.cpu.emit import emit_library
from pto_wsp.targets.cpu.tree import portable, program_tree

LANES = 4
"""32-bit lanes of a vector of NEON."""


class Arm64Target(Target):
    """Emits sources for 64-bit ARM with Linux."""

    name = "arm64"
    runs_networks = True

    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first thing in the kernels of `module` that is refused."""
        for kernel in module.kernels:
            if kernel.body is not None or kernel.native is not None:
                check_kernel(kernel, self.name)

    def emit(self, module: Module) -> SourceTree:
        """Return a folder that CMake builds, with a toolchain file for a cross compiler."""
        module = portable(module)
        for kernel in module.kernels:
            check_kernel(kernel, self.name)
        library = emit_library(module.kernels, LANES)
        return program_tree(self.name, module, library, build_files, has_walk=True, has_networks=True)

    def policies(self, policy: Policy[..., Directive]) -> Enforced:
        """Enforce: the engine, which the program contains, does what every directive says."""
        return Enforced()
