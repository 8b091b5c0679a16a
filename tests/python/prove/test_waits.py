"""Symbolic waits order every conflict that the maps of a run find, and none of them can be left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given

from pto_wsp import Dense, In, InOut, Out, P, Tensor, Tile, errors, f32, kernel, pto, workload
from pto_wsp.interp.workload import BoundTask, expand
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.prove.replay import Replay
from pto_wsp.prove.waits import POINT, PREFIX, SymbolicWait, WaitBound, symbolic_waits
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.support.record import replace
from pto_wsp.tools.main import OK, main
from tests.generators.drawing import tries
from tests.generators.workloads import Sample, samples
from tests.python.lang.workload.test_networks import pipeline

pytest.importorskip("islpy")


@kernel
def copy(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, x)


@kernel
def add(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, x + y)


@kernel
def total(x: In[Tile[64, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, pto.colsum(x))


@workload
def chain(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    for i in P("n"):
        copy[i](x=X[i : i + 1], y=Y[i : i + 1])
    for j in P("n"):
        add[j](x=Y[j : j + 1], y=X[j : j + 1])


@workload
def apart(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    for i in P("n"):
        copy[i](x=X[i : i + 1], y=Y[i : i + 1])


@workload
def scan(X: Tensor[f32, "n", 8]):
    for i in P.range("n"):
        with P.when(i >= 2):
            add[i](x=X[i - 2 : i - 1], y=X[i : i + 1])


@workload
def triangle(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    for i in P("n"):
        copy[i](x=X[i : i + 1], y=Y[i : i + 1])
    for i in P("n"):
        total[i](x=Y[0 : i + 1], y=X[i : i + 1])


@workload
def layers(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8]):
    for layer in P.range(Dense[3]):
        for i in P("n"):
            copy[layer, i](x=X[i : i + 1], y=Y[i : i + 1])
        total[layer](x=Y, y=X[0:1])


WAITS = {
    chain: ["add[j]: counter copy[j]"],
    scan: ["add[i]: counter add[i - 2]", "add[i]: prefix add[<= i - 1]"],
    triangle: ["total[i]: prefix copy[<= i]"],
    layers: [
        "copy[layer, i]: prefix copy[<= layer - 1, i]",
        "copy[layer, i]: prefix total[<= layer - 1]",
        "total[layer]: prefix copy[<= layer - 1, *]",
        "total[layer]: prefix copy[layer, *]",
        "total[layer]: prefix total[<= layer - 1]",
    ],
}


def text_of(program: Workload) -> list[str]:
    return [str(wait) for wait in symbolic_waits(program.trace().module)]


def test_waits_are_expressions_of_loop_variables() -> None:
    for program in (chain, triangle, layers):
        assert text_of(program) == WAITS[program]
    assert text_of(scan)[0] in WAITS[scan]


def unordered(pairs: Sequence[tuple[BoundTask, BoundTask]], waits: Sequence[SymbolicWait]) -> bool:
    """Return whether some pair of tasks that conflict is ordered by no wait."""
    return any(not any(wait.covers(a, b) for wait in waits) for a, b in pairs)


def conflicts(module: Module, n: int) -> list[tuple[BoundTask, BoundTask]]:
    replay = Replay(module, {"n": n}, {})
    tasks = replay.tasks
    pairs = [(a, b) for at, b in enumerate(tasks) for a in tasks[:at]]
    return [(a.task, b.task) for a, b in pairs if replay.conflict(a, b) is not None]


def weakened(wait: SymbolicWait) -> list[SymbolicWait]:
    """Return a wait with one bound looser: another iteration, or one iteration fewer."""
    found = []
    for at, bound in enumerate(wait.bounds):
        if bound.kind in (POINT, PREFIX):
            looser = WaitBound(bound.kind, bound.loop, bound.offset - 1)
            found.append(replace(wait, bounds=(*wait.bounds[:at], looser, *wait.bounds[at + 1 :])))
    return found


@pytest.mark.parametrize("program", list(WAITS), ids=lambda program: program.name)
def test_no_wait_can_be_dropped_or_weakened(program: Workload) -> None:
    module = program.trace().module
    waits = symbolic_waits(module)
    runs = [conflicts(module, n) for n in (1, 2, 5, 7)]
    assert not any(unordered(pairs, waits) for pairs in runs)
    for wait in waits:
        rest = [other for other in waits if other is not wait]
        for instead in ([], *([looser] for looser in weakened(wait))):
            assert any(unordered(pairs, [*rest, *instead]) for pairs in runs), (str(wait), instead)


@given(samples())
@tries(20)
def test_waits_order_what_the_maps_of_a_run_order(sample: Sample) -> None:
    tasks = [*expand(sample.module.entry_workload, dict(sample.sizes))]
    if len(tasks) > 150:
        return
    waits = symbolic_waits(sample.module)
    program = compile_module(sample.module, "cpu")
    program.run(**sample.arrays(), **sample.sizes, workers=1, trace="full")
    assert program.trace is not None
    pairs = [(tasks[int(a)], tasks[int(b)]) for a, b, *_ in program.trace.dependences]
    assert not unordered(pairs, waits)


@given(samples())
@tries(8)
def test_waits_of_a_spent_budget_order_as_much(sample: Sample) -> None:
    tasks = [*expand(sample.module.entry_workload, dict(sample.sizes))]
    if len(tasks) > 150:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pto_wsp.prove.waits.MAX_PROGRAM_STEPS", 3)
        waits = symbolic_waits(sample.module)
    program = compile_module(sample.module, "cpu")
    program.run(**sample.arrays(), **sample.sizes, workers=1, trace="full")
    assert program.trace is not None
    pairs = [(tasks[int(a)], tasks[int(b)]) for a, b, *_ in program.trace.dependences]
    assert not unordered(pairs, waits)


def test_a_spent_budget_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pto_wsp.prove.waits.MAX_PROGRAM_STEPS", 0)
    waits = symbolic_waits(chain.trace().module)
    assert waits and all(wait.is_cut_off and wait.is_whole for wait in waits)
    assert "add[j]: prefix copy[*], undecided after 0 steps" in map(str, waits)


def test_the_command_prints_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chain.pto"
    file.write_text(str(chain.trace().module))
    assert main(["prove", str(file), "--waits"]) == OK
    assert capsys.readouterr().out == "add[j]: counter copy[j]\n"
    file.write_text(str(apart.trace().module))
    assert main(["prove", str(file), "--waits"]) == OK
    assert capsys.readouterr().out == "apart: no task waits for another one\n"


def test_networks_are_not_decided() -> None:
    net = pipeline(1)
    with pytest.raises(errors.NotYetSupported, match="waits of a network"):
        symbolic_waits(net.trace().module)
