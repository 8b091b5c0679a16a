"""Traces of networks: every task once, on the process that made it, after those that it depends on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import Channel, P, Program, Tensor, f32, network, process, replicate
from pto_wsp.errors import NotYetSupported, UnsupportedByTarget
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.trace import Trace
from pto_wsp.tools.main import main
from tests.python.runtime.network_kernels import copy
from tests.python.runtime.scripts import run_script

N = 23


def pipeline() -> Workload:
    """A load, two replicas and a store."""
    loaded, ready = (Channel(name, Tensor[f32, 4, 8], depth=3) for name in ("loaded", "ready"))

    @process
    def load(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with loaded.send() as token:
                copy[i](x=X[i], y=token)

    @process
    def work() -> None:
        for token in loaded.receive():
            with ready.send() as result:
                copy[token.index](x=token, y=result)

    @process
    def store(Y: Tensor[f32, "n", 4, 8]) -> None:
        for token in ready.receive():
            copy[token.index](x=token, y=Y[token.index])

    return network(load, replicate(work, 2), store)


def traced(program: Program, workers: int, level: bool | str = True) -> Trace:
    x, y = np.random.default_rng(1).random((N, 4, 8), np.float32), np.zeros((N, 4, 8), np.float32)
    program.run(X=x, Y=y, workers=workers, trace=level)
    assert np.array_equal(x, y)
    assert program.trace is not None
    return program.trace


@pytest.mark.parametrize("workers", [1, 3])
def test_every_task_is_recorded_with_its_process_and_coordinates(workers: int) -> None:
    trace = traced(pipeline().compile(), workers)
    assert len(trace) == 3 * N and trace.num_workers == workers
    assert np.bincount(trace.dispatcher).tolist() == [N, N // 2 + 1, N // 2, N]
    assert np.all(trace.end_ns >= trace.start_ns) and np.all(np.diff(trace.start_ns) >= 0)
    found = {number: [event.keys[0] for event in trace if event.dispatcher == number] for number in range(4)}
    # The coordinate of a replica is the number of the token, which it gets in turn.
    assert found == {0: [*range(N)], 1: [*range(0, N, 2)], 2: [*range(1, N, 2)], 3: [*range(N)]}


@pytest.mark.parametrize("workers", [1, 3])
def test_dependences_follow_tokens(workers: int) -> None:
    trace = traced(pipeline().compile(), workers)
    events = [*trace]
    assert np.all(trace.dependences[:, 0] < trace.dependences[:, 1])
    written = {
        (events[a].dispatcher, events[b].dispatcher, events[b].keys[0] - events[a].keys[0])
        for a, b, reason, _ in trace.dependences
        if reason == 0
    }
    assert written == {(0, 1, 0), (0, 2, 0), (1, 3, 0), (2, 3, 0)}
    a, b = trace.dependences[:, 0], trace.dependences[:, 1]
    assert np.all(trace.end_ns[a] <= trace.start_ns[b])


def test_traces_are_drawn(tmp_path: Path) -> None:
    trace = traced(pipeline().compile(), 2, "full")
    path = tmp_path / "run.json"
    trace.save(path)
    assert len([e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]) >= 3 * N
    assert main(["visualize", str(path), "-o", str(tmp_path / "run.svg")]) == 0
    assert "<svg" in (tmp_path / "run.svg").read_text()
    assert "<svg" in trace.to_html() and "<svg" in trace.to_svg()
    with pytest.raises(NotYetSupported, match="network"):
        trace.advise()


def test_a_simulated_network_has_a_report_in_place_of_a_trace() -> None:
    program = pipeline().compile(target="sim")
    x = np.zeros((N, 4, 8), np.float32)
    with pytest.raises(UnsupportedByTarget, match="report_of"):
        program.run(X=x, Y=x.copy(), trace=True)


FORKED = """
import os, sys
import numpy as np
from tests.python.runtime.test_network_traces import N, pipeline

program = pipeline().compile()
x, y = np.random.default_rng(2).random((N, 4, 8), np.float32), np.zeros((N, 4, 8), np.float32)
program.run(X=x, Y=y, workers=3)
child = os.fork()
y[:] = 0
for workers in (1, 3):
    program.run(X=x, Y=y, workers=workers)
is_equal = np.array_equal(x, y)
if child == 0:
    os._exit(0 if is_equal else 1)
assert is_equal and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_forked_child_and_its_parent_run_networks(tmp_path: Path) -> None:
    done = run_script(FORKED, tmp_path)
    assert done.returncode == 0, done.stderr
