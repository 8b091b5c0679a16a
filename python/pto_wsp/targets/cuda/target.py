"""The target `cuda`: programs that the blocks of one launch run themselves, on GPUs of NVIDIA."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.prove.waits import Derive, symbolic_waits
from pto_wsp.targets.base import R, Runnable, SourceTree, Support, Target
from pto_wsp.targets.c_style.group_by import is_group_by
from pto_wsp.targets.cpu.check import check_kernel
from pto_wsp.targets.cpu.tree import headers_of, portable
from pto_wsp.targets.cuda.emit import DeviceCode, ProgramCode, emit_device_code, emit_program
from pto_wsp.targets.cuda.order import support
from pto_wsp.targets.cuda.readme import kernels_readme, program_readme


class CudaTarget(Target):
    """Runs programs on NVIDIA GPUs of compute capability 8.0 or higher."""

    name = "cuda"
    takes_gpu_arrays = True

    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first thing in `module` that is refused."""
        # Emission is pure, and refuses what it cannot write.
        code = self._kernels([k for k in module.kernels if k.body is not None or k.native is not None])
        if module.entry:
            emit_program(module, code, self.name, symbolic_waits)

    def _kernels(self, kernels: Sequence[KernelFunction]) -> DeviceCode:
        for kernel in kernels:
            self._check_kernel(kernel)
        return emit_device_code(kernels, self.name)

    def _check_kernel(self, kernel: KernelFunction) -> None:
        if is_group_by(kernel):
            return
        check_kernel(kernel, self.name)

    def emit(self, module: Module) -> SourceTree:
        """Return a folder with the device code of a program, or of kernels where there is no entry."""
        module = portable(module)
        if not module.entry:
            code = self._kernels(module.kernels)
            return _tree("kernels.cu", code.text, kernels_readme(code))
        program = self.program_code(module)
        return _tree("program.cu", program.text, program_readme(module, program))

    def program_code(self, module: Module, derive: Derive = symbolic_waits) -> ProgramCode:
        """Return the translation unit of a prepared module with an entry.

        Args:
            module: the module.
            derive: returns its symbolic waits.

        Raises:
            UnsupportedByTarget, TilesTooLarge: as `check` raises them.
        """
        return emit_program(module, self._kernels(module.kernels), self.name, derive)

    def policies(self, policy: Policy[..., Directive]) -> Support:
        """Return how the target lowers a directive."""
        return support(policy)

    def runner(self, program: Runnable[R]) -> R:
        """Return a runner that launches the program's code on a GPU."""
        return program.launched(self.program_code)


def _tree(name: str, text: str, readme: str) -> SourceTree:
    headers = {f"include/{header}": source for header, source in headers_of([text])}
    return SourceTree({"README.md": readme, name: text, **headers}, (name,))
