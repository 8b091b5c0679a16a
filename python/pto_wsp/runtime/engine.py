"""The runner of compiled targets: a kernel library, bytecode, and the C++ engine."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from pto_wsp import _native
from pto_wsp.advice.machine import Machine
from pto_wsp.errors import BadCache, BadLibrary, Deadlock, KernelFailed, PtoError
from pto_wsp.interp.workload import TensorReader
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.printer import print_directive
from pto_wsp.ir.scalar import Element, Value, walk
from pto_wsp.lang.schedule.directives.trace import LEVELS
from pto_wsp.lang.schedule.registry import every_kind
from pto_wsp.lower.lower_workload_to_bytecode import Lowered, lower_workload_to_bytecode
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.interpreted import bind
from pto_wsp.runtime.kept_programs import KeptProgram, find_program, keep_program, program_key
from pto_wsp.runtime.options import run_options
from pto_wsp.runtime.outcome import CalendarMaker, Figures, RunRequest, Submitted
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.runtime.proved import use_proof
from pto_wsp.runtime.trace import Lanes, Ran, Record, Trace
from pto_wsp.targets.base import KernelArtifact, KernelBuilder

T = TypeVar("T")


class EngineRunner(CalendarMaker):
    """Runs a module's tasks on the engine's worker pool. A kept program is neither lowered nor compiled.

    Attributes:
        workload: the entry, with the parameters that the runs have.
        compiles: compiler invocations that were made.
        compile_ms: time that compiling took, or that finding a kept program took.
        library: the kernels, loaded.
        loaded: the bytecode of the present schedule.
    """

    def __init__(self, prepared: Prepared, builder: KernelBuilder) -> None:
        start = time.perf_counter()
        self._target = builder.name
        self._prepared, self._builder, self._cache = prepared, builder, ArtifactCache()
        key = program_key(prepared, builder, self._cache)
        if key is not None and self._take_kept(key):
            self.compiles, self.compile_ms = 0, (time.perf_counter() - start) * 1e3
            return
        module = prepared.module
        self.workload = module.entry_workload
        self.library = _load(self.artifact.path)
        self.compiles, self.compile_ms = self.artifact.compiles, self.artifact.compile_ms
        self.loaded = self._load_bytecode(module, None)
        if key is not None:
            keep_program(key, prepared, KeptProgram(self.artifact.path, self.loaded.code), self._cache)

    @cached_property
    def artifact(self) -> KernelArtifact:
        """The kernels: built, or found in the cache."""
        return self._builder.build(self._prepared.module.kernels, self._cache)

    def rescheduled(self, module: Module) -> Self:
        """Return a runner with bytecode for the schedule of `module`, which shares the kernels."""
        other = copy.copy(self)
        other.loaded = self._load_bytecode(module, self.loaded.executable)
        return other

    def merging(self, merges: list[list[int]]) -> Self:
        """Return a runner of the network that keeps this order of senders, per tensor, where time decides."""
        other, loaded = copy.copy(self), self.loaded
        options = self._options(loaded.module)
        options.merges = merges
        other.loaded = LoadedProgram(loaded.executable, options, loaded.code, lambda: loaded.origin)
        return other

    def _options(self, module: Module) -> _native.RunOptions:
        options = run_options(module.schedule)
        use_proof(self._prepared.proof, options)
        return options

    def call_kernel(
        self, kernel: KernelFunction, args: Sequence[np.ndarray | Value], workspace: int, task: int
    ) -> None:
        """Call a kernel of the library on views and scalars, with that many bytes of workspace.

        Raises:
            KernelFailed: a check inside the kernel failed.
        """
        views = tuple(arg for arg in args if isinstance(arg, np.ndarray))
        numbers = tuple(arg for arg in args if not isinstance(arg, np.ndarray))
        codes = tuple(p.type.dtype.code for p in kernel.scalar_params if p.type.dtype is not None)
        index = self.artifact.kernels.index(kernel.name)
        status, kept = self.library.call(index, views, numbers, codes, task, workspace)
        if status == 0:
            return
        from pto_wsp.runtime.explain import failed_check_text, failure_of_native

        if kernel.native is None:
            check = self.artifact.checks[kernel.name][status - 1]
        else:
            check = failure_of_native(kernel, self.library.failure(status))
        reason, scalars = failed_check_text(check, kept)
        hint = check.text.hint
        raise KernelFailed(kernel=kernel.name, reason=reason, detail=scalars, loc=check.loc, hint=hint)

    def cancel(self) -> None:
        """Stop all runs that are under way, whatever their schedule."""
        self.loaded.executable.cancel()

    def _lower(self, module: Module) -> Lowered:
        return lower_workload_to_bytecode(module, self.artifact.kernels, self.artifact.table_hash)

    def _load_bytecode(self, module: Module, shared: _native.Executable | None) -> LoadedProgram:
        lowered = self._lower(module)
        try:
            executable = _native.Executable(lowered.code, self.library, shared, self._walk(module, lowered))
        except _native.EngineError as error:
            raise self._explained(error, module, lowered) from None
        return LoadedProgram(executable, self._options(module), lowered.code, lambda: (module, lowered))

    def _walk(self, module: Module, lowered: Lowered) -> str | None:
        """Return the library of the walk, where source walks the workload."""
        if self._builder.expander == "bytecode":
            return None
        from pto_wsp.lower.lower_workload_to_source import lower_workload_to_source

        return str(self._builder.build_walk(lower_workload_to_source(module, lowered), self._cache))

    def _take_kept(self, key: str) -> bool:
        """Load the program that was kept as `key`; return False where there is none that loads."""
        kept = find_program(key, self._cache)
        if kept is None:
            return False
        try:
            library = _native.KernelLibrary(str(kept.library))
            executable = _native.Executable(kept.code, library, None)
        except _native.EngineError:
            return False

        def lower() -> tuple[Module, Lowered]:
            module = self._prepared.module
            lowered = self._lower(module)
            if lowered.code != kept.code or self.artifact.path != kept.library:
                reason = "a kept program differs from what its text is lowered to"
                raise BadCache(path=self._cache.directory, reason=reason)
            return module, lowered

        source = self._prepared.source
        self.workload, self.library = source.entry_workload, library
        self.loaded = LoadedProgram(executable, self._options(source), kept.code, lower)
        return True

    def run(self, request: RunRequest) -> tuple[Figures, Trace | None]:
        """Run every task and return what the run did."""
        loaded = self.loaded
        if not request.trace:
            return self._begun(loaded, loaded.executable.run, request), None
        cpu_ns = _cpu_ns(request.trace)
        result = self._begun(loaded, loaded.executable.run, request)
        return result, loaded.trace(result, request, self.machine(cpu_ns))

    clock_ghz = None

    def core_names(self, count: int) -> list[str]:
        """Return the names of `count` workers."""
        return [f"worker {i}" for i in range(count)]

    def make_calendar(self, request: RunRequest) -> tuple[_native.Calendar, Trace]:
        """Return a calendar for `request.workers` workers, with the places of its tasks."""
        loaded = self.loaded
        try:
            made, places = loaded.executable.make_calendar(
                tuple(request.arrays), tuple(request.scalars), request.workers, loaded.options
            )
        except _native.EngineError as error:
            raise self.explained(error, loaded, request) from None
        return made, loaded.make_trace(places, request, 0, None)

    def submit(self, request: RunRequest) -> EngineRun:
        """Begin a run on threads of the pool, and on those that wait for it."""
        loaded, cpu_ns = self.loaded, _cpu_ns(request.trace)
        run = self._begun(loaded, loaded.executable.submit, request)
        assert run is not None
        return EngineRun(self, loaded, run, request, cpu_ns)

    def submit_after(self, request: RunRequest, earlier: Sequence[Submitted]) -> EngineRun | None:
        """Begin a run whose tasks wait for tasks of `earlier` runs; None if it must wait for their ends."""
        runs = [run.native for run in earlier if isinstance(run, EngineRun)]
        if len(runs) < len(earlier):
            return None
        loaded, cpu_ns = self.loaded, _cpu_ns(request.trace)
        run = self._begun(loaded, loaded.executable.submit, request, earlier=runs)
        return None if run is None else EngineRun(self, loaded, run, request, cpu_ns)

    def _begun(
        self, loaded: LoadedProgram, begin: Callable[..., T], request: RunRequest, **more: object
    ) -> T:
        """Return what the engine returns for a request."""
        try:
            return begin(
                tuple(request.arrays),
                tuple(request.scalars),
                request.workers,
                request.trace,
                request.jitter,
                False,
                request.check,
                loaded.options,
                request.progress,
                request.time_limit_ns,
                calendar=request.calendar,
                **more,
            )
        except _native.EngineError as error:
            raise self.explained(error, loaded, request) from None
        except MemoryError:
            from pto_wsp.runtime.explain import no_memory

            raise no_memory(loaded.module) from None

    def machine(self, began_ns: int | None) -> Machine | None:
        """Return what ran a run that began at `_cpu_ns`; the cache's size is 0 if the system hides it."""
        if began_ns is None:
            return None
        name = "SC_LEVEL2_CACHE_SIZE"
        l2_bytes = os.sysconf(name) if name in os.sysconf_names else 0
        scratch = dict(zip(self.library.names, self.library.scratch_bytes, strict=True))
        return Machine(max(l2_bytes, 0), scratch, time.process_time_ns() - began_ns)

    def explained(self, error: _native.EngineError, loaded: LoadedProgram, request: RunRequest) -> PtoError:
        """Return the catalogue's error for one of a run."""
        found = self._explained(error, loaded.module, loaded.lowered, request.arrays)
        if isinstance(found, Deadlock):
            from pto_wsp.interp.depths import advised

            return advised(found, loaded.module, *bind(loaded.module, request.arrays, request.scalars))
        return found

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
        from pto_wsp.runtime.explain import explain

        return explain(error, self._target, module, lowered, self.artifact, arrays, failure)


