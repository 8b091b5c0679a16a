"""Options of a run: checked, and as runners take them."""

from __future__ import annotations

import numpy as np

from pto_wsp.errors import NestedRun, WrongValue
from pto_wsp.interp.references import IS_INSIDE_RUN
from pto_wsp.lang.schedule.directives.trace import LEVELS
from pto_wsp.lang.workload import context
from pto_wsp.location import caller_location
from pto_wsp.runtime.numbers import integer

MAX_TIME_LIMIT = 1e9
"""Seconds: a run of 30 years."""


def require_outermost() -> None:
    """Refuse a run while a workload is described, and in a task or a `progress` function of another run."""
    described = context.ACTIVE.get()
    if described is not None:
        hint = "call the workload it was compiled from: its tasks become tasks of this one"
        raise NestedRun(where=f"workload `{described.name}`", loc=caller_location(), hint=hint)
    if IS_INSIDE_RUN.get():
        from pto_wsp.runtime.explain import nested_run

        raise nested_run()


def trace_level(trace: object) -> int:
    """Return 0, 1 or 2: what to record."""
    if isinstance(trace, str) and trace in LEVELS:
        return LEVELS.index(trace)
    if not isinstance(trace, (bool, np.bool_)):
        expected = f"True, False, {', '.join(repr(level) for level in LEVELS)} or None"
        raise WrongValue(name="trace", expected=expected, found=repr(trace), loc=caller_location())
    return int(trace)


def time_limit_ns(time_limit: float | None) -> int:
    """Return a time limit in nanoseconds, or 0 for none."""
    if time_limit is None:
        return 0
    is_number = type(time_limit) in (int, float)
    if not is_number or not 0 < time_limit <= MAX_TIME_LIMIT:
        expected = f"seconds above 0 and up to {MAX_TIME_LIMIT:g}, or None"
        raise WrongValue(name="time_limit", expected=expected, found=repr(time_limit), loc=caller_location())
    return max(1, int(time_limit * 1e9))


def worker_count(workers: int | None) -> int:
    """Return a number of threads, or 0 for all cores."""
    return 0 if workers is None else integer("workers", workers, 1, 1024)


def stream_number(stream: object, target: str, *, has_streams: bool) -> int | None:
    """Return a stream of a GPU as a number; None where a program runs on the CPU.

    Args:
        stream: a stream of torch or CuPy, its number, or None for the default stream.
        target: name of the target, for errors.
        has_streams: whether programs of the target run on a GPU.

    Raises:
        WrongValue: it is not a stream, or the target has none.
    """
    if not has_streams:
        if stream is not None:
            expected, found = 'None, or `target="cuda"`', f'a stream with `target="{target}"`'
            raise WrongValue(name="stream", expected=expected, found=found, loc=caller_location())
        return None
    found = stream
    for name in ("cuda_stream", "ptr"):
        found = getattr(found, name, found)
    if found is None:
        return 0
    if isinstance(found, (bool, np.bool_)) or not isinstance(found, (int, np.integer)) or found < 0:
        expected = "a stream of torch or CuPy, the number of one, or None"
        raise WrongValue(name="stream", expected=expected, found=repr(stream), loc=caller_location())
    return int(found)
