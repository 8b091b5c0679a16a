"""The picture of a run: a lane per worker and dispatcher, time from left to right, a colour per kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.support.record import record
from pto_wsp.visualize.calls import CallSite
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

_WIDTH, _LANE, _GAP, _LEFT, _TOP, _RIGHT = 960.0, 30.0, 8.0, 110.0, 62.0, 120.0
_WIDE = 4.0  # pixels from which a task is a bar of its own
_EMPTY = "#f0f1f4"
_WALKS, _WAITS = "#e3b04b", "#d3d8e0"
_WALKING, _WAITING = "expands tasks, finds dependences", "waits"
_STALL_COLOURS = ("#d9a441", "#b9a7d6", "#c76b7c", "#8fb7c4")

REASONS = ("read after write", "write after read", "write after write", "after=")
"""Why a task depends on another one."""

STALLS = ("window", "slice", "flush", "pool")
"""What stops a dispatcher: no room for a record, too many slices, a value that tasks write, another pool."""

NO_STRETCHES = np.empty((0, 3), np.int64)
NO_CALLS = np.empty(0, np.int64)


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
        dependences: rows of a task, one that depended on it, the index of the reason in `REASONS`, and the
            index of the tensor in `tensors`, or -1.
        walks: rows of a dispatcher, the first of some tasks that it made, how many, and when it had.
        stalls: rows of a dispatcher, the index of what stopped it in `STALLS`, start and end.
        about: what else is known of the run, by name.
        num_workers: how many could run tasks; 0 where that is not known.
        stretches: rows of a worker, and start and end of a time in which it expanded tasks, found
            dependences or took tasks. Tasks that it ran meanwhile lie inside. Empty where not recorded.
        tensors: names of the tensors.
        calls: the places of the program that made the tasks, or nothing.
        call: index into `calls`, or nothing.
        lanes: names of the lanes of workers if these are not threads: cores of a simulated device.
        second: index of another lane that each task takes too, or -1; nothing means no task does.
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
    num_workers: int = 0
    stretches: np.ndarray = NO_STRETCHES
    tensors: Sequence[str] = ()
    calls: Sequence[CallSite] = ()
    call: np.ndarray = NO_CALLS
    lanes: Sequence[str] = ()
    second: np.ndarray = NO_CALLS

    @property
    def shown(self) -> list[int]:
        """Indices of the kernels that ran, in the order of their first tasks."""
        kernels, first = np.unique(self.kernel, return_index=True)
        return kernels[np.argsort(first)].tolist()

    @property
    def workers(self) -> range:
        """Indices of the workers, those that ran no task among them."""
        return range(max(self.num_workers, int(self.worker.max(initial=-1)) + 1))

    @property
    def drawn(self) -> Sequence[int]:
        """The workers that have a lane in pictures: of a simulated device, the cores that ran tasks."""
        return [lane for lane in self.workers if len(self.tasks_of(lane))] if self.lanes else self.workers

    def lane_name(self, worker: int) -> str:
        """Return what the lane of a worker is called."""
        return self.lanes[worker] if self.lanes else f"worker {worker}"

    @property
    def noun(self) -> str:
        """What workers are called."""
        return "core" if self.lanes else "worker"

    def tasks_of(self, worker: int) -> np.ndarray:
        """Return the numbers of the tasks of a worker."""
        is_own = self.worker == worker
        return np.flatnonzero(is_own | (self.second == worker) if len(self.second) else is_own)

    @property
    def begin_ns(self) -> int:
        """When the first task started, or a worker began to look for it."""
        starts = np.r_[self.start_ns, self.stretches[:, 1]]
        return int(starts.min()) if len(starts) else 0

    @property
    def span_ns(self) -> int:
        """From the begin to the last end, at least 1."""
        ends = np.r_[self.end_ns, self.stretches[:, 2], 0]
        return max(1, int(ends.max()) - self.begin_ns)

    def busy_of(self, worker: int) -> np.ndarray:
        """Return [n, 2]: start and end of each task of a worker, in order."""
        rows = self.tasks_of(worker)
        rows = rows[np.argsort(self.start_ns[rows], kind="stable")]
        return np.stack([self.start_ns[rows], self.end_ns[rows]], axis=1)

    def walking_of(self, worker: int) -> np.ndarray:
        """Return [n, 2]: when a worker expanded tasks or found dependences, and ran none."""
        stretches = self.stretches[self.stretches[:, 0] == worker, 1:]
        return _without(stretches, self.busy_of(worker))

    def waiting_of(self, worker: int) -> np.ndarray:
        """Return [n, 2]: when a worker had nothing to do; without records of stretches, no task."""
        all_of_it = np.array([[self.begin_ns, self.begin_ns + self.span_ns]])
        stretches = self.stretches[self.stretches[:, 0] == worker, 1:]
        return _without(_without(all_of_it, stretches), self.busy_of(worker))


def _without(spans: np.ndarray, holes: np.ndarray) -> np.ndarray:
    """Return what is left of ordered spans outside ordered holes."""
    if not len(spans) or not len(holes):
        return spans
    edges = np.concatenate([spans, holes])
    moments = np.r_[edges[:, 0], edges[:, 1]]
    is_span = np.r_[np.ones(len(spans), np.int64), np.zeros(len(holes), np.int64)]
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    inside = np.cumsum(np.r_[is_span, -is_span][order])
    covered = np.cumsum(np.r_[1 - is_span, is_span - 1][order])
    kept = np.flatnonzero((inside[:-1] > 0) & (covered[:-1] == 0) & (moments[1:] > moments[:-1]))
    found = np.stack([moments[kept], moments[kept + 1]], axis=1)
    if not len(found):
        return found
    begins = np.r_[True, found[1:, 0] != found[:-1, 1]]
    return np.stack([found[begins, 0], found[np.r_[begins[1:], True], 1]], axis=1)


def total_ns(spans: np.ndarray) -> int:
    """Return the length of spans [n, 2] together."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def timeline_drawing(run: Timeline) -> Drawing:
    """Return the timeline of a run.

    Its size does not grow with the number of tasks. A task of 4 pixels or more is a bar of its own; shorter
    tasks of one lane that are less than half a pixel apart share a bar.
    """
    workers, dispatchers = run.drawn, np.unique(run.walks[:, 0]).tolist()
    bottom = _TOP + (len(workers) + len(dispatchers)) * (_LANE + _GAP)
    shapes: list[Shape] = _heading(run)
    names = [*map(run.lane_name, workers), *(f"dispatcher {lane}" for lane in dispatchers)]
    for row, name in enumerate(names):
        shapes += _lane(_TOP + row * (_LANE + _GAP), name)
    shapes += _axis(bottom, run.span_ns)
    for row, lane in enumerate(workers):
        shapes += _worker(run, _TOP + row * (_LANE + _GAP), lane)
    for row, lane in enumerate(dispatchers, len(workers)):
        shapes += _dispatcher(run, _TOP + row * (_LANE + _GAP), lane)
    key, key_height = legend(_entries(run), _LEFT, bottom + 32, _WIDTH)
    return Drawing(_LEFT + _WIDTH + _RIGHT, bottom + 32 + key_height + 8, [*shapes, *key])


