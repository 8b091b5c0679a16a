"""The longest chain of tasks that must follow each other: no run can be shorter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pto_wsp.support.record import record


@record
class Ordered:
    """A `P.seq` loop: iteration i is complete before iteration i + 1 begins.

    Attributes:
        instance: per task, the number of the instance of the loop that the task is in, or -1.
        iteration: per task, its iteration.
    """

    instance: np.ndarray
    iteration: np.ndarray


@record
class LongestChain:
    """Tasks that must follow each other.

    Attributes:
        tasks: their numbers, in program order.
        edges: of each task, the row of the dependence on the task before; -1 of the first task, and where a
            `P.seq` orders the two.
        took_ns: the time of all of them.
    """

    tasks: Sequence[int]
    edges: Sequence[int]
    took_ns: int


@dataclass(slots=True)
class _Iteration:
    """What is known of one instance of an ordered loop: the present iteration, and the latest ends."""

    number: int = -1
    before: tuple[int, int] = (0, -1)  # end of the iterations before, and the task that ends then
    now: tuple[int, int] = (0, -1)

    def enter(self, number: int) -> tuple[int, int]:
        if number != self.number:
            self.number, self.before = number, max(self.before, self.now)
        return self.before


def longest_chain(took_ns: np.ndarray, edges: np.ndarray, loops: Sequence[Ordered] = ()) -> LongestChain:
    """Return the chain that takes longest.

    Args:
        took_ns: [n] of each task, in program order.
        edges: [m, 2 or more]: a task, a later one that depends on it.
        loops: the ordered loops.
    """
    order = np.argsort(edges[:, 1], kind="stable")
    first = np.searchsorted(edges[order, 1], np.arange(len(took_ns) + 1)).tolist()
    before, rows = edges[order, 0].tolist(), order.tolist()
    columns = [(loop.instance.tolist(), loop.iteration.tolist()) for loop in loops]
    states: list[dict[int, _Iteration]] = [{} for _ in loops]
    ends: list[int] = []
    links: list[tuple[int, int]] = []
    for task, took in enumerate(took_ns.tolist()):
        start, link = 0, (-1, -1)
        for i in range(first[task], first[task + 1]):
            if ends[before[i]] > start:
                start, link = ends[before[i]], (before[i], rows[i])
        inside = [
            (state.setdefault(instance[task], _Iteration()), iteration[task])
            for state, (instance, iteration) in zip(states, columns, strict=True)
            if instance[task] >= 0
        ]
        for state, number in inside:
            end, last = state.enter(number)
            if end > start:
                start, link = end, (last, -1)
        ends.append(start + took)
        links.append(link)
        for state, _ in inside:
            state.now = max(state.now, (ends[task], task))
    return _followed(ends, links)


def _followed(ends: Sequence[int], links: Sequence[tuple[int, int]]) -> LongestChain:
    """Return the chain that ends last."""
    if not ends:
        return LongestChain((), (), 0)
    task = max(range(len(ends)), key=ends.__getitem__)
    took, found = ends[task], []
    while task >= 0:
        found.append((task, links[task][1]))
        task = links[task][0]
    tasks, edges = zip(*reversed(found), strict=True)
    return LongestChain(tasks, edges, took)
