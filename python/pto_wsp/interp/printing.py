"""What kernels print, as lines that name the task: the same text as include/pto/wsp/sched/print.hpp makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pto_wsp.ir.check_texts import scalar_text
from pto_wsp.ir.scalar import Value

END = 4
"""Rows and columns of a tile that are shown at each end where there are more than twice as many."""


def printed_text(task: int, block: int | None, kernel: str, parts: Iterable[str | Value | np.ndarray]) -> str:
    """Return the lines of one print.

    Args:
        task: number of the task in program order.
        block: number of the call within the task; None where a task is one call.
        kernel: its name.
        parts: text, scalars, and the valid parts of tiles [rows, cols].
    """
    tag = f"task {task}, {kernel}:" if block is None else f"task {task}, block {block}, {kernel}:"
    lines: list[str] = []
    words: list[str] = []
    for part in parts:
        if not isinstance(part, np.ndarray):
            words.append(part if isinstance(part, str) else scalar_text(part))
            continue
        words.append(f"[{part.shape[0]}, {part.shape[1]}]")
        lines.append(" ".join(words))
        lines += (" " + " ".join(["", *row]) for row in _rows(part))
        words = []
    if words or not lines:
        lines.append(" ".join(words))
    return "".join(f"{tag} {line}\n" for text in lines for line in text.split("\n"))


def _rows(tile: np.ndarray) -> Iterator[list[str]]:
    for i in _shown(range(tile.shape[0])):
        yield (
            ["..."]
            if i is None
            else ["..." if j is None else _element(tile[i, j]) for j in _shown(range(tile.shape[1]))]
        )


def _shown(positions: Sequence[int]) -> list[int | None]:
    """Return the positions that are shown, with None where some are left out."""
    if len(positions) <= 2 * END:
        return [*positions]
    return [*positions[:END], None, *positions[-END:]]


def _element(value: np.generic) -> str:
    if value.dtype.kind in "iub":
        return scalar_text(value.item())
    return scalar_text(float(value))  # bfloat16 is of no kind that numpy knows
