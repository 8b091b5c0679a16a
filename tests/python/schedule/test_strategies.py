"""Strategies: each run chooses its schedule by its sizes, and nothing is compiled."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DispatchPolicy,
    In,
    Out,
    P,
    Ragged,
    Schedule,
    Strategies,
    Tensor,
    Tile,
    TracePolicy,
    f32,
    kernel,
    pto,
    stage,
    workload,
)
from pto_wsp.errors import BadKey, UnknownName, UnsupportedByTarget, UnusableFile, WrongValue
from tests.python.schedule.programs import totals


def chosen(s: Any) -> str:
    """Choose by the number of rows and their mean length, as specification 001 section 4.2 does."""
    if s.batch >= 8 and s.rows.mean() > 40:
        return "in turn"
    return "by batch" if s.batch >= 4 else "default"


STRATEGIES = Strategies(
    {
        "default": Schedule().task_graph(trace=TracePolicy.tasks()),
        "by batch": Schedule().order_by(lambda t: t.b).dispatch(DispatchPolicy.round_robin(2)),
        "in turn": Schedule().interleave(lambda t: t.b, 4).concurrent(lambda t: t.b, max=4),
    },
    choose=chosen,
)


def arguments(lengths: list[int]) -> dict[str, Any]:
    n = len(lengths)
    x = np.random.default_rng(0).standard_normal((sum(lengths), 4, 8), np.float32)
    return {
        "rows": Ragged.lengths(lengths),
        "X": x,
        "Y": np.empty((n, 4, 1, 8), np.float32),
        "Z": np.ones((n, 1, 8), np.float32),
    }


def test_runs_choose_by_sizes_and_lengths() -> None:
    program = totals.compile("cpu")
    program.reschedule(STRATEGIES)
    assert program.schedule is STRATEGIES
    program.run(**arguments([1]))
    for lengths, name in (
        ([3] * 9, "by batch"),
        ([70] * 8, "in turn"),
        ([5, 6], "default"),
        ([70] * 8, "in turn"),
    ):
        values = arguments(lengths)
        program.run(**values, workers=2)
        assert program.stats is not None and program.stats.schedule == name and name in str(program.stats)
        assert program.stats.compiles == 0
        assert program.module.schedule == STRATEGIES.schedules[name].policies
        assert (program.trace is not None) == (name == "default")
        assert (program.stats.counters["dispatchers"] == 2) or name != "by batch"
        parts = np.split(values["X"], np.cumsum(lengths)[:-1])
        np.testing.assert_allclose(
            values["Y"][:, :, 0], [part.sum(0) for part in parts], rtol=1e-4, atol=1e-4
        )
    run = program.submit(**arguments([3] * 9))
    assert run.wait().schedule == "by batch"
    program.reschedule(Schedule())
    program.run(**arguments([70] * 8))
    assert program.stats.schedule == "" and program.schedule == Schedule()


@kernel
def indexer(x: In[Tile[1, 8, f32]], s: Out[Tile[1, 8, f32]]):
    pto.store(s, x * 2.0)


@kernel
def attention(s: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, pto.exp(s))


@workload
def deepseek(
    lens: Ragged["batch"],
    X: Tensor[f32, "tokens", 1, 8],
    S: Tensor[f32, "tokens", 1, 8],
    Y: Tensor[f32, "tokens", 1, 8],
):
    for b in P("batch"):
        for t in P(lens[b]):
            indexer[b, t](x=X[lens[b][t]], s=S[lens[b][t]])
            attention[b, t](s=S[lens[b][t]], y=Y[lens[b][t]])


def select_schedule(s: Any) -> str:
    if s.batch >= 8 and s.lens.mean() > 4096:
        return "pipeline"
    return "batch-locality" if s.batch >= 4 else "default"


SPECIFIED = Strategies(
    {
        "default": Schedule().order_by(lambda t: t.kernel, lambda t: t.b),
        "batch-locality": Schedule().order_by(lambda t: t.b, lambda t: t.kernel),
        "interleaved": Schedule().interleave(lambda t: t.b, 4).order_by(lambda t: t.kernel),
        "pipeline": Schedule()
        .pipeline(stage(indexer, cores=8), stage(attention, cores=16))
        .concurrent(lambda t: t.b, max=4),
    },
    choose=select_schedule,
)


def test_the_sample_of_the_specification() -> None:
    """The schedules of specification 001, section 4.1, chosen as in section 4.2."""
    program = deepseek.compile("cpu")
    program.reschedule(SPECIFIED)
    for lengths, name in (([3, 5], "default"), ([7] * 5, "batch-locality"), ([4097] * 8, "pipeline")):
        x = np.random.default_rng(0).standard_normal((sum(lengths), 1, 8), np.float32)
        found = []
        for workers in (1, 3):
            y = np.empty_like(x)
            program.run(lens=Ragged.lengths(lengths), X=x, S=np.empty_like(x), Y=y, workers=workers)
            assert program.stats is not None and program.stats.schedule == name
            found.append(y)
        assert found[0].tobytes() == found[1].tobytes()
        np.testing.assert_allclose(found[0], np.exp(2 * x), rtol=1e-5)


def test_threads_that_choose_do_not_disturb_each_other() -> None:
    program = totals.compile("cpu")
    program.reschedule(STRATEGIES)
    found: dict[int, set[str]] = {}

    def work(n: int) -> None:
        found[n] = {program.submit(**arguments([9] * n), workers=2).wait().schedule for _ in range(20)}

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {2: {"default"}, 5: {"by batch"}}


def test_mistakes_are_named(tmp_path: Path) -> None:
    program = totals.compile("cpu")
    for schedules, choose in (
        ({}, chosen),
        ([Schedule()], chosen),
        ({"a": 3}, chosen),
        ({"a": Schedule()}, "a"),
    ):
        with pytest.raises(WrongValue):
            Strategies(schedules, choose=choose)  # pyright: ignore[reportArgumentType]
    program.reschedule(Strategies({"a": Schedule()}, choose=lambda s: "b"))
    with pytest.raises(WrongValue, match="expected 'a', found 'b'"):
        program.run(**arguments([2]))
    program.reschedule(Strategies({"a": Schedule()}, choose=lambda s: s.rowz))
    with pytest.raises(UnknownName, match="rowz"):
        program.run(**arguments([2]))
    for write in (lambda: program.save(tmp_path / "a.pto"), lambda: program.export(tmp_path / "a")):
        with pytest.raises(UnusableFile, match="runs choose its schedule"):
            write()
    with pytest.raises(BadKey):
        program.reschedule(Strategies({"a": Schedule().order_by(lambda t: t.nothing)}, choose=chosen))
    with pytest.raises(UnsupportedByTarget, match="follows no loop"):
        program.reschedule(Strategies({"a": Schedule().concurrent(lambda t: t.kernel, max=2)}, choose=chosen))
    with pytest.raises(WrongValue, match="a Schedule, or Strategies"):
        program.reschedule(3)  # pyright: ignore[reportArgumentType]


def test_interp_chooses_too() -> None:
    program = totals.compile("interp")
    program.reschedule(Strategies({"a": Schedule(), "b": Schedule()}, choose=lambda s: "ab"[s["batch"] % 2]))
    program.run(**arguments([2, 0, 1]))
    assert program.stats is not None and program.stats.schedule == "b"
