"""Workloads in which data decides: the engine against program order, bit for bit, or the same error."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp import Deps, Schedule
from pto_wsp.errors import RunError
from pto_wsp.ir.printer import print_workload
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.interpreted import InterpretedRunner
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import tries
from tests.generators.dynamic_workloads import KERNELS, Sample, samples

BY_NAME = {kernel.name: kernel for kernel in KERNELS}


def outcome(run: object, sample: Sample) -> object:
    """Return the number of tasks and the bytes of every array, or what the error says."""
    arrays = sample.arrays()
    try:
        figures, _ = run(list(arrays.values()))  # type: ignore[operator]
    except RunError as error:
        return type(error), error.message, error.caret_text, error.loc, error.tasks_before or 0
    return figures.tasks, [array.tobytes() for array in arrays.values()]


SYMBOLIC = Schedule().task_graph(deps=Deps.symbolic())


@pytest.mark.parametrize("schedule", [Schedule(), SYMBOLIC], ids=["maps", "symbolic"])
@tries(100)
@given(samples(), st.integers(1, 2**31))
def test_data_decides_as_in_program_order(schedule: Schedule, sample: Sample, seed: int) -> None:
    note(print_workload(sample.module.entry_workload))
    module = verify(sample.module).with_schedule(schedule.policies)
    engine = EngineRunner(Prepared(module, CpuTarget()), CpuTarget())
    compiled = {name: index for index, name in enumerate(engine.artifact.kernels)}

    def call(name: str, args: list[object], workspace: int) -> None:
        views = tuple(a for a in args if isinstance(a, np.ndarray))
        numbers = tuple(a for a in args if not isinstance(a, np.ndarray))
        codes = tuple(p.type.dtype.code for p in BY_NAME[name].scalar_params)
        assert engine.library.call(compiled[name], views, numbers, codes, 0, workspace)[0] == 0

    reference = InterpretedRunner(sample.module)
    expected = outcome(lambda arrays: reference.run_calling(arrays, [5], call), sample)
    for workers in (1, 2, 3, 4):
        request = partial(RunRequest, scalars=[5], workers=workers, jitter=seed)
        found = outcome(lambda arrays, request=request: engine.run(request(arrays)), sample)
        assert found == expected, workers
