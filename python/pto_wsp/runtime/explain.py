"""Turn engine errors, which speak in numbers, into errors of the catalogue with names and places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pto_wsp import errors
from pto_wsp._native import EngineError
from pto_wsp.interp.network import WAITS, Fill, channel_ended, deadlock, unreceived
from pto_wsp.interp.regions import scope_text
from pto_wsp.interp.workload import Blocked, negative_extent, refused, task_text
from pto_wsp.ir import workload as w
from pto_wsp.ir.check_texts import CheckText, scalars_text
from pto_wsp.ir.evaluate import element_outside
from pto_wsp.ir.kernel import KernelFunction, Param
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import (
    BELOW_ZERO,
    DIVISION_BY_ZERO,
    OUTSIDE_RANGE,
    OUTSIDE_RANGE_HINT,
    OVERFLOW,
    SHIFT_OUTSIDE,
    Value,
)
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.lang.schedule.directives.window import Window
from pto_wsp.location import Location, caller_location, of_user
from pto_wsp.lower.lower_workload_to_bytecode import Lowered
from pto_wsp.runtime.run import where_started
from pto_wsp.targets.base import Check, KernelArtifact
from pto_wsp.types.dtype import DTYPES, DType

Failure = tuple[str, str | None, int]
"""Message, file and line of a failure in a hand-written kernel; no file where it is not known."""


def explain(
    error: EngineError,
    target: str,
    module: Module,
    lowered: Lowered,
    artifact: KernelArtifact,
    arrays: Sequence[np.ndarray],
    failure: Failure | None = None,
) -> errors.PtoError:
    """Return the catalogue's error for an engine error of a run of `lowered` on `arrays`, on `target`.

    `failure` is what the library says of the failed kernel, if some of its kernels are written by hand.
    """
    describe = _DESCRIBE.get(error.code)
    context = _Context(error, target, module, lowered, artifact, arrays, failure)
    found = describe(context) if describe else context.fault()
    if isinstance(found, errors.RunError) and "late" in error.details:
        found.found_late(context.number("late"))
    return found


class _Context:
    """The details of one error, with the meaning of their numbers."""

    def __init__(
        self,
        error: EngineError,
        target: str,
        module: Module,
        lowered: Lowered,
        artifact: KernelArtifact,
        arrays: Sequence[np.ndarray],
        failure: Failure | None,
    ) -> None:
        self.code = error.code
        self.details = error.details
        self.message = str(error)
        self.target = target
        self.module = module
        self.lowered = lowered
        self.artifact = artifact
        self.arrays = arrays
        self.failure = failure

    def number(self, key: str) -> int:
        value = self.details[key]
        assert isinstance(value, int)
        return value

    def numbers(self, key: str) -> list[int]:
        values = self.details[key]
        assert isinstance(values, (list, tuple))
        return [int(value) for value in values]

    def tensor(self, key: str = "tensor") -> w.TensorParam:
        return self.module.entry_workload.tensors[self.number(key)]

    @property
    def task(self) -> w.Task:
        node = self.lowered.sites[self.number("pc")]
        assert isinstance(node, w.Task)
        return node

    @property
    def kernel(self) -> KernelFunction:
        return self.module.kernel(self.task.kernel)

    @property
    def param(self) -> Param:
        return self.kernel.views[self.number("io")]

    @property
    def arg_loc(self) -> Location | None:
        """Place of the task's argument for the view that the error is about."""
        index = self.kernel.params.index(self.param)
        return self.task.args[index].loc or self.task.loc

    def where(self, loops: Sequence[w.Loop], registers: str = "registers") -> str:
        values = self.details.get(registers, [])
        assert isinstance(values, list)
        variables = {name: values[reg] for name, reg in self.lowered.registers.items() if reg < len(values)}
        return scope_text(variables, loops)

    def region(self) -> str:
        lo, hi = self.details["lo"], self.details["hi"]
        assert isinstance(lo, list) and isinstance(hi, list)
        dims = [f"{start}:{stop}" for start, stop in zip(lo, hi, strict=True)]
        if self.number("positions") >= 0:
            dims[0] = f"{self.tensor('positions').name}[{dims[0]}]"
        return f"{self.tensor().name}[{', '.join(dims)}]"

    @property
    def enclosing(self) -> Sequence[w.Loop]:
        return self.lowered.enclosing[self.number("pc")]

    def fault(self) -> errors.PtoError:
        return errors.EngineFault(engine_code=self.code, details=f"{self.message} {dict(self.details)}")


