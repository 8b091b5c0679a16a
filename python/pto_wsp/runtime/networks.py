"""What programs of networks refuse."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pto_wsp.errors import NotSimulated, NotYetSupported, OverlappingArrays, UnsupportedByTarget
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.workload import deciding_tensors
from pto_wsp.location import caller_location


def require_one_order(workload: w.WorkloadFunction, feature: str) -> None:
    """Raise NotYetSupported if a workload is a network, whose tasks have no common program order."""
    if workload.processes:
        detail = "its tasks have no common program order"
        raise NotYetSupported(
            feature=f"{feature} of a network", detail=detail, advice="", loc=caller_location()
        )


def require_separate(module: Module, arrays: Sequence[np.ndarray]) -> None:
    """Refuse arrays that are the same memory under two names, if the network writes one of them.

    Processes share a tensor under one name alone, so that the verifier of networks sees it.

    Raises:
        OverlappingArrays: two arguments share memory.
    """
    named = zip((t.name for t in module.entry_workload.tensors), arrays, strict=True)
    for (first, a), (second, b) in combinations([(n, a) for n, a in named if a.size], 2):
        is_written = {first, second} & module.written
        if is_written and np.may_share_memory(a, b) and np.shares_memory(a, b):
            named_as = first if first in is_written else second
            detail = "processes of a network share a tensor under one name alone"
            hint = "pass two arrays, or give the tensor one name in all processes"
            raise OverlappingArrays(
                first=first, second=second, written=f"`{named_as}`", detail=detail, hint=hint
            )


def require_no_clock(workload: w.WorkloadFunction) -> None:
    """Refuse a calendar of a network with a clock: rows wait for cores and tasks alone.

    Raises:
        UnsupportedByTarget: a process waits for a time, or tokens have a latency.
    """
    nodes = w.walk_nodes(workload.body) if workload.processes else ()
    found = [("`wait`", node.loc) for node in nodes if isinstance(node, w.Delay)]
    late = [t for t in workload.tensors if t.channel is not None and t.channel.latency]
    found += [(f"the latency of `{tensor.name}`", tensor.loc) for tensor in late]
    if found:
        what, loc = found[0]
        raise UnsupportedByTarget(
            target="sim",
            what=f"a calendar of a network with {what}",
            reason="rows of a calendar wait for tasks, not for a time",
            loc=loc,
        )


def require_known_control(module: Module) -> None:
    """Refuse to simulate a network whose tasks decide what runs: its processes read no values of tasks.

    Raises:
        NotSimulated: an expression reads a tensor that tasks write.
    """
    entry = module.entry_workload
    decided = sorted(deciding_tensors(entry.body) & module.written) if entry.processes else []
    if decided:
        reason = f"reads `{decided[0]}` to decide what runs; its tasks write it. Send a scalar instead"
        raise NotSimulated(program=entry.name, reason=reason, loc=entry.loc)
