"""Policies beside each other: each keeps what it promises alone, or the schedule is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any

import pytest
from hypothesis import given

from pto_wsp import (
    CalendarPolicy,
    Deps,
    DispatchPolicy,
    Pools,
    ReadyPolicy,
    Schedule,
    StartPolicy,
    StorePolicy,
    TaskWindow,
    TimingPolicy,
    WindowMode,
    stage,
)
from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.lang.schedule.registry import DIRECTIVES, PLACES_TASKS, every_kind
from pto_wsp.runtime.trace import TaskEvent, Trace
from tests.generators.drawing import DRAWS, Draw, tries
from tests.python.schedule.steps import STEPS, counter, most_in_flight, one_at_a_time, run
from tests.slow import examples

TASKS = 61
RATE = 50_000


@dataclass
class Run:
    """A run of 60 tasks `bump` and `drop` over i and j, each pair in order, and of one more."""

    schedule: Schedule
    workers: int
    trace: Trace
    events: list[TaskEvent]

    @property
    def of_kind(self) -> dict[str, Any]:
        return {directive.kind: directive for directive in every_kind(self.schedule.policies)}


def by_key(run: Run, dispatcher: Callable[[int, int], int]) -> bool:
    return all(len(e.keys) == 1 or e.dispatcher == dispatcher(*e.keys) for e in run.events)


def in_turn(run: Run) -> bool:
    pieces = [
        e.dispatcher
        for e, after in pairwise([*run.events, None])
        if not after or e.dispatcher != after.dispatcher
    ]
    return len(pieces) > 6 and pieces == [i % 3 for i in range(len(pieces))]


def hashed(run: Run) -> bool:
    pairs = {(e.keys[0], e.dispatcher) for e in run.events if len(e.keys) == 2}
    return len(pairs) == 6 and all(0 <= dispatcher < 4 for _, dispatcher in pairs)


def partitioned(run: Run) -> bool:
    return all(e.dispatcher == (e.task >= 10) + (e.task >= 40) for e in run.events)


def lanes(run: Run) -> list[list[TaskEvent]]:
    """Return the tasks of each stream."""
    match run.of_kind["streams"].name:
        case "off":
            return []
        case "in_turn":
            return [run.events[lane::3] for lane in range(3)]
        case _:
            return [[e for e in run.events if len(e.keys) == 2 and e.keys[1] == j] for j in range(5)]


def batched(run: Run) -> bool:
    firsts = range(7, TASKS, 7)
    return all(run.trace.end_ns[:at].max() <= run.trace.start_ns[at:].min() for at in firsts)


def paced(run: Run) -> bool:
    return bool(run.trace.start_ns.max() - run.trace.start_ns.min() >= 60 * 1e9 / RATE * 0.99)


def ranks(run: Run) -> dict[int, tuple[tuple[int, ...], int]]:
    """Return where each task comes among those that are ready."""
    is_ordered, takes_turns = run.of_kind["ready"].name == "order_by", run.of_kind["interleave"].name == "by"

    def keys(event: TaskEvent) -> tuple[int, ...]:
        if len(event.keys) == 1:
            return (0, 0, 0)
        i, j = event.keys
        position = 2 * i + (event.kernel == "drop") + 1
        rest = (-i, -j) if is_ordered else (position * takes_turns, 0)
        return (j // 2 * takes_turns, *rest)

    return {e.task: (keys(e), e.task) for e in run.events}


def all_before(run: Run) -> dict[int, set[int]]:
    """Return the tasks that each task must wait for."""
    before = {e.task: {e.task - 1} if e.kernel == "drop" else set[int]() for e in run.events}
    for lane in lanes(run):
        for one, two in pairwise(lane):
            before[two.task].add(one.task)
    if run.of_kind["timing"].name == "batched":
        for task in range(TASKS):
            before[task] |= set(range(task // 7 * 7))
    if run.of_kind["concurrent"].name == "by":
        for e in run.events:
            before[e.task] |= set(range(max(e.keys[0] - 1, 0) * 10 if len(e.keys) == 2 else 0))
    return before


def in_order(run: Run) -> bool:
    """Whether one worker has started, each time, the first of those that could start.

    It may also have gone on with the task after the previous one, if both have the same key.
    """
    if run.workers > 1 or run.of_kind["window"].n == 5:
        return True
    rank, before = ranks(run), all_before(run)
    left, done, latest = set(range(TASKS)), set[int](), -1
    for event in sorted(run.events, key=lambda e: e.start_ns):
        ready = [task for task in left if before[task] <= done]
        goes_on = (
            event.task == latest + 1
            and event.task in ready
            and rank[event.task][0] == rank.get(latest, ((0, 0, 0),))[0]
        )
        if not goes_on and event.task != min(ready, key=rank.__getitem__):
            return False
        left.remove(event.task)
        done.add(event.task)
        latest = event.task
    return True


def taking_turns(run: Run) -> bool:
    """Whether one worker took tasks of the first two columns by turns, where these wait for no others."""
    names = [run.of_kind[kind].name for kind in ("ready", "streams", "timing", "concurrent")]
    if run.workers > 1 or run.of_kind["window"].n == 5 or names != ["work_steal", "off", "immediate", "off"]:
        return True
    order = [e.keys[1] for e in sorted(run.events, key=lambda e: e.start_ns) if len(e.keys) == 2]
    return order[:24] == [0, 1] * 12


def in_flight(run: Run) -> bool:
    events = [e for e in run.events if len(e.keys) == 2]
    return most_in_flight(events, 0) <= 2


def built(run: Run) -> bool:
    assert STEPS.stats is not None
    return STEPS.stats.bytes_per_task > 0


def in_pools(run: Run) -> bool:
    return all(len(e.keys) == 1 or e.worker == e.keys[0] % 2 or run.workers == 1 for e in run.events)


STAGES = stage("bump", cores=1), stage("drop", cores=1)


def in_stages(run: Run) -> bool:
    return all(e.worker == (e.kernel == "drop") or run.workers == 1 for e in run.events)


Promise = Callable[[Run], bool]
PROMISES: dict[str, dict[str, tuple[Schedule, Promise]]] = {
    "dispatch": {
        "work_steal": (
            Schedule().dispatch(DispatchPolicy.work_steal(3)),
            lambda r: counter("dispatchers") == 3,
        ),
        "round_robin": (Schedule().dispatch(DispatchPolicy.round_robin(3)), in_turn),
        "affinity": (
            Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.i, 4)),
            lambda r: by_key(r, lambda i, j: i % 4),
        ),
        "hash": (Schedule().dispatch(DispatchPolicy.hash(lambda t: t.i, 4)), hashed),
        "dispatch_by": (
            Schedule().dispatch(DispatchPolicy.dispatch_by(lambda t: t.j % 2, 2)),
            lambda r: by_key(r, lambda i, j: j % 2),
        ),
        "threshold": (
            Schedule().dispatch(DispatchPolicy.threshold(lambda t: t.i, [2, 5])),
            lambda r: by_key(r, lambda i, j: (i >= 2) + (i >= 5)),
        ),
        "static_partition": (Schedule().dispatch(DispatchPolicy.static_partition([10, 40])), partitioned),
    },
    "window": {
        "stall": (Schedule().task_graph(window=TaskWindow(5)), lambda r: counter("max_recorded") <= 5),
        "abort": (
            Schedule().task_graph(window=TaskWindow(TASKS, mode=WindowMode.ABORT)),
            lambda r: counter("max_recorded") <= TASKS,
        ),
    },
    "ready": {
        "fifo": (Schedule().task_graph(ready=ReadyPolicy.fifo()), in_order),
        "order_by": (Schedule().order_by(lambda t: -t.i, lambda t: -t.j), in_order),
    },
    "start": {
        "threshold": (Schedule().task_graph(start=StartPolicy.threshold(20)), built),
        "after_build": (Schedule().task_graph(start=StartPolicy.after_build()), built),
    },
    "streams": {
        "in_turn": (Schedule().streams(3), lambda r: all(map(one_at_a_time, lanes(r)))),
        "by": (Schedule().stream_by(lambda t: t.j), lambda r: all(map(one_at_a_time, lanes(r)))),
    },
    "timing": {
        "batched": (Schedule().timing(TimingPolicy.batched(7)), batched),
        "rate_limit": (Schedule().timing(TimingPolicy.rate_limit(RATE)), paced),
    },
    "interleave": {"by": (Schedule().interleave(lambda t: t.j, 2), taking_turns)},
    "load_balance": {"by_cost": (Schedule().load_balance(), in_order)},
    "concurrent": {"by": (Schedule().concurrent(lambda t: t.i, max=2), in_flight)},
    "pools": {
        "by_exec_unit": (Schedule().task_graph(pools=Pools.by_exec_unit(1)), lambda r: True),
        "custom": (Schedule().task_graph(pools=Pools.custom(lambda t: t.i, [1])), in_pools),
        "affinity": (Schedule().affinity(lambda t: t.i), in_pools),
        "pipeline": (Schedule().pipeline(*STAGES), in_stages),
        "overlap": (Schedule().overlap(*STAGES), lambda r: counter("dispatchers") > 0),
    },
    "prefetch": {
        # No task fetches for those of the first row, and for the last task, which has no key.
        "by": (Schedule().prefetch(lambda t: t.i), lambda r: counter("prefetched_tasks") <= TASKS - 11)
    },
    "stores": {"cached": (Schedule().task_graph(stores=StorePolicy.cached()), lambda r: True)},
    "deps": {
        "infer_bytes_overlap": (Schedule().task_graph(deps=Deps.infer_bytes_overlap()), lambda r: True),
        "hybrid": (Schedule().task_graph(deps=Deps.hybrid()), lambda r: True),
        "symbolic": (Schedule().task_graph(deps=Deps.symbolic()), lambda r: True),
        "trust": (Schedule().task_graph(deps=Deps.trust()), lambda r: True),
    },
    "calendar": {
        "by_cost": (
            Schedule().task_graph(calendar=CalendarPolicy.by_cost()),
            lambda r: counter("has_calendar") == 1,
        ),
    },
}
"""A schedule of each policy, and whether a run has kept what it says."""


def refusal(policies: dict[str, str]) -> str | None:
    """Return what a schedule of these policies is refused for."""
    if policies.get("ready") == "fifo" and policies.keys() & {"interleave", "load_balance"}:
        return "decided by fifo"
    is_placed = policies.keys() & PLACES_TASKS or policies.get("deps") == "symbolic"
    return "decides where or in which order" if "calendar" in policies and is_placed else None


def check(policies: dict[str, str], workers: int) -> None:
    schedule = Schedule()
    for directive, name in policies.items():
        schedule = Schedule(schedule.policies.having(*PROMISES[directive][name][0].policies))
    reason = refusal(policies)
    if reason is not None:
        with pytest.raises(UnsupportedByTarget, match=reason):
            STEPS.reschedule(schedule)
        return
    trace = run(STEPS, schedule, workers)
    found = Run(schedule, workers, trace, list(trace))
    broken = [name for directive, name in policies.items() if not PROMISES[directive][name][1](found)]
    assert not broken, f"{broken} of {policies} on {workers} workers"


@pytest.mark.parametrize(("one", "two"), list(combinations(PROMISES, 2)))
def test_two_policies(one: str, two: str) -> None:
    for a, b in product(PROMISES[one], PROMISES[two]):
        for workers in (1, 2):
            check({one: a, two: b}, workers)


@pytest.mark.parametrize("start", PROMISES["start"])
def test_no_task_begins_before_the_task_it_waits_for_ends(start: str) -> None:
    """The window of this race is a few nanoseconds wide, so only many runs meet it."""
    for _ in range(examples(3000)):
        trace = run(STEPS, PROMISES["start"][start][0], workers=2)
        of_bumps, of_drops = slice(0, TASKS - 1, 2), slice(1, TASKS, 2)
        assert (trace.end_ns[of_bumps] <= trace.start_ns[of_drops]).all()


@given(draw=DRAWS)
@tries(600)
def test_many_policies(draw: Draw) -> None:
    chosen = draw.sample(list(PROMISES), draw.randint(3, len(PROMISES)))
    check({directive: draw.choice(list(PROMISES[directive])) for directive in chosen}, draw.choice([1, 2]))


def test_every_policy_is_among_these() -> None:
    left_out = {"benchmark", "explicit", "explicit_unchecked"}  # no results, and edges are missing
    for directive, kind in DIRECTIVES.items():
        default, *others = kind.policies
        if directive != "trace":
            assert set(others) - left_out <= set(PROMISES[directive]) | {default}
