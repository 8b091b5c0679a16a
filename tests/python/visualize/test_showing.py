"""What users see of programs: `pto visualize`, reports and notebooks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DispatchPolicy,
    InOut,
    P,
    Program,
    Schedule,
    TaskWindow,
    Tensor,
    Tile,
    f32,
    kernel,
    pto,
    workload,
)
from pto_wsp.tools.main import FAILED, OK, main
from pto_wsp.visualize.drawing import escaped
from pto_wsp.visualize.perfetto import read_timeline


@kernel
def bump(x: InOut[Tile[1, 8, f32]]):
    pto.store(x, x * 1.5 + 1.0)


@workload
def steps(X: Tensor[f32, "n", 1, 8]):
    for i in P("n"):
        bump[i](x=X[i // 2])
        bump[i](x=X[i])


@pytest.fixture(scope="module")
def program() -> Program:
    made = steps.task_graph(window=TaskWindow(8)).dispatch(DispatchPolicy.round_robin(2)).compile("cpu")
    made.run(X=np.zeros((20, 1, 8), np.float32), workers=2, trace="full")
    return made


def test_a_saved_trace_is_read_back(program: Program, tmp_path: Path) -> None:
    assert program.trace is not None
    program.trace.save(tmp_path / "run.json")
    read, own = read_timeline(tmp_path / "run.json"), program.trace.timeline()
    for name in ("kernel", "worker", "start_ns", "end_ns"):
        np.testing.assert_array_equal(getattr(read, name), getattr(own, name))
    assert list(read.labels) == list(own.labels) and read.about == own.about
    for name in ("walks", "stalls", "stretches"):
        rows, expected = getattr(read, name).tolist(), getattr(own, name).tolist()
        assert sorted(rows) == sorted(expected)
    for run in (read, own):
        assert {run.tensors[tensor] for tensor in run.dependences[:, 3].tolist()} == {"X"}
    assert sorted(read.dependences[:, :3].tolist()) == sorted(own.dependences[:, :3].tolist())
    assert [read.calls[i] for i in read.call.tolist()] == [own.calls[i] for i in own.call.tolist()]
    assert read.num_workers == own.num_workers == 2 and len(own.stretches)
    assert read.about["program"] == "steps" and "dispatch = round_robin(n = 2)" in read.about["schedule"]


def test_the_command_draws_traces_and_dumps(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program.trace is not None
    program.trace.save("run.json")
    steps.compile("interp").task_graph(X=np.zeros((3, 1, 8), np.float32)).dump("tasks.txt")
    begins = {"svg": b"<svg", "pdf": b"%PDF", "html": b"<!DOCTYPE html>"}
    for suffix, begin in begins.items():
        for file in ("run.json", "tasks.txt"):
            assert main(["visualize", file, "-o", f"out.{suffix}"]) == OK
            assert Path(f"out.{suffix}").read_bytes().startswith(begin)
    assert main(["visualize", "run.json", "-o", "graph.svg", "--graph"]) == OK
    assert "bump[19]" in Path("graph.svg").read_text()


@pytest.mark.parametrize(
    ("file", "out", "said"),
    [
        ("tasks.txt", "out.png", "ends in .svg, .pdf or .html"),
        ("missing.txt", "out.svg", "missing.txt"),
        ("other.txt", "out.svg", "not a task dump"),
        ("other.json", "out.svg", "not a trace"),
        ("other.txt", "no/out.svg", "not a task dump"),
    ],
)
def test_the_command_refuses(
    file: str,
    out: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.txt").write_text("Task 0")
    Path("other.json").write_text('{"a": 1}')
    assert main(["visualize", file, "-o", out]) == FAILED
    assert said in capsys.readouterr().err and not Path(out).exists()


def test_notebooks_show_workloads_schedules_and_programs(program: Program) -> None:
    page = program._repr_html_()
    assert "program steps for cpu" in page and "<svg" in page and "40 tasks on 2 workers" in page
    assert "round_robin(n = 2)" in page and "FOR %i" in page
    assert f"<pre>{escaped(str(program.module))}</pre>" in page and str(program.module).count("\n") > 10
    assert "\N{REPLACEMENT CHARACTER}" not in page
    page = steps._repr_html_()
    assert "workload steps" in page and "the default schedule" in page and "FOR %i" in page
    shown = Schedule().dispatch(DispatchPolicy.hash(lambda t: t.b < 3))._repr_html_()
    assert "hash(%t.b &lt; 3)" in shown and "hash of the key" in shown
