"""The target `sim`: values of the cpu, and a clock that keeps every order."""

import math
from collections import Counter
from html import escape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp import (
    DYN,
    Dense,
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Pools,
    Ragged,
    Scalar,
    Schedule,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    pto,
    workload,
)
from pto_wsp.errors import (
    CyclesDiffer,
    NothingRecorded,
    NotSimulated,
    UnknownParameter,
    UnsupportedByTarget,
    WrongValue,
)
from pto_wsp.ir.schedule import DEFAULT
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.program import Program
from pto_wsp.simulation import compare, expect_cycles, report_of
from pto_wsp.visualize.perfetto import read_timeline
from tests.generators.drawing import tries
from tests.generators.schedules import schedules
from tests.generators.workloads import Sample, samples


@kernel
def twice(x: In[Tile[16, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, x * 2.0)


@kernel
def grow(x: InOut[Tile[16, 64, f32]]):
    pto.store(x, pto.exp(x))


@workload
def layers(X: Tensor[f32, "n", 16, 64], Y: Tensor[f32, "n", 16, 64]):
    for i in P("n"):
        twice[i](x=X[i], y=Y[i])
    for j in P("n"):
        grow[j](x=Y[j])


def arrays(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"X": rng.random((n, 16, 64), np.float32), "Y": np.zeros((n, 16, 64), np.float32)}


def simulated(n: int = 100, device: str = "ascend_910b", schedule: Schedule | None = None) -> Program:
    program = layers.compile(target="sim", device=device)
    if schedule is not None:
        program.reschedule(schedule)
    program.run(trace=True, **arrays(n))
    return program


def times(program: Program) -> dict[str, np.ndarray]:
    trace = program.trace
    assert trace is not None
    return {"core": trace.worker, "start": trace.start_ns, "end": trace.end_ns}


def require_order(program: Program, edges: list[tuple[int, int]]) -> None:
    found = times(program)
    for before, after in edges:
        assert found["end"][before] <= found["start"][after], (before, after)


def require_single_use_of_cores(program: Program) -> None:
    """No core runs two tasks at a time."""
    found = times(program)
    order = np.lexsort((found["start"], found["core"]))
    core, start, end = (found[key][order] for key in ("core", "start", "end"))
    same = core[1:] == core[:-1]
    assert (end[:-1][same] <= start[1:][same]).all()


@tries(60, compiles=True)
@given(samples(), st.data())
def test_random_programs_keep_their_order_and_values_under_any_schedule(
    sample: Sample, data: st.DataObject
) -> None:
    note(str(sample.module))
    expected: dict[str, Any] = sample.arrays()
    sizes: dict[str, Any] = sample.sizes
    compile_module(sample.module, "cpu").run(**expected, **sizes)
    graph = compile_module(sample.module, "interp").task_graph(**sample.arrays(), **sizes)
    for schedule in (DEFAULT, data.draw(schedules(sample.module))):
        module = sample.module.with_schedule(schedule)
        note(str(module.schedule))
        found: dict[str, Any] = sample.arrays()
        try:
            program = compile_module(module, "sim")
            program.run(trace=True, **found, **sizes)
        except UnsupportedByTarget:
            continue
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes(), name
        assert report_of(program).tasks == len(graph.tasks)
        if "deps" not in {directive.kind for directive in schedule}:
            require_order(program, list(graph.edges))
        require_single_use_of_cores(program)
        again = compile_module(module, "sim")
        other: dict[str, Any] = sample.arrays()
        again.run(trace=True, **other, **sizes)
        assert report_of(again).cycles == report_of(program).cycles
        assert all(
            (a == b).all() for a, b in zip(times(again).values(), times(program).values(), strict=True)
        )


def test_values_are_those_of_the_cpu_for_any_number_of_workers() -> None:
    expected = arrays(40)
    layers.compile().run(**expected)
    cycles = set()
    for workers in (1, 2, 4):
        found = arrays(40)
        program = layers.compile(target="sim")
        program.run(workers=workers, **found)
        assert found["Y"].tobytes() == expected["Y"].tobytes()
        cycles.add(report_of(program).cycles)
    assert len(cycles) == 1


def test_time_alone_runs_no_kernel_and_takes_the_same_time() -> None:
    found = arrays(40)
    program = layers.compile(target="sim", values=False)
    program.run(**found)
    assert not found["Y"].any()
    with_values = layers.compile(target="sim")
    with_values.run(**arrays(40))
    assert report_of(program).cycles == report_of(with_values).cycles
    assert program.stats is not None and program.stats.cycles == report_of(program).cycles
    assert program.stats.time_us == pytest.approx(report_of(program).time_us, rel=1e-3)


def test_more_cores_and_less_latency_take_less_time() -> None:
    slow, fast = simulated(2000), simulated(2000, "ascend_910b_seed")
    assert report_of(fast).cycles < report_of(slow).cycles
    assert report_of(simulated(4000)).cycles > report_of(slow).cycles


def test_the_makespan_is_never_under_its_bounds() -> None:
    for n in (1, 7, 100, 3000):
        report = report_of(simulated(n))
        assert report.bound[1] <= report.cycles
        for kind in ("cube", "vector"):
            assert report.busy[kind] + sum(report.idle[kind].values()) <= 1 + 1e-9


def test_the_report_accounts_for_all_time_of_the_cores() -> None:
    report = report_of(simulated(500, "ascend_910b_seed"))
    # Without latencies, a core is busy or idle at every moment.
    for kind in ("cube", "vector"):
        assert report.busy[kind] + sum(report.idle[kind].values()) == pytest.approx(1, abs=1e-6)
    assert sum(line.tasks for line in report.kernels) == report.tasks == 1000
    assert report.operations == 500 * 2 * 16 * 64
    assert report.bytes["l2"] == 500 * 4 * 16 * 64 * 4


def test_the_critical_path_is_a_chain_that_ends_last() -> None:
    program = simulated(300)
    path = report_of(program).critical_path
    found = times(program)
    assert path[-1].task == int(np.argmax(found["end"]))
    for before, after in pairwise(path):
        assert before.end <= after.start
    assert "test_simulated.py" in path[0].location
    assert len(report_of(program).longest) == 5


def test_what_one_task_leaves_in_the_cache_the_next_one_finds() -> None:
    report = report_of(simulated(100))
    # `grow` loads what `twice` stored.
    assert report.hits == pytest.approx(1 / 3)
    large = report_of(simulated(60_000))
    assert large.hits < 0.01  # 240 MB do not stay in a cache of 192 MB


def test_a_window_stalls_dispatchers_and_changes_no_value() -> None:
    wide, narrow = simulated(400), simulated(400, schedule=Schedule().task_graph(window=TaskWindow(2)))
    assert report_of(narrow).stalled > 0.5 and report_of(narrow).cycles > report_of(wide).cycles


def test_keys_decide_what_starts_first() -> None:
    def first_started(schedule: Schedule) -> set[int]:
        start = times(simulated(200, schedule=schedule))["start"]
        return {int(task) for task in np.argsort(start, kind="stable")[:48]}

    held = Schedule().task_graph(start=StartPolicy.after_build())
    assert first_started(held) == set(range(48))
    assert first_started(held.order_by(lambda t: 0, lambda t: -t.i)) == set(range(152, 200))
    turns = held.interleave(lambda t: t.i // 100, 2)
    assert first_started(turns) == {*range(24), *range(100, 124)}


@pytest.mark.parametrize("n", [1, 3])
def test_so_many_rows_are_in_flight(n: int) -> None:
    found = times(simulated(100, schedule=Schedule().concurrent(lambda t: t.i // 2, max=n)))
    begins, ends = (found[name][:100].reshape(50, 2) for name in ("start", "end"))
    begins, ends = begins.min(axis=1), ends.max(axis=1)
    flights = [int(((begins <= at) & (at < ends)).sum()) for at in begins]
    assert max(flights) == n


def test_pools_part_the_cores() -> None:
    program = simulated(200, schedule=Schedule().task_graph(pools=Pools.custom(lambda t: t.kernel, [24])))
    core = times(program)["core"] - 24  # the vector cores come after the cube cores
    assert (core[:200] < 24).all() and (core[200:] >= 24).all()


@pytest.mark.parametrize(("group", "groups"), [(1, 24), (5, 4), (100, 1)])
def test_equal_keys_run_on_one_group_of_cores(group: int, groups: int) -> None:
    """Groups share the 48 vector cores; their number follows from the 24 cube cores."""
    program = simulated(200, schedule=Schedule().affinity(lambda t: t.i, group=group))
    core = times(program)["core"][:200] - 24
    assert (core * groups // 48 == np.arange(200) % groups).all()


def test_dispatchers_make_their_own_tasks() -> None:
    program = layers.compile(target="sim")
    program.reschedule(Schedule().dispatch(DispatchPolicy.round_robin(3)))
    program.run(trace=True, **arrays(60))
    assert program.trace is not None
    assert (program.trace.dispatcher == np.arange(120) % 3).all()


@workload
def in_sequence(X: Tensor[f32, "n", 16, 64], rounds: Scalar[i64]):
    for r in P.seq(rounds):
        for i in P("n"):
            grow[r, i](x=X[i])


def test_iterations_of_a_sequence_follow_each_other() -> None:
    program = in_sequence.compile(target="sim")
    program.run(trace=True, X=np.zeros((30, 16, 64), np.float32), rounds=5)
    found = times(program)
    start, end = found["start"].reshape(5, 30), found["end"].reshape(5, 30)
    assert (end[:-1].max(axis=1) <= start[1:].min(axis=1)).all()


@workload
def routed(T: Tensor[i32, "n", 1], X: Tensor[f32, "n", 16, 64]):
    for b in P("n"):
        choose[b](t=T[b : b + 1])
    for b in P("n"):
        with P.when(T[b, 0] > 0):
            grow[b](x=X[b])


@kernel
def choose(t: InOut[Tile[1, 1, i32]]):
    pto.store(t, t - 1)


def test_what_tasks_decide_is_read_from_the_run_with_values() -> None:
    table = np.array([[1], [2], [3], [0], [1], [5]], np.int32)
    program = routed.compile(target="sim")
    program.run(T=table.copy(), X=np.zeros((6, 16, 64), np.float32))
    assert report_of(program).tasks == 6 + 3


def test_what_tasks_decide_is_refused_without_values() -> None:
    with pytest.raises(NotSimulated, match="reads `T` to decide what runs") as caught:
        routed.compile(target="sim", values=False)
    assert "given={'T': array}" in str(caught.value)


def test_what_tasks_decide_can_be_given_without_values() -> None:
    """Time alone, of shapes: the same cycles as with values, and no memory for what nothing reads."""
    table = np.array([[1], [2], [3], [0], [1], [5]], np.int32)
    whole = routed.compile(target="sim")
    whole.run(T=table, X=np.zeros((6, 16, 64), np.float32))
    alone = routed.compile(target="sim", values=False, given={"T": table})
    alone.run(X=(6, 16, 64))
    assert report_of(alone).tasks == report_of(whole).tasks
    assert whole.stats is not None and alone.stats is not None and alone.stats.cycles == whole.stats.cycles
    many = layers.compile(target="sim", values=False)
    sizes = {p.name: (1 << 20, *p.type.dims[1:]) for p in many.module.entry_workload.tensors}
    assert all(isinstance(dim, int) for shape in sizes.values() for dim in shape)
    many.run(**sizes)
    assert report_of(many).tasks >= 1 << 20


@workload
def by_input(T: Tensor[i32, "n", 1], X: Tensor[f32, "n", 16, 64]):
    for b in P("n"):
        with P.when(T[b, 0] > 0):
            grow[b](x=X[b])


def test_what_is_given_must_fit() -> None:
    table = np.ones((6, 1), np.int32)
    with pytest.raises(WrongValue, match="given"):
        routed.compile(given={"T": table})
    with pytest.raises(WrongValue, match="elements of int32"):
        routed.compile(target="sim", values=False, given={"T": table.astype(np.int64)})
    with pytest.raises(UnknownParameter, match="`U`"):
        routed.compile(target="sim", values=False, given={"T": table, "U": table})
    with pytest.raises(WrongValue, match="one that a run is given"):
        by_input.compile(target="sim", values=False, given={"T": table})
    with pytest.raises(WrongValue, match="an axis that a run is given"):
        routed.compile(target="sim", values=False, given={"kv": Ragged.lengths([1])})
    alone = routed.compile(target="sim", values=False, given={"T": table})
    with pytest.raises(WrongValue, match="decide what runs"):
        by_input.compile(target="sim", values=False).run(T=(6, 1), X=(6, 16, 64))
    with pytest.raises(WrongValue, match="X's shape"):
        alone.run(X=(6, -16, 64))
    with pytest.raises(WrongValue, match="tuple"):
        routed.compile(target="sim").run(T=table, X=(6, 16, 64))


def test_elements_are_given_once() -> None:
    """Initial contents would silently replace the elements that decide."""
    table = np.ones((6, 1), np.int32)
    alone = routed.compile(target="sim", values=False, given={"T": table})
    with pytest.raises(WrongValue, match="`given` states its elements"):
        alone.run(T=table * 0, X=(6, 16, 64))
    found = compare(routed, {"910b": "ascend_910b"}, given={"T": table}, X=(6, 16, 64))
    assert found.reports["910b"].tasks == 12


def test_time_alone_refuses_what_needs_kernels() -> None:
    program = layers.compile(target="sim", values=False)
    options: list[dict[str, Any]] = [
        {"check": "hazards"},
        {"check": "values"},
        {"progress": print},
        {"time_limit": 5.0},
    ]
    for option in options:
        with pytest.raises(UnsupportedByTarget, match="calls no kernel"):
            program.run(**arrays(4), **option)
    for action in (lambda: program.task(0), lambda: program.task_graph(**arrays(4))):
        with pytest.raises(UnsupportedByTarget, match="calls no kernel"):
            action()


@kernel
def sum_up(x: In[Tensor[f32, DYN, 64]], y: Out[Tile[1, 64, f32]]):
    total = pto.zeros((1, 64))
    for r in pto.tiles(x.rows, 16):
        total = total + pto.colsum(x[r])
    pto.store(y, total)


@workload
def ragged_sums(seq: Ragged["b"], X: Tensor[f32, "n", 64], Y: Tensor[f32, "b", 64]):
    for b in P("b"):
        sum_up[b](x=X[seq[b]], y=Y[b : b + 1])


def test_the_cost_of_a_task_follows_its_valid_shape() -> None:
    lengths = [1, 16, 17, 160, 1600]
    program = ragged_sums.compile(target="sim", device="ascend_910b_seed")
    data: dict[str, Any] = {"X": np.zeros((sum(lengths), 64), np.float32), "Y": np.zeros((5, 64), np.float32)}
    program.run(trace=True, seq=Ragged.lengths(lengths), **data)
    found = times(program)
    took = found["end"] - found["start"]
    assert (np.diff(took) >= 0).all() and took[4] > 5 * took[3] > 20 * took[0] / 5


def test_stated_cycles_are_compared() -> None:
    program = simulated(50)
    found = report_of(program).cycles
    expect_cycles(program, found)
    expect_cycles(program, round(found * 1.04))
    with pytest.raises(CyclesDiffer):
        expect_cycles(program, round(found * 1.06))
    for cycles, tolerance in ((math.nan, 0.05), (found, math.nan), (found, -1.0), ("x", 0.05), (found, None)):
        with pytest.raises(WrongValue, match="a number >= 0"):
            expect_cycles(program, cycles, tolerance)  # pyright: ignore[reportArgumentType]


def test_a_report_of_simulated_time_needs_a_simulated_run() -> None:
    with pytest.raises(NotSimulated, match='compiled for target "cpu"'):
        report_of(layers.compile())
    with pytest.raises(NotSimulated, match="has not run"):
        report_of(layers.compile(target="sim"))
    with pytest.raises(NothingRecorded):
        layers.compile(target="sim").report()


def test_a_simulated_report_has_the_figures_of_every_report() -> None:
    program = simulated(300)
    report = program.report()
    assert report.clock == "simulated" and report is program.report()
    assert [lane.name for lane in report.lanes[22:26]] == ["cube 22", "cube 23", "vector 0", "vector 1"]
    assert sum(lane.tasks for lane in report.lanes) == report.tasks == 600
    assert report.busy_share["vector"] == pytest.approx(report_of(program).busy["vector"], rel=1e-3)
    assert [call.tasks for call in report.calls] == [300, 300]
    assert report.least_ns <= report.makespan_ns and report.critical_ns <= report.makespan_ns
    assert len(report.longest) == 5 and report.longest[0].lane.startswith("vector ")


class Tags(HTMLParser):
    """Counts elements and rows, and requires that each element ends where it began."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: Counter[str] = Counter()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_is_a_page_with_all_its_figures(tmp_path: Path) -> None:
    report = report_of(simulated(300))
    report.save_html(tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text("utf-8")
    tags = Tags(text)
    assert tags.count["svg"] == 1 and tags.count["script"] == 1 and "<title>600 tasks in" in text
    for title in ("Timeline", "Bounds", "Cores", "Kernels", "Critical path", "Tasks that cost most"):
        assert f"<h2>{title}" in text
    shown = [f"{report.cycles:,}", *report.bounds, "twice", "grow", report.critical_path[0].label]
    assert all(escape(each, quote=False) in text for each in shown)
    assert "src=" not in text and "href=" not in text
    notebook = report._repr_html_()
    assert Tags(notebook).count["table"] == 8 and f"{report.cycles:,}" in notebook


def test_a_page_of_too_many_tasks_has_no_timeline() -> None:
    program = layers.compile("sim", values=False)
    program.run(X=(40_000, 16, 64), Y=(40_000, 16, 64))
    tags = Tags(report_of(program).to_html())
    assert tags.count["svg"] == 0 and tags.count["table"] == 5


def test_a_device_without_the_simulator_is_refused() -> None:
    with pytest.raises(WrongValue, match="device"):
        layers.compile(device="ascend_910b")
    with pytest.raises(WrongValue, match="values"):
        layers.compile(values=False)


def test_a_tile_beyond_the_buffer_of_a_core_is_refused() -> None:
    @kernel
    def wide(x: In[Tile[256, 512, f32]], y: Out[Tile[256, 512, f32]]):
        pto.store(y, pto.exp(x))

    @workload
    def all_wide(X: Tensor[f32, 256, 512], Y: Tensor[f32, 256, 512]):
        for _ in P(Dense[1]):
            wide(x=X, y=Y)

    with pytest.raises(UnsupportedByTarget, match="524,288 bytes of `ub`"):
        all_wide.compile(target="sim")


def test_schedules_and_devices_are_compared_in_a_table() -> None:
    schedules = {"default": Schedule(), "narrow": Schedule().task_graph(window=TaskWindow(2))}
    found = compare(layers, schedules, device="ascend_910b", **arrays(300))
    assert found.fastest == "default"
    assert [row[0] for row in found.rows()] == ["default", "narrow"]
    assert next(iter(found.rows()))[3] == "1.000" and "variant" in str(found)
    html = found._repr_html_()
    assert html.count("<tr>") == 3 and "<th>cycles</th>" in html and "<td>narrow</td>" in html
    devices = compare(layers, {name: name for name in ("ascend_910b", "ascend_910b_seed")}, **arrays(300))
    assert devices.fastest == "ascend_910b_seed"


@pytest.mark.parametrize("variants", [{}, {"none": None}, {"name": 3}])
def test_a_comparison_needs_schedules_or_devices(variants: dict[str, object]) -> None:
    with pytest.raises(WrongValue):
        compare(layers, variants, **arrays(3))  # type: ignore[arg-type]


def test_dispatchers_wait_for_values_that_tasks_write() -> None:
    table = np.array([[1], [2], [3], [0], [1], [5]], np.int32)
    program = routed.compile(target="sim", device="ascend_910b")
    program.run(trace=True, T=table, X=np.zeros((6, 16, 64), np.float32))
    assert program.trace is not None
    made, complete = program.trace.walks[:, 3], times(program)["end"] + 600
    chosen = [b for b in range(6) if table[b, 0] > 0]
    for task, b in enumerate(chosen, start=6):  # a dispatcher sees an end 600 ns later
        assert made[task] >= complete[b], (task, b)


@kernel
def weighted(x: In[Tile[16, 64, f32]], w: In[Tile[64, 64, f32]], y: Out[Tile[16, 64, f32]]):
    pto.store(y, pto.exp(pto.matmul(x, w)))


@workload
def weigh(X: Tensor[f32, "n", 16, 64], W: Tensor[f32, 64, 64], Y: Tensor[f32, "n", 16, 64]):
    for i in P("n"):
        weighted[i](x=X[i], w=W, y=Y[i])


def test_a_task_of_two_cores_is_in_both_lanes_of_a_picture(tmp_path: Path) -> None:
    program = weigh.compile(target="sim")
    values: dict[str, Any] = {**arrays(5), "W": np.zeros((64, 64), np.float32)}
    program.run(trace=True, **values)
    assert program.trace is not None
    program.trace.save(tmp_path / "run.json")
    for run in (program.trace.timeline(), read_timeline(tmp_path / "run.json")):
        assert [run.lane_name(lane) for lane in run.drawn] == [
            *(f"cube {i}" for i in range(5)),
            *(f"vector {i}" for i in range(5)),
        ]
        assert (run.second == run.worker + 24).all()
        assert len(run.busy_of(0)) == len(run.busy_of(24)) == 1
    picture = program.trace.to_svg()
    assert "5 tasks on 72 cores of ascend_910b" in picture and "vector 4" in picture
    assert program.report().lanes[24].busy_ns == program.report().lanes[0].busy_ns > 0