def _entries(run: Timeline) -> list[tuple[str, str]]:
    entries = [(run.kernels[index], colour_of(rank)) for rank, index in enumerate(run.shown)]
    entries += [(_WALKING, _WALKS), (_WAITING, _WAITS)] if len(run.stretches) else []
    stops = np.unique(run.stalls[:, 1]).tolist()
    return [*entries, *((_stopped_by(index), _STALL_COLOURS[index]) for index in stops)]


def _heading(run: Timeline) -> list[Shape]:
    num_workers = len(run.workers)
    busy = sum(total_ns(run.busy_of(lane)) for lane in run.workers) / (run.span_ns * max(1, num_workers))
    tasks = f"{len(run.kernel):,} task{'' if len(run.kernel) == 1 else 's'}"
    on = f"{num_workers} {run.noun}{'' if num_workers == 1 else 's'}"
    on += f" of {run.about['device']}" if "device" in run.about else ""
    title = f"{tasks} on {on} in {duration_text(run.span_ns)}"
    return [
        Text(_LEFT, 26, title, 16, is_bold=True),
        Text(_LEFT, 46, f"{run.noun}s busy {busy:.0%} of the time", 12, PALE),
    ]


def _lane(y: float, name: str) -> list[Shape]:
    label = Text(_LEFT - 10, y + _LANE / 2 + 4, name, anchor="end")
    return [label, Box(_LEFT, y, _WIDTH, _LANE, _EMPTY)]


