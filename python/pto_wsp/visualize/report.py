"""Reports: one HTML file with the pictures of a run and its figures, which opens without a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pto_wsp.visualize.drawing import Drawing, escaped, to_svg
from pto_wsp.visualize.graph import Graph, graph_drawing
from pto_wsp.visualize.timeline import REASONS, STALLS, Timeline, duration_text, timeline_drawing, total_ns

_STYLE = """\
body { font: 14px/1.45 Helvetica, Arial, sans-serif; color: #1f2430; }
body { margin: 2em auto; max-width: 1240px; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid #d8dce3; }
table { border-collapse: collapse; }
th, td { padding: .2em .9em .2em .4em; text-align: left; vertical-align: top; }
tr + tr:hover { background-color: #f5f6f8; }
th { color: #5d6574; font-weight: normal; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f5f6f8; padding: .8em 1em; overflow-x: auto; }
.figures { display: flex; flex-wrap: wrap; gap: .6em 3em; }
.figures b { display: block; font-size: 1.5em; font-weight: 600; }
.figures span { color: #5d6574; }
.tables { display: flex; flex-wrap: wrap; gap: 1em 4em; margin-top: 1em; }
.picture { border: 1px solid #d8dce3; overflow: hidden; max-height: 80vh; cursor: grab; }
.picture svg { display: block; width: 100%; height: 100%; touch-action: none; }
p.hint { color: #5d6574; }
"""

_SCRIPT = """\
// A wheel zooms a picture around the pointer, a drag moves it, a double click shows all of it again.
for (const svg of document.querySelectorAll('.picture svg')) {
  const all = svg.viewBox.baseVal, first = [all.x, all.y, all.width, all.height];
  const show = (x, y, w, h) => svg.setAttribute('viewBox', [x, y, w, h].join(' '));
  const at = (event) =>
    new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  svg.addEventListener('wheel', (event) => {
    event.preventDefault();
    const box = svg.viewBox.baseVal, to = at(event), by = event.deltaY > 0 ? 1.2 : 1 / 1.2;
    show(to.x + (box.x - to.x) * by, to.y + (box.y - to.y) * by, box.width * by, box.height * by);
  }, { passive: false });
  let from = null;
  svg.addEventListener('pointerdown', (event) => {
    from = at(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener('pointerup', () => { from = null; });
  svg.addEventListener('pointermove', (event) => {
    if (!from) return;
    const to = at(event), box = svg.viewBox.baseVal;
    show(box.x + from.x - to.x, box.y + from.y - to.y, box.width, box.height);
  });
  svg.addEventListener('dblclick', () => show(...first));
}
"""

_HINT = "A wheel zooms a picture, a drag moves it, a double click shows all of it; tasks tell what they are."


def run_report(run: Timeline, advice: str = "") -> str:
    """Return the report of a traced run: timeline, graph, figures per kernel and worker, waits, schedule.

    Args:
        run: what was recorded.
        advice: what an adviser says of the run, if it says anything.
    """
    about = dict(run.about)
    name = about.pop("program", "run")
    schedule = about.pop("schedule", "")
    parts = [f"<p>{escaped(item)}: {escaped(value)}</p>" for item, value in about.items()]
    parts += [_run_figures(run)]
    if advice:
        parts.append(section("Advice", f"<pre>{escaped(advice)}</pre>"))
    parts += [section("Timeline", picture(timeline_drawing(run)))]
    parts += [section("Task graph", picture(graph_drawing(run_graph(run))))]
    threads = [_worker_table(run)] + ([_dispatcher_table(run)] if len(run.walks) else [])
    statistics = f'{_kernel_table(run)}<div class="tables">{"".join(threads)}</div>'
    parts += [section("Statistics", statistics), section("Hazards", _hazard_table(run))]
    if schedule:
        parts.append(section("Schedule", f"<pre>{escaped(schedule)}</pre>"))
    return page(name, parts)


def graph_report(name: str, graph: Graph) -> str:
    """Return the report of a task graph: its picture, and its tasks by kernel."""
    rows: dict[str, list[int]] = {}
    for number, kernel in enumerate(graph.names):
        size = graph.buffer_bytes[number] if len(graph.buffer_bytes) else -1
        rows.setdefault(kernel, []).append(size)
    table = html_table(
        ("kernel", "tasks", "bytes of tiles"),
        (
            (kernel, f"{len(sizes):,}", f"{max(sizes):,}" if max(sizes) > 0 else "")
            for kernel, sizes in rows.items()
        ),
    )
    return page(name, [section("Task graph", picture(graph_drawing(graph))), section("Kernels", table)])


def run_graph(run: Timeline) -> Graph:
    """Return the graph of what the tasks of a run depended on."""
    names = [str(run.kernels[kernel]) for kernel in run.kernel.tolist()]
    labels = run.labels if len(run.labels) else names
    nothing = np.empty((0, 2), np.int64)
    return Graph(names, labels, (), run.dependences[:, :2], nothing, run.calls, run.call)


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns but the first are numbers where all cells are, and shares have bars."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    are_numbers = [
        all(row[i][:1].isdigit() or not row[i] for row in cells) and i > 0 for i in range(len(headings))
    ]
    marks = [' class="n"' if is_number else "" for is_number in are_numbers]
    head = "".join(f"<th{mark}>{escaped(text)}</th>" for mark, text in zip(marks, headings, strict=True))
    body = (
        "<tr>" + "".join(f"<td{m}{_bar(c)}>{c}</td>" for m, c in zip(marks, row, strict=True)) + "</tr>"
        for row in cells
    )
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _bar(cell: str) -> str:
    is_share = cell.endswith("%") and cell[:1].isdigit()
    return f' style="background: linear-gradient(90deg, #cfe0f2 {cell}, transparent 0)"' if is_share else ""


def _run_figures(run: Timeline) -> str:
    """Return the figures of a run that say most."""
    longest = _longest_way_ns(run)
    figures = (
        (f"{len(run.kernel):,}", "tasks"),
        (f"{len(run.dependences):,}", "dependences"),
        (
            duration_text(run.span_ns),
            f"on {len(run.workers)} {run.noun}{'s' if len(run.workers) != 1 else ''}",
        ),
        (f"{len(run.kernel) / run.span_ns * 1e6:,.0f}", "tasks per ms"),
        (duration_text(longest), f"longest chain of tasks, {longest / run.span_ns:.0%} of the run"),
    )
    return figures_html(figures)


def figures_html(figures: Iterable[tuple[str, str]]) -> str:
    """Return figures in large type, each a value and what it is."""
    shown = (f"<div><b>{escaped(value)}</b><span>{escaped(what)}</span></div>" for value, what in figures)
    return f'<div class="figures">{"".join(shown)}</div>'


def page(name: str, parts: Iterable[str]) -> str:
    """Return a whole page under a title, with the style and the script of reports."""
    title = escaped(name)
    head = f'<meta charset="utf-8"><title>{title}</title><style>\n{_STYLE}</style>'
    body = "\n".join([f"<h1>{title}</h1>", *parts, f'<p class="hint">{_HINT}</p>'])
    script = f"<script>\n{_SCRIPT}</script>"
    return f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{body}\n{script}</body></html>\n"


def section(title: str, body: str) -> str:
    """Return a part of a page under a heading."""
    return f"<h2>{title}</h2>\n{body}"


def picture(drawing: Drawing) -> str:
    """Return a picture that can be zoomed."""
    shape = f"aspect-ratio: {drawing.width:.0f} / {drawing.height:.0f}"
    return f'<div class="picture" style="{shape}">{to_svg(drawing)}</div>'


def _kernel_table(run: Timeline) -> str:
    """Return tasks and times per kernel, those that took most first."""
    took = run.end_ns - run.start_ns
    total = max(int(took.sum()), 1)
    rows: list[tuple[int, str, np.ndarray]] = []
    for index, name in enumerate(run.kernels):
        times = np.sort(took[run.kernel == index])
        if len(times):
            rows.append((int(times.sum()), name, times))
    rows.sort(key=lambda row: -row[0])
    return html_table(
        ("kernel", "tasks", "total", "share", "median", "shortest", "longest"),
        (
            (
                name,
                f"{len(times):,}",
                duration_text(busy),
                f"{busy / total:.1%}",
                *(duration_text(int(times[i])) for i in (len(times) // 2, 0, -1)),
            )
            for busy, name, times in rows
        ),
    )


def _worker_table(run: Timeline) -> str:
    rows = []
    for worker in run.drawn:
        parts = (run.busy_of(worker), run.walking_of(worker), run.waiting_of(worker))
        times = [total_ns(spans) for spans in parts]
        shown = [text for ns in times for text in (duration_text(ns), f"{ns / run.span_ns:.1%}")]
        rows.append((run.lane_name(worker), f"{len(parts[0]):,}", *shown))
    return html_table(("", "tasks", "busy", "share", "expands", "share", "waits", "share"), rows)


def _dispatcher_table(run: Timeline) -> str:
    rows = []
    for lane in np.unique(run.walks[:, 0]).tolist():
        made = int(run.walks[run.walks[:, 0] == lane, 2].sum())
        stalls = run.stalls[run.stalls[:, 0] == lane]
        waits = [stalls[stalls[:, 1] == index] for index in range(len(STALLS))]
        texts = [
            f"{len(w)} in {duration_text(int((w[:, 3] - w[:, 2]).sum()))}" if len(w) else "0" for w in waits
        ]
        rows.append((f"dispatcher {lane}", f"{made:,}", *texts))
    return html_table(("", "tasks made", *(f"stopped by {reason}" for reason in STALLS)), rows)


def _hazard_table(run: Timeline) -> str:
    """Return how many dependences there are of each kind between each pair of kernels."""
    found = run.dependences
    if not len(found):
        return "<p>No task depended on another one.</p>"
    columns = [run.kernel[found[:, 0]], run.kernel[found[:, 1]], found[:, 2], found[:, 3]]
    kinds, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return html_table(
        ("before", "after", "because", "through", "times"),
        (
            (
                str(run.kernels[a]),
                str(run.kernels[b]),
                str(REASONS[why]),
                str(run.tensors[tensor]) if tensor >= 0 else "",
                f"{count:,}",
            )
            for (a, b, why, tensor), count in zip(kinds[order].tolist(), counts[order].tolist(), strict=True)
        ),
    )


def _longest_way_ns(run: Timeline) -> int:
    """Return what the longest chain of tasks that depend on each other took: no run could be shorter."""
    took = (run.end_ns - run.start_ns).tolist()
    ends = list(took)
    order = np.argsort(run.dependences[:, 1], kind="stable")
    for before, after in run.dependences[order, :2].tolist():
        ends[after] = max(ends[after], ends[before] + took[after])
    return max(ends, default=0)
