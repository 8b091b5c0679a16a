"""Networks of processes that a simulated control core expands: results of the CPU, and errors by name."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.trees.ascend import NEAR, is_near, results
from examples.cases import cases, copied
from pto_wsp.errors import PtoError
from pto_wsp.ir.module import Module
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.runtime.prepared import Prepared
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.target import AscendTarget
from tests.ascend.standin.device import Device
from tests.ascend.standin.host_program import build_host_program
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.networks import COLS, DECIDING, random_network
from tests.generators.networks import ROWS as RANDOM_ROWS
from tests.python.targets.host_program import ProgramFailed, run_host_program
from tests.python.targets.test_export_networks import ROWS, relay

GENERATIONS = ("ascend_a2a3", "ascend_a5")
NETWORKS = ("07_pipeline", "08_expert_network", "09_streaming_attention", "10_decode_server")

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def target_of(name: str) -> AscendTarget:
    target = registry.get(name)
    assert isinstance(target, AscendTarget)
    return target


def sizes_of(module: Module, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of a run, from its arrays and from what it states."""
    entry = module.entry_workload
    sizes = {name: value for name, value in arguments.items() if isinstance(value, int)}
    for tensor in entry.tensors:
        if tensor.name in arguments:
            dims = zip(map(str, tensor.type.dims), arguments[tensor.name].shape, strict=True)
            sizes |= {dim: extent for dim, extent in dims if not dim.isdigit()}
    return {param.name: sizes[param.name] for param in entry.symbols}


def with_rings(module: Module, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the arrays of a run, and zeros for the buffers of channels."""
    found = {name: copied(value) for name, value in arguments.items() if isinstance(value, np.ndarray)}
    for tensor in module.entry_workload.tensors:
        if tensor.name not in found:
            found[tensor.name] = np.zeros(
                [int(str(d)) for d in tensor.type.dims], tensor.type.dtype.to_numpy()
            )
    return found


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("example", NETWORKS)
def test_a_network_has_the_results_of_the_cpu(example: str, generation: str, tmp_path: Path) -> None:
    """Tasks run in the order of submission, and as late as their tensors allow."""
    run = next(make() for name, make in cases() if name.startswith(example))
    target = target_of(generation)
    module = Prepared(run.module, target).module
    program = compile_module(run.module, "cpu")
    expected = results(program, run)
    assert program.stats is not None
    device = Device(module, target, tmp_path)
    for last_first in (False, True):
        arrays = with_rings(module, run.arguments)
        tasks = device.run(arrays, sizes_of(module, run.arguments), last_first=last_first)
        assert device.core.report() == "" and not device.failed.any(), device.failed[2:].tobytes()
        assert tasks >= program.stats.tasks, "a kernel with phases is several tasks"
        for name in expected:
            assert NEAR.get(name, is_near)(arrays[name], expected[name]), name


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


def inputs(module: Module, seed: int) -> dict[str, np.ndarray]:
    """Return the arrays of a random network; `seed` decides what runs."""
    tensors = [tensor for tensor in module.entry_workload.tensors if not tensor.is_local]
    found = {t.name: np.zeros([int(str(d)) for d in t.type.dims], t.type.dtype.to_numpy()) for t in tensors}
    found["X"][:] = np.arange(RANDOM_ROWS * COLS).reshape(RANDOM_ROWS, 1, COLS)
    found["N"][:, 0, 0] = np.random.default_rng(seed).integers(0, 6, DECIDING)
    return found


def outcome(module: Module, seed: int) -> tuple[int, str, dict[str, np.ndarray]]:
    """Return the tasks of a run on the cpu, or its error, and the arrays."""
    arrays, program = inputs(module, seed), compile_module(module, "cpu")
    try:
        program.run(**arrays, workers=2)
    except PtoError as error:
        return -1, str(error), arrays
    assert program.stats is not None
    return program.stats.tasks, "", arrays


def waits(error: str) -> list[str]:
    """Return the code of an error, and what the processes of a deadlock wait for."""
    text = error.removeprefix("error[")
    lines = [line for line in error.splitlines() if re.match(r"  process `\w+` waits", line)]
    return [text[: re.match(r"[\w-]*", text).end()], *lines]  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.slow
@needs_compiler
@tries(8, compiles=True)
@given(DRAWS, st.sampled_from(GENERATIONS))
def test_random_networks(objects: Path, draw: Draw, generation: str) -> None:
    """The device and the host program have the tasks, results and errors of the cpu."""
    module, seeds = random_network(draw, decides=True), range(3)
    expected = [outcome(module, seed) for seed in seeds]
    assume(any(tasks > 5 for tasks, _, _ in expected))
    target = target_of(generation)
    prepared = Prepared(module, target).module
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        device = Device(prepared, target, folder)
        command = [str(build_host_program(folder, objects))]
        for seed, (tasks, error, arrays) in zip(seeds, expected, strict=True):
            for last_first in (False, True):
                found = with_rings(prepared, inputs(module, seed))
                submitted = device.run(found, {}, last_first=last_first)
                assert device.core.report() == "" and tasks in (submitted, -1)
                said = device.failed[2:].tobytes().rstrip(b"\0").decode()
                assert waits(said) == waits(error)
                assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
            try:
                ran, written = run_host_program(command, prepared, folder, inputs(module, seed))
                assert ran == tasks and all(np.array_equal(written[n], arrays[n]) for n in written)
            except ProgramFailed as failed:
                assert waits(str(failed)) == waits(error)


@pytest.mark.slow
@needs_compiler
def test_errors_of_a_network_name_processes_and_channels(tmp_path: Path) -> None:
    target = target_of("ascend_a2a3")
    module = relay().compile("ascend_a2a3").module
    device = Device(module, target, tmp_path)
    x = np.arange(ROWS * 8, dtype=np.float32).reshape(ROWS, 8)

    def failure(count: int, wanted: int) -> str:
        arrays = with_rings(module, {"X": x, "Y": np.zeros_like(x)})
        device.run(arrays, {"count": count, "wanted": wanted, "n": ROWS}, last_first=True)
        assert device.core.report() == "" and np.array_equal(arrays["Y"], 2 * x)
        if not device.failed.any():
            return ""
        assert device.failed[0] == -1
        return device.failed[2:].tobytes().rstrip(b"\0").decode()

    assert failure(2, 2) == ""
    deadlock = failure(9, 9)
    assert deadlock.startswith("deadlock: every process that has not ended waits")
    assert "process `ask` at test_export_networks.py:" in deadlock
    assert "waits for a free buffer of `there`" in deadlock and "channel `back`: 2 tokens sent" in deadlock
    assert "channel `back`: 2 tokens sent, 1 received" in failure(2, 1)
    assert failure(1, 2).startswith("channel-ended") and "needs channel `back`" in failure(1, 2)