def _wrong_dtype(c: _Context) -> errors.PtoError:
    found = next(t.name for t in DTYPES.values() if t.code == c.number("found"))
    tensor = c.tensor()
    return errors.WrongDType(name=tensor.name, expected=tensor.type.dtype, found=found, loc=tensor.loc)


def _unknown_dtype(c: _Context) -> errors.PtoError:
    tensor, found = c.tensor(), c.arrays[c.number("tensor")].dtype
    return errors.WrongDType(name=tensor.name, expected=tensor.type.dtype, found=found, loc=tensor.loc)


def _too_many_dimensions(c: _Context) -> errors.PtoError:
    tensor, found = c.tensor(), c.number("found")
    return errors.WrongRank(name=tensor.name, expected=len(tensor.type.dims), found=found, loc=tensor.loc)


def _wrong_rank(c: _Context) -> errors.PtoError:
    tensor = c.tensor()
    return errors.WrongRank(
        name=tensor.name, expected=c.number("expected"), found=c.number("found"), loc=tensor.loc
    )


def _size_mismatch(c: _Context) -> errors.PtoError:
    tensor, dim = c.tensor(), c.number("dim")
    declared, expected = tensor.type.dims[dim], c.number("expected")
    text = f"{declared} = {expected}" if isinstance(declared, str) else str(expected)
    notes = []
    if c.number("other_tensor") >= 0:
        other = c.tensor("other_tensor")
        notes.append((f"`{declared}` was taken from `{other.name}`", other.loc))
    return errors.WrongShape(
        name=tensor.name, dim=dim, expected=text, found=c.number("found"), loc=tensor.loc, notes=notes
    )


def _unusable(reason: str) -> Callable[[_Context], errors.PtoError]:
    def describe(c: _Context) -> errors.PtoError:
        tensor = c.tensor()
        return errors.UnusableArray(name=tensor.name, reason=reason, loc=tensor.loc)

    return describe


def _inner_stride(c: _Context) -> errors.PtoError:
    if "pc" not in c.details:
        return _unusable("its innermost stride is not 1")(c)
    return errors.StridedView(
        param=c.param.name, kernel=c.kernel.name, tensor=c.tensor().name, dim=c.number("dim"), loc=c.arg_loc
    )


def _read_only(c: _Context) -> errors.PtoError:
    tensor = c.tensor()
    return errors.ReadOnlyArray(name=tensor.name, loc=tensor.loc)


def _overlapping(c: _Context) -> errors.PtoError:
    first, second = c.tensor("other_tensor"), c.tensor()
    undecided = bool(c.number("undecided"))
    return errors.OverlappingArrays(
        first=first.name,
        second=second.name,
        written=f"`{first.name if first.name in c.lowered.written else second.name}`",
        detail="whether they overlap could not be decided" if undecided else "they overlap in part",
    )


def _in_flight(c: _Context) -> errors.PtoError:
    run = c.number("run")
    other = where_started(run, c.number("thread"))
    return errors.ArraysInFlight(
        name=c.tensor().name,
        run=run,
        loc=caller_location(),
        notes=[("the other run was started here", other)] if other is not None else [],
    )


def _unbound(c: _Context) -> errors.PtoError:
    name = c.lowered.symbols[c.number("symbol")]
    return errors.UnboundTensor(kind="size", name=name, advice=f"call the program with {name}=number")


