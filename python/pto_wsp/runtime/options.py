"""What the engine is told of a schedule."""

from __future__ import annotations

from pto_wsp import _native
from pto_wsp.ir.schedule import Policy, Schedule

_OWNERSHIP = {
    "work_steal": _native.Ownership.CLAIM,
    "round_robin": _native.Ownership.ROUND_ROBIN,
    "affinity": _native.Ownership.KEY,
    "threshold": _native.Ownership.KEY,
    "hash": _native.Ownership.HASH,
    "dispatch_by": _native.Ownership.KEY,
    "static_partition": _native.Ownership.PARTITION,
}
_WINDOW = {
    "stall": _native.WindowMode.STALL,
    "abort": _native.WindowMode.ABORT,
    "benchmark": _native.WindowMode.BENCHMARK,
}
_STREAMS = {
    "off": _native.Streams.OFF,
    "in_turn": _native.Streams.IN_TURN,
    "by": _native.Streams.BY_KEY,
}
_READY = {
    "work_steal": _native.Ready.OWN,
    "fifo": _native.Ready.FIFO,
    "priority": _native.Ready.PRIORITY,
}
_DEPS = {
    "infer_tensor_map_exact": _native.Deps.EXACT,
    "infer_bytes_overlap": _native.Deps.BYTES,
    "hybrid": _native.Deps.EXACT,  # edges of `after=` count whatever else does
    "explicit": _native.Deps.NONE,
    "explicit_unchecked": _native.Deps.NONE,
    "trust": _native.Deps.TRUST,
}
_START = {
    "immediate": _native.Start.IMMEDIATE,
    "threshold": _native.Start.THRESHOLD,
    "after_build": _native.Start.AFTER_BUILD,
}
_NEVER = 2**64 - 1
"""Bytes that no tensor has."""


def run_options(schedule: Schedule) -> _native.RunOptions:
    """Return the options of runs under a schedule; what it leaves open is the engine's own choice."""
    options = _native.RunOptions()
    bounds = schedule.dispatch.bounds
    options.dispatchers = len(bounds) + 1 if bounds else schedule.dispatch.count
    options.bounds = list(bounds) if schedule.dispatch.name == "static_partition" else []
    options.ownership = _OWNERSHIP[schedule.dispatch.name]
    options.window = schedule.window.count or options.window
    options.window_mode = _WINDOW[schedule.window.name]
    options.streams = _STREAMS[schedule.streams.name]
    options.num_streams = schedule.streams.count
    options.ready = _READY[schedule.ready.name]
    options.deps = _DEPS[schedule.deps.name]
    options.checks_edges = schedule.deps.name == "explicit"
    timing = schedule.timing.name
    options.batch = schedule.timing.count if timing == "batched" else 0
    options.interleaved = schedule.timing.count if timing == "interleaved" else 0
    options.starts_per_second = schedule.timing.count if timing == "rate_limit" else 0
    if schedule.stores.name == "cached":
        options.streaming_bytes = _NEVER
    else:
        options.streaming_bytes = schedule.stores.count
    options.num_pools, options.pool_bounds = _pools(schedule.pools)
    options.start = _START[schedule.start.name]
    options.threshold = schedule.start.count
    return options


def _pools(policy: Policy) -> tuple[int, list[int]]:
    """Return the number of pools, 0 where any worker runs any task, and the first worker of all but one."""
    if policy.name == "single":
        return 0, []
    bounds = policy.bounds if policy.bounds else (policy.count,) * (policy.count > 0)
    return len(policy.bounds) + 1 if policy.bounds else 2, list(bounds)
