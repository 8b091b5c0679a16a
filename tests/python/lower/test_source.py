"""The walk as generated source: readable, and the same tasks, bits, errors and places as bytecode."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from examples.cases import Run, cases, copied
from pto_wsp import (
    Channel,
    DenseDyn,
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Program,
    Ragged,
    Scalar,
    Schedule,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    network,
    process,
    pto,
    wait,
    workload,
)
from pto_wsp.errors import PtoError, WrongValue
from pto_wsp.ir.module import Module
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.lower.lower_workload_to_bytecode import lower_workload_to_bytecode
from pto_wsp.lower.lower_workload_to_source import lower_workload_to_source
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets import registry
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.networks import COLS, ROWS, random_network
from tests.generators.source.kernels import KernelText, random_kernel
from tests.generators.source.workloads import random_arguments, random_workload
from tests.golden import Golden
from tests.python.lang.programs import execute
from tests.slow import mostly_slow


@kernel
def add(x: In[Tile[16, 32, f32]], y: InOut[Tile[16, 32, f32]], weight: Scalar[i64]):
    pto.store(y, y + x * weight)


@kernel
def count(n: In[Tile[1, 1, i32]], out: Out[Tile[1, 1, i32]]):
    pto.store(out, n + 1)


@workload
def mixed(
    rows: Ragged["batch"],
    Skip: Tensor[i32, "batch"],
    Start: Tensor[i32, 1, 1],
    Step: Tensor[i32, 1, 1],
    X: Tensor[f32, "n", 32],
    Y: Tensor[f32, "n", 32],
    limit: Scalar[i64],
):
    """Add the rows of some sequences, as arrays decide, then again as many times as a task decides."""
    for b in P("batch"):
        with P.when((Skip[b] == 0) & (b < limit)):
            for r in P.tiles(rows[b], 16):
                add[b, r](x=X[rows[b]][r], y=Y[rows[b]][r], weight=(b + 1) // 2)
        with P.otherwise():
            add[b](x=X[rows[b]][0:1], y=Y[rows[b]][0:1], weight=limit % 3)
    count(n=Start, out=Step)
    for i in P.seq(Step[0, 0]):
        add[i](x=X[0:16], y=Y[0:16], weight=i - 1)


def source_of(module: Module) -> str:
    prepared = Prepared(module, registry.get("cpu")).module
    lowered = lower_workload_to_bytecode(prepared, [k.name for k in prepared.kernels], 0)
    return lower_workload_to_source(prepared, lowered)


def arguments(**changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    found = {"rows": Ragged.lengths([20, 1, 50]), "Skip": np.array([0, 1, 0], np.int32), "limit": 3}
    found |= {"Start": np.array([[2]], np.int32), "Step": np.zeros((1, 1), np.int32)}
    found |= {"X": rng.random((71, 32), np.float32)}
    return {**found, "Y": np.zeros((71, 32), np.float32), **changed}


def outcome(program: Program, values: Mapping[str, Any], **options: Any) -> tuple[object, list[bytes]]:
    """Return the number of tasks or the text of the error, and the bytes of every array."""
    given = {name: copied(value) for name, value in values.items()}
    try:
        program.run(**given, **options)
        assert program.stats is not None
        said: object = program.stats.tasks
    except PtoError as error:
        said = str(error)
    return said, [array.tobytes() for array in given.values() if isinstance(array, np.ndarray)]


def both(module: Module) -> tuple[Program, Program]:
    return compile_module(module), compile_module(module, expander="source")


def test_source_is_golden(golden: Golden) -> None:
    golden("mixed.cpp", source_of(mixed.trace().module))


def test_source_of_an_example_is_golden(golden: Golden) -> None:
    golden("paged_decode.cpp", source_of(dict(cases())["02_paged_decode/paged_decode.py"]().module))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_control_by_arrays_variables_and_tasks(workers: int) -> None:
    bytecode, source = both(mixed.trace().module)
    for changed in ({}, {"limit": 2}, {"Skip": np.ones(3, np.int32)}, {"rows": Ragged.lengths([3, 68, 0])}):
        values = arguments(**changed)
        assert outcome(bytecode, values, workers=workers) == outcome(source, values, workers=workers)


@workload
def broken(L: Tensor[i32, "n"], X: Tensor[f32, "m", 32], Y: Tensor[f32, "m", 32], k: Scalar[i64]):
    """Fails in as many ways as the arguments allow."""
    for i in P("n"):
        with P.when(L[i] // k > 1):
            for j in P(L[i] - 5):
                add[i, j](x=X[0:16], y=Y[0:16], weight=j)
        with P.when(L[L[i]] * k > 2**62):
            add[i](x=X[0:16], y=Y[0:16], weight=k)


@pytest.mark.parametrize(
    ("lengths", "k"),
    [([1, 0, 7], 0), ([7, 4, 2], 2), ([0, 3, 1], 1), ([1, 1, 9], 1), ([2, 2, 2], 2**62), ([0, 0], 5)],
    ids=["division", "negative extent", "element outside", "later element", "overflow", "nothing"],
)
def test_errors_have_the_same_text_and_place(lengths: list[int], k: int) -> None:
    x = np.ones((16, 32), np.float32)
    values = {"L": np.array(lengths, np.int32), "X": x, "Y": x.copy(), "k": k}
    bytecode, source = both(broken.trace().module)
    found = outcome(source, values)
    assert found == outcome(bytecode, values)
    assert isinstance(found[0], str) == (lengths != [0, 0])


def test_errors_of_what_tasks_decide() -> None:
    bytecode, source = both(mixed.trace().module)
    for start in (-5, -(2**31)):
        values = arguments(Start=np.array([[start]], np.int32))
        found = outcome(source, values, workers=1)
        assert isinstance(found[0], str) and found == outcome(bytecode, values, workers=1)


def test_schedules_and_traces() -> None:
    bytecode, source = both(mixed.trace().module)
    schedule = Schedule().dispatch(DispatchPolicy.round_robin(2))
    traces = []
    for program in (bytecode, source):
        program.reschedule(schedule)
        program.run(**arguments(), workers=2, trace=True)
        assert program.trace is not None
        traces.append([task.label for task in program.trace])
    assert traces[0] == traces[1] and len(traces[0]) > 8


def test_only_the_cpu_compiles_walks() -> None:
    for target, expander in (("interp", "source"), ("cpu", "c")):
        with pytest.raises(WrongValue, match="expander"):
            mixed.compile(target, expander=expander)


@pytest.mark.parametrize("name", mostly_slow(dict(cases()), quick=3))
def test_examples(name: str) -> None:
    run: Run = dict(cases())[name]()
    bytecode, source = both(run.module)
    for workers in (1, 2):
        found = outcome(source, run.arguments, workers=workers)
        assert found == outcome(bytecode, run.arguments, workers=workers) and isinstance(found[0], int)


rows_sent = Channel("rows_sent", Tensor[f32, 1, 32], depth=2, scalars=("row", "last"))
rows_again = Channel("rows_again", Tensor[f32, 1, 32])


@process
def send_rows(X: Tensor[f32, "n", 32], n: DenseDyn, skip: Scalar[i64]):
    for i in P.range(n):
        with P.when(i // skip != 1):
            with rows_sent.send(row=i * 2, last=n - i) as row:
                add[i](x=X[i : i + 1], y=row, weight=i)
            wait(i * 10)


@process
def keep_rows(Y: Tensor[f32, "n", 32]):
    for row in rows_sent.receive():
        for _ in P.seq(row.scalars.last % 2 + 1):
            add[row.index](x=row, y=Y[row.scalars.row // 2 : row.scalars.row // 2 + 1], weight=2)
    for row in rows_again.receive(1):
        add(x=row, y=Y[0:1], weight=1)


@process
def send_again(Z: Tensor[f32, 1, 32]):
    with rows_again.send() as row:
        add(x=Z, y=row, weight=1)


def rows_network() -> Workload:
    return network(send_rows, keep_rows, send_again)


def test_source_of_a_network_is_golden(golden: Golden) -> None:
    golden("network.cpp", source_of(rows_network().trace().module))


@pytest.mark.parametrize(("n", "skip"), [(5, 2), (1, 1), (0, 3), (3, 0)])
@pytest.mark.parametrize("workers", [1, 3])
def test_networks(n: int, skip: int, workers: int) -> None:
    bytecode, source = both(rows_network().trace().module)
    x = np.random.default_rng(2).random((n, 32), np.float32)
    values = {"X": x, "Y": x * 2, "Z": np.ones((1, 32), np.float32), "n": n, "skip": skip}
    found = outcome(source, values, workers=workers)
    assert found == outcome(bytecode, values, workers=workers)


@tries(40, compiles=True)
@given(DRAWS)
def test_random_networks(draw: Draw) -> None:
    """Deadlocks and tokens that are left over have the same text."""
    module = random_network(draw)
    bytecode, source = both(module)
    values = {
        t.name: np.ones((ROWS, 1, COLS), np.float32) for t in module.entry_workload.tensors if not t.is_local
    }
    values["X"][:] = np.arange(ROWS * COLS).reshape(ROWS, 1, COLS)
    for workers in (1, 3):
        assert outcome(source, values, workers=workers) == outcome(bytecode, values, workers=workers)


NUM_POOLS = 3


def pool(number: int) -> list[KernelText]:
    draw = random.Random(f"pool {number}")
    return [random_kernel(draw, f"k{i}") for i in range(6)]


POOLS = [pool(number) for number in range(NUM_POOLS)]


@pytest.mark.parametrize("number", mostly_slow(range(NUM_POOLS)))
@tries(12, compiles=True)
@given(DRAWS, st.integers(0, 999))
def test_random_programs(number: int, draw: Draw, seed: int) -> None:
    kernels = POOLS[number]
    drawn = random_workload(draw, kernels)
    text = "\n".join([*(kernel.text for kernel in kernels), drawn.text])
    note(text)
    made = execute(text)["w"]
    assert isinstance(made, Workload)
    bytecode, source = both(made.trace().module)
    values = random_arguments(drawn, seed)
    for workers in (1, 2, 5):
        found, expected = (outcome(program, values, workers=workers) for program in (source, bytecode))
        assert found[0] == expected[0]
        if isinstance(found[0], int):
            assert found[1] == expected[1]
