"""The workload oracle: any number of workers, under random delays, gives the result of program order."""

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.workload import run_workload
from pto_wsp.ir.verify import verify
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets.cpu.target import CpuTarget
from tests.generators.drawing import tries
from tests.generators.workloads import KERNELS, Sample, samples

BY_NAME = {kernel.name: kernel for kernel in KERNELS}


@tries(150)
@given(samples(), st.integers(1, 2**31))
def test_results_do_not_depend_on_workers_or_timing(sample: Sample, seed: int) -> None:
    note(str(sample.module))
    runner = EngineRunner(Prepared(verify(sample.module), CpuTarget()), CpuTarget())
    scalars = [sample.sizes["n"]]
    expected = sample.arrays()
    compiled = {name: index for index, name in enumerate(runner.artifact.kernels)}

    def call(name: str, args: list[object], workspace: int) -> None:
        views = tuple(a for a in args if isinstance(a, np.ndarray))
        numbers = tuple(a for a in args if not isinstance(a, np.ndarray))
        codes = tuple(p.type.dtype.code for p in BY_NAME[name].scalar_params)
        assert runner.library.call(compiled[name], views, numbers, codes)[0] == 0

    tasks = run_workload(sample.module, expected, sample.sizes, call)
    for workers in (1, 2, 3):
        found = sample.arrays()
        figures, _ = runner.run(
            RunRequest([*found.values()], scalars, workers, jitter=seed if tasks < 400 else 0)
        )
        assert figures.tasks == tasks
        for name in expected:
            assert found[name].tobytes() == expected[name].tobytes(), (name, workers)


@tries(60)
@given(samples())
def test_compiled_kernels_agree_with_numpy(sample: Sample) -> None:
    note(str(sample.module))
    runner = EngineRunner(Prepared(verify(sample.module), CpuTarget()), CpuTarget())
    expected, found = sample.arrays(), sample.arrays()
    run_workload(sample.module, expected, sample.sizes, lambda name, args, _: run_kernel(BY_NAME[name], args))
    runner.run(RunRequest([*found.values()], [sample.sizes["n"]], 2))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-4)
