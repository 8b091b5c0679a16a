"""Tasks that touch parts beside tasks that touch the whole: the engine against program order, bit for bit."""

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp.interp.workload import run_workload
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.whole_and_part import sample
from tests.generators.workloads import KERNELS

BY_NAME = {kernel.name: kernel for kernel in KERNELS}


@tries(150)
@given(DRAWS, st.integers(1, 2**31))
def test_parts_and_wholes_are_ordered(draw: Draw, seed: int) -> None:
    found = sample(draw)
    note(str(found.module))
    runner = EngineRunner(Prepared(verify(found.module), CpuTarget()), CpuTarget())
    compiled = {name: index for index, name in enumerate(runner.artifact.kernels)}
    expected = found.arrays()

    def call(name: str, args: list[object], workspace: int) -> None:
        views = tuple(a for a in args if isinstance(a, np.ndarray))
        numbers = tuple(a for a in args if not isinstance(a, np.ndarray))
        codes = tuple(p.type.dtype.code for p in BY_NAME[name].scalar_params)
        assert runner.library.call(compiled[name], views, numbers, codes) == 0

    tasks = run_workload(found.module, expected, {}, call)
    for workers in (1, 2, 3):
        arrays = found.arrays()
        delays = seed if workers > 1 else 0
        figures, _ = runner.run(RunRequest([*arrays.values()], [], workers, jitter=delays))
        assert figures.tasks == tasks
        for name in expected:
            assert arrays[name].tobytes() == expected[name].tobytes(), (name, workers)
