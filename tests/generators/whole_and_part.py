"""Random workloads in which tasks touch parts that tables name, ranges of all lengths, and whole tensors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pto_wsp.ir.core import DimSelect, Full, Range, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Const, Element, Expr, Var, add, binary, mul
from pto_wsp.ir.workload import Loop, Node, Task, TensorParam, WorkloadFunction
from pto_wsp.types import TensorType, f32, i32
from tests.generators.drawing import Draw
from tests.generators.workloads import KERNELS

COLS = 8


@dataclass(frozen=True)
class Sample:
    """A module over tensors A, B of `rows` rows and tables T, U that name them."""

    module: Module
    rows: int
    seed: int

    def arrays(self) -> dict[str, np.ndarray]:
        """Return fresh arrays, the same every time."""
        rng = np.random.default_rng(self.seed)
        data = {name: rng.uniform(-1, 1, (self.rows, COLS)).astype(np.float32) for name in "AB"}
        return data | {
            "T": rng.permutation(self.rows).astype(np.int32),
            "U": rng.integers(0, self.rows, self.rows).astype(np.int32),
        }


def sample(draw: Draw) -> Sample:
    """Draw a workload of two to five loops whose tasks touch one kind of part each, once or in rounds."""
    rows = draw.choice((3, 20, 40))
    names = (f"i{k}" for k in itertools.count())
    body: tuple[Node, ...] = tuple(_loop(draw, next(names), rows) for _ in range(draw.randint(2, 5)))
    if draw.random() < 0.5:
        body = (Loop(draw.choice(("range", "seq")), "round", Const(2), None, body),)
    data, table = TensorType(f32, (rows, COLS)), TensorType(i32, (rows,))
    params = (*(TensorParam(name, data) for name in "AB"), *(TensorParam(name, table) for name in "TU"))
    workload = WorkloadFunction("w", params, body)
    return Sample(Module("m", KERNELS, (workload,), "w"), rows, draw.randint(0, 99))


def _loop(draw: Draw, var: str, rows: int) -> Node:
    num_tasks = draw.randint(1, rows)
    tasks = [_task(draw, var, num_tasks, rows) for _ in range(draw.randint(1, 2))]
    return Loop(
        draw.choice(("parallel", "parallel", "range", "seq")), var, Const(num_tasks), None, tuple(tasks)
    )


def _task(draw: Draw, var: str, num_tasks: int, rows: int) -> Task:
    regions = [Region(draw.choice("AB"), (_rows(draw, var, num_tasks, rows), _cols(draw))) for _ in range(2)]
    return Task(draw.choice(KERNELS).name, (*regions, Var(var)), (Var(var),))


def _rows(draw: Draw, var: str, num_tasks: int, rows: int) -> DimSelect:
    """Return rows that lie in the tensor for all of the first `num_tasks` values of a loop."""
    at: Expr = Var(var)
    match draw.randint(0, 7):
        case 0 | 1:
            return Full()
        case 2 | 3:
            return Range(Element(draw.choice("TU"), (at,)), Const(1))
        case 4:
            return Range(Const(0), add(at, Const(1)))
        case 5:
            return Range(binary("sub", Const(num_tasks - 1), at), Const(1))
        case 6:
            step = draw.randint(1, max(1, rows // num_tasks))
            return Range(mul(at, Const(step)), Const(draw.randint(1, step)))
        case _:
            start = draw.randint(0, rows - 1)
            return Range(Const(start), Const(draw.randint(1, rows - start)))


def _cols(draw: Draw) -> DimSelect:
    start = draw.choice((0, 0, 3, 4))
    return Full() if draw.random() < 0.5 else Range(Const(start), Const(draw.randint(1, COLS - start)))
