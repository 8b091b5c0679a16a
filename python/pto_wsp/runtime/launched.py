"""The runner of the target `cuda`: one launch on a GPU expands, orders and runs all tasks."""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self
from weakref import WeakSet

import numpy as np

from pto_wsp.errors import (
    ArraysInFlight,
    NoGpu,
    OverlappingArrays,
    PtoError,
    RunInterrupted,
    TimeLimitReached,
    UnsupportedByTarget,
    UnusableArray,
    WrongValue,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.location import Location, argument_location, caller_location
from pto_wsp.prove.waits import Derive
from pto_wsp.runtime.bound_call import ArrayAccess
from pto_wsp.runtime.cache import ArtifactCache
from pto_wsp.runtime.gpu_arrays import GpuArray
from pto_wsp.runtime.host_walk import decides_itself
from pto_wsp.runtime.interpreted import bind
from pto_wsp.runtime.kept_waits import kept_waits
from pto_wsp.runtime.outcome import RunRequest, Submitted
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import record
from pto_wsp.targets.cuda.driver import DeviceMemory, Gpu, find_gpu
from pto_wsp.targets.cuda.emit import ProgramCode
from pto_wsp.targets.cuda.launch import MAX_SPANS, DeviceArray, DeviceLaunch, DeviceProgram, is_capturing
from pto_wsp.targets.cuda.memory import MOST_BLOCKS

PROGRESS_S = 0.05
"""Seconds between two calls of a `progress` function."""

_SPIN_S, _LONGEST_SLEEP_S = 200e-6, 1e-3


@record
class LaunchedFigures:
    """Figures of one launch. Its workers are blocks."""

    tasks: int
    workers: int
    run_ns: int
    counters: Mapping[str, int | list[int]]
    run: int = 0


class LaunchedRunner:
    """Runs a module on GPUs. It is compiled for a GPU when it is first needed there.

    Attributes:
        workload: the entry.
        code: the program as one translation unit.
        compiles: compiler calls that were made.
        compile_ms: milliseconds until the program was built, or found in the cache, and loaded.
    """

    def __init__(self, prepared: Prepared, emit: Callable[[Module, Derive], ProgramCode]) -> None:
        self._target, self._emit = prepared.target.name, emit
        self._build(prepared.module)

    def _build(self, module: Module) -> None:
        self._module, self.workload = module, module.entry_workload
        self.code = self._emit(module, lambda of: kept_waits(of, ArtifactCache()))
        self.compiles, self.compile_ms = 0, 0.0
        self._loaded: dict[int, DeviceProgram] = {}
        self._runs: WeakSet[LaunchedRun] = WeakSet()
        try:
            gpu = find_gpu()
        except NoGpu:
            return  # the sources can be written all the same
        self._on(gpu)

    def _on(self, gpu: Gpu) -> DeviceProgram:
        """Return the program as it was built for a GPU."""
        found = self._loaded.get(gpu.number)
        if found is None:
            start = time.perf_counter()
            found = self._loaded[gpu.number] = DeviceProgram(self.code, gpu, ArtifactCache())
            self.compiles += found.was_built
            self.compile_ms += (time.perf_counter() - start) * 1e3
        return found

    def run(self, request: RunRequest) -> tuple[LaunchedFigures, Trace | None]:
        """Copy the arrays of the host, launch, and wait."""
        return self.submit(request).wait()

    def submit(self, request: RunRequest) -> LaunchedRun:
        """Copy the arrays of the host, and launch.

        Raises:
            NoGpu, NoCudaCompiler, CompilerFailed: the program cannot be built for the GPU of its arrays.
            WrongValue: more blocks than the GPU runs at the same time.
            GpuFault: the driver refuses something.
        """
        self._refuse(request)
        arrays, sizes = bind(self._module, request.arrays, request.scalars)
        _require_apart(arrays, self._module)
        program = self._on(find_gpu(_gpu_of(arrays)))
        blocks = self._blocks(program, request.workers)
        accesses = [
            ArrayAccess(t.name, arrays[t.name], t.name in self._module.written)
            for t in self.workload.tensors
            if not t.is_local
        ]
        stream = request.stream or 0
        _require_idle(accesses, stream, self._target)
        run = LaunchedRun(self, program, arrays, accesses, sizes, request)
        with program.gpu.current():
            run.begin(blocks, [sizes[param.name] for param in self.workload.symbols])
        self._runs.add(run)
        _UNDER_WAY.add(run)
        return run

    def submit_after(self, request: RunRequest, earlier: Sequence[Submitted]) -> LaunchedRun | None:
        """Launch; None while earlier runs of a session are under way."""
        return None if earlier else self.submit(request)

    def _refuse(self, request: RunRequest) -> None:
        options = (
            ("check", '`check="hazards"`', request.check, "it is part of the engine: compile for `cpu`"),
            ("trace", '`trace="full"`', request.trace > 1, "blocks expand tasks without a clock"),
            (
                "trace",
                "`trace`",
                request.trace > 0 and decides_itself(self._module),
                "tasks write what decides what runs, so the host cannot name the tasks",
            ),
        )
        for name, what, is_given, reason in options:
            if is_given:
                loc = argument_location(name)
                raise UnsupportedByTarget(target=self._target, what=what, reason=reason, loc=loc)

    def _blocks(self, program: DeviceProgram, workers: int) -> int:
        """Return how many blocks a run has: as many as it asks for, or as many as hide waits for memory."""
        most = program.facts.resident
        if workers > most:
            expected = f"at most {most}, the blocks that {program.gpu.name} runs at the same time"
            raise WrongValue(name="workers", expected=expected, found=workers, loc=caller_location())
        order = self.code.walk.order
        if order.blocks and (workers or order.blocks) != order.blocks:
            expected = f"{order.blocks}, as the schedule says, or None"
            raise WrongValue(name="workers", expected=expected, found=workers, loc=caller_location())
        if order.blocks > most:
            what, reason = (
                f"a schedule of {order.blocks} dispatchers",
                f"{program.gpu.name} runs {most} blocks",
            )
            raise UnsupportedByTarget(target=self._target, what=what, reason=reason)
        per_multiprocessor = 1 if program.tile_bytes else MOST_BLOCKS
        return workers or order.blocks or min(most, per_multiprocessor * program.gpu.multiprocessors)

    def call_kernel(
        self, kernel: KernelFunction, args: Sequence[np.ndarray | Value], workspace: int, task: int
    ) -> None:
        """Refuse to call one kernel.

        Raises:
            UnsupportedByTarget: always.
        """
        reason = "a launch runs whole programs: compile for `cpu`"
        what = 'a task that runs alone, as with `check="values"`'
        raise UnsupportedByTarget(target=self._target, what=what, reason=reason)

    def cancel(self) -> None:
        """Stop all runs that are under way, between two tasks."""
        for run in list(self._runs):
            run.cancel()

    def rescheduled(self, module: Module) -> Self:
        """Return a runner of code for the schedule of `module`: the code decides which block runs a task."""
        other = copy.copy(self)
        other._build(module)
        return other

    def recorded(
        self, launch: DeviceLaunch, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Value]
    ) -> Trace:
        """Return the record of a launch that has ended.

        Raises:
            UnsupportedByTarget: it has more tasks than are recorded.
        """
        if launch.tasks > MAX_SPANS:
            what, reason = f"a trace of {launch.tasks} tasks", f"a run records up to {MAX_SPANS}"
            raise UnsupportedByTarget(target=self._target, what=what, reason=reason)
        from pto_wsp.runtime.launch_trace import launch_trace

        return launch_trace(launch.spans(), self._module, arrays, sizes, launch.blocks)

    def explained(
        self, launch: DeviceLaunch, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Value]
    ) -> PtoError | None:
        """Return the error of a launch that has ended early; None if it was stopped."""
        failure = launch.failure()
        if failure is None:
            return None
        from pto_wsp.runtime.explain_launch import explain_launch

        return explain_launch(failure, self._module, self.code, arrays, sizes)


