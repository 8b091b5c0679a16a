"""Where the threads of a block must wait for each other."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]
"""Bytes of shared memory: from the first to the one after the last."""

GLOBAL: Range = (-1, 0)
"""All of global memory."""

EVERYTHING: Range = (-1, 1 << 62)


class Barriers:
    """What was read and written since all threads of a block waited for each other.

    A barrier is due before memory is read that was written since, or written that was read or written since.
    """

    def __init__(self) -> None:
        self._read: set[Range] = set()
        self._written: set[Range] = set()
        self.has_copies = False

    def use(self, reads: Iterable[Range], writes: Iterable[Range]) -> bool:
        """Note what comes next; return whether a barrier is due before it."""
        reads, writes = set(reads), set(writes)
        is_due = _overlap(reads, self._written) or _overlap(writes, self._written | self._read)
        if is_due:
            self.clear()
        self._read |= reads
        self._written |= writes
        return is_due

    @property
    def is_clear(self) -> bool:
        """Whether nothing was written since the last barrier."""
        return not self._written

    def clear(self) -> None:
        """Note that all threads wait for each other."""
        self._read.clear()
        self._written.clear()

    def forget(self) -> None:
        """Note a place that several paths lead to: nothing is written, and anything may have been read."""
        self._written.clear()
        self._read = {EVERYTHING}


def _overlap(some: set[Range], others: set[Range]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in some for b in others)
