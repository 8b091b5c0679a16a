"""Names that nothing else has."""

from __future__ import annotations

from collections.abc import Iterable


class Fresh:
    """Gives out names, each once.

    Args:
        taken: names that are given out already.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)

    def name(self, stem: str) -> str:
        """Return `stem`, or, where that is taken, `stem` with a number after it."""
        found, number = stem, 0
        while found in self.taken:
            number += 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found
