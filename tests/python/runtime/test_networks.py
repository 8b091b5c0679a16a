"""Networks on the engine: equal to the interpreter to the bit, errors included, whatever the threads do."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from pto_wsp import (
    Channel,
    DenseDyn,
    P,
    Program,
    Tensor,
    compile_module,
    f32,
    i32,
    network,
    process,
    replicate,
)
from pto_wsp.errors import (
    Deadlock,
    KernelFailed,
    PtoError,
    RegionOutside,
    RunInterrupted,
    TimeLimitReached,
    UnboundTensor,
)
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.outcome import RunRequest
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.networks import COLS, ROWS, random_network
from tests.python.runtime.network_kernels import checked, copy
from tests.python.runtime.scripts import run_script


def outcome(program: Program, module: Module, workers: int, delays: int) -> tuple[str, list[np.ndarray]]:
    """Return the number of tasks or the error, and the arrays."""
    tensors = [t for t in module.entry_workload.tensors if not t.is_local]
    arrays = {t.name: np.zeros((ROWS, 1, COLS), np.float32) for t in tensors}
    arrays["X"][:] = np.arange(ROWS * COLS).reshape(ROWS, 1, COLS)
    bound = program._binder.bind(arrays)
    try:
        figures, _ = program._runner.run(RunRequest(bound.arrays, bound.scalars, workers, jitter=delays))
        text = str(figures.tasks)
    except PtoError as error:
        text = str(error)
    return text, [*arrays.values()]


@tries(300)
@given(DRAWS)
def test_random_networks_are_deterministic(draw: Draw) -> None:
    module = random_network(draw)
    text, arrays = outcome(compile_module(module, "interp"), module, 1, 0)
    program = compile_module(module, "cpu")
    for workers, delays in ((1, 0), (2, 0), (2, 5), (4, 0), (4, 7)):
        found, others = outcome(program, module, workers, delays)
        assert found == text
        assert all(np.array_equal(a, b) for a, b in zip(arrays, others, strict=True))


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_dimensions_of_channels_are_those_that_are_declared(target: str) -> None:
    parts = Channel("parts", Tensor[f32, 4, 8])

    @process
    def load(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with parts.send() as token:
                copy[i](x=X[i], y=token[i : i + 4])

    @process
    def store(Y: Tensor[f32, "n", 4, 8]) -> None:
        for token in parts.receive():
            copy[token.index](x=token, y=Y[token.index])

    x = np.ones((2, 4, 8), np.float32)
    with pytest.raises(RegionOutside, match="`parts` is indexed outside dimension 0"):
        network(load, store).compile(target)(X=x, Y=x.copy())


@pytest.mark.parametrize("target", ["interp", "cpu", "sim"])
def test_a_size_of_a_channel_alone_is_given_by_name(target: str) -> None:
    parts = Channel("parts", Tensor[f32, "k", 8])

    @process
    def load(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with parts.send() as token:
                copy[i](x=X[i], y=token[0:4])

    @process
    def store(Y: Tensor[f32, "n", 4, 8]) -> None:
        for token in parts.receive():
            copy[token.index](x=token[0:4], y=Y[token.index])

    x, program = np.ones((2, 4, 8), np.float32), network(load, store).compile(target)
    with pytest.raises(UnboundTensor, match="k=number"):
        program(X=x, Y=x.copy())
    y = np.zeros_like(x)
    program(X=x, Y=y, k=5)
    assert np.array_equal(x, y)


def checking(depth: int) -> Workload:
    """Load, check, store: the check reads a number per token."""
    loaded = Channel("loaded", Tensor[f32, 4, 8], depth=depth)
    passed = Channel("passed", Tensor[f32, 4, 8], depth=depth)

    @process
    def load(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with loaded.send() as token:
                copy[i](x=X[i], y=token)

    @process
    def check(A: Tensor[i32, "n"]) -> None:
        for token in loaded.receive():
            i = token.index
            with passed.send() as result:
                checked(x=token, at=A[i : i + 1], y=result)

    @process
    def store(Y: Tensor[f32, "n", 4, 8]) -> None:
        for token in passed.receive():
            copy(x=token, y=Y[token.index])

    return network(load, check, store)


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_failed_task_ends_its_process_and_those_that_need_it(depth: int, workers: int) -> None:
    n = 9
    x, y = np.ones((n, 4, 8), np.float32), np.zeros((n, 4, 8), np.float32)
    at = np.zeros(n, np.int32)
    at[5] = -1
    program = checking(depth).compile()
    with pytest.raises(KernelFailed, match="in task 5"):
        program(X=x, Y=y, A=at, workers=workers)
    assert y[:5].all()  # what was sent before is received
    assert not y[5:].any()
    with pytest.raises(KernelFailed, match="in task 5"):
        checking(depth).compile(target="interp")(X=x, Y=y, A=at)
    at[5] = 0
    program(X=x, Y=y, A=at, workers=workers)
    assert y.all()


def circle() -> Workload:
    """Two processes that pass a token on for ever."""
    there = Channel("there", scalars=("n",))
    back = Channel("back", scalars=("n",))

    @process
    def first() -> None:
        with there.send(n=0):
            pass
        for token in back.receive():
            with there.send(n=token.scalars.n + 1):
                pass

    @process
    def second() -> None:
        for token in there.receive():
            with back.send(n=token.scalars.n):
                pass

    return network(first, second)


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_an_endless_network_reaches_its_time_limit(target: str) -> None:
    program = circle().compile(target=target)
    for workers in (1, 2):
        with pytest.raises(TimeLimitReached):
            program(workers=workers, time_limit=0.1)


def test_an_endless_network_is_cancelled() -> None:
    run = circle().compile().submit(workers=2)
    assert not run.done
    run.cancel()
    with pytest.raises(RunInterrupted):
        run.wait()


def test_a_deadlock_is_found_at_once() -> None:
    left, right = Channel("left", scalars=("n",)), Channel("right", scalars=("n",))

    def waiting(name: str, one: Channel, other: Channel) -> object:
        def body() -> None:
            for token in one.receive():
                with other.send(n=token.index):
                    pass

        body.__name__ = name
        return process(body)

    program = network(waiting("a", left, right), waiting("b", right, left)).compile()  # pyright: ignore
    for workers in (1, 4):
        with pytest.raises(Deadlock, match="2 processes wait"):
            program(workers=workers)


def there_and_back(rows_depth: int, done_depth: int) -> Workload:
    """A process that sends all its tokens before it receives one."""
    rows = Channel("rows", depth=rows_depth, scalars=("n",))
    done = Channel("done", depth=done_depth, scalars=("n",))

    @process
    def first(n: DenseDyn) -> None:
        for i in P(n):
            with rows.send(n=i):
                pass
        for _ in done.receive(n):
            pass

    @process
    def second() -> None:
        for token in rows.receive():
            with done.send(n=token.index):
                pass

    return network(first, second)


@pytest.mark.parametrize("target", ["cpu", "interp", "sim"])
def test_a_deadlock_names_depths_that_suffice_and_cannot_be_lower(target: str) -> None:
    with pytest.raises(Deadlock) as caught:
        there_and_back(1, 1).compile(target=target)(n=9)
    assert "these depths suffice: " in caught.value.help
    found = {name: int(depth) for name, depth in re.findall(r"`(\w+)` (\d+)", caught.value.help)}
    depths = {"rows": 1, "done": 1, **found}
    there_and_back(depths["rows"], depths["done"]).compile(target=target)(n=9)
    for name in found:
        lower = {**depths, name: depths[name] - 1}
        with pytest.raises(Deadlock):
            there_and_back(lower["rows"], lower["done"]).compile(target=target)(n=9)


def test_no_depths_are_named_where_none_is_found_soon() -> None:
    with pytest.raises(Deadlock) as caught:
        there_and_back(1, 1).compile(target="cpu")(n=1_000_000)
    assert "larger depth" in caught.value.help


INTERRUPTED = """
import os, signal, sys, threading
from tests.python.runtime.test_networks import circle

program = circle().compile()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    program(workers=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""


def test_an_endless_network_is_interrupted(tmp_path: Path) -> None:
    done = run_script(INTERRUPTED, tmp_path)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_replicas_keep_the_order(replicas: int) -> None:
    out = Channel("out", Tensor[f32, 4, 8], depth=3)
    into = Channel("into", Tensor[f32, 4, 8], depth=2)

    @process
    def source(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with out.send() as token:
                copy(x=X[i], y=token)

    @process
    def middle() -> None:
        for token in out.receive():
            with into.send() as result:
                copy(x=token, y=result)

    @process
    def sink(Y: Tensor[f32, "n", 4, 8]) -> None:
        for token in into.receive():
            copy(x=token, y=Y[token.index])

    x = np.random.default_rng(1).standard_normal((501, 4, 8)).astype(np.float32)
    y = np.zeros_like(x)
    program = network(source, replicate(middle, replicas), sink).compile()
    for workers in (1, 2, 4):
        y[:] = 0
        program(X=x, Y=y, workers=workers)
        assert np.array_equal(x, y)
