"""What keys of schedules are for each task."""

from collections.abc import Callable
from typing import Any

import pytest

from pto_wsp import DispatchPolicy, P, Schedule, Tensor, f32, group_by, i32, parse, workload
from pto_wsp.errors import BadKey
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import TaskIndex
from pto_wsp.lower.bytecode import Op
from pto_wsp.lower.task_keys import TaskKeys
from pto_wsp.passes.expand.expand_loops import expand_loops
from pto_wsp.support.record import replace
from tests.python.lower.test_lower_workload_to_bytecode import instructions, lower
from tests.python.schedule.programs import bump, totals

MODULE = totals.trace().module
ENTRY = MODULE.entry_workload


def checked(function: Callable[[Any], Any]) -> None:
    key = DispatchPolicy.affinity(function).key
    assert key is not None
    TaskKeys(MODULE, key).check()


def scheduled(schedule: Schedule) -> Module:
    return MODULE.with_schedule(schedule.policies)


def amounts(module: Module) -> list[tuple[Op, int]]:
    return [(op, a) for op, a, _ in instructions(lower(module)) if op in (Op.TASK, Op.KEY, Op.ORDER)]


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t.b,
        lambda t: t.batch,
        lambda t: t.h,
        lambda t: t.b * t.h + t.args.x.rows * t.args.y.cols,
        lambda t: t.kernel,
        lambda t: t.kernel == "bump",
        lambda t: 0,
    ],
)
def test_names_that_some_task_has(function: Callable[[Any], Any]) -> None:
    checked(function)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda t: t.c, "no task has `t.c`"),
        (lambda t: t.b_1, "no task has `t.b_1`"),
        (lambda t: t.rows, "no task has `t.rows`"),
        (lambda t: t.args.z.rows, "no task has `t.args.z.rows`"),
        (lambda t: t.kernel == "bumps", "no kernel is called `bumps`"),
    ],
)
def test_names_that_no_task_has(function: Callable[[Any], Any], problem: str) -> None:
    with pytest.raises(BadKey) as caught:
        checked(function)
    assert caught.value.message == problem and caught.value.loc is not None


def test_the_axis_of_a_loop_is_declared_and_does_not_follow_from_the_name_of_a_tensor() -> None:
    @workload
    def bumped(Keys: Tensor[i32, "n"], X: Tensor[f32, "n", 8]):
        chosen = group_by(Keys, num_groups=2)
        for j in P.sel(chosen[1]):
            bump[j](x=X[j : j + 1])

    text = str(bumped.trace().module)
    assert "{local, offsets = %chosen}" in text
    key = DispatchPolicy.affinity(lambda t: t.chosen).key
    assert key is not None
    for written in (text, text.replace("%chosen.offsets", "%ends")):
        TaskKeys(parse(written), key).check()
    with pytest.raises(BadKey):
        TaskKeys(parse(text.replace(", offsets = %chosen", "")), key).check()


def test_tasks_without_a_name_of_the_key_have_none() -> None:
    by_head = Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.h))
    assert amounts(scheduled(by_head)) == [(Op.TASK, 0), (Op.KEY, 0), (Op.TASK, 1)]
    both = by_head.order_by(lambda t: t.b, lambda t: t.h)
    assert amounts(scheduled(both)) == [
        (Op.TASK, 0),
        (Op.KEY, 0),
        (Op.ORDER, 0),
        (Op.ORDER, 1),
        (Op.TASK, 1),
        (Op.ORDER, 0),
    ]


def test_a_key_over_a_loop_that_is_taken_apart_names_the_loops_in_its_place() -> None:
    body = [replace(node, max_range=4) if isinstance(node, w.Loop) else node for node in ENTRY.body]
    module = expand_loops(replace(MODULE, workloads=(replace(ENTRY, body=tuple(body)),)))
    with pytest.raises(BadKey, match=r"no task has `t\.b`") as caught:
        TaskKeys(module, TaskIndex("b")).check()
    assert "replaced the loop over `b` by 6 loops" in str(caught.value)
    assert "for example `t.b_4`, or use `t.kernel`" in str(caught.value)
    TaskKeys(module, TaskIndex("b_4")).check()


def test_the_number_of_dispatchers_bounds_their_numbers() -> None:
    by_number = Schedule().dispatch(DispatchPolicy.dispatch_by(lambda t: t.b % 3, 3))
    assert (Op.KEY, 3) in amounts(scheduled(by_number))


def test_a_key_is_what_it_says_at_its_place() -> None:
    def written(function: Callable[[Any], Any]) -> list[list[Op]]:
        schedule = Schedule().dispatch(DispatchPolicy.affinity(function))
        lowered = instructions(lower(scheduled(schedule)))
        keys = [at for op, _, at in lowered if op is Op.KEY]
        return [[op for op, _, _ in lowered[at : lowered.index((Op.EXPR_END, 0, 0), at)]] for at in keys]

    assert written(lambda t: t.b) == [[Op.EXPR_REG], [Op.EXPR_REG]]
    assert written(lambda t: t.kernel) == [[Op.EXPR_CONST], [Op.EXPR_CONST]]
    assert written(lambda t: t.args.y.cols) == [[Op.EXPR_CONST]]
    assert Op.EXPR_ELEMENT in written(lambda t: t.args.x.rows)[0]
