"""Programs with a schedule: another one is taken without compiling, and gives the same results."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import DispatchPolicy, Program, Ragged, Schedule
from pto_wsp.errors import BadKey, WrongValue
from tests.python.schedule.programs import totals

ROWS = Ragged.lengths([3, 0, 9, 1, 4])
X = np.random.default_rng(1).standard_normal((17, 4, 8)).astype(np.float32)


def results(program: Program, workers: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    y, z = np.zeros((5, 4, 1, 8), np.float32), np.arange(40, dtype=np.float32).reshape(5, 1, 8)
    program.run(rows=ROWS, X=X, Y=y, Z=z, workers=workers)
    return y, z


@pytest.fixture(params=["cpu", "interp"])
def program(request: pytest.FixtureRequest) -> Program:
    return totals.compile(request.param)


def test_nothing_is_compiled_again(program: Program) -> None:
    before = results(program)
    again = Schedule().dispatch(DispatchPolicy.work_steal(2))
    program.reschedule(again)
    assert program.schedule == again and "work_steal(n = 2)" in program.dump()
    for one, two in zip(before, results(program), strict=True):
        np.testing.assert_array_equal(one, two)
    stats = program.stats
    assert stats is not None and stats.compiles == 0
    program.reschedule(Schedule())
    assert "SCHEDULE" not in program.dump()


def test_a_schedule_that_does_not_fit_changes_nothing(program: Program) -> None:
    before = program.schedule
    with pytest.raises(WrongValue):
        program.reschedule(DispatchPolicy.work_steal())  # pyright: ignore[reportArgumentType]
    results(program)
    assert program.schedule == before


def test_interp_takes_every_schedule_that_fits_the_tasks() -> None:
    program = totals.dispatch(DispatchPolicy.dispatch_by(lambda t: t.b, 5)).compile("interp")
    results(program)
    with pytest.raises(BadKey):
        program.reschedule(Schedule().dispatch(DispatchPolicy.affinity(lambda t: t.head)))
