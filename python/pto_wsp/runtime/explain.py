"""Turn engine errors, which speak in numbers, into errors of the catalogue with names and places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pto_wsp import errors
from pto_wsp._native import EngineError
from pto_wsp.interp.network import WAITS, Fill, channel_ended, deadlock, unreceived
from pto_wsp.interp.workload import Blocked, task_text
from pto_wsp.ir import workload as w
from pto_wsp.ir.check_texts import CheckText, scalars_text
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import (
    Value,
)
from pto_wsp.lang.schedule.directives.dispatch import DispatchPolicy
from pto_wsp.lang.schedule.directives.window import Window
from pto_wsp.location import Location, caller_location, of_user
from pto_wsp.lower.lower_workload_to_bytecode import Lowered
from pto_wsp.runtime.explain_context import ErrorContext, Failure
from pto_wsp.runtime.explain_values import DESCRIBE_VALUES
from pto_wsp.targets.base import Check, KernelArtifact
from pto_wsp.types.dtype import DType


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
    context = ErrorContext(error, target, module, lowered, artifact, arrays, failure)
    found = describe(context) if describe else context.fault()
    if isinstance(found, errors.RunError) and "late" in error.details:
        found.found_late(context.number("late"))
    return found


def _key_outside(c: ErrorContext) -> errors.PtoError:
    dispatch = c.module.schedule.find(DispatchPolicy)
    return errors.NoDispatcher(
        kernel=c.kernel.name,
        found=c.number("value"),
        most=c.number("most"),
        where=c.where(c.enclosing),
        loc=dispatch.key.loc if dispatch and dispatch.key else None,
        notes=[("the task was made here", c.task.loc)],
    )


def _window_full(c: ErrorContext) -> errors.PtoError:
    where = c.where(c.enclosing)
    window = c.module.schedule.find(Window)
    assert window is not None
    return errors.WindowFull(size=window.size, kernel=c.kernel.name, where=where, loc=c.task.loc)


def _stuck(c: ErrorContext) -> errors.PtoError:
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
    return errors.Stuck(
        count=count, first=f"one of kernel `{c.kernel.name}`{where}", loc=c.task.loc, notes=notes
    )


def _out_of_memory(c: ErrorContext) -> errors.PtoError:
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


def _graph_too_large(c: ErrorContext) -> errors.PtoError:
    what, reason = "a graph of this number of tasks", f"{c.message}; `StartPolicy.immediate()` builds none"
    return errors.UnsupportedByTarget(target=c.target, what=what, reason=reason)


def _calendar_changed(c: ErrorContext) -> errors.PtoError:
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


def _calendar_unordered(c: ErrorContext) -> errors.PtoError:
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


def _bad_calendar(c: ErrorContext) -> errors.PtoError:
    row = c.number("row")
    where = f"row {row}" if row >= 0 else "given here"
    return errors.BadCalendar(reason=c.message, where=where, loc=caller_location())


def _calendar_undecided(c: ErrorContext) -> errors.PtoError:
    node = c.lowered.sites[c.number("pc")]
    entry = c.module.entry_workload
    if "tensor" in c.details:
        what, remedy = (
            f"time decides the order of tokens of `{c.tensor().name}`",
            "let its senders take turns",
        )
    else:
        name = min(w.deciding_tensors(entry.body) & c.module.written)
        what, remedy = "tasks write what is read here", f"compute `{name}` before the run"
    loc = getattr(node, "loc", None)
    return errors.CalendarUndecided(program=entry.name, what=what, remedy=remedy, loc=loc)


def _calendar_too_large(c: ErrorContext) -> errors.PtoError:
    what, reason = "a calendar of this size", f"{c.message}: run without a calendar"
    return errors.UnsupportedByTarget(target=c.target, what=what, reason=reason)


def _cancelled(c: ErrorContext) -> errors.PtoError:
    return errors.RunInterrupted(reason="it was cancelled", notes=[_stopped_kernel(c)])


def _time_limit(c: ErrorContext) -> errors.PtoError:
    text, loc = _stopped_kernel(c)
    return errors.TimeLimitReached(seconds=c.number("limit_ns") / 1e9, detail=text, loc=loc)


def _stopped_kernel(c: ErrorContext) -> tuple[str, Location | None]:
    """Return what was stopped: the first task whose kernel was in a loop, if there was one."""
    if "kernel" not in c.details:
        return "it was between two tasks", None
    where = task_text(c.number("task"), c.where(c.enclosing), "")
    return f"kernel `{c.kernel.name}` was stopped in a loop, {where}", c.task.loc


def _interrupted(reason: str) -> Callable[[ErrorContext], errors.PtoError]:
    return lambda c: errors.RunInterrupted(reason=reason)


def _kernel_failed(c: ErrorContext) -> errors.PtoError:
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
        hint=check.text.hint,
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


def _failed_check(c: ErrorContext) -> Check:
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


def _channel_ended(c: ErrorContext) -> errors.PtoError:
    process = c.module.entry_workload.processes[c.number("process")]
    node = c.lowered.sites[c.number("pc")]
    assert isinstance(node, (w.Send, w.Receive))
    return channel_ended(process, node, c.number("received"))


def _fills(c: ErrorContext) -> list[Fill]:
    """Return how full every channel is."""
    numbers = iter(c.numbers("channels"))
    return [Fill(c.lowered.tensors[tensor], *rest) for tensor, *rest in zip(*[numbers] * 4, strict=True)]


def _deadlock(c: ErrorContext) -> errors.PtoError:
    network, numbers = c.module.entry_workload, iter(c.numbers("blocked"))
    blocked: list[tuple[w.Process, Blocked]] = []
    for process, pc, reason in zip(*[numbers] * 3, strict=True):
        node = c.lowered.sites[pc]
        assert isinstance(node, (w.Send, w.Receive))
        blocked.append((network.processes[process], Blocked(node, WAITS[reason])))
    return deadlock(network, blocked, _fills(c))


def _unreceived_tokens(c: ErrorContext) -> errors.PtoError:
    found = unreceived(c.module.entry_workload, _fills(c))
    assert found is not None
    return found


_DESCRIBE: dict[str, Callable[[ErrorContext], errors.PtoError]] = {
    **DESCRIBE_VALUES,
    "channel-ended": _channel_ended,
    "deadlock": _deadlock,
    "unreceived-tokens": _unreceived_tokens,
    "key-outside": _key_outside,
    "window-full": _window_full,
    "stuck": _stuck,
    "out-of-memory": _out_of_memory,
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
}
