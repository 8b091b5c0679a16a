"""Cycles of the kernels of all examples: those that simulated cores execute, and those of target `sim`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from examples.cases import cases
from pto_wsp.device.kernel_cost import kernel_cost
from pto_wsp.device.reader import preset
from pto_wsp.ir.core import Range
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Store, walk_statements
from pto_wsp.ir.scalar import Const, Value
from pto_wsp.isa.meaning import OUTSIDE
from pto_wsp.targets import registry
from pto_wsp.targets.ascend.generation import A2A3, A5, Generation
from pto_wsp.targets.ascend.kernel import write_kernel
from pto_wsp.targets.ascend.target import AscendTarget
from pto_wsp.targets.c_style.spelling import function_name
from tests.ascend.standin.build import StandIn, build
from tests.ascend.standin.calls import DEVICES, KernelRun, accepted, runs_of
from tests.ascend.standin.cycles import cost_of, executed, functions_of, lines_of
from tests.python.targets.ctypes_abi import Library


def shape_of(kernel: KernelFunction, number: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a view, of which the trace has four."""
    dims = getattr(kernel.views[number].type, "dims", (0, 0))
    return extents[: len(dims)]


def scalar_of(kernel: KernelFunction, number: int, bits: int) -> Value:
    dtype = kernel.scalar_params[number].type.dtype
    assert dtype is not None
    return float(np.array([bits], np.int64).view(np.float32)[0]) if dtype.is_float else bits


OTHERS = {"iota", "transpose", "extract", "insert"}
"""Rows that are written with other instructions than the one that `sim` counts."""


def is_comparable(kernel: KernelFunction) -> bool:
    """Return whether `sim` counts what a kernel executes.

    A column of a tensor with more columns waits for the temporary tile of its reduction, which `sim` has not.
    """
    stmts = list(walk_statements(kernel.body or ()))
    moves = [stmt for stmt in stmts if isinstance(stmt, Load | Store)]
    tiles = dict(kernel.tiles)
    columns = [m for m in moves if tiles[m.tile].cols > 1 and _takes_one(m.region.dims[-1])]
    return not columns and not OTHERS & {stmt.op for stmt in stmts if isinstance(stmt, Instr)}


def _takes_one(dim: object) -> bool:
    return isinstance(dim, Range) and dim.extent == Const(1)


NAMES = [name for name, _ in cases()]
QUICK = ("01_scale_rows/scale_rows.py", "pto_programs/bgemm.py")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES]
)
def test_executed_cycles_are_those_of_sim(name: str, tmp_path: Path) -> None:
    """Calls of every kernel that the targets accept, on both generations: pipes and cycles within 5 %.

    Kernels that are not comparable, and those whose scalar units compute, are left out.
    """
    calls = [call for call in runs_of(dict(cases())[name]()) if call.kernel.native is None]
    for generation in (A2A3, A5):
        compare(list(accepted(calls, generation)), generation, tmp_path / generation.name)


def compare(calls: list[KernelRun], generation: Generation, folder: Path) -> None:
    target, device = registry.get(generation.name), preset(DEVICES[generation.name])
    assert isinstance(target, AscendTarget)
    kernels = list({call.kernel.name: call.kernel for call in calls}.values())
    codes = [write_kernel(kernel, generation) for kernel in kernels]
    functions = functions_of(codes)
    if not kernels:
        return
    by_element = {id(part.phase.kernel) for code in codes for part in code.parts if part.has_elements}
    path = build(kernels, target, folder)
    library, core = Library(path), StandIn(path)
    core.trace(lines_of(functions))
    refused = set[str]()
    for call in calls:
        if status := library.call(call.kernel, call.arguments()):
            checks = write_kernel(call.kernel, generation).checks
            message = checks[status - 1].text.message
            assert "not contiguous" in message or message == OUTSIDE, call.kernel.name
            refused.add(function_name(call.kernel))
        assert core.report() == "", call.kernel.name
    for task in executed(core.traced(), functions):
        if task.function.split()[0] in refused:
            continue
        kernel, is_cube = functions[task.function]
        if not is_comparable(kernel) or id(kernel) in by_element:
            continue
        shapes = [shape_of(kernel, i, extents) for i, extents in enumerate(task.shapes)]
        scalars = [scalar_of(kernel, i, bits) for i, bits in enumerate(task.scalars)]
        expected = kernel_cost(kernel, device, shapes, scalars)
        found = cost_of(task.lines, device, is_cube=is_cube)
        assert found.cycles == pytest.approx(expected.cycles, rel=0.05), (task.function, shapes, scalars)
        assert sorted(found.busy.values()) == pytest.approx(
            sorted(n for n in expected.busy.values() if n or n in found.busy.values()), rel=0.05
        ), task.function
