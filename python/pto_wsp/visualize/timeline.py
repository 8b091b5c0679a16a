"""The picture of a run: a lane per worker and dispatcher, time from left to right, a colour per kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.support.record import record
from pto_wsp.visualize.drawing import (
    GRID,
    PALE,
    Box,
    Drawing,
    Line,
    Shape,
    Text,
    colour_of,
    legend,
    text_width,
)

_WIDTH, _LANE, _GAP, _LEFT, _TOP = 960.0, 30.0, 8.0, 110.0, 62.0
_WIDE = 4.0  # pixels from which a task is a bar of its own
_EMPTY = "#f0f1f4"
_STALL_COLOURS = ("#d9a441", "#b9a7d6", "#c76b7c", "#8fb7c4")

REASONS = ("read after write", "write after read", "write after write", "after=")
"""Why a task depends on another one."""

STALLS = ("window", "slice", "flush", "pool")
"""What stops a dispatcher: no room for a record, too many slices, a value that tasks write, another pool."""


@record
class Timeline:
    """A run: arrays have an element or a row per task, in program order; times are in ns since it began.

    Attributes:
        kernels: their names.
        labels: how users write each task, or nothing.
        kernel: index into `kernels`.
        worker: index of the thread.
        start_ns: start.
        end_ns: end.
        dependences: rows of a task, one that depended on it, and the index of the reason in `REASONS`.
        walks: rows of a dispatcher, the first of some tasks that it made, how many, and when it had.
        stalls: rows of a dispatcher, the index of what stopped it in `STALLS`, start and end.
        about: what else is known of the run, by name.
    """

    kernels: Sequence[str]
    labels: Sequence[str]
    kernel: np.ndarray
    worker: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    dependences: np.ndarray
    walks: np.ndarray
    stalls: np.ndarray
    about: dict[str, str]

    @property
    def shown(self) -> list[int]:
        """Indices of the kernels that ran, in the order of their first tasks."""
        kernels, first = np.unique(self.kernel, return_index=True)
        return kernels[np.argsort(first)].tolist()

    @property
    def begin_ns(self) -> int:
        """When the first task started."""
        return int(self.start_ns.min(initial=np.iinfo(np.int64).max)) if len(self.start_ns) else 0

    @property
    def span_ns(self) -> int:
        """From the first start to the last end, at least 1."""
        return max(1, int(self.end_ns.max(initial=0)) - self.begin_ns)


def timeline_drawing(run: Timeline) -> Drawing:
    """Return the timeline of a run.

    Its size does not grow with the number of tasks. A task of 4 pixels or more is a bar of its own; shorter
    tasks of one lane that are less than half a pixel apart share a bar.
    """
    workers, dispatchers = np.unique(run.worker).tolist(), np.unique(run.walks[:, 0]).tolist()
    bottom = _TOP + (len(workers) + len(dispatchers)) * (_LANE + _GAP)
    shapes: list[Shape] = _heading(run, len(workers))
    names = [*(f"worker {lane}" for lane in workers), *(f"dispatcher {lane}" for lane in dispatchers)]
    for row, name in enumerate(names):
        shapes += _lane(_TOP + row * (_LANE + _GAP), name)
    shapes += _axis(bottom, run.span_ns)
    for row, lane in enumerate(workers):
        for rank, index in enumerate(run.shown):
            rows = (run.worker == lane) & (run.kernel == index)
            y = _TOP + row * (_LANE + _GAP)
            name, colour = run.kernels[index], colour_of(rank)
            shapes += _bars(run, y, run.start_ns[rows], run.end_ns[rows], name, colour)
    for row, lane in enumerate(dispatchers, len(workers)):
        shapes += _dispatcher(run, _TOP + row * (_LANE + _GAP), lane)
    stops = np.unique(run.stalls[:, 1]).tolist()
    entries = [(run.kernels[index], colour_of(rank)) for rank, index in enumerate(run.shown)]
    entries += [(_stopped_by(index), _STALL_COLOURS[index]) for index in stops]
    key, key_height = legend(entries, _LEFT, bottom + 32, _WIDTH)
    return Drawing(_LEFT + _WIDTH + 30, bottom + 32 + key_height + 8, [*shapes, *key])


def _heading(run: Timeline, num_workers: int) -> list[Shape]:
    busy = int((run.end_ns - run.start_ns).sum()) / (run.span_ns * max(1, num_workers))
    tasks = f"{len(run.kernel):,} task{'' if len(run.kernel) == 1 else 's'}"
    on = f"{num_workers} worker{'' if num_workers == 1 else 's'}"
    title = f"{tasks} on {on} in {duration_text(run.span_ns)}"
    return [
        Text(_LEFT, 26, title, 16, is_bold=True),
        Text(_LEFT, 46, f"workers busy {busy:.0%} of the time", 12, PALE),
    ]


def _lane(y: float, name: str) -> list[Shape]:
    label = Text(_LEFT - 10, y + _LANE / 2 + 4, name, anchor="end")
    return [label, Box(_LEFT, y, _WIDTH, _LANE, _EMPTY)]


def _bars(run: Timeline, y: float, start: np.ndarray, end: np.ndarray, name: str, colour: str) -> list[Shape]:
    """Return the bars of some tasks of one lane."""
    if not len(start):
        return []
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    pixel_ns = run.span_ns / _WIDTH
    is_wide = end - start >= _WIDE * pixel_ns
    first = np.flatnonzero(np.r_[True, (start[1:] - end[:-1] > pixel_ns / 2) | is_wide[1:] | is_wide[:-1]])
    counts = np.diff(np.r_[first, len(start)])
    shapes: list[Shape] = []
    for group, count in zip(first.tolist(), counts.tolist(), strict=True):
        begin, stop = int(start[group]), int(end[group + count - 1])
        what = f"{count:,} tasks" if count > 1 else duration_text(stop - begin)
        x = _x(run, begin)
        width = max(_x(run, stop) - x, 0.6)
        stroke = "#ffffff" if width > 3 else ""
        shapes.append(Box(x, y + 3, width, _LANE - 6, colour, stroke, title=f"{name}: {what}"))
        if count == 1 and width > text_width(name, 10) + 8:
            shapes.append(Text(x + width / 2, y + _LANE / 2 + 3.5, name, 10, "#ffffff", "middle"))
    return shapes


def _stopped_by(index: int) -> str:
    return f"stopped by {STALLS[index]}"


def _dispatcher(run: Timeline, y: float, lane: int) -> list[Shape]:
    """Return what one dispatcher did: a mark where tasks had been made, a bar where something stopped it."""
    shapes: list[Shape] = []
    for index in range(len(STALLS)):
        rows = run.stalls[(run.stalls[:, 0] == lane) & (run.stalls[:, 1] == index)]
        shapes += _bars(run, y, rows[:, 2], rows[:, 3], _stopped_by(index), _STALL_COLOURS[index])
    walks = run.walks[run.walks[:, 0] == lane]
    # One mark per pixel is all that can be seen.
    pixels = np.unique(np.clip((walks[:, 3] - run.begin_ns) * int(_WIDTH) // run.span_ns, 0, int(_WIDTH)))
    for pixel in pixels.tolist():
        shapes.append(Line(_LEFT + pixel, y + 5, _LEFT + pixel, y + _LANE - 5, "#1f2430", 0.7))
    return shapes


def _x(run: Timeline, time: int) -> float:
    return _LEFT + min(max((time - run.begin_ns) / run.span_ns, 0.0), 1.0) * _WIDTH


def _axis(y: float, span: int) -> list[Shape]:
    shapes: list[Shape] = []
    for time in range(0, span + 1, _round_step(span / 8)):
        x = _LEFT + _WIDTH * time / span
        shapes.append(Line(x, _TOP - 4, x, y, GRID, 0.6))
        shapes.append(Text(x, y + 14, duration_text(time), 11, PALE, "middle" if time else "start"))
    return shapes


def _round_step(at_least: float) -> int:
    """Return the smallest 1, 2 or 5 times a power of ten that is not below `at_least`."""
    power = 1
    while power * 10 <= at_least:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= at_least)


def duration_text(ns: int) -> str:
    """Return a time as `830 ns`, `1.25 us`, `3.1 ms`, `2 s`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns} ns"
