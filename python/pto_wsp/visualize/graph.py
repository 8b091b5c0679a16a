"""The picture of a task graph: a column per level, each task right of all that it waits for.

A graph with more tasks than can be looked at is drawn by groups: see `grouped`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.support.record import record
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.drawing import (
    PALE,
    Arrow,
    Box,
    Drawing,
    Shape,
    Text,
    colour_of,
    legend,
    text_width,
)
from pto_wsp.visualize.grouped import DATA, DECISION, Grouped, grouped_drawing

MOST_BOXES = 300
"""A graph with more tasks is drawn by groups."""

_MARGIN, _ROW_GAP, _COLUMN_GAP, _PADDING = 24.0, 12.0, 64.0, 10.0
_LABEL_SIZE, _NOTE_SIZE = 12.0, 10.5


@record
class Graph:
    """Tasks in program order and what they wait for.

    Attributes:
        names: of the kernel of each task.
        labels: of each task.
        buffer_bytes: of each task's kernel, 0 or less if it is not known; may also be empty.
        edges: [n, 2] task numbers: the second waits for the first, for its data or because a user said so.
        decisions: [m, 2]: the first decides whether the second exists, or on what it works.
        calls: the places of the program that made the tasks, in program order, or nothing.
        call: of each task, its index in `calls`.
    """

    names: Sequence[str]
    labels: Sequence[str]
    buffer_bytes: Sequence[int]
    edges: np.ndarray
    decisions: np.ndarray
    calls: Sequence[CallSite] = ()
    call: np.ndarray = np.empty(0, np.int64)


@record
class _Node:
    """The box of a task."""

    column: int
    kernel: str
    label: str
    note: str
    title: str


@record
class _Picture:
    kernels: Sequence[str]
    nodes: Sequence[_Node]
    headings: Sequence[str]
    arrows: Sequence[tuple[int, int, bool]]  # from, to, whether a decision
    title: str


def graph_drawing(graph: Graph, most_boxes: int = MOST_BOXES) -> Drawing:
    """Return the picture of a graph.

    Args:
        graph: the tasks.
        most_boxes: with more tasks than this, they are drawn by groups.
    """
    edges = np.concatenate([_pairs(graph.edges), _pairs(graph.decisions)])
    levels = levels_of(len(graph.names), edges)
    return _grouped(graph, levels) if len(graph.names) > most_boxes else _draw(_plain(graph, levels))


def levels_of(count: int, edges: np.ndarray) -> np.ndarray:
    """Return for each task the length of the longest way to it; `edges` lead from lower to higher numbers."""
    levels = [0] * count
    order = np.argsort(edges[:, 1], kind="stable")
    for before, after in edges[order].tolist():
        levels[after] = max(levels[after], levels[before] + 1)
    return np.array(levels, np.int64)


def bytes_text(count: int) -> str:
    """Return a number of bytes as `512 B`, `288.0 KB`, `1.5 MB`."""
    if count < 1024:
        return f"{count} B"
    for unit, size in (("KB", 2**10), ("MB", 2**20), ("GB", 2**30)):
        if count < 1024 * size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 2**40:.1f} TB"


def _pairs(edges: np.ndarray) -> np.ndarray:
    return np.asarray(edges, np.int64).reshape(-1, 2)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _title(graph: Graph, num_levels: int) -> str:
    parts = [_counted(len(graph.names), "task"), _counted(len(graph.edges), "edge")]
    parts += [f"{_counted(len(graph.decisions), 'decision')} (dashed)"] if len(graph.decisions) else []
    return ", ".join([*parts, _counted(num_levels, "level")])


def _plain(graph: Graph, levels: np.ndarray) -> _Picture:
    """Return a picture with a box for each task."""
    sizes = graph.buffer_bytes or [-1] * len(graph.names)
    nodes = []
    for number, (name, label, size) in enumerate(zip(graph.names, graph.labels, sizes, strict=True)):
        note = bytes_text(size) if size > 0 else ""
        nodes.append(_Node(int(levels[number]), name, label, note, f"task {number}: {label}"))
    arrows = [(a, b, False) for a, b in _pairs(graph.edges).tolist()]
    arrows += [(a, b, True) for a, b in _pairs(graph.decisions).tolist()]
    count = int(levels.max(initial=-1)) + 1
    headings = [f"level {level}" for level in range(count)]
    return _Picture(_kernels(graph), nodes, headings, arrows, _title(graph, count))


def _grouped(graph: Graph, levels: np.ndarray) -> Drawing:
    """Return a picture with a box for the tasks of each call; where calls are not known, of each kernel."""
    kernels = _kernels(graph)
    calls = graph.calls or [CallSite(name) for name in kernels]
    call = graph.call
    if not graph.calls:
        index = {name: i for i, name in enumerate(kernels)}
        call = np.fromiter((index[name] for name in graph.names), np.int64, len(graph.names))
    shown, group, counts = np.unique(call, return_inverse=True, return_counts=True)
    sizes = np.asarray(graph.buffer_bytes if len(graph.buffer_bytes) else [-1] * len(graph.names))
    notes = []
    for i, count in enumerate(counts.tolist()):
        largest = int(sizes[group == i].max())
        notes.append(f"×{count:,}" + (f", {bytes_text(largest)} each" if largest > 0 else ""))
    groups = Grouped(
        [calls[i] for i in shown.tolist()],
        kernels,
        notes,
        _bundles(group, graph.edges),
        _bundles(group, graph.decisions),
    )
    return grouped_drawing(groups, _title(graph, int(levels.max()) + 1) + ", by call")


def _bundles(group: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return [n, 3]: a group, one that depends on it, and how many edges lead from one to the other."""
    pairs, counts = np.unique(group[_pairs(edges)].reshape(-1, 2), axis=0, return_counts=True)
    return np.column_stack([pairs, counts])


