"""Start policies: what is built before it runs, kept, and run again."""

import numpy as np
import pytest

from pto_wsp import DispatchPolicy, Ragged, Schedule, StartPolicy, TaskWindow, WindowMode
from pto_wsp.runtime.program import Program
from tests.python.schedule.programs import totals

BUILDING = [StartPolicy.after_build(), StartPolicy.threshold(3), StartPolicy.threshold(100000)]


def run(program: Program, lengths: list[int], workers: int = 2) -> tuple[np.ndarray, np.ndarray]:
    tokens = sum(lengths)
    values = np.arange(tokens * 32, dtype=np.float32).reshape(tokens, 4, 8)
    y = np.zeros((len(lengths), 4, 1, 8), np.float32)
    z = np.ones((len(lengths), 1, 8), np.float32)
    program.run(rows=Ragged.lengths(lengths), X=values, Y=y, Z=z, workers=workers)
    return y, z


@pytest.fixture(scope="module")
def program() -> Program:
    return totals.compile("cpu")


@pytest.mark.parametrize("policy", BUILDING, ids=str)
@pytest.mark.parametrize("workers", [1, 3])
def test_results_do_not_depend_on_the_start(program: Program, policy: StartPolicy, workers: int) -> None:
    lengths = [5, 0, 17, 1]
    program.reschedule(Schedule())
    expected = run(program, lengths)
    program.reschedule(Schedule().task_graph(start=policy))
    for _ in range(3):
        for found, wanted in zip(run(program, lengths, workers), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_graph_is_replayed_while_nothing_that_shaped_it_changes(program: Program) -> None:
    program.reschedule(Schedule().task_graph(start=StartPolicy.after_build()))
    replayed = []
    for lengths in ([5, 2, 9], [5, 2, 9], [5, 3, 8], [5, 3, 8], [5, 2, 9], [5, 2, 9, 1], [5, 2, 9, 1]):
        run(program, lengths)
        stats = program.stats
        assert stats is not None
        replayed.append(stats.replayed)
        assert stats.replayed == (stats.build_ms == 0)
        assert stats.bytes_per_task > 0
    assert replayed == [False, True, False, True, False, False, True]


def test_a_run_that_starts_at_once_keeps_nothing(program: Program) -> None:
    program.reschedule(Schedule())
    run(program, [1, 2])
    stats = program.stats
    assert stats is not None
    assert (stats.replayed, stats.build_ms, stats.bytes_per_task) == (False, 0, 0)


@pytest.mark.parametrize(
    "other",
    [
        Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.b)),
        Schedule().task_graph(window=TaskWindow(64, "tasks", WindowMode.STALL)),
        Schedule().order_by(lambda t: t.b),
    ],
    ids=["dispatch", "window", "ready"],
)
def test_a_graph_is_replayed_under_other_policies_too(program: Program, other: Schedule) -> None:
    program.reschedule(Schedule())
    expected = run(program, [5, 2, 9])
    program.reschedule(other.task_graph(start=StartPolicy.after_build()))
    for is_replayed in (False, True):
        for found, wanted in zip(run(program, [5, 2, 9]), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert program.stats is not None and program.stats.replayed == is_replayed
