"""The runner of compiled targets: a kernel library, bytecode, and the C++ engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pto_wsp import _native
from pto_wsp.errors import BadLibrary, PtoError
from pto_wsp.interp.workload import TensorReader
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_directive
from pto_wsp.ir.scalar import Element, Value, walk
from pto_wsp.lang.schedule.registry import every_kind
from pto_wsp.lower.lower_workload_to_bytecode import Lowered, lower_workload_to_bytecode
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.explain import explain, no_memory
from pto_wsp.runtime.options import run_options
from pto_wsp.runtime.outcome import Figures
from pto_wsp.runtime.trace import Record, Trace
from pto_wsp.support.record import record
from pto_wsp.targets.base import KernelBuilder


class EngineRunner:
    """Runs a module's tasks on the engine's worker pool.

    Attributes:
        workload: the entry, with the parameters that the runs have.
        compiles: compiler invocations that were made.
        compile_ms: time that compiling took.
        artifact: the kernels: built, or found in the cache.
        library: the kernels, loaded.
        loaded: the bytecode of the present schedule.
    """

    def __init__(self, module: Module, builder: KernelBuilder) -> None:
        self._target = builder.name
        self.workload = module.entry_workload
        self.artifact = builder.build(module.kernels, ArtifactCache())
        self.library = _load(self.artifact.path)
        self.compiles, self.compile_ms = self.artifact.compiles, self.artifact.compile_ms
        self.loaded = self._load_bytecode(module, None)

    def reschedule(self, module: Module) -> None:
        """Load bytecode for the schedule of `module`; the kernels stay. A run under way ends as it began."""
        self.loaded = self._load_bytecode(module, self.loaded.executable)

    def cancel(self) -> None:
        """Stop all runs that are under way, whatever their schedule."""
        self.loaded.executable.cancel()

    def _load_bytecode(self, module: Module, shared: _native.Executable | None) -> LoadedProgram:
        lowered = lower_workload_to_bytecode(module, self.artifact.kernels, self.artifact.table_hash)
        try:
            executable = _native.Executable(lowered.code, self.library, shared)
        except _native.EngineError as error:
            raise self._explained(error, module, lowered) from None
        return LoadedProgram(executable, run_options(module.schedule), module, lowered)

    def run(
        self,
        arrays: Sequence[np.ndarray],
        scalars: Sequence[Value | None],
        workers: int,
        trace: int,
        check: bool = False,
        progress: Callable[[int], object] | None = None,
        jitter: int = 0,
    ) -> tuple[Figures, Trace | None]:
        """Run on `workers` threads (0: all cores). `jitter` seeds random delays before tasks, for tests."""
        loaded = self.loaded
        try:
            result = loaded.executable.run(
                tuple(arrays),
                tuple(scalars),
                workers,
                trace,
                jitter,
                check=check,
                options=loaded.options,
                progress=progress,
            )
        except _native.EngineError as error:
            raise self.explained(error, loaded, arrays) from None
        except MemoryError:
            raise no_memory(loaded.module) from None
        return result, loaded.trace(result, arrays, scalars)

    def submit(
        self,
        arrays: Sequence[np.ndarray],
        scalars: Sequence[Value | None],
        workers: int,
        trace: int,
        check: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> EngineRun:
        """Begin a run on threads of the pool, and on those that wait for it."""
        loaded = self.loaded
        try:
            run = loaded.executable.submit(
                tuple(arrays),
                tuple(scalars),
                workers,
                trace,
                check=check,
                options=loaded.options,
                progress=progress,
            )
        except _native.EngineError as error:
            raise self.explained(error, loaded, arrays) from None
        except MemoryError:
            raise no_memory(loaded.module) from None
        return EngineRun(self, loaded, run, arrays, scalars)

    def explained(
        self, error: _native.EngineError, loaded: LoadedProgram, arrays: Sequence[np.ndarray]
    ) -> PtoError:
        """Return the catalogue's error for one of a run."""
        return self._explained(error, loaded.module, loaded.lowered, arrays)

    def _explained(
        self,
        error: _native.EngineError,
        module: Module,
        lowered: Lowered,
        arrays: Sequence[np.ndarray] = (),
    ) -> PtoError:
        if error.code == "kernel-failed" and self.library.has_native:
            number = error.details["check"]
            assert isinstance(number, int)
            failure = self.library.failure(number)
        else:
            failure = None
        return explain(error, self._target, module, lowered, self.artifact, arrays, failure)


class EngineRun:
    """A run that was submitted to the engine. It refers to its arrays."""

    def __init__(
        self,
        runner: EngineRunner,
        loaded: LoadedProgram,
        run: _native.Run,
        arrays: Sequence[np.ndarray],
        scalars: Sequence[Value | None],
    ) -> None:
        self._runner = runner
        self.loaded = loaded
        self._run = run
        self._arrays = arrays
        self._scalars = scalars

    @property
    def number(self) -> int:
        """The number of the run in this process."""
        return self._run.number

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._run.done

    def wait(self) -> tuple[Figures, Trace | None]:
        """Lend the calling thread to the run until it has ended; return what it did."""
        try:
            result = self._run.wait()
        except _native.EngineError as error:
            raise self._runner.explained(error, self.loaded, self._arrays) from None
        return result, self.loaded.trace(result, self._arrays, self._scalars)

    def cancel(self) -> None:
        """End the run between two tasks."""
        self._run.cancel()


def _load(path: Path) -> _native.KernelLibrary:
    try:
        return _native.KernelLibrary(str(path))
    except _native.EngineError as error:
        raise BadLibrary(path=path, reason=str(error)) from None


@record
class LoadedProgram:
    """Bytecode in the engine, with the options of its runs and what it was lowered from."""

    executable: _native.Executable
    options: _native.RunOptions
    module: Module
    lowered: Lowered

    def trace(
        self, result: _native.RunResult, arrays: Sequence[np.ndarray], scalars: Sequence[Value | None]
    ) -> Trace | None:
        """Return the record of a run, if one was asked for."""
        return None if result.record is None else self.make_trace(result.record, result.run, arrays, scalars)

    def make_trace(
        self, recorded: Record, run: int, arrays: Sequence[np.ndarray], scalars: Sequence[Value | None]
    ) -> Trace:
        """Return what was written down of a run, with the places of tasks in the program."""
        module, lowered = self.module, self.lowered
        given = zip(lowered.symbols, scalars, strict=True)
        sizes = {name: value for name, value in given if value is not None}
        for tensor, array in zip(module.entry_workload.tensors, arrays, strict=True):
            pairs = zip(tensor.type.dims, array.shape, strict=True)
            sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
        about = {
            "program": module.entry_workload.name,
            "run": str(run),
            "schedule": "\n".join(map(print_directive, every_kind(module.schedule))),
        }
        return Trace(lowered.sites, lowered.registers, recorded, sizes, _key_reader(lowered, arrays), about)


def _key_reader(lowered: Lowered, arrays: Sequence[np.ndarray]) -> TensorReader:
    """Return a reader of what the coordinates of tasks name, which may change after the run."""
    tasks = [node for node in lowered.sites.values() if isinstance(node, w.Task)]
    parts = [part for task in tasks for key in task.keys for part in walk(key)]
    read = {part.name for part in parts if isinstance(part, Element)}
    named = zip(lowered.tensors, arrays, strict=True)
    return TensorReader({name: array.copy() for name, array in named if name in read})
