"""`pto visualize`: pictures of dumps and traces."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pto_wsp.errors import BadOption
from pto_wsp.runtime.task_dump import DumpedTask, num_omitted, parse_task_dump
from pto_wsp.tools.files import read_text, write_bytes
from pto_wsp.visualize.drawing import Drawing, to_svg
from pto_wsp.visualize.graph import Graph, graph_drawing
from pto_wsp.visualize.pdf import to_pdf
from pto_wsp.visualize.perfetto import parse_timeline
from pto_wsp.visualize.report import graph_report, run_graph, run_report
from pto_wsp.visualize.timeline import timeline_drawing

_FORMATS: dict[str, Callable[[Drawing], bytes]] = {
    ".svg": lambda drawing: to_svg(drawing).encode(),
    ".pdf": to_pdf,
}


def visualize(args: Namespace) -> None:
    """Draw the task graph of a dump, or the timeline of a trace."""
    suffix = Path(args.output).suffix.lower()
    if suffix not in (".html", *_FORMATS):
        expected = "a file that ends in .svg, .pdf or .html"
        raise BadOption(option="--output", expected=expected, found=f"`{args.output}`", advice="")
    text = read_text(args.file)
    made = (
        _of_trace(args, text, suffix) if text.lstrip().startswith("{") else _of_dump(args.file, text, suffix)
    )
    write_bytes(made, args.output)


def _of_trace(args: Namespace, text: str, suffix: str) -> bytes:
    run = parse_timeline(text, args.file)
    if suffix == ".html":
        return run_report(run).encode()
    return _FORMATS[suffix](graph_drawing(run_graph(run)) if args.graph else timeline_drawing(run))


def _of_dump(path: str, text: str, suffix: str) -> bytes:
    tasks = parse_task_dump(text, path)
    omitted = num_omitted(text, tasks)
    if omitted:
        print(f"{path}: the dump lists {len(tasks)} of {len(tasks) + omitted} tasks", file=sys.stderr)
    graph = dumped_graph(tasks)
    if suffix == ".html":
        return graph_report(Path(path).name, graph).encode()
    return _FORMATS[suffix](graph_drawing(graph))


def dumped_graph(tasks: tuple[DumpedTask, ...]) -> Graph:
    """Return the graph of a dump."""
    names = [task.name for task in tasks]
    edges = [
        (before, after) for before, task in enumerate(tasks) for after in task.fanout if after < len(tasks)
    ]
    sizes = [task.buffer_bytes for task in tasks]
    return Graph(names, names, sizes, np.array(edges, np.int64).reshape(-1, 2), np.empty((0, 2), np.int64))
