"""The claim that no process of a network waits for ever.

Channels that connect processes without a circle prove it. A process that waits, waits for the process at the
other end of one channel. Without a circle, two of them would have to wait for each other on one channel. It
would be empty and full. Other networks are walked without tasks, for the smallest calls first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pto_wsp.interp.depths import NoTasks, TooLong
from pto_wsp.interp.network import step_all
from pto_wsp.interp.workload import NOTHING_LATE, Blocked
from pto_wsp.ir import workload as w
from pto_wsp.ir.effects import names_in
from pto_wsp.ir.module import Module
from pto_wsp.prove.finding import (
    CHANNELS,
    PROVED,
    REFUTED,
    UNKNOWN,
    CounterExample,
    Finding,
    TaskText,
)

MAX_SUM = 40
"""Calls whose deciding sizes have a larger sum are not tried."""
MAX_MOVES = 50_000
"""Sends and receives of all calls that are tried."""


def channels(module: Module) -> Finding:
    """Return the answer for the network of a module."""
    return _Network(module).finding()


class _Network:
    def __init__(self, module: Module) -> None:
        self.module, self.network = module, module.entry_workload
        self.subject = f"`{self.network.name}`"
        self.moves = 0

    def finding(self) -> Finding:
        """Return the answer: by the shape of the network, else by the calls that are tried."""
        loc = self.network.processes[0].loc
        if self._has_no_circle():
            return Finding(CHANNELS, self.subject, PROVED, loc)
        reason = self._undecided()
        if not reason:
            try:
                found = self._tried()
            except TooLong:
                found = None
            if found is not None:
                return found
            reason = "its channels form a circle or have several ends, and no small call ends in a deadlock"
        return Finding(CHANNELS, self.subject, UNKNOWN, loc, reason=reason)

    def _has_no_circle(self) -> bool:
        """Whether channels connect processes without a circle, and no token is made or held inside one."""
        group = {process.name: process.name for process in self.network.processes}
        for tensor in self.network.tensors:
            if tensor.channel is None:
                continue
            ends = [*self._ends(w.Send, tensor.name), *self._ends(w.Receive, tensor.name)]
            if len(ends) != 2 or self._is_nested(tensor.name):
                return False
            one, other = (group[name] for name in ends)
            if one == other:
                return False
            group = {name: one if found == other else found for name, found in group.items()}
        return True

    def _ends(self, kind: type[w.Send] | type[w.Receive], channel: str) -> list[str]:
        """Return the processes that send to a channel, or receive from it."""
        return [
            process.name
            for process in self.network.processes
            if any(isinstance(n, kind) and n.channel == channel for n in w.walk_nodes(process.body))
        ]

    def _is_nested(self, channel: str) -> bool:
        moves = [
            node
            for node in w.walk_nodes(self.network.body)
            if isinstance(node, (w.Send, w.Receive)) and node.channel == channel
        ]
        inner = (n for move in moves for n in w.walk_nodes(move.body) if isinstance(n, (w.Send, w.Receive)))
        return any(node.channel == channel for node in inner)

    def _undecided(self) -> str:
        """Return why calls cannot be tried, or an empty text."""
        arrays = sorted(w.deciding_tensors(self.network.body))
        if arrays:
            return f"`{arrays[0]}` is data, and decides what is sent"
        merged = [t.name for t in self.network.tensors if t.channel and t.channel.merge != w.TURNS]
        if merged:
            return f"time decides the order of the tokens of `{merged[0]}`"
        others = [p.name for p in self._symbols() if p.value is not None or _is_float(p)]
        return f"`{others[0]}` decides what is sent, and is a float or computed" if others else ""

    def _symbols(self) -> list[w.SizeParam | w.ScalarParam]:
        """Return the sizes and scalars that decide what is sent and received."""
        nodes = (n for n in w.walk_nodes(self.network.body) if not isinstance(n, w.Task))
        known = names_in(*(expr for node in nodes for expr in w.node_expressions(node)))
        return [p for p in self.network.symbols if p.name in known]

    def _tried(self) -> Finding | None:
        """Return the refutation by the smallest call with a deadlock, or a proof if there is one call."""
        names = [param.name for param in self._symbols()]
        for total in range(MAX_SUM + 1 if names else 1):
            for values in _sums(len(names), total):
                waits = self._waits(dict(zip(names, values, strict=True)))
                if waits:
                    return self._refuted(dict(zip(names, values, strict=True)), waits)
        return None if names else Finding(CHANNELS, self.subject, PROVED, self.network.processes[0].loc)

    def _waits(self, sizes: dict[str, int]) -> list[tuple[w.Process, Blocked]]:
        """Return the processes that wait for ever in a call, if nothing else ends it."""
        run = NoTasks(self.module, {}, NOTHING_LATE, lambda *_: None, self._count)
        processes, _ = step_all(self.network, sizes, run, {}, {})
        if any(process.error is not None for process in processes):
            return []
        return [(process.node, process.waits) for process in processes if process.waits is not None]

    def _count(self) -> None:
        self.moves += 1
        if self.moves > MAX_MOVES:
            raise TooLong

    def _refuted(self, sizes: dict[str, int], waits: Sequence[tuple[w.Process, Blocked]]) -> Finding:
        texts = tuple(
            TaskText(f"`{process.name}` waits {at.reason} `{at.node.channel}`", at.node.loc)
            for process, at in waits
        )
        full = dict.fromkeys(at.node.channel for _, at in waits)
        depths = ((name, self.network.tensor(name).channel) for name in full)
        region = ", ".join(f"`{name}` has depth {ring.depth}" for name, ring in depths if ring is not None)
        counter = CounterExample(tuple(sizes.items()), (), texts, region, "processes wait for ever")
        return Finding(CHANNELS, self.subject, REFUTED, waits[0][1].node.loc, counter)


def _is_float(param: w.SizeParam | w.ScalarParam) -> bool:
    return isinstance(param, w.ScalarParam) and param.type.dtype is not None and param.type.dtype.is_float


def _sums(count: int, total: int) -> Iterator[tuple[int, ...]]:
    """Yield the tuples of numbers that are 0 or more and have a sum."""
    if count <= 1:
        yield (total,) * count
        return
    for first in range(total + 1):
        for rest in _sums(count - 1, total - first):
            yield (first, *rest)