class EngineRun:
    """A run that was submitted to the engine. It refers to its arrays.

    Attributes:
        native: the run in the engine.
    """

    def __init__(
        self,
        runner: EngineRunner,
        loaded: LoadedProgram,
        run: _native.Run,
        request: RunRequest,
        cpu_ns: int | None,
    ) -> None:
        self._cpu_ns = cpu_ns
        self._runner = runner
        self._loaded = loaded
        self.native = run
        self._request = request

    @property
    def number(self) -> int:
        """The number of the run in this process."""
        return self.native.number

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self.native.done

    def wait(self) -> tuple[Figures, Trace | None]:
        """Lend the calling thread to the run until it has ended; return what it did."""
        try:
            result = self.native.wait()
        except _native.EngineError as error:
            raise self._runner.explained(error, self._loaded, self._request) from None
        machine = self._runner.machine(self._cpu_ns)
        return result, self._loaded.trace(result, self._request, machine)

    def cancel(self) -> None:
        """End the run between two tasks."""
        self.native.cancel()


def _load(path: Path) -> _native.KernelLibrary:
    try:
        return _native.KernelLibrary(str(path))
    except _native.EngineError as error:
        raise BadLibrary(path=path, reason=str(error)) from None


class LoadedProgram:
    """Bytecode in the engine, with the options of its runs and what it was lowered from.

    Attributes:
        executable: the bytecode in the engine.
        options: of the runs.
        code: the bytecode.
    """

    def __init__(
        self,
        executable: _native.Executable,
        options: _native.RunOptions,
        code: bytes,
        origin: Callable[[], tuple[Module, Lowered]],
    ) -> None:
        self.executable = executable
        self.options = options
        self.code = code
        self._origin = origin

    @cached_property
    def origin(self) -> tuple[Module, Lowered]:
        """The module and its lowering, which errors and traces ask for."""
        return self._origin()

    @property
    def module(self) -> Module:
        """The module that was lowered."""
        return self.origin[0]

    @property
    def lowered(self) -> Lowered:
        """The bytecode with the nodes that it comes from."""
        return self.origin[1]

    def trace(self, result: _native.RunResult, request: RunRequest, machine: Machine | None) -> Trace | None:
        """Return the record of a run, if one was asked for."""
        if result.record is None:
            return None
        ran = Ran(self.module, machine) if machine is not None else None
        return self.make_trace(result.record, request, result.run, ran)

    def make_trace(
        self,
        recorded: Record,
        request: RunRequest,
        run: int,
        ran: Ran | None,
        lanes: Lanes | None = None,
    ) -> Trace:
        """Return what was written down of run number `run`, with the places of tasks in the program."""
        module, lowered, arrays = self.module, self.lowered, request.arrays
        given = zip(lowered.symbols, request.scalars, strict=True)
        sizes = {name: value for name, value in given if value is not None}
        for tensor, array in zip(module.entry_workload.tensors, arrays, strict=True):
            pairs = zip(tensor.type.dims, array.shape, strict=True)
            sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
        about = {
            "program": module.entry_workload.name,
            "run": str(run),
            "schedule": "\n".join(map(print_directive, every_kind(module.schedule))),
        }
        return Trace(lowered, recorded, sizes, _key_reader(lowered, arrays), about, ran, lanes)


def _cpu_ns(trace: int) -> int | None:
    """Return how long the process has had cores, if a run records all that an adviser needs."""
    return time.process_time_ns() if trace == LEVELS.index("full") else None


def _key_reader(lowered: Lowered, arrays: Sequence[np.ndarray]) -> TensorReader:
    """Return a reader of what the coordinates of tasks name, which may change after the run."""
    tasks = [node for node in lowered.sites.values() if isinstance(node, w.Task)]
    parts = [part for task in tasks for key in task.keys for part in walk(key)]
    read = {part.name for part in parts if isinstance(part, Element)}
    named = zip(lowered.tensors, arrays, strict=True)
    return TensorReader({name: array.copy() for name, array in named if name in read})
