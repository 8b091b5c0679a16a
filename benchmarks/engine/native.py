"""What is measured without Python: the program of native.cpp, and the calls that it gets."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.calibrate import compiler
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.lower.lower_workload_to_bytecode import Lowered, lower_workload_to_bytecode
from pto_wsp.lower.lower_workload_to_source import lower_workload_to_source
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.targets.base import KernelArtifact
from pto_wsp.targets.cpu.target import CpuTarget

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "include"
FLAGS = ["-std=c++17", "-O3", f"-I{INCLUDE}", "-pthread"]


@dataclass
class Native:
    """The built program, and where its inputs are written."""

    folder: Path

    def value(self, mode: str, call: Path) -> Callable[[], float]:
        """Return a function that starts the program once and returns the number that it prints."""
        command = [str(self.folder / "native"), mode, str(call)]
        return lambda: float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def call(self, workload: Workload, sizes: Mapping[str, int], walk: Path | None = None) -> Path:
        """Write what the program needs to run a workload: bytecode, kernels, shapes, sizes and the walk."""
        module = workload.trace().module
        artifact = kernels(workload)
        code = self.folder / f"{module.name}.ptow"
        found = lowered(workload)
        code.write_bytes(found.code)
        shapes = [
            tuple(sizes[d] if isinstance(d, str) else d for d in t.type.dims)
            for t in module.entry_workload.tensors
        ]
        symbols = [str(sizes.get(name, "-")) for name in found.symbols]
        lines = [str(code), str(artifact.path), str(len(shapes))]
        lines += [" ".join(map(str, (len(shape), *shape))) for shape in shapes]
        lines += [str(len(symbols)), *symbols]
        lines += [] if walk is None else [str(walk)]
        path = self.folder / f"{module.name}{'_source' * (walk is not None)}.txt"
        path.write_text("\n".join(lines) + "\n")
        return path


def build(folder: Path) -> Native:
    """Compile the program into `folder`."""
    command = [*compiler(), *FLAGS, str(HERE / "native.cpp"), "-o", str(folder / "native"), "-ldl"]
    subprocess.run(command, check=True)
    return Native(folder)


def kernels(workload: Workload) -> KernelArtifact:
    """Return the kernels of a workload."""
    return CpuTarget().build(workload.trace().module.kernels, ArtifactCache())


def lowered(workload: Workload) -> Lowered:
    """Return the bytecode of a workload."""
    module, artifact = workload.trace().module, kernels(workload)
    return lower_workload_to_bytecode(module, artifact.kernels, artifact.table_hash)


def compiled_walk(workload: Workload) -> Path:
    """Return the library of the walk of a workload."""
    source = lower_workload_to_source(workload.trace().module, lowered(workload))
    return CpuTarget("source").build_walk(source, ArtifactCache())


def zeros(workload: Workload, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return an array of zeros for every tensor of a workload."""
    tensors = workload.trace().module.entry_workload.tensors
    return {
        t.name: np.zeros(tuple(sizes[d] if isinstance(d, str) else d for d in t.type.dims), np.int32)
        for t in tensors
    }
