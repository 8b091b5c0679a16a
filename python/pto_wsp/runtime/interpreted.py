"""The runner of the target `interp`: numpy kernels, one task after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Self

import numpy as np

from pto_wsp._native import FloatEnvironment
from pto_wsp.errors import (
    ChannelEnded,
    Deadlock,
    KernelFailed,
    OverlappingArrays,
    ReadOnlyArray,
    RunInterrupted,
    TimeLimitReached,
    UnboundTensor,
    UnreceivedTokens,
    UnsupportedByTarget,
    UnusableArray,
    WrongDType,
    WrongRank,
    WrongShape,
)
from pto_wsp.interp.depths import advised
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.network import run_network
from pto_wsp.interp.references import inside_run
from pto_wsp.interp.workload import CallKernel, run_workload
from pto_wsp.ir import workload as w
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.location import argument_location
from pto_wsp.runtime.outcome import EndedRun, RunRequest, Submitted
from pto_wsp.runtime.task_graph import Collector, TaskGraph
from pto_wsp.runtime.trace import Trace
from pto_wsp.support.record import record


@record
class InterpretedFigures:
    """Figures of one run: no engine has counted anything."""

    tasks: int
    run_ns: int
    workers: int = 1
    run: int = 0
    counters: Mapping[str, int | list[int]] = MappingProxyType({})


class InterpretedRunner:
    """Runs a module by walking it. Raises the same errors for the same mistakes as the engine."""

    compiles = 0
    compile_ms = 0.0

    def __init__(self, module: Module) -> None:
        self._module = module
        self.workload = module.entry_workload
        self._kernels = {kernel.name: kernel for kernel in module.kernels}
        self._cancels = 0

    def run(self, request: RunRequest) -> tuple[InterpretedFigures, Trace | None]:
        """Run every task in program order on this thread; `workers` has nothing to act on."""
        if request.check:
            reason = "the check is part of the engine: compile for `cpu`"
            loc = argument_location("check")
            raise UnsupportedByTarget(target="interp", what='`check="hazards"`', reason=reason, loc=loc)
        if request.trace:
            reason = "it records nothing; `Program.task_graph` does"
            loc = argument_location("trace")
            raise UnsupportedByTarget(target="interp", what="`trace`", reason=reason, loc=loc)
        poll = self._poll(request.time_limit_ns)
        figures, recorded = self.run_calling(request.arrays, request.scalars, self._caller(poll), poll)
        if request.progress is not None:
            with inside_run():
                request.progress(figures.tasks)
        return figures, recorded

    def submit(self, request: RunRequest) -> EndedRun:
        """Run every task on this thread before returning."""
        try:
            return EndedRun(*self.run(request))
        except (KernelFailed, TimeLimitReached, ChannelEnded, Deadlock, UnreceivedTokens) as error:
            return EndedRun(error)

    def submit_after(self, request: RunRequest, earlier: Sequence[Submitted]) -> EndedRun | None:
        """Run before returning; None while earlier runs are under way."""
        return None if earlier else self.submit(request)

    def call_kernel(
        self, kernel: KernelFunction, args: Sequence[np.ndarray | Value], workspace: int, task: int
    ) -> None:
        """Call one kernel on views and scalars, as task number `task`."""
        run_kernel(kernel, args, self._poll(0), task)

    def cancel(self) -> None:
        """Stop every run that is under way, at its next task or in the next iteration of a kernel's loop."""
        self._cancels += 1

    def rescheduled(self, module: Module) -> Self:
        """Return itself: no schedule changes program order."""
        return self

    def graph(self, arrays: Sequence[np.ndarray], scalars: Sequence[Value | None]) -> TaskGraph:
        """Run every task in program order and return which of them wait for which."""
        bound, sizes = bind(self._module, arrays, scalars)
        collector = Collector(self._module, bound)
        with FloatEnvironment():
            run_workload(self._module, bound, sizes, self._caller(self._poll(0)), collector)
        return collector.graph()

    def _caller(self, poll: Callable[[], None]) -> CallKernel:
        """Return what runs the kernels of one run, task after task, in numpy."""
        numbers = count()

        def call(name: str, args: Sequence[np.ndarray | Value], workspace: int) -> None:
            run_kernel(self._kernels[name], args, poll, next(numbers))

        return call

    def _poll(self, time_limit_ns: int) -> Callable[[], None]:
        """Return what ends a run that begins now: `cancel`, or the time limit if that is not 0."""
        cancels, start = self._cancels, time.perf_counter_ns()

        def poll() -> None:
            if self._cancels != cancels:
                raise RunInterrupted(reason="it was cancelled")
            if time_limit_ns and time.perf_counter_ns() - start >= time_limit_ns:
                raise TimeLimitReached(seconds=time_limit_ns / 1e9, detail="")

        return poll

    def run_calling(
        self,
        arrays: Sequence[np.ndarray],
        scalars: Sequence[Value | None],
        call: CallKernel,
        poll: Callable[[], None] = lambda: None,
    ) -> tuple[InterpretedFigures, None]:
        """Run every task in program order, with `call` running the kernels; `poll` may end the run."""
        bound, sizes = bind(self._module, arrays, scalars)
        start = time.perf_counter_ns()
        run = run_network if self.workload.processes else run_workload
        try:
            with FloatEnvironment():
                tasks = run(self._module, bound, sizes, call, poll=poll)
        except Deadlock as error:
            raise advised(error, self._module, bound, sizes) from None
        return InterpretedFigures(tasks, time.perf_counter_ns() - start), None


