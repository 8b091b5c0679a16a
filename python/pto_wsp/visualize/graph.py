"""The picture of a task graph: a column per level, each task right of all that it waits for.

A graph with more tasks than can be looked at is drawn by groups: the tasks of one kernel on one level, or,
with more levels than columns, on some levels that follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.support.record import record
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

MOST_BOXES, MOST_COLUMNS = 300, 8
"""A graph with more tasks is drawn by groups; groups have at most this number of columns."""

_MARGIN, _ROW_GAP, _COLUMN_GAP, _PADDING = 24.0, 12.0, 64.0, 10.0
_LABEL_SIZE, _NOTE_SIZE = 12.0, 10.5
_DATA, _DECISION = "#98a1b0", "#b5495b"


@record
class Graph:
    """Tasks in program order and what they wait for.

    Attributes:
        names: of the kernel of each task.
        labels: of each task.
        buffer_bytes: of each task's kernel, 0 or less if it is not known; may also be empty.
        edges: [n, 2] task numbers: the second waits for the first, for its data or because a user said so.
        decisions: [m, 2]: the first decides whether the second exists, or on what it works.
    """

    names: Sequence[str]
    labels: Sequence[str]
    buffer_bytes: Sequence[int]
    edges: np.ndarray
    decisions: np.ndarray


@record
class _Node:
    """A box: of one task, or of a group."""

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
    arrows: Sequence[tuple[int, int, int, bool]]  # from, to, how many, whether a decision
    title: str
    is_ordered: bool  # boxes of a column stay in the order that they have


def graph_drawing(graph: Graph, most_boxes: int = MOST_BOXES) -> Drawing:
    """Return the picture of a graph.

    Args:
        graph: the tasks.
        most_boxes: with more tasks than this, they are drawn by groups.
    """
    edges = np.concatenate([_pairs(graph.edges), _pairs(graph.decisions)])
    levels = levels_of(len(graph.names), edges)
    is_grouped = len(graph.names) > most_boxes
    return _draw(_grouped(graph, levels) if is_grouped else _plain(graph, levels))


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
    arrows = [(a, b, 1, False) for a, b in _pairs(graph.edges).tolist()]
    arrows += [(a, b, 1, True) for a, b in _pairs(graph.decisions).tolist()]
    count = int(levels.max(initial=-1)) + 1
    headings = [f"level {level}" for level in range(count)]
    return _Picture(_kernels(graph), nodes, headings, arrows, _title(graph, count), False)


def _grouped(graph: Graph, levels: np.ndarray) -> _Picture:
    """Return a picture with a box for the tasks of a kernel in a column."""
    num_levels = int(levels.max()) + 1
    per_column = -(-num_levels // MOST_COLUMNS)
    kernels = _kernels(graph)
    index = {name: i for i, name in enumerate(kernels)}
    kernel = np.fromiter((index[name] for name in graph.names), np.int64, len(graph.names))
    keys, group, counts = np.unique(
        levels // per_column * len(kernels) + kernel, return_inverse=True, return_counts=True
    )
    sizes = np.asarray(graph.buffer_bytes if len(graph.buffer_bytes) else [-1] * len(graph.names))
    arrows, inside = _bundles(graph, group, keys // len(kernels))
    nodes = []
    for i, (key, count) in enumerate(zip(keys.tolist(), counts.tolist(), strict=True)):
        largest = int(sizes[group == i].max())
        note = f"×{count:,}" + (f", {bytes_text(largest)} each" if largest > 0 else "")
        name = kernels[key % len(kernels)]
        title = f"{_counted(count, 'task')} of {name}, {_counted(inside.get(i, 0), 'edge')} inside the column"
        nodes.append(_Node(key // len(kernels), name, name, note, title))
    title = _title(graph, num_levels) + ", in groups"
    return _Picture(kernels, nodes, _headings(num_levels, per_column), arrows, title, True)


def _kernels(graph: Graph) -> list[str]:
    """Return the kernels in the order of their first tasks, which their colours go by."""
    return list(dict.fromkeys(graph.names))


def _headings(num_levels: int, per_column: int) -> list[str]:
    firsts = range(0, num_levels, per_column)
    if per_column == 1:
        return [f"level {first}" for first in firsts]
    return [f"levels {first}-{min(first + per_column, num_levels) - 1}" for first in firsts]


def _bundles(
    graph: Graph, group: np.ndarray, column: np.ndarray
) -> tuple[list[tuple[int, int, int, bool]], dict[int, int]]:
    """Return the arrows between columns, with the number of edges of each, and per group those inside."""
    arrows: list[tuple[int, int, int, bool]] = []
    inside: dict[int, int] = {}
    for edges, is_decision in ((graph.edges, False), (graph.decisions, True)):
        pairs, counts = np.unique(group[_pairs(edges)].reshape(-1, 2), axis=0, return_counts=True)
        for (a, b), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            if column[a] == column[b]:
                inside[a] = inside.get(a, 0) + count
            else:
                arrows.append((a, b, count, is_decision))
    return arrows, inside


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

    Columns are gone over from left to right and back, which takes most crossings out. Groups are in the
    order of their kernels.
    """
    columns: list[list[int]] = [[] for _ in picture.headings]
    before: list[list[int]] = [[] for _ in picture.nodes]
    after: list[list[int]] = [[] for _ in picture.nodes]
    for i, node in enumerate(picture.nodes):
        columns[node.column].append(i)
    if picture.is_ordered:
        return columns
    for a, b, _, _ in picture.arrows:
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
    for a, b, count, is_decision in picture.arrows:
        x0, y0 = places[a][0] + places[a][2], places[a][1] + height / 2
        x1, y1 = places[b][0] - 1, places[b][1] + height / 2
        width = 1.0 + 0.6 * float(np.log10(count))
        title = f"{_counted(count, 'edge')}" if count > 1 else ""
        colour = _DECISION if is_decision else _DATA
        shapes.append(Arrow(x0, y0, x1, y1, colour, width, is_decision, title))
    return shapes


def _box(node: _Node, x: float, y: float, width: float, height: float, colour: str) -> list[Shape]:
    shapes: list[Shape] = [Box(x, y, width, height, colour, radius=5, title=node.title)]
    middle = x + width / 2
    if not node.note:
        return [*shapes, Text(middle, y + height / 2 + 4, node.label, _LABEL_SIZE, "#ffffff", "middle")]
    shapes.append(Text(middle, y + 16, node.label, _LABEL_SIZE, "#ffffff", "middle"))
    return [*shapes, Text(middle, y + 30, node.note, _NOTE_SIZE, "#eef1f6", "middle")]
