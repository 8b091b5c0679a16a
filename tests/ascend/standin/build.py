"""Builds emitted kernels with simulated cores, and runs programs with them on the engine."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.runtime.export import write_tree
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.target import AscendTarget
from pto_wsp.targets.ascend.tree import host_library
from pto_wsp.targets.base import KernelArtifact, LibraryCache, R, Runnable, table_hash
from pto_wsp.targets.cpu.toolchain import include_directory
from tests.ascend.standin.cycles import CoreFunctions, ExecutedTask, executed, functions_of, lines_of

HERE = Path(__file__).parent
FLAGS = (
    "-std=c++20",
    "-O1",
    "-fwrapv",
    "-Wall",
    "-Werror",
    "-fPIC",
    "-shared",
    "-D__CPU_SIM",
    "-fno-gnu-unique",
)
"""Without the last one, all libraries of a process share the reports of one core."""


def build(kernels: Sequence[KernelFunction], target: AscendTarget, folder: Path) -> Path:
    """Emit kernels into a folder and build them; return the library."""
    tree = target.emit(Module("kernels", tuple(kernels), ()))
    write_tree(tree, folder)
    library = (
        folder / f"{hashlib.sha256(str(folder).encode()).hexdigest()}.so"
    )  # as the cache names libraries
    include = [f"-I{HERE / 'include'}", f"-I{folder}", f"-I{include_directory()}"]
    command = ["g++", *FLAGS, *include, str(folder / "kernels.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


class StandIn:
    """The simulated cores of a built library."""

    def __init__(self, path: Path) -> None:
        self._handle = ctypes.CDLL(str(path))
        self._handle.standin_report.restype = ctypes.c_char_p
        self._handle.standin_traced.restype = ctypes.c_char_p
        self._handle.standin_skip.restype = ctypes.c_int64
        self._handle.standin_skip.argtypes = (ctypes.c_int64,)

    def loads_first(self, is_first: bool) -> None:
        """Choose whether loads run ahead, or as late as flags allow."""
        self._handle.standin_loads_first(ctypes.c_bool(is_first))

    def report(self) -> str:
        """Return what was wrong since the last call."""
        return self._handle.standin_report().decode()

    def trace(self, functions: str, *, repeats: bool = False) -> None:
        """Keep what tasks of these functions execute from now on: lines of name, phase, views, scalars.

        Args:
            functions: the lines.
            repeats: whether tasks that do the same are kept, too.
        """
        self._handle.standin_trace(functions.encode(), ctypes.c_bool(repeats))

    def traced(self) -> str:
        """Return what tasks have executed, in the form of `trace.hpp`."""
        return self._handle.standin_traced().decode()

    def skip(self, number: int) -> int:
        """Leave out one flag or barrier of the code from now on, none if negative; return how many ran."""
        return self._handle.standin_skip(number)


class StandInTarget(AscendTarget):
    """A target that runs programs on the engine, with emitted kernels on simulated cores."""

    expander = "bytecode"

    def __init__(self, generation: Generation) -> None:
        super().__init__(generation)
        self.name = f"standin_{generation.arch}"  # pyright: ignore[reportAttributeAccessIssue]
        self.folder = Path(tempfile.mkdtemp(prefix="pto-wsp-ascend-"))
        self.built = 0
        self.standin: StandIn | None = None
        self.functions: CoreFunctions = {}

    def environment(self, cache: LibraryCache) -> str:
        """Return a text for each instance: libraries are not shared."""
        return f"{self.name} {self.folder}"

    def build_walk(self, source: str, cache: LibraryCache) -> Path:
        """Refuse: the workload is expanded from bytecode."""
        raise NotImplementedError

    def build(self, kernels: Sequence[KernelFunction], cache: LibraryCache) -> KernelArtifact:
        """Return a library of emitted kernels."""
        self.built += 1
        path = build(kernels, self, self.folder / f"kernels{self.built}")
        self.standin = StandIn(path)
        self.functions = functions_of(write_kernel(kernel, self.generation) for kernel in kernels)
        self.standin.trace(lines_of(self.functions))
        names = tuple(kernel.name for kernel in kernels)
        checks = host_library(kernels, self.generation).checks
        return KernelArtifact(path, table_hash(kernels), names, checks, 1, 0.0, "")

    def executed(self) -> list[ExecutedTask]:
        """Return what tasks have executed, one per function, shapes and scalars."""
        return [*executed(self.standin.traced(), self.functions)] if self.standin else []

    def runner(self, program: Runnable[R]) -> R:
        """Run on the engine."""
        return program.on_engine(self)
