"""What keeps a program from running on a GPU."""

from __future__ import annotations

from pto_wsp.errors.base import CompileError, RunError


class NoGpu(CompileError):
    """No GPU on this machine that runs programs of the target `cuda`."""

    code = "no-gpu"
    template = "no NVIDIA GPU can be used"
    label = "{reason}"
    hint = "install NVIDIA's driver, or write the sources with `Program.export` or `pto emit`"


class NoCudaCompiler(CompileError):
    """Neither nvcc nor NVRTC on this machine."""

    code = "no-cuda-compiler"
    template = "no compiler of CUDA C++ was found"
    label = "looked for {tried}"
    hint = "install the CUDA toolkit, set CUDA_HOME, or `pip install pto-wsp[cuda]`"


class GpuFault(RunError):
    """A call of the driver that fails."""

    code = "gpu-fault"
    template = "the GPU's driver refuses `{call}`: {name} ({number})"
    label = "{text}"
