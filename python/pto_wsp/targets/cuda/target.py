"""The target `cuda`: programs that the blocks of one launch run themselves, on GPUs of NVIDIA."""

from __future__ import annotations

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.targets.base import SourceTree, Target
from pto_wsp.targets.cpu.check import check_kernel
from pto_wsp.targets.cpu.tree import headers_of
from pto_wsp.targets.cuda.emit import emit_device_code, emit_program
from pto_wsp.targets.cuda.group_by import is_group_by
from pto_wsp.targets.cuda.readme import kernels_readme, program_readme


class CudaTarget(Target):
    """Programs are emitted for GPUs of compute capability 8.0 or higher."""

    name = "cuda"

    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first thing in the kernels of `module` that is refused."""
        kernels = [
            kernel for kernel in module.kernels if kernel.body is not None or kernel.native is not None
        ]
        for kernel in kernels:
            self._check_kernel(kernel)
        # Emission is pure, and refuses what it cannot write.
        code = emit_device_code(kernels)
        if module.entry:
            emit_program(module, code, self.name)

    def _check_kernel(self, kernel: KernelFunction) -> None:
        if is_group_by(kernel):
            return
        if kernel.native is not None:
            reason = "hand-written C++ runs on a CPU: write the kernel with `@kernel`"
            what = f"the kernel `{kernel.name}` in C++"
            raise UnsupportedByTarget(target=self.name, what=what, reason=reason, loc=kernel.loc)
        check_kernel(kernel, self.name)

    def emit(self, module: Module) -> SourceTree:
        """Return a folder with the device code of a program, or of kernels where there is no entry."""
        for kernel in module.kernels:
            self._check_kernel(kernel)
        code = emit_device_code(module.kernels)
        if not module.entry:
            return _tree("kernels.cu", code.text, kernels_readme(code))
        program = emit_program(module, code, self.name)
        return _tree("program.cu", program.text, program_readme(module, program))


def _tree(name: str, text: str, readme: str) -> SourceTree:
    headers = {f"include/{header}": source for header, source in headers_of([text])}
    return SourceTree({"README.md": readme, name: text, **headers}, (name,))
