"""Calendars of networks: the bits and errors of every run, on the cores that the table says."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp import (
    Calendar,
    CalendarPolicy,
    Channel,
    DenseDyn,
    In,
    Out,
    P,
    Program,
    Tensor,
    Tile,
    compile_module,
    f32,
    i32,
    kernel,
    network,
    process,
    pto,
    replicate,
    wait,
)
from pto_wsp.errors import (
    CalendarChanged,
    CalendarUndecided,
    CalendarUnordered,
    Deadlock,
    KernelFailed,
    PtoError,
    UnsupportedByTarget,
)
from pto_wsp.lang.workload.workload import Workload
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.networks import COLS, ROWS, random_network
from tests.python.runtime.network_kernels import checked, copy
from tests.python.schedule.test_calendar import without_a_wait

loaded = Channel("loaded", Tensor[f32, 4, 8], depth=2)
passed = Channel("passed", Tensor[f32, 4, 8], depth=2)


@process
def load(X: Tensor[f32, "n", 4, 8]) -> None:
    for i in P("n"):
        with loaded.send() as token:
            copy[i](x=X[i], y=token)


@process
def check(A: Tensor[i32, "n"]) -> None:
    for token in loaded.receive():
        i = token.index
        with passed.send() as result:
            checked[i](x=token, at=A[i : i + 1], y=result)


@process
def store(Y: Tensor[f32, "n", 4, 8]) -> None:
    for token in passed.receive():
        copy[token.index](x=token, y=Y[token.index])


STAGES = network(load, check, store)
PROGRAM = STAGES.compile("cpu")
N = 9


def arrays(n: int = N) -> dict[str, np.ndarray]:
    x = np.random.default_rng(3).random((n, 4, 8), np.float32)
    return {"X": x, "A": np.arange(n, dtype=np.int32), "Y": np.zeros_like(x)}


def outcome(program: Program, values: dict[str, Any], **options: Any) -> tuple[str, list[bytes]]:
    """Return the number of tasks or the error, without the number of tasks before it, and the arrays."""
    own = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}
    try:
        program.run(**own, **options)
        assert program.stats is not None
        text = str(program.stats.tasks)
    except PtoError as error:
        text = re.sub(r"\nnote: \d+ earlier tasks? may .*", "", str(error))
    return text, [value.tobytes() for value in own.values() if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_run_what_the_calendar_says(workers: int) -> None:
    values = arrays()
    calendar = PROGRAM.calendar(workers=workers, **values)
    assert len(calendar) == 3 * N
    names = {row.name for row in calendar.rows}
    assert names == {f"{kernel}[{i}]" for kernel in ("copy", "checked") for i in range(N)}
    for _ in range(3):
        PROGRAM.run(**values, calendar=calendar, trace=True)
        assert (values["Y"] == values["X"]).all()
        assert PROGRAM.stats is not None and PROGRAM.stats.has_calendar
        trace = PROGRAM.trace
        assert trace is not None and sorted(trace.dispatcher) == sorted([0, 1, 2] * N)
        by_number = {row.task: row for row in calendar.rows}
        for event in trace:
            assert (event.label, event.worker) == (by_number[event.task].name, by_number[event.task].core)
        values["Y"][:] = 0


def test_processes_overlap() -> None:
    """Three stages with buffers for two tokens take a third of the time on three workers."""
    one, three = (PROGRAM.calendar(workers=workers, **arrays()) for workers in (1, 3))
    assert one.makespan > 2 * three.makespan
    again = Calendar.from_text(three.to_text())
    assert outcome(PROGRAM, arrays(), calendar=again) == outcome(PROGRAM, arrays())


def test_tasks_of_one_process_overlap() -> None:
    """The order of a process is that of its conflicts: `P` of a network waits for buffers alone."""
    deep = Channel("deep", Tensor[f32, 4, 8], depth=16)

    @process
    def fill(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with deep.send() as token:
                copy[i](x=X[i], y=token)

    @process
    def drain(Y: Tensor[f32, "n", 4, 8]) -> None:
        for token in deep.receive():
            copy[token.index](x=token, y=Y[token.index])

    program = network(fill, drain).compile("cpu")
    x = arrays()["X"]
    one, three = (program.calendar(workers=workers, X=x, Y=x.copy()) for workers in (1, 3))
    assert one.makespan > 2.5 * three.makespan


def test_waits_that_are_left_out_are_found() -> None:
    values = arrays()
    calendar = PROGRAM.calendar(workers=3, **values)
    assert sum(len(row.waits) for row in calendar.rows) > N
    for broken in without_a_wait(calendar):
        with pytest.raises(CalendarUnordered, match="does not order task"):
            PROGRAM.run(**values, calendar=broken)


@tries(60, compiles=True)
@given(DRAWS)
def test_random_networks_run_by_calendars(draw: Draw) -> None:
    """Bit for bit, or the error of every run; no wait of the table is needless."""
    module = random_network(draw)
    note(str(module))
    program = compile_module(module, "cpu")
    tensors = [t for t in module.entry_workload.tensors if not t.is_local]
    values = {t.name: np.zeros((ROWS, 1, COLS), np.float32) for t in tensors}
    values["X"][:] = np.arange(ROWS * COLS).reshape(ROWS, 1, COLS)
    expected = outcome(program, values, workers=1)
    workers = draw.choice((1, 2, 3, 4))
    try:
        calendar = program.calendar(workers=workers, **values)
    except PtoError as error:
        assert str(error) == expected[0]
        return
    note(calendar.to_text())
    for _ in range(2):
        assert outcome(program, values, calendar=calendar) == expected
    for broken in itertools.islice(without_a_wait(calendar), 20):
        with pytest.raises(CalendarUnordered):
            program.run(**values, calendar=broken)


def test_sequences_of_a_process_are_barriers() -> None:
    rows = Channel("rows", Tensor[f32, 4, 8])

    @process
    def twice(X: Tensor[f32, "n", 4, 8], Z: Tensor[f32, "n", 4, 8]) -> None:
        for s in P.seq(3):
            for i in P("n"):
                copy[s, i](x=X[i], y=Z[i])
        with rows.send() as row:
            copy(x=Z[0], y=row)

    @process
    def last(Y: Tensor[f32, 1, 4, 8]) -> None:
        for s in P.seq(2):
            for row in rows.receive(1 - s):
                copy[s](x=row, y=Y[0])

    program = network(twice, last).compile("cpu")
    values = {"X": arrays()["X"], "Z": np.zeros((N, 4, 8), np.float32), "Y": np.zeros((1, 4, 8), np.float32)}
    calendar = program.calendar(workers=4, **values)
    end_of = {row.name: row.end for row in calendar.rows}
    start_of = {row.name: row.start for row in calendar.rows}
    for s in range(2):
        last_end = max(end_of[f"copy[{s}, {i}]"] for i in range(N))
        assert all(start_of[f"copy[{s + 1}, {i}]"] >= last_end for i in range(N))
    assert outcome(program, values, calendar=calendar) == outcome(program, values, workers=1)


def test_a_kernel_that_fails_is_named() -> None:
    values = arrays()
    calendar = PROGRAM.calendar(workers=3, **values)
    values["A"][4] = -1
    with pytest.raises(KernelFailed, match="the index is negative") as caught:
        PROGRAM.run(**values, calendar=calendar)
    assert "token = 4" in str(caught.value)


def test_the_directive_makes_calendars() -> None:
    program = STAGES.task_graph(calendar=CalendarPolicy.by_cost()).compile("cpu")
    for n in (N, 3, N, 0):
        for workers in (1, 2, 3):
            assert outcome(program, arrays(n), workers=workers) == outcome(PROGRAM, arrays(n), workers=1)
            assert program.stats is not None and program.stats.has_calendar


def test_replicas_and_other_sizes() -> None:
    program = network(load, *replicate(check, 3), store).compile("cpu")
    calendar = program.calendar(workers=2, **arrays())
    assert outcome(program, arrays(), calendar=calendar) == outcome(program, arrays(), workers=1)
    with pytest.raises(CalendarChanged, match="`n` differs"):
        program.run(**arrays(N - 1), calendar=calendar)


def test_a_network_in_a_deadlock_has_no_calendar() -> None:
    there, back = (Channel(name, depth=1, scalars=("n",)) for name in ("there", "back"))

    @process
    def first(n: DenseDyn) -> None:
        for i in P.range(n):
            with there.send(n=i):
                pass
        for _ in back.receive(n):
            pass

    @process
    def second() -> None:
        for token in there.receive():
            with back.send(n=token.index):
                pass

    program = network(first, second).compile("cpu")
    assert len(program.calendar(n=2)) == 0
    with pytest.raises(Deadlock, match="process `first` at"):
        program.calendar(n=3)


@kernel
def number(x: In[Tile[1, 1, i32]], y: Out[Tile[1, 1, i32]]) -> None:
    pto.store(y, x)


def test_what_tasks_decide_is_refused_with_its_line() -> None:
    count = Channel("count", Tensor[i32, 1, 1])

    @process
    def counts(M: Tensor[i32, 1, 1]) -> None:
        with count.send() as token:
            number(x=M, y=token)

    @process
    def runs(X: Tensor[f32, 1, 4, 8], Y: Tensor[f32, 1, 4, 8]) -> None:
        for token in count.receive():
            for i in P.range(token[0, 0]):
                copy[i](x=X[0], y=Y[0])

    program = network(counts, runs).compile("cpu")
    x = np.zeros((1, 4, 8), np.float32)
    with pytest.raises(CalendarUndecided, match="tasks write what is read here") as caught:
        program.calendar(M=np.ones((1, 1), np.int32), X=x, Y=x.copy())
    assert "in P.range(token[0, 0])" in str(caught.value)


def merged() -> Workload:
    shared = Channel("shared", Tensor[f32, 4, 8], merge="time")

    @process
    def early(X: Tensor[f32, 1, 4, 8]) -> None:
        with shared.send() as token:
            copy(x=X[0], y=token)

    @process
    def late(X: Tensor[f32, 1, 4, 8]) -> None:
        with shared.send() as token:
            copy(x=X[0], y=token)

    @process
    def keep(Y: Tensor[f32, 2, 4, 8]) -> None:
        for token in shared.receive():
            copy(x=token, y=Y[token.index])

    return network(early, late, keep, nondeterministic=True)


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_merges_by_time_are_refused(target: str) -> None:
    x = np.zeros((2, 4, 8), np.float32)
    with pytest.raises(CalendarUndecided, match="time decides the order of tokens of `shared`"):
        merged().compile(target).calendar(X=x[:1].copy(), Y=x)


def test_cores_of_a_device_follow_a_calendar() -> None:
    program = STAGES.compile("sim")
    values = arrays()
    calendar = program.calendar(**values)
    program.run(**values)
    assert program.stats is not None
    free = program.stats.cycles
    program.run(**values, calendar=calendar)
    assert (values["Y"] == values["X"]).all()
    assert program.stats is not None and calendar.makespan <= program.stats.cycles <= free
    broken = next(without_a_wait(calendar))
    with pytest.raises(CalendarUnordered):
        program.run(**values, calendar=broken)


def test_a_clock_is_refused() -> None:
    @process
    def slow(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            wait(100)
            with loaded.send() as token:
                copy[i](x=X[i], y=token)

    values = arrays()
    program = network(slow, check, store).compile("sim")
    with pytest.raises(UnsupportedByTarget, match="a calendar of a network with `wait`"):
        program.calendar(**values)
    on_cpu = network(slow, check, store).compile("cpu")
    assert outcome(on_cpu, values, calendar=on_cpu.calendar(workers=2, **values))[0] == str(3 * N)
