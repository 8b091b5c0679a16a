"""The flags that order the pipes of a core.

Each pipe executes its instructions in order, and pipes run apart. Two instructions that touch the same bytes,
where at least one writes, must be ordered: by a flag from the pipe of the first to that of the second, or by
a barrier inside of one pipe. A flag is left out where others imply it. `loop_flags.py` orders iterations of
loops.

Tensors of two parameters may be one tensor. A kernel compares them when it starts, and orders moves between
them only if they overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pto_wsp.support.record import record, replace

LOAD, VECTOR, STORE = "PIPE_MTE2", "PIPE_V", "PIPE_MTE3"
MOVE, CUBE, FIX = "PIPE_MTE1", "PIPE_M", "PIPE_FIX"
SCALAR = "PIPE_S"
PIPES = (LOAD, VECTOR, STORE, MOVE, CUBE, FIX, SCALAR)
"""Pipes of a vector core: load, arithmetic, store. Of a cube core: load, move to L0, products, store.

The scalar unit issues all instructions, and reads and writes single elements of tiles itself, in order.
"""

MAX_EVENTS = 7
"""Event numbers of each pair of pipes."""

OVERLAP_EVENT = 7
"""The last event number of each pair of pipes: that of moves between tensors that overlap."""

Clock = dict[str, int]
"""Per pipe, how many of its instructions are known to be complete."""


@record
class Touched:
    """Bytes [start, stop) of the memory `ub`, `l1`, `l0a`, `l0b` or `l0c`, or the tensor of a parameter.

    Attributes:
        shift: added to both ends in every second iteration of a loop.
        tensor: name of the parameter, if the memory is `gm`.
        apart: dimensions of the tensor in which iterations of the loop touch different indices.
        fixed: dimensions whose indices [start, stop) are known.
    """

    memory: str
    start: int = 0
    stop: int = 1
    shift: int = 0
    tensor: str = ""
    apart: frozenset[int] = frozenset()
    fixed: tuple[tuple[int, int, int], ...] = ()

    def meets(self, other: Touched, turn: int = 0, other_turn: int = 0) -> bool:
        """Return whether two accesses, in iterations `turn` and `other_turn`, share bytes."""
        if (self.memory, self.tensor) != (other.memory, other.tensor):
            return False
        if self.tensor:
            pairs = ((a, b) for a in self.fixed for b in other.fixed if a[0] == b[0])
            if any(a[1] >= b[2] or b[1] >= a[2] for a, b in pairs):
                return False
            return turn == other_turn or not self.apart & other.apart
        first, second = self.shift * (turn % 2), other.shift * (other_turn % 2)
        return self.start + first < other.stop + second and other.start + second < self.stop + first


@record
class Flag:
    """An event that one pipe sets and another one waits for.

    Attributes:
        source, target: the pipes.
        event: its number.
        distance: iterations of a loop from the set to the wait.
        copies: 2 if iterations of a loop take `event` and the number after it in turn.
    """

    source: str
    target: str
    event: int
    distance: int = 0
    copies: int = 1

    def first(self, age: int) -> Flag:
        """Return the flag with the one event that an iteration `age` before the first one sets."""
        return replace(self, event=self.event + age % self.copies, copies=1)

    def text(self, verb: str, odd: str = "", age: int = 0) -> str:
        """Return what sets the flag or waits for it.

        Args:
            verb: `set` or `wait`.
            odd: the variable that says whether an iteration is the second of two.
            age: iterations since the flag was set.
        """
        call = f"{verb}_flag({self.source}, {self.target}, EVENT_ID"
        if self.copies == 1:
            return f"{call}{self.event});"
        odd_event = self.event + (age + 1) % 2
        even_event = self.event + age % 2
        return f"if ({odd}) {call}{odd_event}); else {call}{even_event});"


@dataclass(slots=True)
class Sync:
    """What orders one instruction: what comes before it, and what after it.

    Attributes:
        overlaps: per pipe that must be complete if tensors of these pairs of parameters overlap.
    """

    waits: list[Flag] = field(default_factory=list)
    barriers: list[str] = field(default_factory=list)
    sets: list[Flag] = field(default_factory=list)
    overlaps: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


@record
class PipeStep:
    """An instruction as the analysis sees it."""

    pipe: str
    reads: tuple[Touched, ...]
    writes: tuple[Touched, ...]

    def conflicts(self, other: PipeStep, turn: int = 0, other_turn: int = 0) -> bool:
        """Return whether two instructions touch the same bytes, and one of them writes."""
        pairs = [(a, b) for a in self.writes for b in (*other.reads, *other.writes)]
        pairs += [(a, b) for a in self.reads for b in other.writes]
        return any(a.meets(b, turn, other_turn) for a, b in pairs)

    def overlaps(self, other: PipeStep) -> Iterable[tuple[str, str]]:
        """Yield the pairs of parameters between which both move, if one of them writes."""
        pairs = [(a, b) for a in self.writes for b in (*other.reads, *other.writes)]
        pairs += [(a, b) for a in self.reads for b in other.writes]
        for a, b in pairs:
            if a.memory == b.memory == "gm" and a.tensor != b.tensor:
                yield min(a.tensor, b.tensor), max(a.tensor, b.tensor)


@dataclass(slots=True)
class PipeOp:
    """An instruction in its place.

    Attributes:
        number: of the instruction.
        turn: iteration of the loop.
        index: place among the instructions of its pipe, from 1.
        known: what its pipe knew when it started.
    """

    number: int
    turn: int
    step: PipeStep
    index: int
    known: Clock


class Order:
    """Which instructions are known to be complete, while they are added in program order.

    Products and scalar accesses complete in order.

    Args:
        orders_vectors: whether the vector pipe needs no barriers.
        reach: iterations after which an instruction is of no interest.
    """

    def __init__(self, orders_vectors: bool, reach: int = 1 << 30) -> None:
        self._orders_vectors, self._reach = orders_vectors, reach
        self.ops: dict[str, list[PipeOp]] = {pipe: [] for pipe in PIPES}
        self.known: dict[str, Clock] = {pipe: dict.fromkeys(PIPES, 0) for pipe in PIPES}

    def sources(self, step: PipeStep, turn: int = 0) -> dict[str, PipeOp]:
        """Return the last instruction of each other pipe that must be complete, without implied ones."""
        found: dict[str, PipeOp] = {}
        for source in PIPES:
            last = self._last_conflict(source, step, turn) if source != step.pipe else None
            if last is not None:
                found[source] = last
        return unimplied(found)

    def _last_conflict(self, pipe: str, step: PipeStep, turn: int) -> PipeOp | None:
        for op in reversed(self.ops[pipe][self.known[step.pipe][pipe] :]):
            if turn - op.turn > self._reach:
                return None
            if op.step.conflicts(step, op.turn, turn):
                return op
        return None

    def add(
        self, number: int, step: PipeStep, sources: Iterable[PipeOp], turn: int = 0
    ) -> tuple[PipeOp, bool]:
        """Add an instruction that waits for others; return it, and whether it needs a barrier of its pipe."""
        known = self.known[step.pipe]
        for op in sources:
            for name, count in op.known.items():
                known[name] = max(known[name], count)
            known[op.step.pipe] = max(known[op.step.pipe], op.index)
        is_in_order = step.pipe in (CUBE, SCALAR) or (step.pipe == VECTOR and self._orders_vectors)
        has_barrier = not is_in_order and self._last_conflict(step.pipe, step, turn) is not None
        ops = self.ops[step.pipe]
        if has_barrier:
            known[step.pipe] = len(ops)
        ops.append(PipeOp(number, turn, step, len(ops) + 1, dict(known)))
        return ops[-1], has_barrier

    def overlaps(self, op: PipeOp) -> dict[str, list[tuple[str, str]]]:
        """Return the pairs of `PipeStep.overlaps`, per pipe that may still work when it starts."""
        found: dict[str, list[tuple[str, str]]] = {}
        for pipe, ops in self.ops.items():
            for other in ops[op.known[pipe] :]:
                for pair in op.step.overlaps(other.step) if op.turn - other.turn <= self._reach else ():
                    pairs = found.setdefault(pipe, [])
                    pairs += [pair] if pair not in pairs else []
        return found


Pair = tuple[str, str]
"""The pipe that sets a flag, and the one that waits for it."""


def unimplied(sources: Mapping[str, PipeOp]) -> dict[str, PipeOp]:
    """Return the instructions, by pipe, that are not complete whenever another one is."""
    return {
        source: op
        for source, op in sources.items()
        if not any(other.known[source] >= op.index for name, other in sources.items() if name != source)
    }


class FlagPlanner:
    """Decides the flags of straight pieces of code; a fence ends a piece.

    Where a pair of pipes has more flags than events, its first flags are joined: the first wait is for a
    later instruction, which implies the others. The piece is then planned again.

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
        self._steps: list[PipeStep] = []
        self._least: dict[Pair, int] = {}
        self._begin()

    def _begin(self) -> None:
        self._order = Order(self.orders_vectors)
        self._events: dict[Pair, dict[int, int]] = {}
        self._sources: dict[Pair, list[int]] = {}

    @property
    def is_clean(self) -> bool:
        """Whether no instruction came after the last fence."""
        return not self._steps

    def add(self, step: PipeStep) -> None:
        """Add the next instruction."""
        self.syncs.append(Sync())
        self._steps.append(step)
        first, least = len(self.syncs) - len(self._steps), dict(self._least)
        lacking = self._plan(len(self.syncs) - 1, step)
        while lacking is not None and self._join(lacking):
            lacking = self._plan_again(first)
        if lacking is not None:
            self._least = least
            assert self._plan_again(first, leaves_last=True) is None
            self.fence()
            self._steps.append(step)
            self.syncs[-1] = Sync(barriers=["PIPE_ALL"])
            assert self._plan(len(self.syncs) - 1, step) is None

    def _join(self, pair: Pair) -> bool:
        """Let the first wait of a pair be for the source of its next flag; return whether there is one."""
        sources = self._sources.get(pair, [])
        later = [number for number in sources if number > self._least.get(pair, min(sources, default=0))]
        if later:
            self._least[pair] = min(later)
        return bool(later)

    def _plan_again(self, first: int, *, leaves_last: bool = False) -> Pair | None:
        """Plan the instructions of the piece again; return the pair that lacks an event, or None."""
        self._begin()
        for sync in self.syncs[first:]:
            for found in (sync.waits, sync.barriers, sync.sets):
                found.clear()
        steps = self._steps[:-1] if leaves_last else self._steps
        for number, step in enumerate(steps, first):
            if (lacking := self._plan(number, step)) is not None:
                return lacking
        return None

    def _plan(self, number: int, step: PipeStep) -> Pair | None:
        """Decide what orders an instruction; return the pair of pipes that lacks an event, or None."""
        found = self._order.sources(step).items()
        sources = unimplied({pipe: self._joined(op, step.pipe, number) for pipe, op in found})
        events = {pipe: self._free_event(op, step.pipe) for pipe, op in sources.items()}
        for pipe, event in events.items():
            if event is None:
                return pipe, step.pipe
        sync = self.syncs[number]
        op, has_barrier = self._order.add(number, step, sources.values())
        sync.overlaps = self._order.overlaps(op)
        for pipe, source in sources.items():
            event, pair = events[pipe], (pipe, step.pipe)
            assert event is not None
            flag = Flag(*pair, event)
            self.syncs[source.number].sets.append(flag)
            sync.waits.append(flag)
            self._events[pair][event] = op.index
            self._sources.setdefault(pair, []).append(source.number)
        sync.barriers += [step.pipe] * has_barrier
        return None

    def _joined(self, op: PipeOp, pipe: str, number: int) -> PipeOp:
        """Return the instruction that is waited for in place of another one, which it implies."""
        least = self._least.get((op.step.pipe, pipe), -1)
        later = (o for o in self._order.ops[op.step.pipe] if o.number == least and op.number < least < number)
        return next(later, op)

    def _free_event(self, op: PipeOp, pipe: str) -> int | None:
        """Return an event whose last wait is complete before `op` is, or None."""
        waits = self._events.setdefault((op.step.pipe, pipe), {})
        free = (event for event in range(MAX_EVENTS) if waits.get(event, 0) <= op.known[pipe])
        return next(free, None)


def overlap_pairs(syncs: Sequence[Sync]) -> list[tuple[str, str]]:
    """Return all pairs of parameters whose tensors are compared."""
    return sorted({pair for sync in syncs for pairs in sync.overlaps.values() for pair in pairs})
