"""The picture of a large task graph: a box per call, a frame per loop nest, arrows between and inside them.

Frames follow each other from top to bottom in program order. Arrows inside a frame lead to the right, arrows
to later frames lead down, on the right side past the frames between. Arrows back, to a later iteration of a
loop around both, are below the boxes of a frame, or on the left side of the frames. A box whose tasks depend
on each other has an arrow to itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.support.record import record
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.drawing import (
    GRID,
    PALE,
    PAPER,
    Arrow,
    Box,
    Drawing,
    Point,
    Shape,
    Text,
    colour_of,
    legend,
    text_width,
)

_MARGIN, _BOX, _GAP, _COLUMN_GAP, _PADDING = 24.0, 40.0, 14.0, 84.0, 12.0
_HEAD, _FOOT, _BETWEEN, _SIDE, _OVER = 32.0, 14.0, 34.0, 40.0, 14.0
_FRAME = "#f5f6f9"
DATA, DECISION = "#98a1b0", "#b5495b"


@record
class Grouped:
    """What a picture of groups shows.

    Attributes:
        calls: the groups, in program order.
        kernels: all kernels, in the order of their colours.
        notes: of each group, the line below its name.
        edges: rows of a group, one that depends on it, and how many edges the arrow represents.
        decisions: the same for decisions.
    """

    calls: Sequence[CallSite]
    kernels: Sequence[str]
    notes: Sequence[str]
    edges: np.ndarray
    decisions: np.ndarray


@record
class _Place:
    x: float
    y: float
    width: float
    frame: int

    @property
    def middle(self) -> Point:
        return self.x + self.width / 2, self.y + _BOX / 2


def grouped_drawing(groups: Grouped, title: str) -> Drawing:
    """Return the picture."""
    frames = _frames(groups.calls)
    entries = [(name, colour_of(index)) for index, name in enumerate(groups.kernels)]
    key, key_height = legend(entries, _MARGIN, 40, 560)
    places, boxes, bottom = _layout(groups, frames, 40 + key_height + 22)
    left = _MARGIN + _left_side(groups, places)
    labels = max(text_width(call.around, 11.5) for call in groups.calls)
    has_self = {a for a, b, _ in groups.edges.tolist() if a == b}
    rights = (place.x + place.width + (30.0 if i in has_self else 0.0) for i, place in enumerate(places))
    right = max(left + _PADDING + labels, *rights) + _PADDING
    shapes: list[Shape] = [Text(_MARGIN, 25, title, 15, is_bold=True), *key]
    for y, height in boxes:
        shapes.append(Box(left, y, right - left, height, _FRAME, GRID, radius=8))
    for edges, is_decision in ((groups.edges, False), (groups.decisions, True)):
        for number, (a, b, count) in enumerate(edges.tolist()):
            # Arrows next to the frames are some way apart, so that their numbers can be read.
            out = _SIDE + 18.0 * (number % 4)
            shapes += _arrow(places, a, b, count, is_decision, (left - out, right + out))
    for (y, _), frame in zip(boxes, frames, strict=True):
        label = groups.calls[frame[0]].around
        shapes.append(Box(left + _PADDING - 2, y + 8, 0.92 * text_width(label, 11.5), 15, _FRAME))
        shapes.append(Text(left + _PADDING, y + 19, label, 11.5, PALE))
    for i, place in enumerate(places):
        shapes += _group(groups, i, place)
    numbers = (shape.x + shape.width for shape in shapes if isinstance(shape, Box))
    width = max(*numbers, _MARGIN + text_width(title, 15)) + _MARGIN
    return Drawing(width, bottom + _MARGIN, shapes)


def _frames(calls: Sequence[CallSite]) -> list[list[int]]:
    """Return the groups of each frame: those that follow each other inside the same loops."""
    frames: list[list[int]] = []
    for i, call in enumerate(calls):
        if frames and _nest(calls[frames[-1][0]]) == _nest(call):
            frames[-1].append(i)
        else:
            frames.append([i])
    return frames


def _nest(call: CallSite) -> tuple[tuple[str, ...], str]:
    return call.loops, call.nest


def _layout(
    groups: Grouped, frames: Sequence[Sequence[int]], top: float
) -> tuple[list[_Place], list[tuple[float, float]], float]:
    """Return where boxes are, top and height of each frame, and where the last one ends."""
    places: dict[int, _Place] = {}
    bounds: list[tuple[float, float]] = []
    left = _MARGIN + _PADDING
    for number, frame in enumerate(frames):
        rows: dict[int, int] = {}
        columns = _columns(groups, frame)
        widths: dict[int, float] = {}
        head = _HEAD + (_OVER if any(a == b and a in frame for a, b, _ in groups.edges.tolist()) else 0.0)
        for i in frame:
            widths[columns[i]] = max(widths.get(columns[i], 0.0), _width(groups, i))
        for i in frame:
            row = rows.setdefault(columns[i], 0)
            rows[columns[i]] += 1
            x = left + sum(widths[c] + _COLUMN_GAP for c in range(columns[i]))
            places[i] = _Place(x, top + head + row * (_BOX + _GAP), widths[columns[i]], number)
        height = head + max(rows.values()) * (_BOX + _GAP) - _GAP + _foot(groups, frame)
        bounds.append((top, height))
        top += height + _BETWEEN
    shift = _left_side(groups, [places[i] for i in range(len(places))])
    moved = [_Place(p.x + shift, p.y, p.width, p.frame) for _, p in sorted(places.items())]
    return moved, bounds, top - _BETWEEN


def _foot(groups: Grouped, frame: Sequence[int]) -> float:
    """Return the room below the boxes of a frame, where arrows lead back."""
    edges = (*groups.edges.tolist(), *groups.decisions.tolist())
    return 3 * _FOOT if any(a in frame and b in frame and b < a for a, b, _ in edges) else _FOOT


def _columns(groups: Grouped, frame: Sequence[int]) -> dict[int, int]:
    """Return the column of each box: right of those that it depends on, as far as arrows lead forward."""
    column = dict.fromkeys(frame, 0)
    for a, b, _ in sorted((*groups.edges.tolist(), *groups.decisions.tolist()), key=lambda edge: edge[1]):
        if a in column and b in column and a < b:
            column[b] = max(column[b], column[a] + 1)
    return column


def _left_side(groups: Grouped, places: Sequence[_Place]) -> float:
    """Return the room that arrows back need left of the frames."""
    edges = (*groups.edges.tolist(), *groups.decisions.tolist())
    return 3 * _SIDE if any(places[b].frame < places[a].frame for a, b, _ in edges) else 0.0


def _width(groups: Grouped, i: int) -> float:
    return max(text_width(groups.calls[i].kernel), text_width(groups.notes[i], 10.5)) + 2 * _PADDING


def _group(groups: Grouped, i: int, place: _Place) -> list[Shape]:
    call, note = groups.calls[i], groups.notes[i]
    title = f"{call.kernel} {note}" + (f", {call.location}" if call.location else "")
    colour = colour_of(list(groups.kernels).index(call.kernel))
    x = place.middle[0]
    return [
        Box(place.x, place.y, place.width, _BOX, colour, radius=5, title=title),
        Text(x, place.y + 17, call.kernel, 12, "#ffffff", "middle"),
        Text(x, place.y + 32, note, 10.5, "#eef1f6", "middle"),
    ]


def _arrow(
    places: Sequence[_Place], a: int, b: int, count: int, is_decision: bool, sides: tuple[float, float]
) -> list[Shape]:
    """Return an arrow, with the number of edges that it represents."""
    start, turns, end, label = _route(places[a], places[b], a < b, sides)
    colour = DECISION if is_decision else DATA
    width = 1.0 + 0.5 * float(np.log10(count))
    title = f"{count:,} {'decision' if is_decision else 'edge'}{'' if count == 1 else 's'}"
    text = f"{count:,}"
    half = text_width(text, 10) / 2 + 3
    return [
        Arrow(*start, *end, colour, width, is_decision, title, turns),
        Box(label[0] - half, label[1] - 7, 2 * half, 14, PAPER, radius=3),
        Text(label[0], label[1] + 3.5, text, 10, PALE, "middle"),
    ]


def _route(
    a: _Place, b: _Place, is_forward: bool, sides: tuple[float, float]
) -> tuple[Point, tuple[Point, Point] | None, Point, Point]:
    """Return where an arrow starts, turns and ends, and where its number is."""
    (ax, ay), (bx, by) = a.middle, b.middle
    if a == b:  # over the upper right corner
        x, y = a.x + a.width, a.y
        return (x - 26, y), ((x - 22, y - 26), (x + 34, y + 2)), (x + 1, y + 16), (x + 20, y - 3)
    distance = b.frame - a.frame
    if distance == 0 and is_forward:
        start, end = (a.x + a.width, ay), (b.x - 1, by)
        return start, None, end, ((start[0] + end[0]) / 2, (ay + by) / 2)
    if distance == 0:
        start, end = (ax, a.y + _BOX), (bx, b.y + _BOX + 1)
        low = max(start[1], end[1]) + 2 * _FOOT
        return start, ((ax, low), (bx, low)), end, ((ax + bx) / 2, low - _FOOT / 2)
    if distance == 1:
        start, end = (ax, a.y + _BOX), (bx, b.y - 1)
        bend = (end[1] - start[1]) / 2
        turns = ((ax, start[1] + bend), (bx, end[1] - bend))
        return start, turns, end, ((ax + bx) / 2, (start[1] + end[1]) / 2)
    if distance > 1:
        start, end, x = (a.x + a.width, ay + 6), (b.x + b.width + 1, by - 6), sides[1]
    else:
        start, end, x = (a.x, ay + 6), (b.x - 1, by - 6), sides[0]
    # A cubic whose control points share an x reaches three quarters of the way there.
    middle = (start[0] + end[0]) / 8 + 0.75 * x, (start[1] + end[1]) / 2
    return start, ((x, start[1]), (x, end[1])), end, middle
