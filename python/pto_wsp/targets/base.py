"""What every target is: a name, what it refuses, and the kernel library that it builds."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.location import Location
from pto_wsp.support.record import record


@record
class Check:
    """A run-time check of a kernel: where it stands, and what is wrong when it fails."""

    loc: Location | None
    message: str


@record
class KernelArtifact:
    """A kernel library on disk.

    Attributes:
        path: the shared library; it exports `pto_wsp_kernel_library` of include/pto/wsp/abi.hpp.
        table_hash: what the library carries too, see `table_hash`.
        kernels: names in table order.
        checks: per kernel, what its check number n (from 1) means, at index n - 1.
        compiles: what this build compiled: generated code counts as one, each hand-written kernel as one.
        compile_ms: time that the build took, all steps counted.
        source: the generated code.
    """

    path: Path
    table_hash: int
    kernels: tuple[str, ...]
    checks: Mapping[str, tuple[Check, ...]]
    compiles: int
    compile_ms: float
    source: str


class LibraryCache(Protocol):
    """Where built libraries are kept between processes."""

    def library(self, key: str, make: Callable[[Path], object], kind: str = "so") -> tuple[Path, bool]:
        """Return the file for `key`, named `*.kind`, and whether `make(path)` was called to write it."""
        ...

    def keep_source(self, key: str, source: str) -> Path:
        """Write generated code to a file that stays, and return its path."""
        ...

    def read_note(self, name: str) -> str | None:
        """Return what `write_note` stored under `name`, or None."""
        ...

    def write_note(self, name: str, text: str) -> None:
        """Store a small text that may be lost at any time."""
        ...


class Target(ABC):
    """A machine, real or not, that kernels run on.

    Attributes:
        name: as in `compile(target=...)`.
        builds_library: whether `build` gives a library that the engine runs.
    """

    name: ClassVar[str]
    builds_library: ClassVar[bool]

    @abstractmethod
    def unsupported(self, kernel: KernelFunction) -> None:
        """Raise UnsupportedByTarget for the first thing in `kernel` that this target refuses."""

    @abstractmethod
    def emit(self, kernels: Sequence[KernelFunction]) -> str:
        """Return the generated code of `kernels`. Builds nothing."""

    @abstractmethod
    def build_environment(self, cache: LibraryCache) -> str:
        """Return what `build` depends on besides the kernels: processor, compiler, options, headers.

        Raises:
            NoCompiler, UnsupportedByTarget: nothing can be built here.
        """

    @abstractmethod
    def build(self, kernels: Sequence[KernelFunction], cache: LibraryCache) -> KernelArtifact:
        """Return a library of `kernels`, from `cache` or newly built.

        Raises:
            UnsupportedByTarget: a kernel uses what this target refuses.
            NoneKernelBody: a kernel is only declared.
            NoCompiler, CompilerFailed, CppError, BadCache: the library could not be built.
        """


def table_hash(kernels: Sequence[KernelFunction]) -> int:
    """Return the 64-bit hash over names, parameters, declarations and C++ of a library's kernels."""
    digest = hashlib.sha256("\n".join(map(_signature, kernels)).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _signature(kernel: KernelFunction) -> str:
    """Return what the hash of a library covers of a kernel."""
    parts = [kernel.name, *(f"{p.role}:{p.name}:{p.type}" for p in kernel.params)]
    parts += [kernel.unit, str(kernel.block_dim)]
    if kernel.native is not None:
        native = kernel.native
        parts += map(repr, (native.source, native.entry, native.includes, native.folder, native.constants))
    return " ".join(parts)
