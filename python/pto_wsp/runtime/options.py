"""What the engine is told of a schedule."""

from __future__ import annotations

from pto_wsp import _native
from pto_wsp.ir.schedule import Schedule

_OWNERSHIP = {
    "work_steal": _native.Ownership.CLAIM,
    "round_robin": _native.Ownership.ROUND_ROBIN,
    "affinity": _native.Ownership.KEY,
    "hash": _native.Ownership.HASH,
    "dispatch_by": _native.Ownership.KEY,
}
_WINDOW = {
    "stall": _native.WindowMode.STALL,
    "abort": _native.WindowMode.ABORT,
    "benchmark": _native.WindowMode.BENCHMARK,
}
_READY = {
    "work_steal": _native.Ready.OWN,
    "fifo": _native.Ready.FIFO,
    "priority": _native.Ready.PRIORITY,
}
_START = {
    "immediate": _native.Start.IMMEDIATE,
    "threshold": _native.Start.THRESHOLD,
    "after_build": _native.Start.AFTER_BUILD,
}


def run_options(schedule: Schedule) -> _native.RunOptions:
    """Return the options of runs under a schedule; what it leaves open is the engine's own choice."""
    options = _native.RunOptions()
    options.dispatchers = schedule.dispatch.count
    options.ownership = _OWNERSHIP[schedule.dispatch.name]
    options.window = schedule.window.count or options.window
    options.window_mode = _WINDOW[schedule.window.name]
    options.ready = _READY[schedule.ready.name]
    options.start = _START[schedule.start.name]
    options.threshold = schedule.start.count
    return options
