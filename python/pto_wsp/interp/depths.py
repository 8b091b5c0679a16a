"""Depths with which a network in a deadlock would end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pto_wsp.errors import Deadlock
from pto_wsp.interp.network import BUFFER, RECEIPT, step_all
from pto_wsp.interp.workload import NOTHING_LATE, BoundTask, TaskRunner
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value

MOST_MOVES = 20_000
"""Sends and receives of all trials: the report must not take long."""


class TooLong(Exception):
    """The trials take too many sends and receives."""


class NoTasks(TaskRunner):
    """A run that walks processes without their tasks."""

    def task(self, task: BoundTask, number: int) -> None:
        """Run nothing."""


def advised(
    error: Deadlock, module: Module, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Value]
) -> Deadlock:
    """Return a deadlock whose advice names a depth for each channel that suffices, if there are some."""
    network = module.entry_workload
    before = {t.name: t.channel.depth for t in network.tensors if t.channel is not None}
    depths = sufficient_depths(module, arrays, sizes)
    if depths is not None:
        changed = [f"`{name}` {depth}" for name, depth in depths.items() if depth > before[name]]
        error.help = f"for this call these depths suffice: {', '.join(changed)}; or receive tokens earlier"
    return error


def sufficient_depths(
    module: Module, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Value]
) -> dict[str, int] | None:
    """Return depths with which the network ends, none of which can be lower with the others as they are.

    A network that ends with some depths ends with larger ones. So depths of full channels are doubled until
    the network ends, and each depth is then lowered as far as it can be. No channel gets less than it has.

    Returns:
        A depth per channel. None if no depths help, if tasks or time decide what is sent, or if the trials
        take long.
    """
    network = module.entry_workload
    is_merged = any(t.channel is not None and t.channel.merge != w.TURNS for t in network.tensors)
    if is_merged or w.deciding_tensors(network.body) & module.written:
        return None
    moves = 0

    def count() -> None:
        nonlocal moves
        moves += 1
        if moves > MOST_MOVES:
            raise TooLong

    run = NoTasks(module, arrays, NOTHING_LATE, lambda *_: None, count)
    declared = {t.name: t.channel.depth for t in network.tensors if t.channel is not None}

    def blocking(depths: Mapping[str, int]) -> set[str] | None:
        """Return the channels that have too few buffers, or None if the network ends."""
        processes, _ = step_all(network, sizes, run, depths, {})
        waits = [p.waits for p in processes if p.waits is not None]
        return {at.node.channel for at in waits if at.reason in (BUFFER, RECEIPT)} if waits else None

    try:
        depths = _enough(blocking, declared)
        return None if depths is None else _least(blocking, depths, declared)
    except TooLong:
        return None


_Blocking = Callable[[Mapping[str, int]], set[str] | None]


def _enough(blocking: _Blocking, declared: Mapping[str, int]) -> dict[str, int] | None:
    depths = dict(declared)
    while (full := blocking(depths)) is not None:
        if not full:
            return None
        smallest = min(full, key=lambda name: (depths[name], name))
        depths[smallest] = 2 * depths[smallest] + 1
    return depths


def _least(blocking: _Blocking, depths: dict[str, int], declared: Mapping[str, int]) -> dict[str, int]:
    for name, least in declared.items():
        low, high = least, depths[name]
        while low < high:
            middle = (low + high) // 2
            if blocking({**depths, name: middle}) is None:
                high = middle
            else:
                low = middle + 1
        depths[name] = high
    return depths
