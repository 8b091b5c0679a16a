"""The flags of a loop: within an iteration, and from one iteration to the next ones.

    for i:  load x; y = f(x); store y
    ->      wait V>MTE2; load x; set MTE2>V; ...; y = f(x); set V>MTE2; ...

A flag from an iteration to a later one is set before the loop as often as iterations wait for it without a
set, and waited for after the loop as often. So each wait has its set, also if the loop does not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pto_wsp.support.record import record, replace
from pto_wsp.targets.ascend.hazards import MAX_EVENTS, PIPES, Flag, Order, PipeOp, PipeStep, Sync

MAX_TURNS = 12
"""Iterations in which flags must become the same for every iteration."""

_REACH = 2
"""Iterations between which instructions can need a flag: tiles have at most two places."""


@record
class LoopFlags:
    """The flags of a loop.

    Attributes:
        syncs: per instruction of the body.
        carried: flags that an iteration sets for a later one.
    """

    syncs: tuple[Sync, ...]
    carried: tuple[Flag, ...]


@record
class _Edge:
    """An instruction that waits for an earlier one."""

    source: int
    target: int
    distance: int


@record
class _Turn:
    """What one iteration needs: edges, instructions with a barrier, and what is known at its end."""

    edges: tuple[_Edge, ...]
    barriers: frozenset[int]
    known: tuple[int, ...]


def loop_flags(body: Sequence[PipeStep], orders_vectors: bool, turns: int = MAX_TURNS) -> LoopFlags | None:
    """Return the flags of a loop whose body is straight, or None if its events are not enough.

    Iterations are simulated until two need the same. From then on, all do.

    Args:
        body: its instructions.
        orders_vectors: whether the vector pipe needs no barriers.
        turns: how many iterations it has at most.
    """
    order = Order(orders_vectors, _REACH)
    last: _Turn | None = None
    for number in range(MAX_TURNS):
        turn, ops, syncs = _turn(body, order, number)
        if turn == last or turns == 1:
            edges = tuple(edge for edge in turn.edges if edge.distance < turns)
            return _with_events(syncs, replace(turn, edges=edges), _Steady(body, ops))
        last = turn
    return None


def _turn(body: Sequence[PipeStep], order: Order, turn: int) -> tuple[_Turn, list[PipeOp], tuple[Sync, ...]]:
    edges: list[_Edge] = []
    barriers: set[int] = set()
    ops: list[PipeOp] = []
    syncs: list[Sync] = []
    for number, step in enumerate(body):
        sources = order.sources(step, turn).values()
        op, has_barrier = order.add(number, step, sources, turn)
        edges += [_Edge(source.number, number, turn - source.turn) for source in sources]
        barriers |= {number} if has_barrier else set()
        ops.append(op)
        syncs.append(Sync(overlaps=order.overlaps(op)))
    counts = {pipe: len(order.ops[pipe]) for pipe in PIPES}
    oldest = {pipe: (_REACH + 1) * sum(step.pipe == pipe for step in body) for pipe in PIPES}
    known = tuple(
        max(order.known[pipe][other] - counts[other], -oldest[other]) for pipe in PIPES for other in PIPES
    )
    return _Turn(tuple(edges), frozenset(barriers), known), ops, tuple(syncs)


@dataclass(slots=True)
class _Steady:
    """An iteration after which all are alike."""

    body: Sequence[PipeStep]
    ops: list[PipeOp]

    def knows(self, at: int, other: int, age: int) -> bool:
        """Return whether instruction `at` starts after `other` of the iteration `age` before is complete."""
        pipe = self.body[other].pipe
        per_turn = sum(step.pipe == pipe for step in self.body)
        return self.ops[at].known[pipe] >= self.ops[other].index - age * per_turn

    def copies(self, edge: _Edge) -> int | None:
        """Return how many events iterations take in turn: a set comes after the last wait for its event."""
        fitting = (n for n in (1, 2) if self.knows(edge.source, edge.target, n - edge.distance))
        return next(fitting, None)

    def share(self, one: _Edge, other: _Edge) -> bool:
        """Return whether two flags within an iteration can be one event."""
        first, second = sorted((one, other), key=lambda edge: edge.source)
        return self.knows(second.source, first.target, 0) and self.knows(first.source, second.target, 1)


def _with_events(syncs: tuple[Sync, ...], turn: _Turn, steady: _Steady) -> LoopFlags | None:
    body = steady.body
    for number in turn.barriers:
        syncs[number].barriers.append(body[number].pipe)
    taken: dict[tuple[str, str], list[list[_Edge]]] = {}
    carried: list[Flag] = []
    for edge in turn.edges:
        flag = Flag(body[edge.source].pipe, body[edge.target].pipe, 0, edge.distance)
        event = _event(edge, steady, taken.setdefault((flag.source, flag.target), []))
        if event is None:
            return None
        flag = replace(flag, event=event[0], copies=event[1])
        syncs[edge.source].sets.append(flag)
        syncs[edge.target].waits.append(flag)
        carried += [flag] if flag.distance else []
    return LoopFlags(syncs, tuple(carried))


def _event(edge: _Edge, steady: _Steady, taken: list[list[_Edge]]) -> tuple[int, int] | None:
    """Take an event for a flag; return its number and copies, or None if there is no event left."""
    copies = steady.copies(edge)
    if copies == 1 and edge.distance == 0:
        for event, edges in enumerate(taken):
            if edges and all(steady.share(edge, other) for other in edges):
                edges.append(edge)
                return event, 1
    if copies is None or len(taken) + copies > MAX_EVENTS:
        return None
    # Flags between iterations, and those with two events, share none: their lists are empty.
    taken += [[edge] if copies == 1 and edge.distance == 0 else [] for _ in range(copies)]
    return len(taken) - copies, copies
