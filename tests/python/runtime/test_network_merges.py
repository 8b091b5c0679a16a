"""Channels whose senders are merged by time: deterministic on `sim`, elsewhere one possible order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from pto_wsp import Channel, P, Program, Tensor, compile_module, f32, network, parse, process, wait
from pto_wsp.errors import (
    BadChannel,
    BadNetwork,
    ChannelEnded,
    Deadlock,
    PtoError,
    UnreceivedTokens,
    UnsupportedByTarget,
)
from pto_wsp.interp.kernels import run_kernel
from pto_wsp.interp.network import run_network
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.lang.workload.networks import ProcessFunction
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.engine import EngineRunner
from pto_wsp.runtime.interpreted import bind
from pto_wsp.runtime.outcome import RunRequest
from pto_wsp.runtime.simulated import SimulatedRunner
from pto_wsp.simulation import report_of
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.networks import COLS, ROWS, random_network
from tests.python.runtime.network_kernels import copy

STOPS = (Deadlock, ChannelEnded, UnreceivedTokens)
"""Errors that the order of tokens decides."""

Arrays = dict[str, np.ndarray]


def arrays_of(module: Module) -> Arrays:
    arrays = {
        t.name: np.zeros((ROWS, 1, COLS), np.float32) for t in module.entry_workload.tensors if not t.is_local
    }
    arrays["X"][:] = np.arange(ROWS * COLS).reshape(ROWS, 1, COLS)
    return arrays


def interpreted(program: Program, module: Module, merges: list[list[int]]) -> tuple[int, Arrays]:
    """Return the tasks and arrays of a run in which senders have an order."""
    arrays = arrays_of(module)
    bound = program._binder.bind(arrays)
    tensors, sizes = bind(module, bound.arrays, bound.scalars)
    kernels = {kernel.name: kernel for kernel in module.kernels}

    def call(name: str, args: list[np.ndarray | Value], workspace: int) -> None:
        run_kernel(kernels[name], args)

    orders = {t.name: order for t, order in zip(module.entry_workload.tensors, merges, strict=True)}
    return run_network(module, tensors, sizes, call, merges=orders), arrays


def request(program: Program, arrays: Arrays, workers: int, delays: int) -> RunRequest:
    bound = program._binder.bind(arrays)
    return RunRequest(bound.arrays, bound.scalars, workers, jitter=delays)


def require_equal(one: Arrays, other: Arrays) -> None:
    for name, array in one.items():
        assert np.array_equal(array, other[name]), name


@tries(200)
@given(DRAWS)
def test_tokens_as_they_come_are_one_order_of_a_deterministic_network(draw: Draw) -> None:
    module = random_network(draw, w.ARRIVAL)
    assert parse(str(module)) == module
    program = compile_module(module, "cpu")
    runner = program._runner
    assert isinstance(runner, EngineRunner)
    runner.loaded.options.records_merges = True
    for workers, delays in ((1, 0), (2, 5), (4, 7)):
        found = arrays_of(module)
        try:
            figures, _ = runner.run(request(program, found, workers, delays))
        except STOPS:
            continue
        merges = figures.merges  # pyright: ignore[reportAttributeAccessIssue]
        tasks, expected = interpreted(program, module, merges)
        assert tasks == figures.tasks
        require_equal(found, expected)
        again = arrays_of(module)
        runner.merging(merges).run(request(program, again, 5 - workers, delays))
        require_equal(again, expected)


@tries(200)
@given(DRAWS)
def test_simulated_time_merges_tokens_in_the_same_order_every_time(draw: Draw) -> None:
    module = random_network(draw, w.TIME)
    program = compile_module(module, "sim", device="ascend_910b")
    assert isinstance(program._runner, SimulatedRunner)
    found = arrays_of(module)
    try:
        program._runner.run(request(program, found, 2, 5))
    except STOPS as error:
        with pytest.raises(type(error)) as second:
            program._runner.run(request(program, arrays_of(module), 1, 0))
        assert str(second.value) == str(error)
        return
    again = arrays_of(module)
    program.run(**again, workers=1)
    require_equal(found, again)
    network_report = report_of(program).network
    if network_report is not None and any(t.channel for t in module.entry_workload.tensors):
        tasks, expected = interpreted(program, module, network_report.merges)
        assert tasks == program.stats.tasks  # pyright: ignore[reportOptionalMemberAccess]
        require_equal(found, expected)


def racing(*, nondeterministic: bool = False, **options: str) -> Workload:
    """Two sources, one of which is slow, and what writes the source of each token."""
    merged = Channel("merged", Tensor[f32, 4, 8], depth=1, **options)

    def source(name: str, row: int, count: int, cycles: int) -> ProcessFunction:
        def body(X: Tensor[f32, 2, 4, 8]) -> None:
            for _ in P(count):
                wait(cycles)
                with merged.send() as token:
                    copy(x=X[row], y=token)

        body.__name__ = name
        return process(body)

    @process
    def sink(Y: Tensor[f32, 8, 4, 8]) -> None:
        for token in merged.receive():
            copy(x=token, y=Y[token.index])

    sources = source("slow", 0, 3, 100_000), source("fast", 1, 5, 1)
    return network(*sources, sink, nondeterministic=nondeterministic)


def senders(program: Program) -> list[int]:
    x, y = np.stack([np.full((4, 8), k, np.float32) for k in (0, 1)]), np.full((8, 4, 8), -1, np.float32)
    program.run(X=x, Y=y)
    return [int(row[0, 0]) for row in y]


def test_the_first_that_finds_a_buffer_sends() -> None:
    assert senders(racing().compile(target="cpu")) == [0, 1, 0, 1, 0, 1, 1, 1]
    program = racing(merge="time").compile(target="sim")
    assert senders(program) == [1, 1, 1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_targets_without_a_clock_merge_as_tokens_come_if_the_network_says_so(target: str) -> None:
    with pytest.raises(UnsupportedByTarget, match="no clock"):
        racing(merge="time").compile(target=target)
    declared = racing(merge="time", nondeterministic=True)
    assert sorted(senders(declared.compile(target=target))) == [0, 0, 0, 1, 1, 1, 1, 1]
    text = str(declared.trace().module)
    assert "merge = arrival" in text and parse(text) == declared.trace().module
    assert senders(declared.compile(target="sim")) == [1, 1, 1, 1, 1, 0, 0, 0]


def test_what_is_wrong_with_merges_is_refused() -> None:
    with pytest.raises(BadChannel, match="merge"):
        Channel("c", scalars="n", merge="any")
    with pytest.raises(BadNetwork, match="deterministic"):
        racing(nondeterministic=True).trace()
    text = str(racing(merge="time").trace().module).replace("merge = time", "merge = soon")
    with pytest.raises(PtoError, match="turns"):
        parse(text)
