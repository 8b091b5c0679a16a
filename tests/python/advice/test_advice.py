"""Every advice: a program that has the fault is told so, the mended program is not."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    DYN,
    In,
    InOut,
    MemLayout,
    Out,
    P,
    Pools,
    Ragged,
    Scalar,
    StartPolicy,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.advice.advice import Advice, Advices
from pto_wsp.advice.case import Case
from pto_wsp.advice.machine import Machine
from pto_wsp.advice.registry import RULES, advise
from pto_wsp.support.record import replace
from pto_wsp.visualize.timeline import STALLS
from tests.python.advice.simulated import L2, recorded, simulated


def only(case: Case, code: str) -> Advice:
    """Return the only advice on a run."""
    (found,) = advise(case)
    assert found.code == code
    return found


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


# --- finding-dependences ---


@kernel
def add_row(x: In[Tile[1, 64, f32]], y: InOut[Tile[1, 64, f32]]):
    pto.store(y, y + x)


@workload
def rows(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64]):
    for i in P("n"):
        add_row[i](x=X[i : i + 1], y=Y[i : i + 1])
    for i in P("n"):
        add_row[i](x=X[i : i + 1], y=Y[i : i + 1])


def test_time_for_finding_dependences_is_told_with_its_pairs() -> None:
    arrays = dict(X=zeros(200, 64), Y=zeros(200, 64))
    slow = simulated(rows, arrays, lambda *_: 4_000, walk_ns=6_000)
    found = only(slow, "finding-dependences")
    assert "takes 60% of the workers' time: 6 us per task" in found.message
    assert found.notes[0][0] == "`add_row` waits for `add_row` through `Y`: 200 of 200 dependences"
    assert "StartPolicy.after_build()" in found.example and found.share == pytest.approx(0.6, abs=0.01)
    assert not advise(simulated(rows, arrays, lambda *_: 4_000, walk_ns=200))


def test_a_graph_that_is_kept_already_is_not_recommended() -> None:
    arrays = dict(X=zeros(200, 64), Y=zeros(200, 64))
    program = rows.task_graph(start=StartPolicy.after_build()).compile()
    found = only(simulated(program, arrays, lambda *_: 4_000, walk_ns=6_000), "finding-dependences")
    assert found.remedy == "give each task more work"
    assert found.example == 'for i in P.tiles("n", 64):\n    add_row[i](...)'


@kernel
def count(x: In[Tile[1, 64, f32]], n: Out[Tile[1, 1, i32]]):
    pto.store(n, pto.cast(pto.rowsum(x), i32))


@workload
def counted(X: Tensor[f32, "n", 64], N: Tensor[i32, 1, 1], Y: Tensor[f32, "n", 64]):
    count(x=X[0:1], n=N)
    for i in P(N[0, 0]):
        add_row[i](x=X[i : i + 1], y=Y[i : i + 1])


def test_a_graph_that_cannot_be_kept_is_not_recommended() -> None:
    arrays = dict(X=np.ones((64, 64), np.float32), N=np.zeros((1, 1), np.int32), Y=zeros(64, 64))
    found = only(simulated(counted, arrays, lambda *_: 20_000, walk_ns=30_000), "finding-dependences")
    assert found.remedy == "give each task more work"


# --- short-bodies ---


@kernel
def add_rows(x: In[Tile[64, 64, f32]], y: InOut[Tile[64, 64, f32]]):
    pto.store(y, y + x)


@workload
def tiles(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64]):
    for r in P.tiles("n", 64):
        add_rows[r](x=X[r], y=Y[r])


def test_bodies_too_short_to_share_are_told() -> None:
    arrays = dict(X=zeros(4_000, 64), Y=zeros(4_000, 64))
    found = only(simulated(rows, arrays, lambda *_: 150, walk_ns=130), "short-bodies")
    assert found.message == "4,000 tasks of `add_row` take 150 ns on average, too little to share"
    assert found.example == 'for i in P.tiles("n", 64):\n    add_row[i](...)'
    assert found.loc is not None and found.loc.source_line() is not None
    assert not advise(simulated(tiles, arrays, lambda *_: 9_600, walk_ns=130))


# --- serial-loop ---


@workload
def sum_in_place(X: Tensor[f32, "n", 64], Total: Tensor[f32, 1, 64]):
    for i in P("n"):
        add_row[i](x=X[i : i + 1], y=Total)


@workload
def sum_by_parts(X: Tensor[f32, 8, "m", 64], Part: Tensor[f32, 8, 64], Total: Tensor[f32, 1, 64]):
    for p in P(8):
        for i in P.range("m"):
            add_row[p, i](x=X[p, i : i + 1], y=Part[p : p + 1])
    for p in P.range(8):
        add_row[p](x=Part[p : p + 1], y=Total)


def test_a_parallel_loop_that_data_serialises_is_told_with_its_tensor() -> None:
    arrays = dict(X=zeros(64, 64), Total=zeros(1, 64))
    found = only(simulated(sum_in_place, arrays, lambda *_: 20_000), "serial-loop")
    assert found.message == (
        "iterations of `i in P(n)` wait for each other through `Total`: 64 of 64 are one chain"
    )
    assert found.label == "read after write of `Total`, 63 times"
    assert found.example == 'for i in P("n"):\n    add_row[i](..., y=Total_parts[i])'
    assert found.loc is not None and 'P("n")' in (found.loc.source_line() or "")
    assert found.gain_ns == pytest.approx(640_000, rel=0.01)
    parts = dict(X=zeros(8, 8, 64), Part=zeros(8, 64), Total=zeros(1, 64))
    assert not advise(simulated(sum_by_parts, parts, lambda _, task: 20_000 if task < 64 else 1_000))
    assert not advise(simulated(sum_in_place, arrays, lambda *_: 20_000, workers=1))


@kernel
def use_scratch(x: In[Tile[1, 64, f32]], scratch: Out[Tile[1, 64, f32]]):
    pto.store(scratch, x * 2.0)


@workload
def one_scratch(X: Tensor[f32, "n", 64], Scratch: Tensor[f32, 1, 64]):
    for i in P("n"):
        use_scratch[i](x=X[i : i + 1], scratch=Scratch)


def test_iterations_that_only_write_the_same_memory_need_memory_of_their_own() -> None:
    case = simulated(one_scratch, dict(X=zeros(64, 64), Scratch=zeros(1, 64)), lambda *_: 20_000)
    found = only(case, "serial-loop")
    assert found.remedy == "give each iteration a part of `Scratch` of its own"
    assert found.label == "write after write of `Scratch`, 63 times"


# --- idle-workers ---


@workload
def whole_steps(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64], steps: Scalar[i64]):
    for s in P.seq(steps):
        add_rows[s](x=X, y=Y)


@workload
def tiled_steps(X: Tensor[f32, "n", 64], Y: Tensor[f32, "n", 64], steps: Scalar[i64]):
    for s in P.seq(steps):
        for r in P.tiles("n", 16):
            add_rows[s, r](x=X[r], y=Y[r])


def test_a_chain_that_leaves_workers_idle_is_told() -> None:
    arrays = dict(X=zeros(64, 64), Y=zeros(64, 64), steps=20)
    found = only(simulated(whole_steps, arrays, lambda *_: 40_000), "idle-workers")
    assert found.message.startswith(
        "workers idle 50% of the time: tasks that must follow each other take 800"
    )
    assert found.notes[0][0] == ("the chain has 20 of `add_rows`, 800 us, mostly by read after write of `Y`")
    assert found.gain_ns == pytest.approx(400_000, rel=0.01)
    assert not advise(simulated(tiled_steps, arrays, lambda *_: 10_000))


def test_a_single_long_task_is_told() -> None:
    arrays = dict(X=zeros(64, 64), Y=zeros(64, 64), steps=1)
    found = only(simulated(whole_steps, arrays, lambda *_: 900_000), "idle-workers")
    assert "one task of `add_rows` takes 900 us" in found.message


@kernel
def total_of(x: In[Tensor[f32, DYN, 64]], y: Out[Tile[1, 64, f32]]):
    total = pto.zeros((1, 64))
    for r in pto.tiles(x.rows, 16):
        total = total + pto.colsum(x[r])
    pto.store(y, total)


@workload
def ragged_totals(rows: Ragged["batch"], X: Tensor[f32, "tokens", 64], Y: Tensor[f32, "batch", 64]):
    for b in P("batch"):
        total_of[b](x=X[rows[b]], y=Y[b : b + 1])


def test_a_long_task_that_starts_last_is_told() -> None:
    arrays = dict(rows=Ragged.lengths([1] * 20), X=zeros(20, 64), Y=zeros(20, 64))
    late = simulated(ragged_totals, arrays, lambda _, task: 600_000 if task == 19 else 50_000)
    found = only(late, "idle-workers")
    assert "the last task of `total_of` runs 550 us while no other task runs" in found.message
    assert ".order_by(lambda t: -t.args.x.rows)" in found.example
    assert not advise(simulated(ragged_totals, arrays, lambda _, t: 600_000 if t == 0 else 50_000))


@pytest.mark.parametrize(("reason", "said"), [*enumerate(("TaskWindow", "add_rows", "late as", "Pools"))])
def test_a_dispatcher_that_is_stopped_is_told_with_the_reason(reason: int, said: str) -> None:
    arrays = dict(X=zeros(40 * 64, 64), Y=zeros(40 * 64, 64))
    case = simulated(tiles, arrays, lambda *_: 100_000, workers=4)
    run = replace(case.run, num_workers=8, stalls=np.array([[0, reason, 100, 1_000_000]]))
    machine = Machine(L2, {})
    stopped = Case(run, case.module, case.nodes, case.loops, case.places, machine)
    rest = stopped.report.waiting_ns
    run = replace(run, stalls=np.array([[0, reason, 100, 100 + rest]]))
    found = only(Case(run, case.module, case.nodes, case.loops, case.places, machine), "idle-workers")
    assert said in found.remedy + found.example and "1 times" in found.message, STALLS[reason]
    brief = replace(run, stalls=np.array([[0, reason, 100, 200]]))
    assert not advise(Case(brief, case.module, case.nodes, case.loops, case.places, machine))


def test_pools_that_divide_tasks_unevenly_are_told() -> None:
    arrays = dict(X=zeros(40 * 64, 64), Y=zeros(40 * 64, 64))
    pooled = tiles.task_graph(pools=Pools.custom(lambda t: t.r // 100, [1]))
    case = simulated(pooled.compile(), arrays, lambda *_: 50_000, workers=1)
    uneven = replace(case.run, num_workers=2)
    machine = Machine(L2, {})
    case = Case(uneven, case.module, case.nodes, case.loops, case.places, machine)
    found = only(case, "idle-workers")
    assert "worker 0 is busy 100% of the time, worker 1 0%" in found.message
    assert "Pools.custom" in found.example
    assert not advise(simulated(pooled.compile(), arrays, lambda *_: 50_000))
    plain = replace(case.module, schedule=tiles.compile().module.schedule)
    assert not advise(Case(uneven, plain, case.nodes, case.loops, case.places, machine))


# --- strided-weights ---


@kernel
def product(x: In[Tile[16, 512, f32]], w: In[Tensor[f32, 512, 64]], y: Out[Tile[16, 64, f32]]):
    acc = pto.zeros((16, 64))
    for k in pto.tiles(512, 256):
        acc = pto.matmul(x[:, k], w[k], acc=acc)
    pto.store(y, acc)


@workload
def linear(X: Tensor[f32, 16, 512], W: Tensor[f32, 512, 1024], Y: Tensor[f32, 16, 1024]):
    for c in P.tiles(1024, 64):
        product[c](x=X, w=W[:, c], y=Y[:, c])


PANELS = MemLayout.panels(64)


@workload
def packed_linear(X: Tensor[f32, 16, 512], W: Tensor[f32, 512, 1024, PANELS], Y: Tensor[f32, 16, 1024]):
    for c in P.tiles(1024, 64):
        product[c](x=X, w=W[:, c], y=Y[:, c])


def test_weights_whose_rows_are_far_apart_are_told() -> None:
    arrays = dict(X=zeros(16, 512), W=zeros(512, 1024), Y=zeros(16, 1024))
    found = only(simulated(linear, arrays, lambda *_: 400_000), "strided-weights")
    assert found.message == "16 tasks of `product` multiply by columns of `W`, whose rows are 4.0 KB apart"
    assert found.label == "512 pieces of 256 B per task"
    assert "W: Tensor[f32, 512, 1024, MemLayout.panels(64)]" in found.example
    packed = {**arrays, "W": PANELS.pack(arrays["W"])}
    assert not advise(simulated(packed_linear, packed, lambda *_: 400_000))


# --- large-tiles ---


@kernel
def softmax_of_all(x: In[Tile[2048, 1024, f32]], y: Out[Tile[2048, 1024, f32]]):
    p = pto.exp(x - pto.rowmax(x))
    pto.store(y, p / pto.rowsum(p))


@workload
def softmax(X: Tensor[f32, 2048, 1024], Y: Tensor[f32, 2048, 1024]):
    softmax_of_all(x=X, y=Y)


@kernel
def softmax_of_some(x: In[Tile[64, 1024, f32]], y: Out[Tile[64, 1024, f32]]):
    p = pto.exp(x - pto.rowmax(x))
    pto.store(y, p / pto.rowsum(p))


@workload
def tiled_softmax(X: Tensor[f32, 2048, 1024], Y: Tensor[f32, 2048, 1024]):
    for r in P.tiles(2048, 64):
        softmax_of_some[r](x=X[r], y=Y[r])


def test_tiles_beyond_the_second_cache_are_told() -> None:
    arrays = dict(X=zeros(2048, 1024), Y=zeros(2048, 1024))
    codes = {a.code: a for a in advise(simulated(softmax, arrays, lambda *_: 9_000_000))}
    found = codes["large-tiles"]
    assert found.message == (
        "the tiles of `softmax_of_all` take 16.0 MB, and the second-level cache has 2.0 MB"
    )
    assert found.loc is not None and "pto.exp" in (found.loc.source_line() or "")
    assert not advise(simulated(tiled_softmax, arrays, lambda *_: 300_000))


# --- shared-cores ---


def test_workers_without_cores_are_told_and_timed_advice_is_left_out() -> None:
    arrays = dict(X=zeros(200, 64), Y=zeros(200, 64))
    case = simulated(rows, arrays, lambda *_: 4_000, walk_ns=6_000)
    machine = Machine(L2, {}, cpu_ns=(case.report.busy_ns + case.report.walking_ns) // 2)
    busy = Case(case.run, case.module, case.nodes, case.loops, case.places, machine)
    found = only(busy, "shared-cores")
    assert "workers had no core for 50% of the time" in found.message
    calm = Machine(L2, {}, cpu_ns=case.report.busy_ns + case.report.walking_ns)
    found = only(
        Case(case.run, case.module, case.nodes, case.loops, case.places, calm), "finding-dependences"
    )
    assert found.gain_ns > 0


# --- all of them ---


def test_every_rule_has_a_name_of_its_own_and_a_text() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert all(rule.says and rule.evidence and rule.remedy for rule in RULES)


def test_an_advice_is_a_text_with_source_line_gain_and_remedy() -> None:
    arrays = dict(X=zeros(64, 64), Total=zeros(1, 64))
    found = advise(simulated(sum_in_place, arrays, lambda *_: 20_000))
    lines = str(found).splitlines()
    assert lines[0].startswith("advice[serial-loop]: ") and "-->" in lines[1]
    assert lines[3].endswith('    for i in P("n"):') and "^^^^" in lines[4]
    assert "at stake: up to 640 us, 50% of the run" in lines
    assert lines[-3].startswith("help: give each iteration a part of `Total` of its own")
    assert str(Advices()) == ""


def test_small_gains_are_not_worth_an_advice() -> None:
    arrays = dict(X=zeros(8, 64), Total=zeros(1, 64))
    assert not advise(simulated(sum_in_place, arrays, lambda *_: 20_000))


def test_a_run_without_tasks_has_no_advice() -> None:
    case = recorded(rows.compile(), dict(X=zeros(0, 64), Y=zeros(0, 64)))
    assert not advise(case) and case.report.tasks == 0 and str(case.report)
