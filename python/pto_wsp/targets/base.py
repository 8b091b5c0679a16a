"""What every target is: what it refuses, the sources that it emits, and how it runs programs."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pto_wsp.device.model import Device
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.check_texts import CheckText
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directive, Policy
from pto_wsp.ir.workload import TIME, WorkloadFunction
from pto_wsp.location import Location
from pto_wsp.prove.waits import Derive
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType
from pto_wsp.types.space import Space

R = TypeVar("R", covariant=True)


@record
class SourceTree:
    """A folder of sources that a target emits.

    Attributes:
        files: text by path. Paths are relative and use `/`; the order is that of reading.
        kernels: the paths with the code of kernels, which `pto emit` prints.
    """

    files: Mapping[str, str]
    kernels: tuple[str, ...]


@record
class Preferences:
    """What operators choose by on a target.

    Attributes:
        panel_cols: columns of a panel of weights (`MemLayout.panels`) that products read fastest.
        sums_pairs: whether products of two bf16 tiles add two terms at a time, without widening either.
    """

    panel_cols: int = 32
    sums_pairs: bool = False


@record
class Check:
    """A run-time check of a kernel.

    Attributes:
        loc: its place.
        text: what is wrong when it fails.
        num_values: values that the failed check keeps for its text.
        scalars: names and types of scalars whose values it keeps after those.
    """

    loc: Location | None
    text: CheckText
    num_values: int = 0
    scalars: tuple[tuple[str, DType], ...] = ()


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


class KernelBuilder(Protocol):
    """Builds the kernel library that the engine loads."""

    @property
    def name(self) -> str:
        """The name of the target."""
        ...

    @property
    def expander(self) -> str:
        """What expands the tasks of a workload: `bytecode`, or `source`, which is compiled."""
        ...

    def environment(self, cache: LibraryCache) -> str:
        """Return what two builds of the same kernels can differ in: options, compiler, processor."""
        ...

    def build_walk(self, source: str, cache: LibraryCache) -> Path:
        """Return a library of a walk, from `cache` or newly built, that exports `pto_wsp_walk` of walk.hpp.

        Raises:
            NoCompiler, CompilerFailed, BadCache: the library could not be built.
        """
        ...

    def build(self, kernels: Sequence[KernelFunction], cache: LibraryCache) -> KernelArtifact:
        """Return a library of `kernels`, from `cache` or newly built.

        Raises:
            UnsupportedByTarget: a kernel uses what this target refuses.
            NoneKernelBody: a kernel is only declared.
            NoCompiler, CompilerFailed, CppError, BadCache: the library could not be built.
        """
        ...


class Runnable(Protocol[R]):
    """A program that is ready to run, and the runners that the runtime has."""

    @property
    def module(self) -> Module:
        """The module to run."""
        ...

    def on_engine(self, builder: KernelBuilder) -> R:
        """Return a runner that expands tasks on the engine and calls the kernels that `builder` builds."""
        ...

    def interpreted(self) -> R:
        """Return a runner that walks the program in Python and runs kernels in numpy."""
        ...

    def simulated(self, builder: KernelBuilder, device: Device, has_values: bool) -> R:
        """Return a runner that finds how long runs take on a device, and runs them on the engine for values.

        Args:
            builder: builds the kernels that the engine calls.
            device: the device whose time is simulated.
            has_values: whether tasks run; otherwise only time is found.
        """
        ...

    def launched(self, emit: Callable[[Module, Derive], Any]) -> R:
        """Return a runner that launches a program on a GPU.

        Args:
            emit: returns the `ProgramCode` of targets/cuda of a prepared module, whose symbolic waits a
                function derives.
        """
        ...

    def refused(self) -> R:
        """Return a runner that refuses every run by name."""
        ...


@record
class Enforced:
    """The target does what the policy says."""


@record
class Idle:
    """The target accepts the policy, which has nothing to decide there."""


@record
class Refused:
    """The target refuses the policy by name."""

    reason: str


Support = Enforced | Idle | Refused


class Target(ABC):
    """A machine, real or not, that programs are compiled for.

    Attributes:
        name: as in `compile(target=...)`.
        evaluates_floats: whether a workload's float arithmetic is evaluated during a run. Otherwise a pass
            computes it before the run.
        takes_gpu_arrays: whether arrays may lie in memory of a GPU.
        runs_networks: whether it runs networks of processes.
        has_clock: whether the tokens of networks can be merged by time.
        spaces: memories that it places tiles and tensors in where a program asks for them.
    """

    name: ClassVar[str]
    evaluates_floats: ClassVar[bool] = False
    takes_gpu_arrays: ClassVar[bool] = False
    runs_networks: ClassVar[bool] = False
    has_clock: ClassVar[bool] = False
    spaces: ClassVar[frozenset[Space]] = frozenset()

    @property
    def about(self) -> str:
        """What a list of targets says about it: the first line of the docstring of its class."""
        return (type(self).__doc__ or "").partition("\n")[0]

    @abstractmethod
    def check(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first instruction, type or shape that this target refuses.

        Args:
            module: verified and without calls. Kernels that are only declared are not checked.
        """

    @abstractmethod
    def emit(self, module: Module) -> SourceTree:
        """Return the sources of a program. Emission is pure: it writes and runs nothing.

        The same module gives the same text, without paths of this machine.

        Args:
            module: as `check` takes it. Without an entry, its kernels alone are emitted.

        Raises:
            UnsupportedByTarget: as `check` raises it.
            NoneKernelBody: a kernel is only declared.
        """

    def require_spaces(self, module: Module) -> None:
        """Raise UnsupportedByTarget for the first tile or tensor in a memory that this target has not."""
        placed = [(f, name, tile.space) for f in module.kernels for name, tile in f.tiles]
        placed += [(f, t.name, t.type.space) for f in module.workloads for t in f.tensors]
        for function, name, space in placed:
            if space is not None and space not in self.spaces:
                what = f"the memory `{space.value}`, in which `{name}` is to lie"
                reason = "leave it open: then the target chooses where it lies"
                raise UnsupportedByTarget(target=self.name, what=what, reason=reason, loc=function.loc)

    def require_networks(self, workload: WorkloadFunction) -> None:
        """Raise UnsupportedByTarget for a network that this target does not run."""
        if workload.processes and not self.runs_networks:
            reason = "it runs workloads of one program order: compile for `cpu` or `interp`"
            loc = workload.processes[0].loc
            raise UnsupportedByTarget(target=self.name, what="a network of processes", reason=reason, loc=loc)
        by_time = (t for t in workload.tensors if t.channel is not None and t.channel.merge == TIME)
        if not self.has_clock and (tensor := next(by_time, None)) is not None:
            raise UnsupportedByTarget(
                target=self.name,
                what=f'`merge="time"` of channel `{tensor.name}`',
                reason="it has no clock, so results would depend on the moment",
                hint="accept that with `network(..., nondeterministic=True)`, or merge by turns",
                loc=tensor.loc,
            )

    def preferences(self) -> Preferences:
        """Return what operators choose by. Results do not depend on it."""
        return Preferences()

    def facts(self, cache: LibraryCache) -> Mapping[str, Callable[[], object]]:
        """Return what `pto info` prints of the target on this machine: functions by name."""
        return {}

    def policies(self, policy: Policy[..., Directive]) -> Support:
        """Return what the target makes of a directive of schedules, unless the directive says so itself.

        By default it refuses every directive. `Idle` is right only if the directive cannot matter here.
        """
        return Refused("nothing in it enforces policies")

    def runner(self, program: Runnable[R]) -> R:
        """Return what runs a program. A target that does not override this only emits sources."""
        return program.refused()


def require_written_for(target: str, kernel: KernelFunction) -> None:
    """Raise UnsupportedByTarget for a kernel whose C++ is written for other targets."""
    if kernel.native is None or not kernel.native.targets or target in kernel.native.targets:
        return
    what, names = f"the kernel `{kernel.name}` in C++", ", ".join(f"`{n}`" for n in kernel.native.targets)
    reason = f"its C++ is written for {names}: write the kernel with `pto` instructions"
    raise UnsupportedByTarget(target=target, what=what, reason=reason, loc=kernel.loc)


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