class LaunchedRun:
    """A launch that need not have ended. It refers to its arrays.

    Attributes:
        number: 0: the engine numbers its runs alone.
        accesses: what the run does with its arrays.
        own_number: its number among launches of this process.
        stream: of the launch.
    """

    number = 0
    _launch: DeviceLaunch | None = None

    def __init__(
        self,
        runner: LaunchedRunner,
        program: DeviceProgram,
        arrays: Mapping[str, np.ndarray],
        accesses: Sequence[ArrayAccess],
        sizes: Mapping[str, Value],
        request: RunRequest,
    ) -> None:
        self.own_number, self.location = next(_NUMBERS), caller_location()
        self._runner, self._program, self._gpu = runner, program, program.gpu
        self._arrays, self.accesses, self._sizes, self._request = arrays, accesses, sizes, request
        self.stream = request.stream or 0
        self._copies: dict[str, tuple[DeviceMemory, np.ndarray]] = {}
        self._is_cancelled = False
        self._lock = threading.RLock()
        self._ended: LaunchedFigures | PtoError | None = None
        self._trace: Trace | None = None

    def begin(self, blocks: int, symbols: Sequence[Value]) -> None:
        """Copy arrays of the host and launch; the context of the GPU is current."""
        tensors = self._runner.workload.tensors
        if is_capturing(self._gpu, self.stream):
            for tensor in tensors:
                if not tensor.is_local and not isinstance(self._arrays[tensor.name], GpuArray):
                    reason = "a stream that records a graph does not copy arrays of the host"
                    hint = "pass an array that lies on the GPU"
                    raise UnusableArray(name=tensor.name, reason=reason, loc=tensor.loc, hint=hint)
        try:
            arrays = [self._tensor(tensor, self._arrays[tensor.name]) for tensor in tensors]
            is_recorded = self._request.trace > 0
            self._launch = self._program.launch(arrays, symbols, blocks, self.stream, is_recorded)
        except BaseException:  # copies end before their memory is freed
            self._gpu.driver.status("cuStreamSynchronize", self.stream)
            raise

    def _tensor(self, tensor: w.TensorParam, array: np.ndarray) -> DeviceArray:
        if isinstance(array, GpuArray):
            strides = tuple(stride // array.itemsize for stride in array.strides)
            return DeviceArray(array.ctypes.data, 0, array.shape, strides)
        dense = np.empty(array.shape, np.int8).strides
        if tensor.is_local:
            return DeviceArray(0, array.nbytes, array.shape, dense)
        memory, staged = DeviceMemory(self._gpu, array.nbytes), np.ascontiguousarray(array)
        self._copies[tensor.name] = memory, staged
        arguments = memory.address, staged.ctypes.data, staged.nbytes, self.stream
        self._gpu.driver.call("cuMemcpyHtoDAsync_v2", *arguments)
        return DeviceArray(memory.address, 0, array.shape, dense)

    @property
    def done(self) -> bool:
        """Whether all tasks are complete, or the launch has ended otherwise."""
        if self._ended is not None or self._launch is None:
            return True
        with self._gpu.current():
            return self._launch.done

    def wait(self) -> tuple[LaunchedFigures, Trace | None]:
        """Wait until the launch has ended, and copy the host's arrays that it wrote back."""
        with self._lock:
            if self._ended is None:
                self._ended = self._finish()
        if isinstance(self._ended, PtoError):
            raise self._ended
        return self._ended, self._trace

    def cancel(self) -> None:
        """Let no further task begin."""
        self._is_cancelled = True

    def _finish(self) -> LaunchedFigures | PtoError:
        launch = self._launch
        assert launch is not None
        _UNDER_WAY.discard(self)
        with self._gpu.current():
            end = self._wait_for(launch)
            launch.finish()
            error = self._runner.explained(launch, self._arrays, self._sizes) if launch.has_stopped else None
            if error is None and launch.has_stopped:
                error = end
            self._copy_back()
            facts = self._program.facts
            counters: dict[str, int | list[int]] = {
                "registers": facts.registers,
                "spilled_bytes": facts.spilled_bytes,
                "shared_bytes": self._program.shared_bytes,
                "tile_bytes": self._program.tile_bytes,
                "resident_blocks": facts.resident,
                "is_benchmark": int(self._runner.code.walk.order.is_benchmark),
            }
            figures = LaunchedFigures(launch.tasks, launch.blocks, round(launch.milliseconds * 1e6), counters)
            if error is None and self._request.trace:
                self._trace = self._runner.recorded(launch, self._arrays, self._sizes)
            launch.release()
        if error is not None:
            return error
        if self._request.progress is not None:
            self._request.progress(figures.tasks)
        return figures

    def _wait_for(self, launch: DeviceLaunch) -> PtoError:
        """Wait until a launch has ended; return what it is if tasks are missing and none has failed."""
        begin = time.monotonic()
        limit, reported = self._request.time_limit_ns / 1e9, begin
        is_late = False
        while not launch.done:
            now = time.monotonic()
            is_late |= 0 < limit <= now - begin
            if is_late or self._is_cancelled:
                launch.stop()
            if self._request.progress is not None and now - reported >= PROGRESS_S:
                reported = now
                self._request.progress(launch.completed())
            if now - begin > _SPIN_S:
                time.sleep(min(_LONGEST_SLEEP_S, (now - begin) / 10))
        if is_late and not self._is_cancelled:
            return TimeLimitReached(seconds=limit, detail="the launch was stopped between two tasks")
        return RunInterrupted(reason="it was cancelled")

    def _copy_back(self) -> None:
        """Copy the arrays that tasks may have written from the GPU to the host."""
        driver, written = self._gpu.driver, {a.tensor for a in self.accesses if a.is_written}
        for name, (memory, staged) in self._copies.items():
            if name not in written:
                continue
            arguments = staged.ctypes.data, memory.address, staged.nbytes, self.stream
            driver.call("cuMemcpyDtoHAsync_v2", *arguments)
            driver.call("cuStreamSynchronize", self.stream)
            if staged is not self._arrays[name]:
                self._arrays[name][...] = staged
        self._copies.clear()

    def __del__(self) -> None:
        if self._launch is not None and self._ended is None and not self._launch.is_captured:
            with self._gpu.current():
                while not self._launch.done:
                    self._launch.stop()


_NUMBERS = itertools.count(1)

_UNDER_WAY: WeakSet[LaunchedRun] = WeakSet()
"""Runs of this process whose arrays are in use."""


def _gpu_of(arrays: Mapping[str, np.ndarray]) -> int:
    """Return the number of the GPU that the arrays of a call lie on; 0 if all are the host's."""
    found = {name: array.gpu for name, array in arrays.items() if isinstance(array, GpuArray)}
    first = next(iter(found.values()), 0)
    for name, number in found.items():
        if number != first:
            reason = f"it lies on GPU {number}, and others of the call on GPU {first}"
            raise UnusableArray(name=name, reason=reason, hint="pass arrays of one GPU")
    return first


def _require_apart(arrays: Mapping[str, np.ndarray], module: Module) -> None:
    """Refuse two tensors in the same memory, one of them written: waits follow from names of tensors."""
    names = [name for name in arrays if arrays[name].size]
    accesses = [ArrayAccess(name, arrays[name], name in module.written) for name in names]
    for first, second in itertools.combinations(accesses, 2):
        if first.conflicts_with(second):
            written = f"`{(first if first.is_written else second).tensor}`"
            detail = "the target `cuda` takes no array twice if tasks write it"
            raise OverlappingArrays(
                first=first.tensor,
                second=second.tensor,
                written=written,
                detail=detail,
                hint="copy one of them",
            )


def _require_idle(accesses: Sequence[ArrayAccess], stream: int, target: str) -> None:
    """Refuse arrays of an unfinished run, unless both runs are ordered by their stream."""
    for run in list(_UNDER_WAY):
        if run.done and all(isinstance(a.array, GpuArray) for a in run.accesses):
            continue
        for own, other in itertools.product(accesses, run.accesses):
            is_ordered = stream == run.stream and all(isinstance(a.array, GpuArray) for a in (own, other))
            if own.conflicts_with(other) and not is_ordered:
                notes: list[tuple[str, Location | None]] = [("the other run was started here", run.location)]
                raise ArraysInFlight(
                    name=own.tensor, run=f"{run.own_number} on a GPU", loc=caller_location(), notes=notes
                )
