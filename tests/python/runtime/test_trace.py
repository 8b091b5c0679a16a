"""Traces: the record as data, as Perfetto JSON and as a picture."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np

from pto_wsp.interp.workload import TensorReader
from pto_wsp.ir.scalar import Element, Var, mul
from pto_wsp.ir.workload import Loop, Task
from pto_wsp.location import Location
from pto_wsp.lower.lower_workload_to_bytecode import Lowered
from pto_wsp.runtime.trace import Trace
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.perfetto import PerfettoWriter

SVG = "{http://www.w3.org/2000/svg}"


class SampleRecord:
    """Three tasks on two workers."""

    tasks = 3
    workers = 3

    def times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return workers, starts and ends."""
        return np.array([0, 1, 0]), np.array([100, 150, 2100]), np.array([2000, 950, 3100])

    def dispatchers(self) -> np.ndarray:
        """Return dispatchers."""
        return np.array([0, 1, 0])

    def walks(self) -> np.ndarray:
        """Return what dispatchers made."""
        return np.array([[0, 0, 1, 90], [1, 1, 2, 1900]])

    def stalls(self) -> np.ndarray:
        """Return what stopped them."""
        return np.array([[1, 0, 200, 1800]])

    def dependences(self) -> np.ndarray:
        """Return who waited for whom."""
        return np.array([[0, 1, 0, 1], [0, 2, 2, -1]])

    def stretches(self) -> np.ndarray:
        """Return when workers were at work."""
        return np.array([[0, 90, 2000], [2, 400, 600]])

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return nodes and registers."""
        return np.array([1, 5, 1]), np.array([[0], [0], [7]])


def sample_trace() -> Trace:
    loop = Loop("parallel", "i", Var("n"), None, (), Location("a.py", 3, 5))
    sites = {
        0: loop,
        1: Task("scale", (), (Var("i"), mul(Var("i"), Var("n")))),
        5: Task("sum", (), (Element("order", (Var("i"),)),)),
    }
    loops = {0: (), 1: (loop,), 5: ()}
    lowered = Lowered(b"", ("order", "Y"), (), sites, loops, {}, {"i": 0}, (), frozenset())
    return Trace(lowered, SampleRecord(), {"n": 10}, TensorReader({"order": np.array([3, 1])}))


def test_events_name_kernels_and_coordinates() -> None:
    events = list(sample_trace())
    assert [e.label for e in events] == ["scale[0, 0]", "sum[3]", "scale[7, 70]"]
    assert [(e.worker, e.start_ns, e.end_ns) for e in events] == [
        (0, 100, 2000),
        (1, 150, 950),
        (0, 2100, 3100),
    ]


def test_perfetto_json(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    sample_trace().save(path)
    events = json.loads(path.read_text())["traceEvents"]
    lanes = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert lanes == ["worker 0", "worker 1", "worker 2", "dispatcher 0", "dispatcher 1"]
    stalls = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in stalls] == [("window", 1, 0.2, 1.6)]
    made = [e for e in events if e["ph"] == "i"]
    assert [(e["name"], e["args"]["first"], e["ts"]) for e in made] == [
        ("made 1 tasks", 0, 0.09),
        ("made 2 tasks", 1, 1.9),
    ]
    spans = [e for e in events if e["ph"] == "X" and e["pid"] == 0 and e["cat"] != "stretch"]
    assert sorted((e["name"], e["tid"], e["ts"], e["dur"]) for e in spans) == [
        ("scale[0, 0]", 0, 0.1, 1.9),
        ("scale[7, 70]", 0, 2.1, 1.0),
        ("sum[3]", 1, 0.15, 0.8),
    ]
    assert {e["args"]["task"]: e["cat"] for e in spans} == {0: "scale", 1: "sum", 2: "scale"}
    assert [e["args"]["loops"] for e in spans] == [["i in P(n)"], ["i in P(n)"], []]
    work = [(e["tid"], e["ts"], e["dur"]) for e in events if e.get("cat") == "stretch"]
    assert work == [(0, 0.09, 1.91), (2, 0.4, 0.2)]


def test_perfetto_arrows_lead_from_end_to_start(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    sample_trace().save(path)
    events = json.loads(path.read_text())["traceEvents"]
    begins = {e["id"]: (e["tid"], e["ts"], e["name"]) for e in events if e["ph"] == "s"}
    assert {e["id"]: e["args"]["through"] for e in events if e["ph"] == "s"} == {0: "Y", 1: ""}
    ends = {e["id"]: (e["tid"], e["ts"], e["bp"]) for e in events if e["ph"] == "f"}
    assert begins == {0: (0, 1.999, "read after write"), 1: (0, 1.999, "write after write")}
    assert ends == {0: (1, 0.15, "e"), 1: (0, 2.1, "e")}
    sample_trace().save(path, dependences=False)
    assert not [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] in "sf"]


def test_perfetto_json_of_odd_names(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with path.open("w") as file, PerfettoWriter(file, *SampleRecord().times(), {}) as out:
        call = CallSite('100% "odd" \\', ('i in P("%d")',), "a%d.py:1")
        out.tasks(call, np.array([1]), [np.array([-5])])
    event = json.loads(path.read_text())["traceEvents"][-1]
    assert (event["name"], event["cat"]) == ('100% "odd" \\[-5]', '100% "odd" \\')
    expected = {"task": 1, "location": "a%d.py:1", "loops": ['i in P("%d")'], "nest": ""}
    assert event["args"] == expected


def test_picture_is_well_formed_and_shows_every_lane() -> None:
    root = ET.fromstring(sample_trace().to_svg())
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert {"worker 0", "worker 1", "scale", "sum", "3 tasks on 3 workers in 3.01 us"} <= set(texts)
    assert {"worker 2", "0% busy, 93% waits", "7% expands"} <= set(texts)
