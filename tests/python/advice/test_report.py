"""Reports: the figures of a run, measured or simulated, and the ways to ask for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pto_wsp import In, Out, P, Program, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.advice.chains import Ordered, longest_chain
from pto_wsp.advice.registry import advise
from pto_wsp.advice.report import SIMULATED, make_report
from pto_wsp.errors import NothingRecorded
from pto_wsp.visualize.calls import CallSite
from pto_wsp.visualize.timeline import Timeline
from tests.golden import Golden
from tests.python.advice.operators import OPERATORS, Operator
from tests.python.advice.simulated import recorded, simulated


def two_lanes() -> Timeline:
    """Return four tasks of two calls: 0 and 2 before 3 through Y, 1 alone; one stall."""
    calls = [CallSite("load", ("b in P(n)",), "a.py:3:9"), CallSite("merge", (), "a.py:5:5")]
    call = np.array([0, 0, 0, 1])
    return Timeline(
        ["load", "merge"],
        [],
        call,
        np.array([0, 1, 0, 1]),
        np.array([1_000, 2_000, 41_000, 82_000]),
        np.array([40_000, 22_000, 80_000, 100_000]),
        np.array([[0, 3, 0, 1], [2, 3, 0, 1]]),
        np.empty((0, 4), np.int64),
        np.array([[1, 2, 30_000, 80_000]]),
        {},
        2,
        np.array([[0, 0, 81_000], [1, 500, 23_000], [1, 81_000, 101_000]]),
        ["X", "Y"],
        calls,
        call,
    )


def test_a_report_is_made_from_a_swimlane_alone(golden: Golden) -> None:
    report = make_report(two_lanes(), clock=SIMULATED)
    golden("report.txt", f"{report}\n")
    assert report.makespan_ns == 101_000 and report.busy_share == {"worker": pytest.approx(0.574, abs=1e-3)}
    assert report.critical_ns == 57_000 and report.least_ns == 58_000
    assert [(p.site.kernel, p.tasks, p.through) for p in report.critical] == [
        ("load", 1, ""),
        ("merge", 1, "read after write of `Y`"),
    ]
    for lane in report.lanes:
        assert lane.busy_ns + lane.walking_ns + lane.waiting_ns == report.makespan_ns


def test_the_longest_chain_is_the_one_that_all_orders_allow() -> None:
    random = Random(3)
    for _ in range(60):
        n = random.randrange(1, 25)
        took = np.array([random.randrange(1, 9) for _ in range(n)])
        edges = {tuple(sorted(random.sample(range(n), 2))) for _ in range(n) if n > 1}
        iteration = np.sort(np.array([random.randrange(4) for _ in range(n)]))
        inside = np.array([random.choice([-1, 0, 0]) for _ in range(n)])
        rows = np.array(sorted(edges), np.int64).reshape(-1, 2)
        chain = longest_chain(took, rows, [Ordered(inside, iteration)])
        pairs = set(edges)
        for a in range(n):
            pairs |= {(a, b) for b in range(n) if inside[a] == inside[b] == 0 and iteration[a] < iteration[b]}
        ends = [0] * n
        for b in range(n):
            ends[b] = int(took[b]) + max((ends[a] for a in range(b) if (a, b) in pairs), default=0)
        assert chain.took_ns == max(ends) == took[list(chain.tasks)].sum()
        for a, b, row in zip(chain.tasks, chain.tasks[1:], chain.edges[1:], strict=False):
            assert (a, b) in pairs and (row < 0 or rows[row].tolist() == [a, b])


@kernel
def twice(x: In[Tile[1, 64, f32]], y: Out[Tile[1, 64, f32]]):
    pto.store(y, x * 2.0)


@workload
def doubled(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64]):
    for i in P("n"):
        twice[i](x=X[i : i + 1], y=Y[i : i + 1])


@pytest.fixture(scope="module")
def program() -> Program:
    return doubled.compile()


def arrays(n: int) -> dict[str, Any]:
    return dict(X=np.ones((n, 64), np.float32), Y=np.zeros((n, 64), np.float32))


def test_programs_and_runs_report_and_advise(program: Program) -> None:
    program.run(**arrays(30), workers=2, trace="full")
    report = program.report()
    assert report.tasks == 30 and sum(lane.tasks for lane in report.lanes) == 30
    assert len(report.lanes) == 2 and report.clock == "measured"
    assert report.advice == program.advise()
    run = program.submit(**arrays(20), workers=2, trace="full")
    run.wait()
    assert run.trace is not None and run.trace.report().tasks == 20
    assert "<svg" in run.trace.to_html()
    program.run(**arrays(20), workers=1, trace="full")
    assert program.report().busy_share["worker"] > 0


def test_a_run_that_was_not_recorded_is_refused(program: Program) -> None:
    for level in (None, True, "tasks"):
        program.run(**arrays(3), trace=level)
        with pytest.raises(NothingRecorded, match="doubled"):
            program.advise()
        with pytest.raises(NothingRecorded):
            program.report()


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_operators_of_users_get_no_advice(operator: Operator) -> None:
    program, values = operator.workload.compile(), operator.arguments()
    assert not advise(simulated(program, values, lambda _, task: 40_000 + task % 5 * 1_000, walk_ns=300))
    tries = [{advice.code for advice in advise(recorded(program, values))} for _ in range(4)]
    # What every run is told: other work on the machine disturbs single ones.
    assert not set.intersection(*tries) - {"shared-cores"}


PROGRAM = """
import numpy as np
from pto_wsp import In, InOut, P, Tensor, Tile, f32, kernel, pto, workload

@kernel
def add(x: In[Tile[1, 64, f32]], total: InOut[Tile[1, 64, f32]]):
    for i in range(3000):
        pto.store(total, pto.tanh(total + x))

@workload
def sums(X: Tensor[f32, "n", 64], Total: Tensor[f32, 1, 64]):
    for i in P("n"):
        add[i](x=X[i : i + 1], total=Total)

open("sums.pto", "w").write(str(sums.compile().module))
np.save("x.npy", np.ones((40, 64), np.float32))
"""


def test_the_command_line_advises(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "pto_wsp", "run", "sums.pto", "--input", "X=x.npy", "--workers", "2"]
    said = subprocess.run([*command, "--advise"], cwd=tmp_path, check=True, capture_output=True, text=True)
    # A run that other work disturbs is advised of that alone.
    serial = "advice[serial-loop]: iterations of `i in P(n)` wait for each other"
    assert serial in said.stdout or "advice[shared-cores]" in said.stdout
    quiet = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "advice" not in quiet.stdout + quiet.stderr
    piped = [*command, "--output", "Total=-", "--advise"]
    said = subprocess.run(piped, cwd=tmp_path, check=True, capture_output=True)
    assert b"advice[" in said.stderr and said.stdout.startswith(b"\x93NUMPY")
