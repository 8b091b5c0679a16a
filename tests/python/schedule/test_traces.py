"""What a schedule says of the run itself: traces, and runs without kernels."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    P,
    Schedule,
    TaskWindow,
    Tensor,
    TracePolicy,
    WindowMode,
    f32,
    i32,
    workload,
)
from pto_wsp.errors import UnsupportedByTarget, WrongValue
from pto_wsp.visualize.timeline import STALLS
from tests.python.schedule.programs import totals
from tests.python.schedule.steps import (
    SHAPE,
    STEPS,
    bump,
    counter,
    step,
)


def test_benchmark_calls_no_kernel() -> None:
    x, z = np.ones(SHAPE, np.float32), np.ones((1, 8), np.float32)
    for workers in (1, 2):
        STEPS.reschedule(Schedule().task_graph(window=TaskWindow(64, mode=WindowMode.BENCHMARK)))
        STEPS.run(X=x, Z=z, workers=workers)
        assert (x == 1.0).all() and (z == 1.0).all()
        assert STEPS.stats is not None and STEPS.stats.tasks == 61 and STEPS.stats.is_benchmark
    STEPS.reschedule(Schedule())
    STEPS.run(X=x, Z=z)
    assert not (x == 1.0).any() and not STEPS.stats.is_benchmark


def test_benchmark_is_refused_where_kernels_decide() -> None:
    benchmark = Schedule().task_graph(window=TaskWindow(64, mode=WindowMode.BENCHMARK))

    @workload
    def decided(X: Tensor[f32, 1, 8], N: Tensor[i32, 1, 4]):
        step[0](x=N)
        for i in P(N[0, 0]):
            bump[i](x=X)

    with pytest.raises(UnsupportedByTarget, match="`N` decides what runs"):
        decided.compile("cpu").reschedule(benchmark)
    with pytest.raises(UnsupportedByTarget, match="benchmark"):
        totals.compile("interp").reschedule(benchmark)


def test_a_trace_is_as_full_as_the_schedule_says() -> None:
    x, z = np.ones(SHAPE, np.float32), np.ones((1, 8), np.float32)
    STEPS.reschedule(Schedule().task_graph(trace=TracePolicy.tasks(), window=TaskWindow(4)))
    STEPS.run(X=x, Z=z, workers=2)
    assert STEPS.trace is not None and len(STEPS.trace) == 61 and not len(STEPS.trace.walks)
    STEPS.run(X=x, Z=z, workers=2, trace="off")
    assert STEPS.trace is None
    STEPS.run(X=x, Z=z, workers=2, trace="full")
    assert STEPS.trace is not None
    made = STEPS.trace.walks
    assert made[:, 2].sum() == 61 and (np.diff(made[made[:, 0] == 0][:, 3]) >= 0).all()
    for dispatcher, first, count, _ in made:
        assert (STEPS.trace.dispatcher[first : first + count] == dispatcher).all()
    stalls = STEPS.trace.stalls
    assert len(stalls) == sum(counter(f"{name}_stalls") for name in STALLS)
    assert (stalls[:, 2] <= stalls[:, 3]).all()
    with pytest.raises(WrongValue, match="'full'"):
        STEPS.run(X=x, Z=z, trace="all")
