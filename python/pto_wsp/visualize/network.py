"""The picture of a simulated network: its processes and channels, and the tasks of each process over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_wsp.support.record import record
from pto_wsp.visualize.drawing import (
    COLOURS,
    GRID,
    INK,
    PALE,
    PAPER,
    Arrow,
    Box,
    Drawing,
    Line,
    Shape,
    Text,
    colour_of,
    text_width,
)

LEFT, TOP, LANE, NODE, GAP = 20.0, 20.0, 26.0, 34.0, 70.0
SPAN = 900.0
"""Width of the time axis."""
MARK = COLOURS[3]
MOST_SHAPES = 2000
"""Tasks and tokens that are drawn: the first ones."""


@record
class PictureChannel:
    """A channel: its name, the processes at its sides, and the share of its buffers in use on average."""

    name: str
    senders: Sequence[str]
    receivers: Sequence[str]
    fill: float


@record
class PictureToken:
    """A token: the numbers of its processes, when it was sent, and when it was received."""

    sender: int
    receiver: int
    sent: float
    received: float


@record
class NetworkPicture:
    """What is drawn.

    Attributes:
        processes: names, in declared order.
        busy: the share of the run that each process is busy.
        channels: in declared order.
        bottleneck: the process that is marked.
        spans: tasks: number of the process, start and end.
        tokens: of all channels.
        cycles: of the run.
    """

    processes: Sequence[str]
    busy: Mapping[str, float]
    channels: Sequence[PictureChannel]
    bottleneck: str
    spans: Sequence[tuple[int, float, float]]
    tokens: Sequence[PictureToken]
    cycles: float


def network_drawing(picture: NetworkPicture) -> Drawing:
    """Return the drawing of a network: its graph, and a lane of time per process."""
    graph, width, height = _graph(picture)
    lanes, lanes_width, lanes_height = _lanes(picture, height + 20)
    return Drawing(max(width, lanes_width), lanes_height, [*graph, *lanes])


def _columns(picture: NetworkPicture) -> dict[str, int]:
    """Return the column of each process: after those that it receives from, as far as they come before it."""
    order = {name: number for number, name in enumerate(picture.processes)}
    column = dict.fromkeys(picture.processes, 0)
    for name in picture.processes:
        before = [
            column[sender] + 1
            for channel in picture.channels
            if name in channel.receivers
            for sender in channel.senders
            if order[sender] < order[name]
        ]
        column[name] = max(before, default=0)
    return column


def _graph(picture: NetworkPicture) -> tuple[list[Shape], float, float]:
    column = _columns(picture)
    width = max(text_width(f"{name} 100%") for name in picture.processes) + 24
    gap = GAP + max((text_width(c.name, 11.0) for c in picture.channels), default=0.0)
    rows: dict[int, int] = {}
    place: dict[str, tuple[float, float]] = {}
    shapes: list[Shape] = []
    for name in picture.processes:
        row = rows.get(column[name], 0)
        rows[column[name]] = row + 1
        x, y = LEFT + column[name] * (width + gap), TOP + row * (NODE + 16)
        place[name] = x, y
        is_marked = name == picture.bottleneck
        title = "the bottleneck" if is_marked else ""
        shapes.append(Box(x, y, width, NODE, MARK if is_marked else PAPER, INK, 4, title))
        text = f"{name} {picture.busy[name]:.0%}"
        shapes.append(Text(x + width / 2, y + 21, text, fill=PAPER if is_marked else INK, anchor="middle"))
    for channel in picture.channels:
        shapes += _edges(channel, place, width)
    right = LEFT + (max(column.values()) + 1) * (width + gap)
    return shapes, right, TOP + max(rows.values()) * (NODE + 16) + 12


def _edges(channel: PictureChannel, place: Mapping[str, tuple[float, float]], width: float) -> list[Shape]:
    shapes: list[Shape] = []
    title = f"{channel.name}: {channel.fill:.0%} of its buffers in use"
    for sender in channel.senders:
        for receiver in channel.receivers:
            (x0, y0), (x1, y1) = place[sender], place[receiver]
            is_back = x1 <= x0
            start, end = (x0 + width, y0 + NODE / 2), (x1, y1 + NODE / 2)
            if is_back:
                start, end = (x0 + width / 2, y0 + NODE), (x1 + width / 2, y1 + NODE)
            turns = ((start[0], start[1] + 24), (end[0], end[1] + 24)) if is_back else None
            shapes.append(
                Arrow(*start, *end, PALE, 1.0 + 2.0 * min(channel.fill, 1.0), is_back, title, turns)
            )
    if shapes:
        arrow = shapes[0]
        assert isinstance(arrow, Arrow)
        middle = (arrow.x0 + arrow.x1) / 2
        shapes.append(Text(middle, (arrow.y0 + arrow.y1) / 2 - 5, channel.name, 11.0, PALE, "middle"))
    return shapes


def _lanes(picture: NetworkPicture, top: float) -> tuple[list[Shape], float, float]:
    left = LEFT + max(text_width(name) for name in picture.processes) + 12
    spans, tokens = picture.spans[:MOST_SHAPES], picture.tokens[:MOST_SHAPES]
    is_whole = len(spans) == len(picture.spans) and len(tokens) == len(picture.tokens)
    end = picture.cycles if is_whole else max(span[2] for span in spans)
    scale = SPAN / max(end, 1.0)

    def lane(number: int) -> float:
        return top + number * LANE

    shapes: list[Shape] = []
    for number, name in enumerate(picture.processes):
        is_marked = name == picture.bottleneck
        shapes.append(Text(LEFT, lane(number) + 15, name, fill=MARK if is_marked else INK, is_bold=is_marked))
        shapes.append(Line(left, lane(number) + LANE - 3, left + SPAN, lane(number) + LANE - 3, GRID))
    for number, start, stop in spans:
        title = f"{picture.processes[number]}: {start:,.0f} to {stop:,.0f}"
        width = max((stop - start) * scale, 0.5)
        shapes.append(
            Box(left + start * scale, lane(number) + 3, width, LANE - 8, colour_of(number), title=title)
        )
    for token in tokens:
        if token.received > end:
            continue
        x0, x1 = left + token.sent * scale, left + token.received * scale
        shapes.append(Arrow(x0, lane(token.sender) + 10, x1, lane(token.receiver) + 10, PALE, 0.6))
    bottom = lane(len(picture.processes))
    what = "" if is_whole else ", the first tasks"
    shapes.append(Text(left, bottom + 16, f"0 to {end:,.0f} cycles{what}", 11.0, PALE))
    return shapes, left + SPAN + LEFT, bottom + 30