def _region_outside(c: _Context) -> errors.PtoError:
    tensor, start = c.tensor(), c.number("start")
    return errors.RegionOutside(
        tensor=tensor.name,
        dim=c.number("dim") - tensor.hidden_dims,
        size=c.number("size"),
        start=start,
        stop=start + c.number("extent"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
        notes=[(f"`{tensor.name}` is declared here", tensor.loc)],
    )


def _view_shape(c: _Context) -> errors.PtoError:
    low, high = c.number("min"), c.number("max")
    return errors.ViewShape(
        param=c.param.name,
        kernel=c.kernel.name,
        dim=c.number("dim"),
        expected=str(low) if low == high else f"at most {high}",
        found=c.number("extent"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
        notes=[(f"`{c.param.name}` is declared here", c.param.loc)],
    )


def _expression(reason: str, hint: str = "") -> Callable[[_Context], errors.PtoError]:
    def describe(c: _Context) -> errors.PtoError:
        text = reason.format(value=c.details.get("value"), limit=c.details.get("limit"))
        return _bad_expression(c, text, hint)

    return describe


def _bad_expression(c: _Context, reason: str, hint: str = "") -> errors.BadExpression:
    loc = c.lowered.places.get(c.number("pc"))
    return errors.BadExpression(reason=reason, loc=loc, hint=hint).in_iteration(c.where(c.enclosing))


def _element_outside(c: _Context) -> errors.PtoError:
    tensor, dim = c.tensor(), c.number("dim")
    size = c.arrays[c.number("tensor")].shape[dim]
    reason = element_outside(tensor.name, c.number("index"), dim, size)
    return _bad_expression(c, reason)


def _deciding_array(c: _Context) -> errors.PtoError:
    first, second = c.tensor("other_tensor"), c.tensor()
    written = second.name if second.name in c.lowered.written else first.name
    return errors.OverlappingArrays(
        first=first.name, second=second.name, written=f"`{written}`", detail="the other decides what runs"
    )


def _negative_extent(c: _Context) -> errors.PtoError:
    loop = c.lowered.sites[c.number("pc")]
    assert isinstance(loop, w.Loop)
    return negative_extent(loop, c.number("value"), c.where(c.enclosing))


def _refused(c: _Context) -> errors.PtoError:
    return refused(c.lowered.refusals[c.number("reason")], c.number("value"), c.where(c.enclosing))


def _row_outside(c: _Context) -> errors.PtoError:
    return errors.RowOutside(
        tensor=c.tensor().name,
        indices=c.tensor("index_tensor").name,
        position=c.number("position"),
        row=c.number("index"),
        size=c.number("size"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
    )


def _conflict(
    c: _Context,
    error: type[errors.EdgesMissing | errors.IterationsConflict],
    *notes: tuple[str, Location | None],
) -> errors.PtoError:
    other = c.lowered.sites[c.number("other_pc")]
    assert isinstance(other, w.Task)
    is_write, was_write = c.number("writes") != 0, c.number("other_writes") != 0
    kind = f"{'write' if is_write else 'read'} after {'write' if was_write else 'read'}"
    return error(
        second=c.task.kernel,
        second_where=c.where(c.enclosing),
        second_does="writes" if is_write else "reads",
        first=other.kernel,
        first_where=c.where(c.lowered.enclosing[c.number("other_pc")], "other_registers"),
        first_does="writes" if was_write else "reads",
        region=c.region(),
        kind=kind,
        loc=c.arg_loc,
        notes=[(f"the other task, `{other.kernel}`", other.loc), *notes],
    )


def _iterations_conflict(c: _Context) -> errors.PtoError:
    loop = c.lowered.sites[c.number("loop_pc")]
    assert isinstance(loop, w.Loop)
    error = _conflict(c, errors.IterationsConflict, ("the P loop", loop.loc))
    if loop.tile is not None:
        error.help = errors.IterationsConflict.hint_of_tiles
    return error


def _instances_conflict(c: _Context) -> errors.PtoError:
    index = c.details["index"]
    assert isinstance(index, list)
    return errors.InstancesConflict(
        first=c.number("first"),
        second=c.number("second"),
        kernel=c.kernel.name,
        where=c.where(c.enclosing),
        param=c.param.name,
        index=", ".join(map(str, index)),
        loc=c.arg_loc,
    )


def _unknown_rows(c: _Context) -> errors.PtoError:
    return errors.RowsNotKnown(tensor=c.tensor().name, kernel=c.kernel.name, loc=c.arg_loc)


def _row_repeated(c: _Context) -> errors.PtoError:
    return errors.RowRepeated(
        tensor=c.tensor().name,
        indices=c.tensor("index_tensor").name,
        row=c.number("index"),
        first=c.number("first_position"),
        second=c.number("position"),
        where=c.where(c.enclosing),
        loc=c.arg_loc,
    )


def _strided_rows(c: _Context) -> errors.PtoError:
    return errors.StridedRows(tensor=c.tensor().name, dim=c.number("dim"), loc=c.arg_loc)


def _negative_amount(what: str) -> Callable[[_Context], errors.PtoError]:
    def describe(c: _Context) -> errors.PtoError:
        return errors.NegativeAmount(
            what=what,
            kernel=c.kernel.name,
            found=c.number("value"),
            where=c.where(c.enclosing),
            loc=c.task.loc,
        )

    return describe


def _key_outside(c: _Context) -> errors.PtoError:
    dispatch = c.module.schedule.find(DispatchPolicy)
    return errors.NoDispatcher(
        kernel=c.kernel.name,
        found=c.number("value"),
        most=c.number("most"),
        where=c.where(c.enclosing),
        loc=dispatch.key.loc if dispatch and dispatch.key else None,
        notes=[("the task was made here", c.task.loc)],
    )


def _window_full(c: _Context) -> errors.PtoError:
    where = c.where(c.enclosing)
    window = c.module.schedule.find(Window)
    assert window is not None
    return errors.WindowFull(size=window.size, kernel=c.kernel.name, where=where, loc=c.task.loc)


def _stuck(c: _Context) -> errors.PtoError:
    count = c.number("blocked")
    if count == 0:
        return c.fault()
    tasks, slices, pcs, waits = (c.details[key] for key in ("tasks", "slices", "pcs", "waits"))
    assert isinstance(tasks, list) and isinstance(slices, list)
    assert isinstance(pcs, list) and isinstance(waits, str)
    reasons = waits.split("; ")
    where = c.where(c.enclosing)
    notes = [
        (f"task {task}, in slice {number}, waits for {reason}", c.lowered.sites[pc].loc)
        for task, number, pc, reason in zip(tasks, slices, pcs, reasons, strict=True)
    ]
    return errors.Stuck(count=count, kernel=c.kernel.name, where=where, loc=c.task.loc, notes=notes)


def _out_of_memory(c: _Context) -> errors.PtoError:
    if "kernel" not in c.details:
        return no_memory(c.module)
    if "bytes" in c.details:
        what, size = "the workspace of a task", f"{c.number('bytes')} bytes"
    else:
        what, size = "a task", "this one"
    what = f"{what} of kernel `{c.kernel.name}`"
    return errors.OutOfMemory(what=what, size=size + c.where(c.enclosing), loc=c.task.loc)


def no_memory(module: Module) -> errors.OutOfMemory:
    """Return the error of a run without memory for what orders its tasks: a graph, a map of hazards."""
    workload = module.entry_workload
    size = "the engine needs more to order the tasks of this run"
    return errors.OutOfMemory(what=f"a run of `{workload.name}`", size=size, loc=workload.loc)


def _graph_too_large(c: _Context) -> errors.PtoError:
    what, reason = "a graph of this number of tasks", f"{c.message}; `StartPolicy.immediate()` builds none"
    return errors.UnsupportedByTarget(target=c.target, what=what, reason=reason)


def _calendar_changed(c: _Context) -> errors.PtoError:
    if "symbol" in c.details:
        what = f"`{c.lowered.symbols[c.number('symbol')]}` differs"
        detail = f"expected {c.number('expected')}, found {c.number('found')}"
    elif "elements" in c.details:
        what = f"elements of `{c.tensor('elements').name}` decide, and differ"
        detail = "expected the elements that the calendar was made for"
    else:
        what = f"`{c.tensor('memory').name}` shares memory with other arrays"
        detail = "expected the same arrays to share memory as in the call that the calendar was made for"
    return errors.CalendarChanged(what=what, detail=detail, loc=caller_location())


def _calendar_unordered(c: _Context) -> errors.PtoError:
    earlier = c.lowered.sites[c.number("before_pc")]
    assert isinstance(earlier, w.Task)
    return errors.CalendarUnordered(
        task=c.number("task"),
        kernel=c.task.kernel,
        before=c.number("before"),
        earlier=earlier.kernel,
        count=c.number("count"),
        core=c.number("core"),
        loc=c.task.loc,
        notes=[(f"the other task, `{earlier.kernel}`", earlier.loc)] if earlier.loc else [],
    )


def _bad_calendar(c: _Context) -> errors.PtoError:
    row = c.number("row")
    where = f"row {row}" if row >= 0 else "given here"
    return errors.BadCalendar(reason=c.message, where=where, loc=caller_location())


def _calendar_undecided(c: _Context) -> errors.PtoError:
    node = c.lowered.sites[c.number("pc")]
    entry = c.module.entry_workload
    name = min(w.deciding_tensors(entry.body) & c.module.written)
    return errors.CalendarUndecided(program=entry.name, name=name, loc=getattr(node, "loc", None))


def _calendar_too_large(c: _Context) -> errors.PtoError:
    what, reason = "a calendar of this size", f"{c.message}: run without a calendar"
    return errors.UnsupportedByTarget(target=c.target, what=what, reason=reason)


def _cancelled(c: _Context) -> errors.PtoError:
    return errors.RunInterrupted(reason="it was cancelled", notes=[_stopped_kernel(c)])


def _time_limit(c: _Context) -> errors.PtoError:
    text, loc = _stopped_kernel(c)
    return errors.TimeLimitReached(seconds=c.number("limit_ns") / 1e9, detail=text, loc=loc)


def _stopped_kernel(c: _Context) -> tuple[str, Location | None]:
    """Return what was stopped: the first task whose kernel was in a loop, if there was one."""
    if "kernel" not in c.details:
        return "it was between two tasks", None
    where = task_text(c.number("task"), c.where(c.enclosing), "")
    return f"kernel `{c.kernel.name}` was stopped in a loop, {where}", c.task.loc


def _interrupted(reason: str) -> Callable[[_Context], errors.PtoError]:
    return lambda c: errors.RunInterrupted(reason=reason)


def _kernel_failed(c: _Context) -> errors.PtoError:
    kernel = c.kernel
    check = _failed_check(c)
    values = c.details["values"]
    assert isinstance(values, list)
    reason, scalars = failed_check_text(check, values)
    return errors.KernelFailed(
        kernel=kernel.name,
        reason=reason,
        detail=task_text(c.number("task"), c.where(c.enclosing), scalars),
        loc=check.loc or c.task.loc,
        notes=[("the task was made here", c.task.loc)] if check.loc else [],
    )


def failed_check_text(check: Check, values: Sequence[int]) -> tuple[str, str]:
    """Return the reason of a failed check and the scalars of its kernel, from what the check has kept."""
    kept = zip(check.scalars, values[check.num_values :], strict=False)
    scalars = {name: _from_bits(dtype, bits) for (name, dtype), bits in kept}
    return check.text.reason(values[: check.num_values]), scalars_text(scalars, scalars)


def _from_bits(dtype: DType, bits: int) -> Value:
    """Return a scalar that a check has kept."""
    if dtype.is_float:
        return float(np.int64(bits).astype(np.int32).view(np.float32))
    return bool(bits) if dtype.kind == "b" else bits


def _failed_check(c: _Context) -> Check:
    checks = c.artifact.checks[c.kernel.name]
    return checks[c.number("check") - 1] if checks else failure_of_native(c.kernel, c.failure)


def failure_of_native(kernel: KernelFunction, failure: Failure | None) -> Check:
    """Return why a hand-written kernel failed, as a check."""
    assert failure is not None
    message, file, line = failure
    place = Location(file, line) if file is not None else of_user(kernel.loc)
    return Check(place, CheckText(message))


def nested_run() -> errors.NestedRun:
    """Return the error of a run that is started inside a run."""
    hint = "run it after this run has ended, or `submit` both before you `wait`"
    return errors.NestedRun(where="a run", loc=caller_location(), hint=hint)


def _channel_ended(c: _Context) -> errors.PtoError:
    process = c.module.entry_workload.processes[c.number("process")]
    node = c.lowered.sites[c.number("pc")]
    assert isinstance(node, (w.Send, w.Receive))
    return channel_ended(process, node, c.number("received"))


def _fills(c: _Context) -> list[Fill]:
    """Return how full every channel is."""
    numbers = iter(c.numbers("channels"))
    return [Fill(c.lowered.tensors[tensor], *rest) for tensor, *rest in zip(*[numbers] * 4, strict=True)]


def _deadlock(c: _Context) -> errors.PtoError:
    network, numbers = c.module.entry_workload, iter(c.numbers("blocked"))
    blocked: list[tuple[w.Process, Blocked]] = []
    for process, pc, reason in zip(*[numbers] * 3, strict=True):
        node = c.lowered.sites[pc]
        assert isinstance(node, (w.Send, w.Receive))
        blocked.append((network.processes[process], Blocked(node, WAITS[reason])))
    return deadlock(network, blocked, _fills(c))


def _unreceived_tokens(c: _Context) -> errors.PtoError:
    found = unreceived(c.module.entry_workload, _fills(c))
    assert found is not None
    return found


_DESCRIBE: dict[str, Callable[[_Context], errors.PtoError]] = {
    "channel-ended": _channel_ended,
    "deadlock": _deadlock,
    "unreceived-tokens": _unreceived_tokens,
    "wrong-dtype": _wrong_dtype,
    "unknown-dtype": _unknown_dtype,
    "unsupported-array": _unknown_dtype,
    "too-many-dimensions": _too_many_dimensions,
    "wrong-rank": _wrong_rank,
    "size-mismatch": _size_mismatch,
    "negative-stride": _unusable("it has a negative stride"),
    "zero-stride": _unusable("it has a zero stride, and the program writes it"),
    "self-overlap": _unusable("its elements share memory, and the program writes it"),
    "misaligned-array": _unusable("it is not aligned to its element size"),
    "foreign-byte-order": _unusable("its byte order is not this machine's"),
    "inner-stride": _inner_stride,
    "read-only-array": _read_only,
    "overlapping-arrays": _overlapping,
    "arrays-in-flight": _in_flight,
    "unbound-symbol": _unbound,
    "region-outside": _region_outside,
    "view-shape": _view_shape,
    "element-outside": _element_outside,
    "deciding-array-written": _deciding_array,
    "division-by-zero": _expression(DIVISION_BY_ZERO),
    "expression-overflow": _expression(OVERFLOW),
    "shift-outside": _expression(SHIFT_OUTSIDE),
    "u64-below-zero": _expression(BELOW_ZERO),
    "slice-outside": _expression(OUTSIDE_RANGE, OUTSIDE_RANGE_HINT),
    "rows-outside": _row_outside,
    "rows-repeat": _row_repeated,
    "rows-stride": _strided_rows,
    "negative-workspace": _negative_amount("workspace"),
    "negative-cost": _negative_amount("cost"),
    "key-outside": _key_outside,
    "window-full": _window_full,
    "stuck": _stuck,
    "out-of-memory": _out_of_memory,
    "refused": _refused,
    "negative-extent": _negative_extent,
    "kernel-failed": _kernel_failed,
    "nested-run": lambda c: nested_run(),
    "run-in-flight-at-fork": _interrupted("it was in flight when the process forked"),
    "interpreter-exit": _interrupted("the interpreter is exiting"),
    "process-exit": _interrupted("the interpreter is exiting"),
    "no-such-task": _interrupted("arrays that decide what runs were changed meanwhile, and a task failed"),
    "run-cancelled": _cancelled,
    "time-limit": _time_limit,
    "too-many-tasks": _graph_too_large,
    "too-many-strands": _graph_too_large,
    "calendar-changed": _calendar_changed,
    "calendar-unordered": _calendar_unordered,
    "bad-calendar": _bad_calendar,
    "calendar-undecided": _calendar_undecided,
    "calendar-too-large": _calendar_too_large,
    "edges-missing": lambda c: _conflict(c, errors.EdgesMissing),
    "instances-conflict": _instances_conflict,
    "iterations-conflict": _iterations_conflict,
    "unknown-rows": _unknown_rows,
}
