"""The picture of a task graph: columns from left to right, each task right of all that it waits for."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.runtime.timeline import COLOURS
from pto_wsp.support.text import TextWriter

_ROW, _BOX, _GAP, _MARGIN, _TOP, _BOTTOM = 30, 22, 90, 20, 64, 40
_CHARACTER = 6.6
_MIN_WIDTH = 480.0

Edges = Sequence[tuple[int, int]]


def graph_svg(boxes: Sequence[tuple[str, str]], edges: Edges, decisions: Edges) -> str:
    """Return a task graph as SVG.

    Args:
        boxes: kernel and label of each task, in program order.
        edges: pairs (before, after) of tasks, drawn as arrows.
        decisions: pairs (before, after) of tasks, drawn dashed.
    """
    from html import escape  # here: few programs draw a graph, and all of them start

    kernels = list(dict.fromkeys(kernel for kernel, _ in boxes))
    columns = _columns(len(boxes), (*edges, *decisions))
    widths = [max(len(boxes[i][1]) for i in column) * _CHARACTER + 16 for column in columns]
    height = _TOP + _ROW * max(map(len, columns), default=1) + _BOTTOM
    width = max(_MIN_WIDTH, 2 * _MARGIN + sum(widths) + _GAP * (len(widths) - 1))
    places = _places(columns, widths, height)
    out = TextWriter()
    out.line(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}"')
    out.line('     font-family="sans-serif" font-size="12" fill="#222">')
    with out.indented():
        out.line('<rect width="100%" height="100%" fill="white"/>')
        title = f"{len(boxes):,} tasks, {len(edges):,} edges, {len(decisions):,} decisions (dashed)"
        out.line(f'<text x="{_MARGIN}" y="24" font-size="15" font-weight="bold">{title}</text>')
        _legend(out, [escape(name) for name in kernels])
        _arrows(out, places, edges, 'stroke="#8a8f98"')
        _arrows(out, places, decisions, 'stroke="#b5495b" stroke-dasharray="4 3"')
        for (kernel, label), (x, y, w) in zip(boxes, places, strict=True):
            colour = COLOURS[kernels.index(kernel) % len(COLOURS)]
            shape = f'x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{_BOX}" rx="4" fill="{colour}"'
            out.line(f"<rect {shape}/>")
            text = f'x="{x + w / 2:.1f}" y="{y + 15:.1f}" text-anchor="middle" fill="white" font-size="11"'
            out.line(f"<text {text}>{escape(label)}</text>")
    out.line("</svg>")
    return str(out)


def _columns(count: int, edges: Edges) -> list[list[int]]:
    """Return the tasks of each column: the longest way to a task has as many arrows as columns before it.

    In a column, tasks stand in the order of the middle of what they wait for.
    """
    before: list[list[int]] = [[] for _ in range(count)]
    for b, a in edges:
        before[a].append(b)
    depth = [0] * count
    for task in range(count):
        depth[task] = max((depth[b] + 1 for b in before[task]), default=0)
    columns: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for task in range(count):
        columns[depth[task]].append(task)
    height = [0.0] * count
    for column in columns:
        for task in column:
            known = [height[b] for b in before[task]]
            height[task] = sum(known) / len(known) if known else task / max(1, count)
        column.sort(key=lambda task: height[task])
        for row, task in enumerate(column):
            height[task] = (row + 0.5) / len(column)
    return columns


def _places(
    columns: Sequence[Sequence[int]], widths: Sequence[float], height: float
) -> list[tuple[float, float, float]]:
    """Return left, top and width of each task's box."""
    places = [(0.0, 0.0, 0.0)] * sum(map(len, columns))
    x = float(_MARGIN)
    inner = height - _TOP - _BOTTOM
    for column, width in zip(columns, widths, strict=True):
        top = _TOP + (inner - _ROW * len(column)) / 2
        for row, task in enumerate(column):
            places[task] = (x, top + _ROW * row + (_ROW - _BOX) / 2, width)
        x += width + _GAP
    return places


def _arrows(out: TextWriter, places: Sequence[tuple[float, float, float]], edges: Edges, style: str) -> None:
    out.line(f'<g fill="none" {style}>')
    with out.indented():
        for b, a in edges:
            x0, y0 = places[b][0] + places[b][2], places[b][1] + _BOX / 2
            x1, y1 = places[a][0], places[a][1] + _BOX / 2
            bend = (x1 - x0) / 2
            curve = (
                f"M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} {x1 - bend:.1f} {y1:.1f} {x1 - 1:.1f} {y1:.1f}"
            )
            head = f"M{x1 - 6:.1f} {y1 - 3:.1f}L{x1 - 1:.1f} {y1:.1f}L{x1 - 6:.1f} {y1 + 3:.1f}"
            out.line(f'<path d="{curve}{head}"/>')
    out.line("</g>")


def _legend(out: TextWriter, kernels: Sequence[str]) -> None:
    x = float(_MARGIN)
    for index, name in enumerate(kernels):
        out.line(
            f'<rect x="{x:g}" y="35" width="12" height="12" rx="2" fill="{COLOURS[index % len(COLOURS)]}"/>'
        )
        out.line(f'<text x="{x + 17:g}" y="45">{name}</text>')
        x += 36 + 7 * len(name)
