"""Waits of blocks, as numbers of tasks: they order every conflict of a run, and not whole loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note

from benchmarks.cuda import programs
from pto_wsp import DenseDyn, In, InOut, Out, P, Tensor, Tile, f32, kernel, pto, workload
from pto_wsp.errors import RunError
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.workload import NOTHING_LATE, BoundTask, Step, TaskRunner, Walk
from pto_wsp.ir import workload as w
from pto_wsp.ir.flush_points import find_late
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.prove.replay import Replay, Replayed
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.targets.cuda import waits
from pto_wsp.targets.cuda.waits import DeviceWait, Moment, device_waits, loop_numbers
from tests.generators import dynamic_workloads, workloads
from tests.generators.drawing import tries

pytest.importorskip("islpy")


class Walked(Walk):
    """A walk in program order that notes what each task waits for.

    Attributes:
        awaited: the tasks that each task waits for, by number.
    """

    def __init__(self, module: Module, found: Sequence[Sequence[DeviceWait]], sizes: dict[str, int]) -> None:
        entry = module.entry_workload
        super().__init__({**dict.fromkeys(entry.variables, 0), **sizes}, None, NOTHING_LATE)
        self.found = found
        self.loop_numbers = loop_numbers(entry)
        self.sites = {id(task): number for number, task in enumerate(w.tasks(entry.body))}
        self.labels = {task.label: number for number, task in enumerate(w.tasks(entry.body))}
        self.noted: dict[tuple[str, int], int] = {}
        self.awaited: list[set[int]] = []
        self.loops: list[w.Loop] = []

    def loop(self, loop: w.Loop, loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        number = self.loop_numbers[id(loop)]
        self.noted[waits.ENTERED, number] = len(self.awaited)
        yield from super().loop(loop, loops)
        self.noted["end", number] = len(self.awaited)

    def nodes(self, body: Sequence[w.Node], loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        is_iteration = bool(loops) and loops[-1].body is body
        number = self.loop_numbers[id(loops[-1])] if is_iteration else -1
        if is_iteration:
            self.noted[waits.BEFORE, number] = self.noted.get((waits.HERE, number), 0)
            self.noted[waits.HERE, number] = len(self.awaited)
        for step in super().nodes(body, loops):
            if isinstance(step, BoundTask) and any(step.node is node for node in body):
                self.awaited.append(self.of(step))
                self.noted[waits.LATEST, self.sites[id(step.node)]] = len(self.awaited)
            yield step
        if is_iteration:
            self.noted["per", number] = len(self.awaited) - self.noted[waits.HERE, number]

    def of(self, task: BoundTask) -> set[int]:
        tasks = set[int]()
        for wait in self.found[self.sites[id(task.node)]]:
            since, until = (self.moment(moment, task) for moment in (wait.since, wait.until))
            tasks.update(range(max(since, until - 1) if wait.is_latest else since, until))
        tasks.update(self.noted[waits.LATEST, self.labels[label]] - 1 for label in task.node.after)
        return tasks

    def moment(self, moment: Moment, task: BoundTask) -> int:
        if moment.kind == waits.START:
            return 0
        if moment.kind != waits.ENDED:
            return self.noted.get((moment.kind, moment.number), 0)
        base = 0 if moment.base is None else int(task.scope[task.loops[moment.base].var])
        first, end, per = (self.noted.get((kind, moment.number), 0) for kind in (waits.ENTERED, "end", "per"))
        return min(end, first + max(0, base + moment.offset) * per)


class Touched(Replay):
    """What the tasks of a run touch, which are given as they run."""

    def __init__(self, module: Module, sizes: dict[str, int], arrays: dict[str, np.ndarray]) -> None:
        self.module, self.arrays, self.written = module, arrays, frozenset()
        self.kernels = {kernel.name: kernel for kernel in module.kernels}
        tensors = module.entry_workload.tensors
        self.shapes = {
            t.name: tuple(sizes[d] if isinstance(d, str) else d for d in t.type.dims) for t in tensors
        }
        self.outside = self.missing = None
        self.tasks = []

    def add(self, task: BoundTask) -> None:
        self.tasks.append(Replayed(task, tuple(self._boxes(task))))

    def conflicts(self) -> list[tuple[int, int]]:
        """Return the pairs of tasks of which one writes what the other one touches."""
        return [
            (one, two)
            for two, second in enumerate(self.tasks)
            for one, first in enumerate(self.tasks[:two])
            if self.conflict(first, second) is not None
        ]


def walked(
    module: Module,
    arrays: dict[str, np.ndarray],
    sizes: dict[str, int],
    found: Sequence[Sequence[DeviceWait]] | None = None,
) -> tuple[list[set[int]], list[tuple[int, int]]]:
    """Return what each task of a run waits for, and conflicts; waits are found unless they are given."""
    kernels = {each.name: each for each in module.kernels}

    def call(name: str, args: Sequence[Any], workspace: int) -> None:
        run_kernel(kernels[name], args)

    walk, touched = Walked(module, found or device_waits(module), sizes), Touched(module, sizes, arrays)
    runner = TaskRunner(module, arrays, find_late(module.entry_workload, module.written), call, lambda: None)
    walk.reader = runner.reader
    for number, task in enumerate(walk.nodes(module.entry_workload.body, ())):
        assert isinstance(task, BoundTask)
        touched.add(task)
        runner.task(task, number)
    return walk.awaited, touched.conflicts()


def before(awaited: Sequence[set[int]]) -> list[set[int]]:
    """Return the tasks that must be complete before each task."""
    found: list[set[int]] = []
    for tasks in awaited:
        found.append(tasks.union(*(found[task] for task in tasks)))
    return found


def is_ordered(awaited: Sequence[set[int]], pairs: Sequence[tuple[int, int]]) -> bool:
    """Return whether waits order all pairs of tasks."""
    must = before(awaited)
    return all(first in must[second] for first, second in pairs)


@tries(30)
@given(workloads.samples())
def test_waits_order_every_conflict(sample: workloads.Sample) -> None:
    note(str(sample.module))
    assert is_ordered(*walked(sample.module, sample.arrays(), dict(sample.sizes)))


@tries(50)
@given(dynamic_workloads.samples())
def test_waits_order_every_conflict_where_data_decides(sample: dynamic_workloads.Sample) -> None:
    note(str(sample.module))
    try:
        found = walked(sample.module, sample.arrays(), {"n": 5})
    except RunError:
        return
    assert is_ordered(*found)


@kernel
def copy(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]):
    pto.store(y, x)


@kernel
def add(x: In[Tile[1, 8, f32]], y: InOut[Tile[1, 8, f32]]):
    pto.store(y, x + y)


@workload
def rows(X: Tensor[f32, "n", 1, 8], S: Tensor[f32, "n", 1, 8], Y: Tensor[f32, "n", 1, 8]):
    """Each row adds all rows; it is copied when they are added."""
    for i in P("n"):
        copy[i](x=S[i], y=X[i])
    for i in P("n"):
        for j in P.range("n"):
            add[i, j](x=X[j], y=S[i])
        copy[i](x=S[i], y=Y[i])


@workload
def steps(X: Tensor[f32, "n", 1, 8], Y: Tensor[f32, "n", 1, 8], times: DenseDyn):
    """Each step reads what the step before wrote; its tasks do not wait for each other."""
    for t in P.range(times):
        for i in P("n"):
            copy[t, i](x=X[i], y=Y[i])
        for i in P("n"):
            add[t, i](x=Y[i], y=X[i])


N, TIMES = 5, 3
ARRAYS = {name: np.ones((N, 1, 8), np.float32) for name in "XSY"}


def arrays_of(program: Workload) -> dict[str, np.ndarray]:
    return {param.name: ARRAYS[param.name].copy() for param in program.trace().module.entry_workload.tensors}


def test_no_wait_can_be_left_out() -> None:
    module = compile_module(rows.trace().module, "interp").module
    found = device_waits(module)
    assert is_ordered(*walked(module, arrays_of(rows), {"n": N}, found))
    for site, each in enumerate(found):
        for wait in each:
            rest = [other for other in each if other is not wait]
            mutant = [*found[:site], rest, *found[site + 1 :]]
            assert not is_ordered(*walked(module, arrays_of(rows), {"n": N}, mutant)), (site, wait)


def test_rows_do_not_wait_for_each_other() -> None:
    awaited, _ = walked(compile_module(rows.trace().module, "interp").module, arrays_of(rows), {"n": N})
    must = before(awaited)
    of_rows = [range(N + row * (N + 1), N + (row + 1) * (N + 1)) for row in range(N)]
    for row, tasks in enumerate(of_rows):
        others = {task for other in (*of_rows[:row], *of_rows[row + 1 :]) for task in other}
        assert not any(must[task] & others for task in tasks)


def test_tasks_of_a_step_do_not_wait_for_each_other() -> None:
    module = compile_module(steps.trace().module, "interp").module
    awaited, _ = walked(module, arrays_of(steps), {"n": N, "times": TIMES})
    halves = [range(half * N, half * N + N) for half in range(2 * TIMES)]
    assert not any(awaited[task] & {*half} for half in halves for task in half)


def test_experts_that_the_run_chooses_wait_for_the_routing_alone() -> None:
    routing, product = device_waits(compile_module(programs.grouped.trace().module, "interp").module)
    assert not routing and len(product) == 1 and product[0].until == Moment(waits.LATEST, 0)