def bind(
    module: Module, arrays: Sequence[np.ndarray], scalars: Sequence[Value | None]
) -> tuple[dict[str, np.ndarray], dict[str, Value]]:
    """Check arrays against the entry's tensors and take sizes from them.

    Args:
        module: the module.
        arrays: one per tensor of the entry, in order.
        scalars: one per size and scalar of the entry, in order; None where arrays decide.

    Raises:
        WrongDType, WrongRank, WrongShape, UnusableArray, ReadOnlyArray, OverlappingArrays, UnboundTensor.
    """
    workload = module.entry_workload
    written = module.written
    names = [p.name for p in workload.symbols]
    sizes = {name: value for name, value in zip(names, scalars, strict=True) if value is not None}
    bound: dict[str, np.ndarray] = {}
    for tensor, array in zip(workload.tensors, arrays, strict=True):
        _check_array(tensor, array, tensor.name in written)
        _take_sizes(tensor, array, sizes)
        bound[tensor.name] = array
    for name in names:
        if name not in sizes:
            raise UnboundTensor(kind="size", name=name, advice=f"call the program with {name}=number")
    _check_overlaps(bound, written, w.deciding_tensors(workload.body))
    return bound, sizes


def _check_array(tensor: w.TensorParam, array: np.ndarray, is_written: bool) -> None:
    wanted = tensor.type.dtype.to_numpy()
    if array.dtype.newbyteorder("=") != wanted:
        raise WrongDType(name=tensor.name, expected=tensor.type.dtype, found=array.dtype, loc=tensor.loc)
    if not array.dtype.isnative:
        raise UnusableArray(name=tensor.name, reason="its byte order is not this machine's", loc=tensor.loc)
    if array.ndim != len(tensor.type.dims):
        raise WrongRank(name=tensor.name, expected=len(tensor.type.dims), found=array.ndim, loc=tensor.loc)
    if is_written and not array.flags.writeable:
        raise ReadOnlyArray(name=tensor.name, loc=tensor.loc)
    reason = _layout_problem(array, is_written)
    if reason:
        raise UnusableArray(name=tensor.name, reason=reason, loc=tensor.loc)


def _layout_problem(array: np.ndarray, is_written: bool) -> str:
    if not array.flags.aligned:
        return "it is not aligned to its element size"
    if array.size == 0:
        return ""
    for size, stride in zip(array.shape, array.strides, strict=True):
        if size > 1 and stride < 0:
            return "it has a negative stride"
        if size > 1 and stride == 0 and is_written:
            return "it has a zero stride, and the program writes it"
        if size > 1 and stride % array.itemsize:
            return "a stride is not a whole number of elements"
    if array.shape[-1] > 1 and array.strides[-1] != array.itemsize:
        return "its innermost stride is not 1"
    if is_written and _may_overlap_itself(array):
        return "its elements share memory, and the program writes it"
    return ""


def _may_overlap_itself(array: np.ndarray) -> bool:
    """Whether a dimension steps over less than the dimensions inside it span."""
    span = array.itemsize
    for stride, size in sorted(zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < span:
                return True
            span += (size - 1) * stride
    return False


def _take_sizes(tensor: w.TensorParam, array: np.ndarray, sizes: dict[str, Value]) -> None:
    for dim, (declared, size) in enumerate(zip(tensor.type.dims, array.shape, strict=True)):
        expected = declared if isinstance(declared, int) else sizes.setdefault(declared, size)
        if expected != size:
            text = str(expected) if isinstance(declared, int) else f"{declared} = {expected}"
            raise WrongShape(name=tensor.name, dim=dim, expected=text, found=size, loc=tensor.loc)


def _check_overlaps(arrays: dict[str, np.ndarray], written: frozenset[str], deciding: set[str]) -> None:
    names = list(arrays)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            pair = {first, second}
            if not pair & written:
                continue
            if _same_view(arrays[first], arrays[second]):
                detail = "the other decides what runs" if pair & deciding else ""
            else:
                detail = "they overlap in part" if np.shares_memory(arrays[first], arrays[second]) else ""
            if detail:
                named = f"`{first}`" if first in written else f"`{second}`"
                raise OverlappingArrays(first=first, second=second, written=named, detail=detail)


def _same_view(a: np.ndarray, b: np.ndarray) -> bool:
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides
