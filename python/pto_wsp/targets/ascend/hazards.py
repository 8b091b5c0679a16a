"""The flags that order the pipes of a core.

Each pipe executes its instructions in order, and pipes run apart. Two instructions that touch the same bytes,
where at least one writes, must be ordered: by a flag from the pipe of the first to that of the second, or by
a barrier inside of one pipe. A flag is left out where others imply it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pto_wsp.support.record import record

LOAD, VECTOR, STORE = "PIPE_MTE2", "PIPE_V", "PIPE_MTE3"
MOVE, CUBE, FIX = "PIPE_MTE1", "PIPE_M", "PIPE_FIX"
PIPES = (LOAD, VECTOR, STORE, MOVE, CUBE, FIX)
"""Pipes of a vector core: load, arithmetic, store. Of a cube core: load, move to L0, products, store."""

MAX_EVENTS = 8
"""Event numbers of each pair of pipes."""

Clock = dict[str, int]
"""Per pipe, how many of its instructions are known to be complete."""


@record
class Touched:
    """Bytes [start, stop) of the memory `ub`, `l1`, `l0a`, `l0b` or `l0c`, or all of `gm`."""

    memory: str
    start: int = 0
    stop: int = 1

    def meets(self, other: Touched) -> bool:
        """Return whether two accesses share bytes."""
        return self.memory == other.memory and self.start < other.stop and other.start < self.stop


@record
class Flag:
    """An event that one pipe sets and another one waits for."""

    source: str
    target: str
    event: int

    def text(self, verb: str) -> str:
        """Return the call that sets the flag or waits for it."""
        return f"{verb}_flag({self.source}, {self.target}, EVENT_ID{self.event});"


@dataclass(slots=True)
class Sync:
    """What orders one instruction: what comes before it, and what after it."""

    waits: list[Flag] = field(default_factory=list)
    barriers: list[str] = field(default_factory=list)
    sets: list[Flag] = field(default_factory=list)


@dataclass(slots=True)
class _Op:
    number: int
    index: int
    reads: tuple[Touched, ...]
    writes: tuple[Touched, ...]
    known: Clock

    def conflicts(self, reads: tuple[Touched, ...], writes: tuple[Touched, ...]) -> bool:
        pairs = [(a, b) for a in self.writes for b in (*reads, *writes)]
        pairs += [(a, b) for a in self.reads for b in writes]
        return any(a.meets(b) for a, b in pairs)


class FlagPlanner:
    """Decides the flags of straight pieces of code; a fence ends a piece. Products complete in order.

    Args:
        orders_vectors: whether the vector pipe needs no barriers.

    Attributes:
        syncs: per instruction, in the order in which they were added.
    """

    def __init__(self, orders_vectors: bool) -> None:
        self.orders_vectors = orders_vectors
        self.syncs: list[Sync] = []
        self.fence()

    def fence(self) -> None:
        """Note that all instructions so far are complete."""
        self._ops: dict[str, list[_Op]] = {pipe: [] for pipe in PIPES}
        self._known: dict[str, Clock] = {pipe: dict.fromkeys(PIPES, 0) for pipe in PIPES}
        self._events: dict[tuple[str, str], dict[int, int]] = {}

    @property
    def is_clean(self) -> bool:
        """Whether no instruction came after the last fence."""
        return not any(self._ops.values())

    def add(self, pipe: str, reads: tuple[Touched, ...], writes: tuple[Touched, ...]) -> int:
        """Add the next instruction; return its number."""
        sync = Sync()
        sources = self._sources(pipe, reads, writes)
        flags = [(op, source, self._free_event(op, source, pipe)) for source, op in sources.items()]
        if any(event is None for _, _, event in flags):
            sync.barriers.append("PIPE_ALL")
            self.fence()
        else:
            self._order(pipe, flags, sync)
            self._keep_order(pipe, reads, writes, sync)
        ops, known = self._ops[pipe], self._known[pipe]
        ops.append(_Op(len(self.syncs), len(ops) + 1, reads, writes, dict(known)))
        self.syncs.append(sync)
        return len(self.syncs) - 1

    def _sources(self, pipe: str, reads: tuple[Touched, ...], writes: tuple[Touched, ...]) -> dict[str, _Op]:
        """Return the last instruction of each other pipe that must be complete, without implied ones."""
        found: dict[str, _Op] = {}
        for source in PIPES:
            if source != pipe:
                last = self._last_conflict(source, self._known[pipe][source], reads, writes)
                if last is not None:
                    found[source] = last
        return {
            source: op
            for source, op in found.items()
            if not any(other.known[source] >= op.index for name, other in found.items() if name != source)
        }

    def _last_conflict(
        self, pipe: str, known: int, reads: tuple[Touched, ...], writes: tuple[Touched, ...]
    ) -> _Op | None:
        later = reversed(self._ops[pipe][known:])
        return next((op for op in later if op.conflicts(reads, writes)), None)

    def _free_event(self, op: _Op, source: str, pipe: str) -> int | None:
        """Return an event whose last wait is complete before `op` is, or None."""
        waits = self._events.setdefault((source, pipe), {})
        free = (event for event in range(MAX_EVENTS) if waits.get(event, 0) <= op.known[pipe])
        return next(free, None)

    def _order(self, pipe: str, flags: list[tuple[_Op, str, int | None]], sync: Sync) -> None:
        known = self._known[pipe]
        for op, source, event in flags:
            assert event is not None
            flag = Flag(source, pipe, event)
            self.syncs[op.number].sets.append(flag)
            sync.waits.append(flag)
            self._events[source, pipe][event] = len(self._ops[pipe]) + 1
            for name, count in op.known.items():
                known[name] = max(known[name], count)
            known[source] = max(known[source], op.index)

    def _keep_order(
        self, pipe: str, reads: tuple[Touched, ...], writes: tuple[Touched, ...], sync: Sync
    ) -> None:
        """Add a barrier where an instruction of the same pipe must be complete."""
        if pipe == CUBE or (pipe == VECTOR and self.orders_vectors):
            return
        known = self._known[pipe]
        if self._last_conflict(pipe, known[pipe], reads, writes) is not None:
            sync.barriers.append(pipe)
            known[pipe] = len(self._ops[pipe])
