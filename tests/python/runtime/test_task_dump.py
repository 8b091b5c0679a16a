"""Task dumps: what is written can be read back, in both forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_wsp import In, Out, P, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp._native import TaskDump
from pto_wsp.errors import UnusableFile
from pto_wsp.runtime.task_dump import parse_task_dump, read_task_dump
from pto_wsp.tools.main import OK, main


@kernel
def double(x: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
    pto.store(y, x + x)


@kernel
def join(a: In[Tile[8, 8, f32]], b: In[Tile[8, 8, f32]], y: Out[Tile[8, 8, f32]]):
    pto.store(y, a * b)


@workload
def squares(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    for i in P.range(3):
        double[i](x=X[8 * i : 8 * i + 8], y=Y[8 * i : 8 * i + 8])
    join[0](a=Y[0:8], b=Y[16:24], y=Z[0:8])


def dump(tmp_path: Path, verbose: bool) -> Path:
    x = np.ones((24, 8), np.float32)
    graph = squares.compile("interp").task_graph(X=x, Y=np.zeros_like(x), Z=np.zeros_like(x))
    text = graph.dump(tmp_path / "tasks.txt", verbose)
    assert (tmp_path / "tasks.txt").read_text() == text
    return tmp_path / "tasks.txt"


@pytest.mark.parametrize("verbose", [False, True])
def test_written_is_read(tmp_path: Path, verbose: bool) -> None:
    tasks = read_task_dump(dump(tmp_path, verbose))
    assert [t.name for t in tasks] == ["double", "double", "double", "join"]
    assert [t.fanout for t in tasks] == [(3,), (), (3,), ()]
    assert [(t.state, t.fanin) for t in tasks] == [("READY", 0)] * 3 + [("WAIT", 2)]
    assert tasks[0].buffer_bytes == 256  # the sum may lie where the tile was
    if verbose:
        assert tasks[1].details[-2:] == ("in X[8:16, 0:8]", "out Y[8:16, 0:8]")
        assert tasks[3].details[1] == "after [0,2]"
    else:
        assert not any(t.details for t in tasks)


def test_tasks_without_a_name_are_not_shown() -> None:
    """Two steps of two tasks and one of none, with a nameless task between steps, as C orders `P.seq`."""
    dumped = TaskDump()
    nameless: list[tuple[str, list[int]]] = [("a", []), ("b", []), ("", [0, 1]), ("c", [1, 2]), ("d", [2])]
    nameless += [("", [2, 3, 4]), ("", [5]), ("e", [6])]
    for name, before in nameless:
        dumped.add(name, 0, 0, before, [])
    tasks = parse_task_dump(dumped.text(False))
    assert {task.name: task.fanout for task in tasks} == {
        "a": (2, 3), "b": (2, 3), "c": (4,), "d": (4,), "e": (),
    }  # fmt: skip


def test_a_verbose_dump_says_what_is_ready_and_who_touched_which_region_last(tmp_path: Path) -> None:
    text = dump(tmp_path, True).read_text()
    queue, tensors = text.split("\nREADY QUEUE\n")[1].split("\nDEPENDENCY GRAPH\n")[0].split("\nTENSOR MAP\n")
    assert queue == "  Tasks: [0,1,2]\n"
    assert tensors.splitlines() == [
        "  X[0:8, 0:8] writer=none readers=[0]",
        "  Y[0:8, 0:8] writer=0 readers=[3]",
        "  X[8:16, 0:8] writer=none readers=[1]",
        "  Y[8:16, 0:8] writer=1 readers=[]",
        "  X[16:24, 0:8] writer=none readers=[2]",
        "  Y[16:24, 0:8] writer=2 readers=[3]",
        "  Z[0:8, 0:8] writer=3 readers=[]",
    ]
    assert "READY QUEUE" not in dump(tmp_path, False).read_text()


CUT = """\
================================================================================
PTO RUNTIME DUMP
================================================================================

SUMMARY
  Total tasks scheduled:  40
  Ready queue size:       16

TASK TABLE
  Task 0: rowmax         [READY] fanin=0 buf=288.0KB fanout=[]
  Task 1: rowexpandsub   [READY] fanin=0 buf=544.0KB fanout=[2]
  Task 2: elem_exp       [WAIT]  fanin=1 buf=1.5MB fanout=[3, 39]
  Task 3: rowsum         [WAIT]  fanin=1 buf=288B fanout=[]
  ...

DEPENDENCY GRAPH
  Task 1 -> Task 2
  Task 2 -> Task 3
  ...
"""


def test_a_dump_of_another_runtime_that_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = parse_task_dump(CUT)
    assert [t.buffer_bytes for t in tasks] == [288 << 10, 544 << 10, 3 << 19, 288]
    assert [t.fanout for t in tasks] == [(), (2,), (3, 39), ()]
    with pytest.raises(UnusableFile, match="task 40 cannot wait for task 2"):
        parse_task_dump(CUT.replace("3, 39", "3, 40"))
    monkeypatch.chdir(tmp_path)
    Path("cut.txt").write_text(CUT)
    assert main(["visualize", "cut.txt", "-o", "cut.svg"]) == OK
    assert capsys.readouterr().err == "cut.txt: the dump lists 4 of 40 tasks\n"
    assert "elem_exp" in Path("cut.svg").read_text()


def test_what_is_no_dump_is_refused(tmp_path: Path) -> None:
    good = dump(tmp_path, False).read_text()
    for bad, reason in (
        ("hello\n", "it is not a task dump"),
        (good.replace("Task 1: ", "Task 7: ", 1), "line 12 is not of task 1"),
        (good.replace("buf=256B", "buf=?", 1), "line 11 is not of task 0"),
        (good.replace("fanout=[3]", "fanout=[3;]", 1), "line 11 is not of task 0"),
        (good.replace("fanout=[3]", "fanout=[9]", 1), "task 9 cannot wait for task 0"),
    ):
        with pytest.raises(UnusableFile, match=reason):
            parse_task_dump(bad)
    with pytest.raises(UnusableFile, match="No such file"):
        read_task_dump(tmp_path / "missing.txt")
