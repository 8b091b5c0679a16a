"""A writer of indented text, and numbers with nouns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 token`, `2 tokens`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


class TextWriter:
    """Collects lines; `indented()` nests them."""

    def __init__(self, indent: str = "  ") -> None:
        self._indent = indent
        self._prefix = ""
        self._lines: list[str] = []

    def line(self, text: str = "") -> None:
        """Add one line at the current depth; an empty one stays empty."""
        self._lines.append(self._prefix + text if text else "")

    def deeper(self) -> None:
        """Nest the lines that follow one level deeper."""
        self._prefix += self._indent

    def shallower(self) -> None:
        """End the last level of `deeper`."""
        self._prefix = self._prefix.removesuffix(self._indent)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Nest the lines written inside one level deeper."""
        outer = self._prefix
        self._prefix = outer + self._indent
        yield
        self._prefix = outer

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield lines of columns; numbers are at the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    numeric = [all(row[i].replace(",", "").rstrip("%").isdigit() for row in rows) for i in range(len(header))]
    for row in (header, *rows):
        cells = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        )
        yield ("  " + "  ".join(cells)).rstrip()
