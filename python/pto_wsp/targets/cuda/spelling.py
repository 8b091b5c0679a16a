"""CUDA C++ as generated kernels are written in it, with the functions of include/pto/wsp/tile/cuda/."""

from __future__ import annotations

from pto_wsp.targets.cpu.spelling import CppSpelling


class CudaSpelling(CppSpelling):
    """C++17 for a thread block. All threads compute the same scalars."""

    target = "cuda"
    stop = ""
