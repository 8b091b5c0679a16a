"""Pictures of graphs and runs: everything is in them, small ones and large ones."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest

from pto_wsp.errors import UnusableFile
from pto_wsp.visualize.drawing import Arrow, Box, Drawing, Line, Text, colour_of, to_svg
from pto_wsp.visualize.graph import Graph, bytes_text, graph_drawing, levels_of
from pto_wsp.visualize.pdf import to_pdf
from pto_wsp.visualize.perfetto import parse_timeline
from pto_wsp.visualize.report import graph_report, run_graph, run_report
from pto_wsp.visualize.timeline import Timeline, duration_text, timeline_drawing

SVG = "{http://www.w3.org/2000/svg}"
NOTHING = np.empty((0, 2), np.int64)


def graph(names: list[str], edges: list[tuple[int, int]], sizes: list[int] | None = None) -> Graph:
    labels = [f"{name}[{i}]" for i, name in enumerate(names)]
    return Graph(names, labels, sizes or [], np.array(edges).reshape(-1, 2), NOTHING)


def run(n: int, walks: list[list[int]] | None = None, stalls: list[list[int]] | None = None) -> Timeline:
    """Return n tasks of 90 ns on two workers, a new one every 100 ns, each dependent on the one before."""
    start = np.arange(n) * 100
    pairs = np.array([(i, i + 1, 0, 0) for i in range(n - 1)]).reshape(-1, 4)
    made, stopped = (np.array(rows or [], np.int64).reshape(-1, 4) for rows in (walks, stalls))
    kernel = np.arange(n) % 2
    times = (kernel, start, start + 90)
    return Timeline(["a", "b<c"], [], kernel, *times, pairs, made, stopped, {}, tensors=["Y"])


def texts(drawing: Drawing) -> list[str]:
    root = ET.fromstring(to_svg(drawing))
    found = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert found == [shape.text for shape in drawing.shapes if isinstance(shape, Text)]
    return found


def boxes(drawing: Drawing) -> list[Box]:
    """Return the boxes of tasks."""
    return [shape for shape in drawing.shapes if isinstance(shape, Box) and shape.title]


def test_each_task_is_right_of_all_that_it_waits_for() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(1, 60))
        pairs = {(int(a), int(b)) for a, b in np.sort(rng.integers(0, n, (2 * n, 2)), axis=1) if a < b}
        drawing = graph_drawing(
            graph([f"k{i % 5}" for i in range(n)], sorted(pairs), [i * 100 for i in range(n)])
        )
        found = boxes(drawing)
        assert [box.title for box in found] == [f"task {i}: k{i % 5}[{i}]" for i in range(n)]
        assert all(found[a].x + found[a].width < found[b].x for a, b in pairs)
        assert sum(isinstance(shape, Arrow) for shape in drawing.shapes) == len(pairs)
        inside = [
            0 <= b.x and b.x + b.width <= drawing.width and b.y + b.height <= drawing.height for b in found
        ]
        assert all(inside)
        apart = [(a, b) for a in found for b in found if a is not b and a.x == b.x]
        assert all(abs(a.y - b.y) >= a.height for a, b in apart)


def test_levels_are_the_longest_ways() -> None:
    edges = np.array([(0, 1), (1, 2), (0, 3), (2, 3)])
    assert levels_of(5, edges).tolist() == [0, 1, 2, 3, 0]


def test_boxes_name_kernels_and_sizes_of_buffers() -> None:
    found = texts(graph_drawing(graph(["rowmax", "exp"], [(0, 1)], [294_912, 512])))
    assert {"rowmax[0]", "288.0 KB", "exp[1]", "512 B", "level 0", "level 1"} <= set(found)
    assert [bytes_text(n) for n in (0, 1023, 1024, 3 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KB",
        "3.0 MB",
        "5.0 GB",
    ]


def test_a_large_graph_is_drawn_by_groups_that_hold_all_tasks() -> None:
    n = 200_704
    names = [("norm", "rope", "flash")[i % 3] for i in range(n)]
    edges = np.stack([np.arange(n - 300), np.arange(300, n)], axis=1)
    drawing = graph_drawing(Graph(names, names, [4096] * n, edges, NOTHING))
    found = texts(drawing)
    notes = [text.split("×")[1] for text in found if "×" in text]
    assert sum(int(note.split(", ")[0].replace(",", "")) for note in notes) == n
    assert len(drawing.shapes) < 1000 and drawing.width < 2000
    assert all(note.endswith(", 4.0 KB each") for note in notes)
    assert any(text.startswith("200,704 tasks, 200,404 edges") for text in found)


def test_odd_names_stay_text() -> None:
    odd = graph(["</svg><script>", 'a"b&'], [(0, 1)])
    assert "</svg><script>[0]" in texts(graph_drawing(odd))
    assert ET.fromstring(to_svg(graph_drawing(graph(["a\x00\x1b"], []))))
    assert "<script>a" not in graph_report("<script>a", odd)


def test_a_timeline_has_every_lane_and_does_not_grow_with_tasks() -> None:
    few = texts(timeline_drawing(run(3, [[0, 0, 3, 50]], [[0, 3, 100, 200]])))
    assert {"worker 0", "worker 1", "dispatcher 0", "a", "b<c", "stopped by pool"} <= set(few)
    assert "3 tasks on 2 workers in 290 ns" in few
    many = timeline_drawing(run(200_000, [[0, i, 1, i * 100] for i in range(0, 200_000, 50)]))
    assert len(many.shapes) < 3000 and "100,000 tasks" in to_svg(many)
    assert "0 tasks on 0 workers in 1 ns" in texts(timeline_drawing(run(0)))


def test_a_kernel_that_did_not_run_is_not_shown_and_colours_go_by_first_tasks() -> None:
    ran, kernels = run(4), ["never", "second", "never again", "first"]
    times = (ran.worker, ran.start_ns, ran.end_ns, ran.dependences, ran.walks, ran.stalls)
    some = Timeline(kernels, [], np.array([3, 1, 3, 1]), *times, {}, tensors=ran.tensors)
    drawing = timeline_drawing(some)
    assert not {"never", "never again"} & set(texts(drawing))
    graph = graph_drawing(run_graph(some))
    for picture in (drawing, graph):
        colours = {box.title.split(":")[0]: box.fill for box in boxes(picture)}
        assert {colour_of(0), colour_of(1)} == set(colours.values())
    assert {box.fill for box in boxes(drawing) if box.title.startswith("first")} == {colour_of(0)}
    assert boxes(graph)[0].fill == colour_of(0)


def test_bars_stand_where_tasks_ran() -> None:
    drawing = timeline_drawing(run(10))
    found = sorted((box.x, box.x + box.width) for box in boxes(drawing))
    assert len(found) == 10 and all(a[1] < b[0] for a, b in pairwise(found))
    assert found[0][0] == 110 and abs(found[-1][1] - 1070) < 0.01


def test_tasks_that_follow_without_a_gap_are_bars_of_their_own_where_they_are_wide() -> None:
    start = np.array([0, 400, 700, 701, 702])
    end = np.array([400, 700, 701, 702, 1000])
    one_lane = np.zeros(5, np.int64)
    no = np.empty((0, 4), np.int64)
    tasks = Timeline(["a"], [], one_lane, one_lane, start, end, no, no, no, {})
    titles = [box.title for box in boxes(timeline_drawing(tasks))]
    assert titles == ["a: 400 ns", "a: 300 ns", "a: 2 tasks", "a: 298 ns"]


def test_durations() -> None:
    assert [duration_text(ns) for ns in (0, 999, 1250, 3_100_000, 2 * 10**9)] == [
        "0 ns",
        "999 ns",
        "1.25 us",
        "3.1 ms",
        "2 s",
    ]


def test_pdf_has_one_page_of_the_drawings_size() -> None:
    shapes = [Box(1, 1, 50, 9, "#112233", "#000000", 4), Text(5, 9, "×日", anchor="end", is_bold=True)]
    shapes += [Line(0, 0, 9, 9), Arrow(0, 0, 60, 40, "#445566", 2, True)]
    data = to_pdf(Drawing(200, 100, shapes))
    assert data.startswith(b"%PDF-") and data.count(b"/Type /Page\n") == 1 and b"[0 0 200.00 100.00]" in data
    large = to_pdf(Drawing(140_000, 70_000, shapes))
    assert b"[0 0 14000.00 7000.00]" in large
    assert to_pdf(timeline_drawing(run(50))) and to_pdf(graph_drawing(graph(["a"], [])))


def test_a_report_stands_alone() -> None:
    traced = run(6, [[0, 0, 6, 50]], [[0, 0, 10, 20]])
    schedule = "dispatch = work_steal\nwindow = stall(n = 4)"
    traced.about.update(program="decode & more", schedule=schedule, workers="2")
    page = run_report(traced)
    assert page.count("<svg") == 2 and "decode &amp; more" in page and f"<pre>{schedule}</pre>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "") and "<link" not in page
    assert "read after write" in page and "540 ns</b><span>longest chain of tasks, 92% of the run" in page
    for table in ET.fromstring(
        f"<r>{''.join(page.split('<table>')[i].split('</table>')[0] for i in (1, 2))}</r>"
    ):
        assert table.tag == "tr"
    empty = run_report(run(0))
    assert "No task depended on another one." in empty


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        "[]",
        '{"traceEvents": [{"ph": "X"}]}',
        '{"traceEvents": [{"ph":"X","pid":0,"args":{"task":5}}]}',
    ],
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(UnusableFile, match="not a trace"):
        parse_timeline(text)
