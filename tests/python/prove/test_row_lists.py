"""Lists of rows that tasks write: a task reads the list that names its rows, also where these are empty."""

from __future__ import annotations

import pytest

from pto_wsp import Deps, Schedule, errors
from pto_wsp.ir.core import Full, Range, Region, Rows
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Expr, Var
from pto_wsp.ir.verify import verify
from pto_wsp.ir.workload import PARALLEL, Loop, Node, Task, TensorParam, WorkloadFunction
from pto_wsp.prove.finding import EDGES, INDEPENDENT
from pto_wsp.prove.prove import prove
from pto_wsp.prove.waits import symbolic_waits
from pto_wsp.runtime.compiling import compile_module
from pto_wsp.types import TensorType, f32, i32
from tests.generators.dynamic_workloads import KERNELS, SHAPES, Sample, mirror_kernel

pytest.importorskip("islpy")

ZERO, I = Const(0), Var("i")  # noqa: E741
PERMUTE = Task("permute", (Region("J", (Full(), Full())),), label="permute")


def blend(first: Expr, cols: int, row: Expr = ZERO) -> Task:
    """Return a task that reads the row of F that one element of J names, and writes a row of G."""
    named = Region("F", (Rows("J", first, Const(1)), Range(ZERO, Const(cols))))
    written = Region("G", (Range(row, Const(1)), Range(ZERO, Const(cols))))
    return Task("blend_inout", (named, written, ZERO), label="blend")


def module_of(*body: Node) -> Module:
    dtypes = {"F": f32, "G": f32, "J": i32}
    shapes = {**SHAPES, "G": SHAPES["F"]}
    tensors = tuple(TensorParam(name, TensorType(dtype, shapes[name])) for name, dtype in dtypes.items())
    kernels = (*KERNELS, mirror_kernel("flip", 1, 1, 11))
    used = {node.kernel for loop in body for node in ([loop] if isinstance(loop, Task) else loop.body)}
    made = Module(
        "m", tuple(k for k in kernels if k.name in used), (WorkloadFunction("w", tensors, body),), "w"
    )
    return verify(made)


def arrays(module: Module) -> dict:
    values = Sample(module, 0, False).arrays()
    return {"F": values["F"], "G": values["F"] * 2, "J": values["J"]}


@pytest.mark.parametrize("cols", [4, 0])
@pytest.mark.parametrize("order", [1, -1])
def test_edges_and_waits(cols: int, order: int) -> None:
    """A list is written before, or after, the task that names rows by it."""
    tasks = (PERMUTE, blend(Const(3), cols))[::order]
    module = module_of(*tasks)
    edges = module.with_schedule(Schedule().task_graph(deps=Deps.explicit()).policies)
    with pytest.raises(errors.EdgesMissing):
        compile_module(edges).run(**arrays(module), workers=1)
    assert not prove(edges).holds(EDGES)
    (wait,) = symbolic_waits(module)
    assert (wait.first.node.label, wait.second.node.label) == (tasks[0].label, tasks[1].label)


@pytest.mark.parametrize("distance", [0, 1])
def test_iterations(distance: int) -> None:
    """Iteration i writes element i of a list, and names a row by another element."""
    here = Region("J", (Range(I, Const(1)), Full()))
    other = Binary("mod", Binary("add", I, Const(distance)), Const(12))
    tasks = (Task("flip", (here,)), blend(other, 4, I))
    module = module_of(Loop(PARALLEL, "i", Const(12), None, tasks))
    program = compile_module(module)
    if distance:
        with pytest.raises(errors.IterationsConflict):
            program.run(**arrays(module), workers=1, check="hazards")
    else:
        program.run(**arrays(module), workers=1, check="hazards")
    assert not (distance and prove(module).holds(INDEPENDENT))
