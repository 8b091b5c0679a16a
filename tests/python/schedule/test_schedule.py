"""What users write about schedules: policies, keys, where they may stand and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pto_wsp import (
    Deps,
    DispatchPolicy,
    Pools,
    ReadyPolicy,
    Schedule,
    StartPolicy,
    StorePolicy,
    TaskWindow,
    TimingPolicy,
    TracePolicy,
    WindowMode,
    combine,
    parse,
    sequential,
    stage,
    workload,
)
from pto_wsp.errors import (
    BadKey,
    InvalidIR,
    NotYetSupported,
    RunTimeCondition,
    ScheduledPart,
    UnsupportedByTarget,
    WrongValue,
)
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Element, TaskIndex, Var, format_expr
from pto_wsp.ir.schedule import DEFAULT, Directive, Directives
from pto_wsp.ir.verify import verify
from pto_wsp.lang.schedule.directives.window import Window
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.types import f32
from tests.python.schedule.programs import bump, total, totals

Key = Callable[[Any], Any]

EVERYTHING = (
    Schedule()
    .dispatch(DispatchPolicy.affinity(lambda t: t.b // 2, 4))
    .task_graph(
        window=TaskWindow(8192, "tasks", WindowMode.STALL),
        start=StartPolicy.threshold(64),
        deps=Deps.hybrid(),
    )
    .order_by(lambda t: (t.kernel == total).where(-t.args.x.rows, 0), lambda t: t.b)
    .interleave(lambda t: t.b, 3)
    .concurrent(lambda t: t.b, max=4)
    .load_balance()
    .pipeline(stage(total, cores=8), stage("bump", cores=16))
    .prefetch(lambda t: t.b, ahead=2)
)


def key(function: Key) -> str:
    policy = DispatchPolicy.affinity(function)
    assert policy.key is not None
    return format_expr(policy.key)


def test_text_of_a_schedule_stands_behind_the_functions() -> None:
    text = str(Module("m", schedule=EVERYTHING.policies))
    assert text.split("\n\n", 1)[1] == (
        "SCHEDULE {\n"
        "  dispatch = affinity(%t.b // 2, n = 4)\n"
        "  window = stall(n = 8192)\n"
        "  ready = order_by(select(%t.kernel == %kernel.total, -dim(%t.args.x, 0), 0), %t.b)\n"
        "  start = threshold(n = 64)\n"
        "  interleave = by(%t.b, n = 3)\n"
        "  load_balance = by_cost\n"
        "  concurrent = by(%t.b, n = 4)\n"
        "  pools = pipeline(stage(%kernel.total, n = 8), stage(%kernel.bump, n = 16))\n"
        "  prefetch = by(%t.b, n = 2)\n"
        "  deps = hybrid\n"
        "}\n"
    )
    assert "SCHEDULE" not in str(Module("m"))
    others = (
        Schedule()
        .dispatch(DispatchPolicy.threshold(lambda t: t.b, [4, 9]))
        .timing(TimingPolicy.rate_limit(1000))
        .task_graph(pools=Pools.custom(lambda t: t.b, [1]), trace=TracePolicy.full())
    )
    shown = str(Module("m", schedule=others.policies))
    assert shown.split("\n\n", 1)[1] == (
        "SCHEDULE {\n"
        "  dispatch = threshold(%t.b, at = [4, 9])\n"
        "  timing = rate_limit(n = 1000)\n"
        "  pools = custom(%t.b, at = [1])\n"
        "  trace = full\n"
        "}\n"
    )
    assert parse(shown).schedule == others.policies
    partition = Schedule().dispatch(DispatchPolicy.static_partition([4, 9])).streams(3)
    assert repr(partition) == "<Schedule: dispatch = static_partition(at = [4, 9]); streams = in_turn(n = 3)>"


def test_a_schedule_shows_what_it_says() -> None:
    assert repr(Schedule()) == "<Schedule: the default>"
    shown = repr(Schedule().dispatch(DispatchPolicy.hash(lambda t: t.b)).task_graph(window=TaskWindow(3)))
    assert shown == "<Schedule: dispatch = hash(%t.b); window = stall(n = 3)>"


def test_equal_schedules_are_equal() -> None:
    def made(n: int) -> Schedule:
        return Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.b, n))

    assert made(2) == made(2) and hash(made(2)) == hash(made(2))
    assert made(2) != made(3) and made(2) != Schedule()


def test_keys_are_expressions_over_a_task() -> None:
    assert key(lambda t: t.b * 4 + t.h % 2) == "t.b * 4 + t.h % 2"
    assert key(lambda t: t.args.k.rows + t.args.k.cols) == "dim(t.args.k, 0) + dim(t.args.k, 1)"
    assert key(lambda t: t.kernel) == "t.kernel"
    assert key(lambda t: t.kernel != "bump") == "t.kernel != kernel.bump"
    assert key(lambda t: (t.kernel == bump).where(t.b, 7)) == "select(t.kernel == kernel.bump, t.b, 7)"
    assert key(lambda t: 3) == "3"


def test_keys_that_decide_are_refused() -> None:
    with pytest.raises(RunTimeCondition, match="a key has no branches"):
        key(lambda t: 1 if t.b else 2)


@pytest.mark.parametrize("function", [lambda t: t.b * 0.5, lambda t: None, lambda t: t.args, lambda: 1])
def test_keys_that_are_no_integers_are_refused(function: Key) -> None:
    with pytest.raises(BadKey):
        key(function)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DispatchPolicy.affinity(3),
        lambda: DispatchPolicy.round_robin(-1),
        lambda: DispatchPolicy.round_robin(2.0),
        lambda: DispatchPolicy.round_robin(65),
        lambda: DispatchPolicy.static_partition([]),
        lambda: DispatchPolicy.static_partition([3, 3]),
        lambda: DispatchPolicy.static_partition([-1]),
        lambda: DispatchPolicy.static_partition(range(64)),
        lambda: DispatchPolicy.static_partition(7),
        lambda: DispatchPolicy.threshold(lambda t: t.b, []),
        lambda: DispatchPolicy.threshold(3, [4]),
        lambda: TimingPolicy.batched(0),
        lambda: TimingPolicy.rate_limit(0.5),
        lambda: Schedule().order_by(),
        lambda: Schedule().load_balance(by="size"),
        lambda: Schedule().pipeline(stage("total", cores=1)),
        lambda: Schedule().pipeline(stage("total", cores=1), "bump"),
        lambda: Schedule().pipeline(stage("total", cores=1), stage("bump", "total", cores=1)),
        lambda: Schedule().overlap(stage("total", cores=1), total),
        lambda: stage("total", cores=0),
        lambda: stage(3, cores=1),
        lambda: stage(cores=1),
        lambda: Schedule().order_by(*[lambda t: t.b] * 5),
        lambda: Schedule().order_by(3),
        lambda: Schedule().interleave(lambda t: t.b, 0),
        lambda: Schedule().interleave(4, 2),
        lambda: Schedule().concurrent(lambda t: t.b, max=0),
        lambda: Schedule().concurrent(lambda t: t.b, max=65537),
        lambda: Schedule().prefetch(lambda t: t.b, ahead=0),
        lambda: Schedule().prefetch(lambda t: t.b, ahead=1025),
        lambda: Pools.custom(lambda t: t.b, range(8)),
        lambda: Pools.by_exec_unit(-1),
        lambda: Pools.by_exec_unit(0),
        lambda: StorePolicy.streaming(0),
        lambda: DispatchPolicy.work_steal(0),
        lambda: Schedule().timing(Pools.single()),
        lambda: Schedule().streams(0),
        lambda: Schedule().stream_by(3),
        lambda: DispatchPolicy.dispatch_by(lambda t: t.b, 0),
        lambda: DispatchPolicy.threshold(lambda t: t.b, [2], [DispatchPolicy.round_robin(1)]),
        lambda: DispatchPolicy.threshold(lambda t: t.b, [2], [DispatchPolicy.round_robin(2)] * 2),
        lambda: DispatchPolicy.threshold(lambda t: t.b, [2], [DispatchPolicy.affinity(lambda t: t.b)] * 2),
        lambda: DispatchPolicy.threshold(
            lambda t: t.b, [2], [DispatchPolicy.affinity(lambda t: t.b, 33)] * 2
        ),
        lambda: DispatchPolicy.threshold(lambda t: t.b, [2], [ReadyPolicy.fifo(), None]),
        lambda: DispatchPolicy.threshold(lambda t: t.b, [2], DispatchPolicy.round_robin(1)),
        lambda: TaskWindow(0),
        lambda: TaskWindow(True),
        lambda: TaskWindow(4, "bytes"),
        lambda: TaskWindow(4, mode="stall"),
        lambda: StartPolicy.threshold(0),
        lambda: Schedule().dispatch(ReadyPolicy.fifo()),
        lambda: Schedule().dispatch(None),
        lambda: Schedule().task_graph(window=64),
        lambda: Deps.explicit(unchecked="no"),
    ],
)
def test_wrong_values_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(WrongValue):
        make()


def test_counts_are_named_as_users_write_them() -> None:
    for name, make in {
        "concurrent's max": lambda: Schedule().concurrent(lambda t: t.b, max=0),
        "interleave's n": lambda: Schedule().interleave(lambda t: t.b, 0),
        "prefetch's ahead": lambda: Schedule().prefetch(lambda t: t.b, ahead=-1),
        "affinity's group": lambda: Schedule().affinity(lambda t: t.b, group=0),
    }.items():
        with pytest.raises(WrongValue, match=name):
            make()


def test_refusals_say_where_and_what_else_there_is() -> None:
    program = totals.compile("interp")
    with pytest.raises(UnsupportedByTarget, match="as `trace` it takes `off`") as caught:
        program.reschedule(Schedule().task_graph(trace=TracePolicy.tasks()))
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    turns = totals.interleave(lambda t: t.b, 2).task_graph(ready=ReadyPolicy.fifo())
    with pytest.raises(UnsupportedByTarget, match="together with the other policies") as caught:
        turns.compile("cpu")
    assert caught.value.loc is not None and caught.value.loc.file == __file__


def test_directives_of_later_versions_are_refused_by_name() -> None:
    for name in ("spatial_map",):
        for scheduled in (totals, Schedule()):
            with pytest.raises(NotYetSupported, match=name):
                getattr(scheduled, name)(2)
    with pytest.raises(AttributeError):
        Schedule().nonsense  # noqa: B018


def test_a_scheduled_workload_is_still_a_workload() -> None:
    scheduled = totals.dispatch(DispatchPolicy.round_robin(2))
    assert totals.policies == DEFAULT and [*scheduled.policies] == [DispatchPolicy.round_robin(2)]
    for again in (scheduled.named("again"), scheduled(), scheduled.task_graph(window=TaskWindow(8))):
        assert again.policies.find(DispatchPolicy) == DispatchPolicy.round_robin(2)
    assert scheduled.trace().module.schedule == scheduled.policies


@pytest.mark.parametrize("join", [combine, sequential])
def test_parts_of_a_workload_have_no_schedule(join: Callable[..., Workload]) -> None:
    scheduled = totals.dispatch(DispatchPolicy.round_robin(2))
    with pytest.raises(ScheduledPart):
        join(totals, scheduled)

    @workload
    def outer(rows, X, Y, Z):
        scheduled(rows, X, Y, Z)

    with pytest.raises(ScheduledPart):
        outer.trace()
    assert join(totals, totals).dispatch(DispatchPolicy.round_robin(2)).policies != DEFAULT


@pytest.mark.parametrize(
    "directives",
    [
        [DispatchPolicy("fifo")],
        [DispatchPolicy("affinity")],
        [DispatchPolicy("round_robin", TaskIndex("b"))],
        [DispatchPolicy("dispatch_by", TaskIndex("b"))],
        [DispatchPolicy("affinity", TaskIndex("b"), -1)],
        [DispatchPolicy("round_robin", n=65)],
        [DispatchPolicy("round_robin", n=True)],
        [DispatchPolicy("static_partition")],
        [DispatchPolicy("static_partition", bounds=(4, 2))],
        [DispatchPolicy("round_robin", bounds=(4,))],
        [DispatchPolicy("round_robin"), DispatchPolicy("static_partition", bounds=(4,))],
        [Window("stall", 0), Window("abort")],
        *([DispatchPolicy("affinity", e)] for e in (Var("b"), Const(1.5, f32), Element("X", (Const(0),)))),
    ],
)
def test_directives_made_by_hand_are_verified(directives: list[Directive]) -> None:
    with pytest.raises(InvalidIR):
        verify(Module("m", schedule=Directives(directives)))
    verify(Module("m", schedule=EVERYTHING.policies))


@pytest.mark.parametrize("levels", [[], [DispatchPolicy.work_steal(1), DispatchPolicy.round_robin(1)]])
def test_levels_that_would_be_ignored_are_refused(levels: list[Directive]) -> None:
    with pytest.raises(WrongValue, match="level"):
        DispatchPolicy.threshold(lambda t: t.i, [4], levels=levels)