def _worker(run: Timeline, y: float, lane: int) -> list[Shape]:
    """Return what a worker did, and the shares of its time."""
    shapes: list[Shape] = []
    if len(run.stretches):
        for name, spans, colour in (
            (_WAITING, run.waiting_of(lane), _WAITS),
            (_WALKING, run.walking_of(lane), _WALKS),
        ):
            shapes += _bars(run, y, spans, name, colour, is_task=False)
    for rank, index in enumerate(run.shown):
        rows = run.tasks_of(lane)
        rows = rows[run.kernel[rows] == index]
        spans = np.stack([run.start_ns[rows], run.end_ns[rows]], axis=1)
        shapes += _bars(run, y, spans, run.kernels[index], colour_of(rank))
    busy = total_ns(run.busy_of(lane)) / run.span_ns
    x = _LEFT + _WIDTH + 8
    if not len(run.stretches):
        return [*shapes, Text(x, y + _LANE / 2 + 4, f"{busy:.0%} busy", 10.5, PALE)]
    walks, waits = (total_ns(spans) / run.span_ns for spans in (run.walking_of(lane), run.waiting_of(lane)))
    return [
        *shapes,
        Text(x, y + 13, f"{busy:.0%} busy, {waits:.0%} waits", 10.5, PALE),
        Text(x, y + 26, f"{walks:.0%} expands", 10.5, PALE),
    ]


def _bars(
    run: Timeline, y: float, spans: np.ndarray, name: str, colour: str, is_task: bool = True
) -> list[Shape]:
    """Return the bars of some tasks, or other times, of one lane."""
    if not len(spans):
        return []
    order = np.argsort(spans[:, 0], kind="stable")
    start, end = spans[order, 0], np.maximum.accumulate(spans[order, 1])
    pixel_ns = run.span_ns / _WIDTH
    is_wide = end - start >= _WIDE * pixel_ns
    first = np.flatnonzero(np.r_[True, (start[1:] - end[:-1] > pixel_ns / 2) | is_wide[1:] | is_wide[:-1]])
    counts = np.diff(np.r_[first, len(start)])
    shapes: list[Shape] = []
    for group, count in zip(first.tolist(), counts.tolist(), strict=True):
        begin, stop = int(start[group]), int(end[group + count - 1])
        what = f"{count:,} tasks" if count > 1 and is_task else duration_text(stop - begin)
        x = _x(run, begin)
        width = max(_x(run, stop) - x, 0.6)
        stroke = "#ffffff" if width > 3 and is_task else ""
        shapes.append(Box(x, y + 3, width, _LANE - 6, colour, stroke, title=f"{name}: {what}"))
        if is_task and count == 1 and width > text_width(name, 10) + 8:
            shapes.append(Text(x + width / 2, y + _LANE / 2 + 3.5, name, 10, "#ffffff", "middle"))
    return shapes


def _stopped_by(index: int) -> str:
    return f"stopped by {STALLS[index]}"


def _dispatcher(run: Timeline, y: float, lane: int) -> list[Shape]:
    """Return what one dispatcher did: a mark where tasks had been made, a bar where something stopped it."""
    shapes: list[Shape] = []
    for index in range(len(STALLS)):
        rows = run.stalls[(run.stalls[:, 0] == lane) & (run.stalls[:, 1] == index)]
        shapes += _bars(run, y, rows[:, 2:], _stopped_by(index), _STALL_COLOURS[index], is_task=False)
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
