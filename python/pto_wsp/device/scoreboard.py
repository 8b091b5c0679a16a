"""When the instructions of one kernel start and end on the pipes of one core.

A core issues instructions in program order. Each waits for its pipe, for its operands and, before it writes
a buffer, for what still reads that buffer. A tile that is loaded has one or two buffers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

ISSUE = 1.0
"""Cycles that the core takes to issue an instruction."""

PAST = 4096.0
"""Cycles after which nothing waits any more for what happened."""


@dataclass(slots=True)
class Buffer:
    """What is known of the memory of a tile: times in cycles."""

    ready: float = 0.0
    free: float = 0.0


@dataclass(slots=True)
class Scoreboard:
    """The state of a core.

    Attributes:
        num_buffers: buffers of a tile that is loaded.
        issued: when the next instruction can be issued.
        pipes: when each pipe is free.
        busy: cycles that each pipe has worked.
        tiles: the buffers of each tile and memory, the one in use last.
    """

    num_buffers: int
    issued: float = 0.0
    pipes: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    tiles: dict[tuple[str, str], list[Buffer]] = field(default_factory=dict)

    def run(
        self,
        pipe: str,
        cycles: float,
        reads: Iterable[tuple[str, str]],
        writes: tuple[str, str] | None,
        is_load: bool = False,
    ) -> None:
        """Issue an instruction.

        Args:
            pipe: where it runs.
            cycles: how long the pipe works.
            reads: buffers that it reads.
            writes: the buffer that it writes.
            is_load: whether it may write the other buffer of the tile while this one is read.
        """
        start = max(self.issued, self.pipes.get(pipe, 0.0))
        self.issued += ISSUE
        sources = [self.tiles[key][-1] for key in reads if key in self.tiles]
        start = max((start, *(source.ready for source in sources)))
        target = None
        if writes is not None:
            target = self._target(writes, is_load)
            start = max(start, target.free)
        end = start + cycles
        self.pipes[pipe] = end
        self.busy[pipe] = self.busy.get(pipe, 0.0) + cycles
        for source in sources:
            source.free = max(source.free, end)
        if target is not None:
            target.ready = end
            target.free = max(target.free, end)

    def _target(self, key: tuple[str, str], is_load: bool) -> Buffer:
        """Return the buffer that a write goes to, which is in use from now on."""
        buffers = self.tiles.setdefault(key, [Buffer() for _ in range(self.num_buffers if is_load else 1)])
        if is_load:
            buffers.append(buffers.pop(0))
        return buffers[-1]

    @property
    def end(self) -> float:
        """When all pipes are free."""
        return max((self.issued, *self.pipes.values()))

    def shift(self, cycles: float, busy: dict[str, float]) -> None:
        """Move all times later, as what repeats moves them."""
        self.issued += cycles
        for pipe in self.pipes:
            self.pipes[pipe] += cycles
        for buffers in self.tiles.values():
            for buffer in buffers:
                buffer.ready += cycles
                buffer.free += cycles
        for pipe, amount in busy.items():
            self.busy[pipe] = self.busy.get(pipe, 0.0) + amount

    def since(self, start: float) -> tuple[object, ...]:
        """Return the state relative to a moment: equal states go on alike. What is long past is equal."""

        def since(at: float) -> float:
            return max(at - start, -PAST)

        pipes = tuple((name, since(at)) for name, at in self.pipes.items())
        tiles = tuple(
            (key, tuple((since(b.ready), since(b.free)) for b in buffers))
            for key, buffers in self.tiles.items()
        )
        return since(self.issued), pipes, tiles
