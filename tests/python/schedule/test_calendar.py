"""Calendars: tasks run where the table says and in its order, and a table that does not fit is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from examples.cases import cases, copied
from pto_wsp import (
    Calendar,
    CalendarPolicy,
    Deps,
    In,
    InOut,
    Out,
    P,
    Program,
    Ragged,
    Schedule,
    Session,
    StartPolicy,
    Strategies,
    Tensor,
    Tile,
    f32,
    i32,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import (
    BadCalendar,
    CalendarChanged,
    CalendarUndecided,
    CalendarUnordered,
    PtoError,
    UnboundTensor,
    UnknownParameter,
    UnsupportedByTarget,
    UnusableFile,
    WrongValue,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.types import DYN
from tests.generators.drawing import tries
from tests.generators.workloads import samples
from tests.python.schedule.failing import copies, expect_first_failure
from tests.slow import mostly_slow


@kernel
def double(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, x * 2.0)


@kernel
def add(p: In[Tile[1, 8, f32]], q: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, y * 0.5 + p + q)


@kernel
def total(x: In[Tensor[f32, DYN, 8]], y: Out[Tile[1, 8, f32]]):
    acc = pto.zeros((1, 8))
    for r in pto.tiles(x.rows, 4):
        acc = acc + pto.colsum(x[r])
    pto.store(y, acc)


@kernel
def count(x: InOut[Tile[1, 1, i32]]):
    pto.store(x, x + 1)


@workload
def mixed(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], Z: Tensor[f32, "n", 8]):
    """Edges between loops, a chain, and a barrier."""
    for i in P("n"):
        double[i](x=X[i : i + 1], y=Y[i : i + 1])
    for i in P.range("n"):
        with P.when(i > 0):
            add[i](p=Y[i : i + 1], q=Z[i - 1 : i], y=Z[i : i + 1])
    for s in P.seq(2):
        for i in P("n"):
            double[s, i](x=Z[i : i + 1], y=Y[i : i + 1])


@workload
def sums(rows: Ragged["batch"], X: Tensor[f32, "tokens", 8], Y: Tensor[f32, "batch", 8]):
    for b in P("batch"):
        total[b](x=X[rows[b]], y=Y[b : b + 1])


@workload
def undecided(X: Tensor[f32, "n", 8], Y: Tensor[f32, "n", 8], steps: Tensor[i32, 1, 1]):
    count(x=steps)
    for _ in P.range(steps[0, 0]):
        for i in P("n"):
            double[i](x=X[i : i + 1], y=Y[i : i + 1])


MIXED = mixed.compile("cpu")
N = 12


def arrays(n: int = N) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {name: rng.random((n, 8), np.float32) for name in "XYZ"}


def results(program: Program, values: dict[str, Any], **options: Any) -> list[bytes]:
    own = {name: v.copy() if isinstance(v, np.ndarray) else v for name, v in values.items()}
    program.run(**own, **options)
    return [v.tobytes() for v in own.values() if isinstance(v, np.ndarray)]


def edited(calendar: Calendar) -> Any:
    return json.loads(calendar.to_text())


def without_a_wait(calendar: Calendar) -> Iterator[Calendar]:
    """Yield the calendar without each of its waits."""
    table = edited(calendar)
    for row in table["rows"]:
        for i in range(len(row[5])):
            wait = row[5].pop(i)
            yield Calendar.from_text(json.dumps(table))
            row[5].insert(i, wait)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_workers_run_what_the_calendar_says(workers: int) -> None:
    values = arrays()
    expected = results(MIXED, values, workers=1)
    calendar = MIXED.calendar(workers=workers, **values)
    assert len(calendar) == 4 * N - 1 and len(calendar.cores) == workers
    for _ in range(5):
        assert results(MIXED, values, calendar=calendar, trace=True) == expected
        assert MIXED.stats is not None and MIXED.stats.has_calendar and MIXED.stats.workers == workers
        trace = MIXED.trace
        assert trace is not None
        for worker in range(workers):
            placed = [row.task for row in calendar.rows if row.core == worker]
            ran = np.flatnonzero(trace.worker == worker)
            assert list(ran[np.argsort(trace.start_ns[ran], kind="stable")]) == placed


@pytest.mark.parametrize("workers", [2, 4])
def test_waits_that_are_left_out_are_found(workers: int) -> None:
    values = arrays()
    calendar = MIXED.calendar(workers=workers, **values)
    assert sum(len(row.waits) for row in calendar.rows) > workers
    for broken in without_a_wait(calendar):
        with pytest.raises(CalendarUnordered, match="does not order task"):
            results(MIXED, values, calendar=broken)
    assert results(MIXED, values, calendar=calendar) == results(MIXED, values, workers=1)


@tries(10, compiles=True)
@given(st.data())
def test_random_programs_run_by_calendars(data: st.DataObject) -> None:
    """Bit for bit, and no wait of the table is needless."""
    sample = data.draw(samples())
    note(str(sample.module))
    program = compile_module(verify(sample.module))
    values: dict[str, Any] = {**sample.arrays(), "n": sample.sizes["n"]}
    names = [p.name for p in sample.module.entry_workload.params]
    values = {name: value for name, value in values.items() if name in names}
    expected = results(program, values, workers=1)
    workers = data.draw(st.integers(2, 4))
    calendar = program.calendar(workers=workers, **values)
    note(calendar.to_text())
    for _ in range(3):
        assert results(program, values, calendar=calendar) == expected
    for broken in itertools.islice(without_a_wait(calendar), 30):
        with pytest.raises(CalendarUnordered):
            results(program, values, calendar=broken)


@pytest.mark.parametrize("name", mostly_slow(dict(cases()), quick=3))
def test_examples(name: str) -> None:
    """Each example has the bits of every run by a calendar, or is refused with a line."""
    example = dict(cases())[name]()
    program = compile_module(example.module)
    values = {key: copied(value) for key, value in example.arguments.items()}
    try:
        calendar = program.calendar(workers=2, **values)
    except CalendarUndecided as error:
        assert w.deciding_tensors(example.module.entry_workload.body) & example.module.written or merges(
            example.module
        )
        assert error.loc is not None
        return
    expected = results(program, values, workers=1)
    assert results(program, values, calendar=calendar) == expected
    assert program.stats is not None and program.stats.tasks == len(calendar)


def merges(module: Module) -> bool:
    rings = (tensor.channel for tensor in module.entry_workload.tensors)
    return any(ring is not None and ring.merge != w.TURNS for ring in rings)


def test_a_run_without_a_calendar_has_none() -> None:
    results(MIXED, arrays(), workers=2)
    assert MIXED.stats is not None and not MIXED.stats.has_calendar


def test_runs_by_calendars_and_by_dispatchers_alternate() -> None:
    program, by_cost = mixed.compile("cpu"), Schedule().task_graph(calendar=CalendarPolicy.by_cost())
    made = {w: program.calendar(workers=w, **arrays()) for w in (2, 3)}
    broken = next(without_a_wait(made[2]))
    expected = results(MIXED, arrays(), workers=1)
    for workers, schedule in itertools.product((2, 3, 2), (Schedule(), by_cost, Schedule())):
        program.reschedule(schedule)
        for calendar in (made[workers], None) if schedule is not by_cost else (None,):
            assert results(program, arrays(), workers=workers, calendar=calendar) == expected
            assert program.stats is not None and program.stats.workers == workers
            assert program.stats.has_calendar == (calendar is not None or schedule is by_cost)
        with pytest.raises(CalendarUnordered):
            results(program, arrays(), calendar=broken)


def test_the_directive_makes_calendars_for_the_sizes_of_a_run() -> None:
    program = mixed.task_graph(calendar=CalendarPolicy.by_cost()).compile("cpu")
    assert "calendar = by_cost" in program.dump()
    for n in (N, 3, N, 7):
        for workers in (1, 2, 3):
            for _ in range(3):
                assert results(program, arrays(n), workers=workers) == results(MIXED, arrays(n), workers=1)
                assert program.stats is not None and program.stats.has_calendar


def test_strategies_choose_calendars_by_size() -> None:
    by_calendar = Schedule().task_graph(calendar=CalendarPolicy.by_cost())
    program = mixed.compile("cpu")
    choose = Strategies(
        {"small": by_calendar, "large": Schedule()}, choose=lambda r: "small" if r.n < 8 else "large"
    )
    program.reschedule(choose)
    for n, has_calendar in ((4, True), (9, False), (5, True)):
        assert results(program, arrays(n), workers=2) == results(MIXED, arrays(n), workers=1)
        assert program.stats is not None and program.stats.has_calendar == has_calendar


def test_long_rows_are_placed_first() -> None:
    """Costs follow the sizes of arguments: the worker with the long row has no other."""
    program = sums.compile("cpu")
    lengths = np.array([4, 4, 64, 4, 4, 4])
    values = {"X": np.ones((int(lengths.sum()), 8), np.float32), "Y": np.empty((6, 8), np.float32)}
    program.run(rows=Ragged.lengths(lengths), **values, workers=1)
    calendar = program.calendar(rows=Ragged.lengths(lengths), **values, workers=2)
    alone = next(row.core for row in calendar.rows if row.name == "total[2]")
    assert [row.name for row in calendar.rows if row.core == alone] == ["total[2]"]
    program.run(rows=Ragged.lengths(lengths), **values, calendar=calendar)
    assert (values["Y"][:, 0] == lengths).all()
    with pytest.raises(CalendarChanged, match="elements of"):
        program.run(rows=Ragged.lengths(lengths[::-1].copy()), **values, calendar=calendar)


def test_sizes_are_enough_for_arrays_that_decide_nothing() -> None:
    values = arrays()
    from_sizes = MIXED.calendar(workers=2, n=N)
    assert from_sizes.native.symbols == MIXED.calendar(workers=2, **values).native.symbols
    assert results(MIXED, values, calendar=from_sizes) == results(MIXED, values, workers=1)
    assert len(MIXED.calendar(workers=2, X=values["X"])) == len(from_sizes)
    with pytest.raises(UnboundTensor, match="`X`"):
        MIXED.calendar(workers=2)
    with pytest.raises(WrongValue, match="`n`"):
        MIXED.calendar(workers=2, n=-1)
    with pytest.raises(WrongValue, match="`n`"):
        MIXED.calendar(workers=2, n="12")
    with pytest.raises(UnknownParameter, match="`m`"):
        MIXED.calendar(workers=2, m=3)
    program, lengths = sums.compile("cpu"), Ragged.lengths(np.array([3, 5]))
    assert len(program.calendar(workers=2, rows=lengths, tokens=8)) == 2
    with pytest.raises(UnboundTensor, match="`X`"):
        program.calendar(workers=2, rows=lengths)
    with pytest.raises(UnboundTensor, match="`steps`"):
        undecided.compile("cpu").calendar(workers=2, n=3)


def test_what_has_changed_is_named() -> None:
    values = arrays()
    calendar = MIXED.calendar(workers=2, **values)
    with pytest.raises(CalendarChanged, match="`n` differs") as caught:
        MIXED.run(**arrays(N + 1), calendar=calendar)
    assert f"expected {N}, found {N + 1}" in str(caught.value)
    with pytest.raises(CalendarChanged, match="shares memory"):
        MIXED.run(X=values["X"], Y=values["Y"], Z=values["X"], calendar=calendar)
    with pytest.raises(CalendarChanged, match="another program"):
        sums.compile("cpu").run(
            rows=Ragged.lengths(np.array([1])), X=values["X"][:1], Y=values["Y"][:1], calendar=calendar
        )
    with pytest.raises(WrongValue, match="2, as the calendar has"):
        MIXED.run(**values, calendar=calendar, workers=3)
    with pytest.raises(WrongValue, match="a Calendar"):
        MIXED.run(**values, calendar=4)  # type: ignore[arg-type]


def test_tables_that_are_no_calendar() -> None:
    values = arrays()
    text = MIXED.calendar(workers=2, **values).to_text()

    def run(change: Any) -> None:
        table = json.loads(text)
        change(table["rows"])
        MIXED.run(**values, calendar=Calendar.from_text(json.dumps(table)))

    run(lambda rows: None)
    with pytest.raises(BadCalendar, match="ascend by start"):
        run(lambda rows: rows.reverse())
    with pytest.raises(BadCalendar, match="no such core"):
        run(lambda rows: rows[3].__setitem__(1, 2))
    with pytest.raises(BadCalendar, match="do not precede it"):
        run(lambda rows: rows[0][5].append([1, 1]))
    with pytest.raises(BadCalendar, match="another number of tasks"):
        run(lambda rows: rows.remove(max(rows)))
    with pytest.raises(UnusableFile, match="one row for each"):
        run(lambda rows: rows[1].__setitem__(0, rows[2][0]))
    with pytest.raises(UnusableFile, match="`format`"):
        Calendar.from_text("[]")
    with pytest.raises(UnusableFile, match="a field 'rows'"):
        Calendar.from_text(json.dumps({k: v for k, v in json.loads(text).items() if k != "rows"}))
    for key, value in (("rows", "x"), ("rows", [[0, 1]]), ("columns", None), ("columns", ["task"])):
        with pytest.raises(UnusableFile, match=f"`{key}`"):
            Calendar.from_text(json.dumps({**json.loads(text), key: value}))
    with pytest.raises(UnusableFile, match="expected JSON text: line 1, column 1"):
        Calendar.from_text("calendar")
    for at, value in ((1, -1), (1, "x"), (1, 0.5), (2, 2**70), (5, 3), (5, [[1]]), (5, [[1, -1]]), (6, 3)):
        with pytest.raises(UnusableFile, match=r"expected row 0 of `rows` to be \[task, core, second"):
            run(lambda rows, at=at, value=value: rows[0].__setitem__(at, value))
    with pytest.raises(UnusableFile, match="integers of 64 bits"):
        run(lambda rows: rows[0].__setitem__(3, 2**70))
    fields = json.loads(text)
    for key, value in (("program", ["x"]), ("cores", 3), ("kinds", "ab"), ("symbols", 1), ("clock_ghz", "x")):
        with pytest.raises(UnusableFile, match=f"expected `{key}` to be"):
            Calendar.from_text(json.dumps({**fields, key: value}))


def test_a_calendar_is_saved_read_and_drawn(tmp_path: Path) -> None:
    calendar = MIXED.calendar(workers=2, **arrays())
    calendar.save(tmp_path / "mixed.json")
    read = Calendar.load(tmp_path / "mixed.json")
    assert read.to_text() == calendar.to_text() and str(read) == str(calendar)
    assert results(MIXED, arrays(), calendar=read) == results(MIXED, arrays(), workers=1)
    assert "double[0, 3]" in str(calendar) or "... " in str(calendar)
    assert "worker 1" in calendar.to_svg()
    with pytest.raises(UnusableFile, match="cannot be read"):
        Calendar.load(tmp_path / "none.json")
    for save in (calendar.save, calendar.save_svg):
        with pytest.raises(UnusableFile, match=r"No such file[\s\S]*test_calendar.py"):
            save(tmp_path / "none" / "x")


def test_programs_that_cannot_have_one_are_refused() -> None:
    values = arrays()
    steps = np.zeros((1, 1), np.int32)
    program = undecided.compile("cpu")
    with pytest.raises(CalendarUndecided, match="not decided before the run") as caught:
        program.calendar(X=values["X"], Y=values["Y"], steps=steps)
    assert "P.range(steps[0, 0])" in str(caught.value)
    with pytest.raises(UnsupportedByTarget, match="`steps` decides which tasks exist"):
        undecided.task_graph(calendar=CalendarPolicy.by_cost()).compile("cpu")
    kept = mixed.task_graph(start=StartPolicy.after_build()).compile("cpu")
    with pytest.raises(WrongValue, match="`start = after_build`"):
        kept.calendar(**values)
    with pytest.raises(UnsupportedByTarget, match="so does a calendar"):
        mixed.task_graph(start=StartPolicy.after_build(), calendar=CalendarPolicy.by_cost()).compile("cpu")
    with pytest.raises(UnsupportedByTarget, match="so does a calendar"):
        mixed.task_graph(deps=Deps.symbolic(), calendar=CalendarPolicy.by_cost()).compile("cpu")
    with pytest.raises(UnsupportedByTarget, match="only `cpu` and `sim`"):
        mixed.compile("interp").calendar(**values)


def test_the_first_failure_ends_a_run_by_a_calendar() -> None:
    program = copies.compile("cpu")
    for workers in (1, 2, 4):
        values = arrays(30)
        calendar = program.calendar(workers=workers, **values)
        changed = expect_first_failure(program, values, calendar=calendar)
        # A copy of a row that is complete may have run before the failure.
        assert not changed[[20, 25]].any() and (values["Z"] == values["Y"])[changed, 0].all()


def test_simulated_cores_follow_a_calendar() -> None:
    values = arrays()
    program = mixed.compile("sim", device="ascend_910b")
    results(program, values)
    assert program.stats is not None
    free = program.stats.cycles
    calendar = program.calendar(**values)
    assert calendar.unit == "cycles" and "cycles" in repr(calendar)
    for table in (calendar, Calendar.from_text(calendar.to_text())):
        found = results(program, values, calendar=table, trace=True)
        assert found == results(MIXED, values, workers=1)
    assert program.trace is not None and program.stats.cycles <= free
    program.run(**{k: v.copy() for k, v in values.items()}, calendar=calendar, trace=True)
    cores = {row.task: row.core for row in calendar.rows}
    assert [cores[task] for task in range(len(calendar))] == list(program.trace.worker)
    with pytest.raises(CalendarUnordered):
        results(program, values, calendar=next(without_a_wait(calendar)))
    with pytest.raises(CalendarChanged, match="cores of a device"):
        MIXED.run(**values, calendar=calendar)
    with pytest.raises(WrongValue, match="the device decides"):
        program.calendar(workers=2, **values)
    by_directive = mixed.task_graph(calendar=CalendarPolicy.by_cost()).compile("sim", device="ascend_910b")
    results(by_directive, values)
    assert by_directive.stats is not None and by_directive.stats.cycles <= free


def test_names_of_errors_are_those_of_the_catalogue() -> None:
    codes = {error.code for error in (BadCalendar, CalendarChanged, CalendarUndecided, CalendarUnordered)}
    assert codes == {"bad-calendar", "calendar-changed", "calendar-undecided", "calendar-unordered"}
    assert issubclass(BadCalendar, PtoError)


def test_programs_of_a_session_may_run_by_calendars() -> None:
    """A table has no waits for other runs, so such a program begins when those before it are done."""
    first = mixed.task_graph(calendar=CalendarPolicy.by_cost()).compile("cpu")
    second = mixed.compile("cpu")
    values = arrays()
    one, other = ({name: v.copy() for name, v in values.items()} for _ in range(2))
    for program in (first, second, first):
        program.run(**one, workers=2)
    with Session() as session:
        for program in (first, second, first):
            session.launch(program, workers=2, **other)
    assert [v.tobytes() for v in one.values()] == [v.tobytes() for v in other.values()]