def _kernels(graph: Graph) -> list[str]:
    """Return the kernels in the order of their first tasks, which their colours go by."""
    return list(dict.fromkeys(graph.names))


# Layout


def _draw(picture: _Picture) -> Drawing:
    columns = _ordered(picture)
    has_notes = any(node.note for node in picture.nodes)
    height = 38.0 if has_notes else 24.0
    widths = [max(map(_width, (picture.nodes[i] for i in column)), default=40.0) for column in columns]
    total = max(2 * _MARGIN + sum(widths) + _COLUMN_GAP * max(len(columns) - 1, 0), 520.0)
    entries = [(name, colour_of(index)) for index, name in enumerate(picture.kernels)]
    key, key_height = legend(entries, _MARGIN, 40, total - 2 * _MARGIN)
    top = 40 + key_height + 30
    rows = max(map(len, columns), default=0)
    bottom = top + rows * (height + _ROW_GAP)
    places = _places(columns, widths, height, top, bottom)
    shapes: list[Shape] = [Text(_MARGIN, 25, picture.title, 15, is_bold=True), *key]
    for heading, column, width in zip(picture.headings, columns, widths, strict=True):
        left = places[column[0]][0]
        shapes.append(Text(left + width / 2, top - 10, heading, 10, PALE, "middle"))
    shapes += _arrows(picture, places, height)
    for node, (x, y, width) in zip(picture.nodes, places, strict=True):
        shapes += _box(node, x, y, width, height, colour_of(picture.kernels.index(node.kernel)))
    return Drawing(total, bottom + _MARGIN - _ROW_GAP, shapes)


def _width(node: _Node) -> float:
    widest = max(text_width(node.label, _LABEL_SIZE), text_width(node.note, _NOTE_SIZE))
    return widest + 2 * _PADDING


def _ordered(picture: _Picture) -> list[list[int]]:
    """Return the boxes of each column, in the order of the middle of what they are connected with.

    Columns are gone over from left to right and back, which takes most crossings out.
    """
    columns: list[list[int]] = [[] for _ in picture.headings]
    before: list[list[int]] = [[] for _ in picture.nodes]
    after: list[list[int]] = [[] for _ in picture.nodes]
    for i, node in enumerate(picture.nodes):
        columns[node.column].append(i)
    for a, b, _ in picture.arrows:
        before[b].append(a)
        after[a].append(b)
    height = [0.0] * len(picture.nodes)
    for column in columns:
        _spread(column, height)
    for sweep, near in ((columns, before), (columns[::-1], after), (columns, before)):
        for column in sweep:
            middle = {i: _mean([height[j] for j in near[i]], height[i]) for i in column}
            column.sort(key=middle.__getitem__)
            _spread(column, height)
    return columns


def _spread(column: Sequence[int], height: list[float]) -> None:
    for row, i in enumerate(column):
        height[i] = (row + 0.5) / len(column)


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _places(
    columns: Sequence[Sequence[int]], widths: Sequence[float], height: float, top: float, bottom: float
) -> list[tuple[float, float, float]]:
    """Return left, top and width of each box; columns are centred."""
    places = [(0.0, 0.0, 0.0)] * sum(map(len, columns))
    x = _MARGIN
    for column, width in zip(columns, widths, strict=True):
        y = (top + bottom - len(column) * (height + _ROW_GAP)) / 2
        for row, i in enumerate(column):
            places[i] = (x, y + row * (height + _ROW_GAP), width)
        x += width + _COLUMN_GAP
    return places


def _arrows(picture: _Picture, places: Sequence[tuple[float, float, float]], height: float) -> list[Shape]:
    shapes: list[Shape] = []
    for a, b, is_decision in picture.arrows:
        x0, y0 = places[a][0] + places[a][2], places[a][1] + height / 2
        x1, y1 = places[b][0] - 1, places[b][1] + height / 2
        colour = DECISION if is_decision else DATA
        shapes.append(Arrow(x0, y0, x1, y1, colour, is_dashed=is_decision))
    return shapes


def _box(node: _Node, x: float, y: float, width: float, height: float, colour: str) -> list[Shape]:
    shapes: list[Shape] = [Box(x, y, width, height, colour, radius=5, title=node.title)]
    middle = x + width / 2
    if not node.note:
        return [*shapes, Text(middle, y + height / 2 + 4, node.label, _LABEL_SIZE, "#ffffff", "middle")]
    shapes.append(Text(middle, y + 16, node.label, _LABEL_SIZE, "#ffffff", "middle"))
    return [*shapes, Text(middle, y + 30, node.note, _NOTE_SIZE, "#eef1f6", "middle")]
