"""Cycles of the kernels of all examples: those that simulated cores execute, and those of target `sim`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from examples.cases import cases, copied
from pto_wsp.device.kernel_cost import kernel_cost
from pto_wsp.device.reader import preset
from pto_wsp.errors import CompileError
from pto_wsp.ir.kernel import KernelFunction
from pto_wsp.ir.scalar import Value
from pto_wsp.runtime import device_costs
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.support.record import record
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5, Generation
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.target import AscendTarget
from pto_wsp.targets.c_style.spelling import function_name
from pto_wsp.types.tile import ScalarType
from tests.ascend.standin.build import StandIn, build
from tests.ascend.standin.cycles import cost_of, executed, functions_of, lines_of
from tests.python.targets.ctypes_abi import Library

DEVICES = {A2A3.name: "ascend_910b", A5.name: "ascend_950"}
MOST_CALLS = 3
"""Calls of a kernel that are compared: those of the first, the middle and the last shape."""


@record
class Call:
    """A call of a kernel in a run on target `sim`."""

    kernel: KernelFunction
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[Value, ...]


def calls_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Return the calls of an example whose costs target `sim` asks for, a few per kernel."""
    found: dict[str, list[Call]] = {}

    def noted(kernel, device, shapes, scalars, *rest):  # type: ignore[no-untyped-def]
        found.setdefault(kernel.name, []).append(Call(kernel, tuple(map(tuple, shapes)), tuple(scalars)))
        return kernel_cost(kernel, device, shapes, scalars, *rest)

    run = dict(cases())[name]()
    with monkeypatch.context() as patch:
        patch.setattr(device_costs, "kernel_cost", noted)
        compile_module(run.module, "sim", "ascend_910b").run(
            **{k: copied(v) for k, v in run.arguments.items()}
        )
    return [call for calls in found.values() for call in chosen(calls)]


def chosen(calls: list[Call]) -> list[Call]:
    numbers = {0, len(calls) // 2, len(calls) - 1}
    return [calls[number] for number in sorted(numbers)]


def accepted(calls: list[Call], generation: Generation) -> Iterator[Call]:
    """Yield the calls of kernels that a target accepts."""
    for call in calls:
        try:
            write_kernel(call.kernel, generation)
        except CompileError:
            continue
        yield call


def arguments_of(call: Call) -> list[object]:
    """Return arrays of the shapes of a call, and its scalars."""
    shapes, scalars = iter(call.shapes), iter(call.scalars)
    rng = np.random.default_rng(0)
    found: list[object] = []
    for param in call.kernel.params:
        if isinstance(param.type, ScalarType):
            found.append(next(scalars))
        else:
            dtype = param.type.dtype
            assert dtype is not None
            array = rng.random(next(shapes)) if dtype.is_float else np.zeros(next(shapes))
            found.append(array.astype(dtype.to_numpy()))
    return found


def shape_of(kernel: KernelFunction, number: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a view, of which the trace has four."""
    dims = getattr(kernel.views[number].type, "dims", (0, 0))
    return extents[: len(dims)]


def scalar_of(kernel: KernelFunction, number: int, bits: int) -> Value:
    dtype = kernel.scalar_params[number].type.dtype
    assert dtype is not None
    return float(np.array([bits], np.int64).view(np.float32)[0]) if dtype.is_float else bits


NAMES = [name for name, _ in cases()]
QUICK = ("01_scale_rows/scale_rows.py", "pto_programs/bgemm.py")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES]
)
def test_executed_cycles_are_those_of_sim(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of every kernel that the targets accept, on both generations: pipes and cycles within 5 %."""
    calls = calls_of(name, monkeypatch)
    for generation in (A2A3, A5):
        compare(list(accepted(calls, generation)), generation, tmp_path / generation.name)


def compare(calls: list[Call], generation: Generation, folder: Path) -> None:
    target, device = registry.get(generation.name), preset(DEVICES[generation.name])
    assert isinstance(target, AscendTarget)
    kernels = list({call.kernel.name: call.kernel for call in calls}.values())
    functions = functions_of(write_kernel(kernel, generation) for kernel in kernels)
    if not kernels:
        return
    path = build(kernels, target, folder)
    library, core = Library(path), StandIn(path)
    core.trace(lines_of(functions))
    refused = set[str]()
    for call in calls:
        if status := library.call(call.kernel, arguments_of(call)):
            checks = write_kernel(call.kernel, generation).checks
            assert "not contiguous" in checks[status - 1].text.message, call.kernel.name
            refused.add(function_name(call.kernel))
        assert core.report() == "", call.kernel.name
    for task in executed(core.traced(), functions):
        if task.function.split()[0] in refused:
            continue
        kernel, is_cube = functions[task.function]
        shapes = [shape_of(kernel, i, extents) for i, extents in enumerate(task.shapes)]
        scalars = [scalar_of(kernel, i, bits) for i, bits in enumerate(task.scalars)]
        expected = kernel_cost(kernel, device, shapes, scalars)
        found = cost_of(task.lines, device, is_cube=is_cube)
        assert found.cycles == pytest.approx(expected.cycles, rel=0.05), (task.function, shapes, scalars)
        assert sorted(found.busy.values()) == pytest.approx(
            sorted(n for n in expected.busy.values() if n or n in found.busy.values()), rel=0.05
        ), task.function
