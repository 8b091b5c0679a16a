"""Flags of loops with random bodies: all conflicts are ordered, and each flag is needed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from pto_wsp.targets.ascend.hazards import (
    CUBE,
    LOAD,
    MAX_EVENTS,
    MOVE,
    PIPES,
    STORE,
    VECTOR,
    Flag,
    PipeStep,
    Touched,
)
from pto_wsp.targets.ascend.loop_flags import LoopFlags, loop_flags

TURNS = 7
Pair = tuple[int, int]
"""Iteration and number of an instruction."""


def drawn_body(rng: random.Random) -> list[PipeStep]:
    """A few instructions on tiles, some of which have two places."""
    tiles = [Touched("ub", 64 * i, 64 * i + 32, rng.choice((0, 0, 32))) for i in range(rng.randint(2, 5))]
    body = []
    for _ in range(rng.randint(2, 9)):
        reads = tuple(rng.sample(tiles, rng.randint(0, 2)))
        pipe = rng.choice((LOAD, VECTOR, VECTOR, STORE, MOVE, CUBE))
        body.append(PipeStep(pipe, reads, (rng.choice(tiles),) if rng.random() < 0.8 else ()))
    return body


def unordered(
    body: Sequence[PipeStep], flags: LoopFlags, left_out: object = None
) -> Iterator[tuple[Pair, Pair]]:
    """Yield the conflicts that flags do not order in a loop that is written out."""
    known = {pipe: set[Pair]() for pipe in PIPES}
    done = {pipe: list[Pair]() for pipe in PIPES}
    clocks: dict[tuple[Flag, int], set[Pair]] = {}
    for turn in range(TURNS):
        for number, (step, sync) in enumerate(zip(body, flags.syncs, strict=True)):
            mine = known[step.pipe]
            for flag in sync.waits:
                if flag is not left_out:
                    mine |= clocks.get((flag, turn - flag.distance), set())
            if step.pipe in sync.barriers and left_out != (number, step.pipe):
                mine |= {*done[step.pipe]}
            for pipe in PIPES:
                is_in_order = pipe == step.pipe == CUBE
                for before in () if is_in_order else done[pipe]:
                    if before not in mine and step.conflicts(body[before[1]], turn, before[0]):
                        yield before, (turn, number)
            done[step.pipe].append((turn, number))
            for flag in sync.sets:
                clocks[flag, turn] = mine | {*done[step.pipe]}


def test_conflicts_are_ordered_and_each_flag_is_needed() -> None:
    """Of few bodies, the events are not enough."""
    num_fenced = 0
    for seed in range(100):
        body = drawn_body(random.Random(seed))
        flags = loop_flags(body, orders_vectors=False)
        if flags is None:
            num_fenced += 1
        else:
            check_flags(body, flags, seed)
    assert num_fenced <= 5


def check_flags(body: Sequence[PipeStep], flags: LoopFlags, seed: int) -> None:
    assert not list(unordered(body, flags)), seed
    for number, sync in enumerate(flags.syncs):
        for left_out in (*sync.waits, *((number, barrier) for barrier in sync.barriers)):
            assert next(unordered(body, flags, left_out), None), (seed, number, left_out)
    every = [flag for sync in flags.syncs for flag in sync.waits]
    assert all(flag.event + flag.copies <= MAX_EVENTS for flag in every), seed
    assert {*flags.carried} == {flag for flag in every if flag.distance}, seed
