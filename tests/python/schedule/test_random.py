"""Random programs under random schedules: the results of program order, bit for bit."""

from __future__ import annotations

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp.ir.module import Module
from pto_wsp.ir.schedule import Directives
from pto_wsp.ir.verify import verify
from pto_wsp.lang.schedule.directives.calendar import CalendarPolicy
from pto_wsp.lang.schedule.directives.start import StartPolicy
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import tries
from tests.generators.dynamic_workloads import samples as dynamic_samples
from tests.generators.schedules import schedules
from tests.generators.workloads import samples as plain_samples
from tests.python.runtime.test_dynamic import outcome


def check(data: st.DataObject, module: Module, sample: object, scalars: list[int]) -> None:
    """Run in program order, then under three schedules."""
    note(str(module))
    engine = EngineRunner(Prepared(verify(module), CpuTarget()), CpuTarget())

    def run(workers: int, jitter: int) -> object:
        return outcome(lambda arrays: engine.run(RunRequest(arrays, scalars, workers, jitter=jitter)), sample)

    expected = run(1, 0)
    for _ in range(3):
        schedule = data.draw(schedules(module))
        workers, jitter = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 2**31))
        note(f"{Module('', schedule=schedule)} on {workers} workers, jitter {jitter}")
        engine = engine.rescheduled(verify(module.with_schedule(schedule)))
        found = run(workers, jitter)
        assert found == expected or has_run_less(schedule, found, expected)
    engine = engine.rescheduled(module.with_schedule(Directives()))
    assert run(2, 0) == expected


def has_run_less(schedule: Directives, found: Any, expected: Any) -> bool:
    """Whether both are one error, which has left tasks undone that would have been built before they ran."""
    *error, tasks = found
    *same, most = expected
    is_found_before = schedule.find(StartPolicy) or schedule.find(CalendarPolicy)
    return is_found_before is not None and error == same and len(error) == 4 and tasks <= most


@tries(12, compiles=True)
@given(st.data())
def test_schedules_change_no_result(data: st.DataObject) -> None:
    sample = data.draw(plain_samples())
    check(data, sample.module, sample, [sample.sizes["n"]])


@tries(12, compiles=True)
@given(st.data())
def test_schedules_change_no_result_where_data_decides(data: st.DataObject) -> None:
    sample = data.draw(dynamic_samples())
    check(data, sample.module, sample, [5])
