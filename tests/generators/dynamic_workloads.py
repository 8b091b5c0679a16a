"""Random workloads in which data decides: conditions, variables, flush points, row sets, explicit edges.

Tensors: F and G hold f32 rows that tasks blend, G in two leading dimensions. C holds numbers 0..3 that decide
and that tasks change; D holds such numbers that no task writes. I holds row numbers that no task writes, J a
permutation of rows that tasks change into another. A few expressions are wrong on purpose.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Param, Store
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Select, Slot, Unary, Var
from pto_wsp.ir.workload import Cond, Loop, Node, Set, SizeParam, Task, TensorParam, WorkloadFunction
from pto_wsp.location import Location
from pto_wsp.support.record import replace
from pto_wsp.types import TensorType, TileType, f32, i32
from tests.generators.drawing import DRAWS, Draw
from tests.generators.workloads import KERNELS as BLENDS

NUM_ROWS, COLS = 12, 9
SHAPES: dict[str, tuple[int, ...]] = {
    "F": (NUM_ROWS, COLS),
    "G": (3, 4, COLS),
    "C": (6, 4),
    "D": (6, 4),
    "I": (NUM_ROWS, 1),
    "J": (NUM_ROWS, 1),
}
WHOLE = (Full(), Full())


def mirror_kernel(name: str, rows: int, cols: int, last: int) -> KernelFunction:
    """y = last - y, for i32."""
    tile = TileType(rows, cols, i32)
    body = (
        Load("t", Region("y", WHOLE)),
        Instr("muls", "t", ("t",), (Const(-1),)),
        Instr("adds", "t", ("t",), (Const(last),)),
        Store(Region("y", WHOLE), "t"),
    )
    return KernelFunction(name, (Param("y", "inout", tile),), (("t", tile),), (), body)


KERNELS = (*BLENDS, mirror_kernel("step", 1, 4, 3), mirror_kernel("permute", NUM_ROWS, 1, NUM_ROWS - 1))


@dataclass(frozen=True)
class Sample:
    """A module, and the seed of its arrays."""

    module: Module
    seed: int
    is_repeating: bool

    def arrays(self) -> dict[str, np.ndarray]:
        """Return fresh arrays, the same every time."""
        rng = np.random.default_rng(self.seed)
        found: dict[str, np.ndarray] = {
            name: rng.uniform(-1, 1, SHAPES[name]).astype(np.float32) for name in "FG"
        }
        found |= {name: rng.integers(0, 4, SHAPES[name]).astype(np.int32) for name in "CD"}
        for name in "IJ":
            found[name] = rng.permutation(NUM_ROWS).astype(np.int32)[:, None]
        if self.is_repeating:
            found["I"] = rng.integers(0, NUM_ROWS, SHAPES["I"]).astype(np.int32)
        return found


class _Generator:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.names = itertools.count()

    def pick(self, *values: object) -> object:
        return self.draw.choice(values)

    def number(self, loops: tuple[str, ...], depth: int = 2) -> Expr:
        """Return an expression for a number from 0 to 3, or now and then for a wrong one."""
        loc = Location("w.py", next(self.names) + 1, 1, 2)
        kind = self.draw.randint(0, 12 if depth else 3)
        inner = depth - 1
        match kind:
            case 0 | 1:
                return Const(self.draw.randint(0, 3), loc=loc)
            case 2 | 3:
                name = self.pick(Slot(0), Slot(1), "x", "n", *loops)
                leaf = name if isinstance(name, Slot) else Var(str(name))
                return Binary("mod", leaf, Const(4), loc)
            case 4 | 5 | 6:
                at = (self.number(loops, inner), self.number(loops, inner))
                return Element(str(self.pick("C", "C", "D")), at, loc)
            case 7:
                return Binary("min", self.number(loops, inner), self.number(loops, inner), loc)
            case 8:
                return Select(self.truth(loops, inner), self.number(loops, inner), self.number(loops, 0), loc)
            case 9:
                return Binary("bitxor", self.number(loops, inner), self.number(loops, inner), loc)
            case 10 if self.draw.randint(0, 9) == 0:
                op = str(self.pick("sub", "floordiv", "lshift", "mul"))
                return Binary(op, self.number(loops, inner), self.number(loops, inner), loc)
            case 11:
                least = Binary("within", self.number(loops, inner), self.number(loops, 0), loc)
                return least if self.draw.randint(0, 9) == 0 else replace(least, b=Const(3))
            case _:
                return Binary("rshift", self.number(loops, inner), self.number(loops, inner), loc)

    def truth(self, loops: tuple[str, ...], depth: int = 2) -> Expr:
        op = str(self.pick("lt", "le", "gt", "eq", "ne"))
        found: Expr = Binary(op, self.number(loops, depth), Const(self.draw.randint(0, 3)))
        return Unary("not", found) if self.draw.random() < 0.5 else found

    def body(
        self, loops: tuple[str, ...], tiles: tuple[str, ...], labels: list[str], depth: int
    ) -> tuple[Node, ...]:
        labels = list(labels)
        return tuple(
            self.node(loops, tiles, labels, depth) for _ in range(self.draw.randint(1, 4 - depth // 2))
        )

    def node(self, loops: tuple[str, ...], tiles: tuple[str, ...], labels: list[str], depth: int) -> Node:
        kind = self.draw.randint(0, 9)
        if kind < 2 and depth < 3:
            return self.loop(loops, tiles, labels, depth)
        if kind < 4 and depth < 3:
            then = self.body(loops, tiles, labels, depth + 1)
            other = self.body(loops, tiles, labels, depth + 1) if self.draw.random() < 0.5 else ()
            return Cond(self.truth(loops), then, other)
        if kind == 4:
            value = self.number(loops) if self.draw.random() < 0.5 else self.truth(loops)
            name = self.pick(Slot(0), Slot(1), "x")
            return Set(name if isinstance(name, Slot) else str(name), value)
        return self.task(loops, tiles, labels)

    def loop(self, loops: tuple[str, ...], tiles: tuple[str, ...], labels: list[str], depth: int) -> Loop:
        kind, var = str(self.pick("parallel", "seq", "range")), f"i{next(self.names)}"
        tile = self.draw.choice((None, 1, 2, 3))
        inside = (*tiles, var) if tile is not None else tiles
        body = self.body((*loops, var), inside, labels, depth + 1)
        return Loop(kind, var, self.number(loops), tile, body)

    def task(self, loops: tuple[str, ...], tiles: tuple[str, ...], labels: list[str]) -> Task:
        loc = Location("w.py", next(self.names) + 1, 3, 4)
        kernel = str(self.pick(*(k.name for k in KERNELS), *(k.name for k in BLENDS)))
        after = tuple({str(self.pick(*labels)) for _ in range(self.draw.randint(0, 2))} if labels else ())
        args: tuple[Region | Expr, ...]
        match kernel:
            case "step":
                row = Range(self.number(loops), Const(1))
                args = (Region("C", (row, Full()), loc),)
            case "permute":
                args = (Region("J", WHOLE, loc),)
            case _:
                args = (self.region(loops, tiles), self.region(loops, tiles), self.number(loops))
        label = ""
        if self.draw.random() < 0.5:
            label = f"t{next(self.names)}"
            labels.append(label)
        workspace = self.number(loops) if self.draw.randint(0, 5) == 0 else None
        keys = (*(Var(v) for v in loops), self.number(loops))
        return Task(kernel, args, keys, loc, label, after, workspace)

    def region(self, loops: tuple[str, ...], tiles: tuple[str, ...]) -> Region:
        loc = Location("w.py", next(self.names) + 1, 5, 6)
        name = str(self.pick("F", "G"))
        last = self.range(loops, tiles)
        if self.draw.random() < 0.5:
            rows = Rows(str(self.pick("I", "J")), self.number(loops), self.number(loops))
            return Region(name, (rows, *(Merged() for _ in SHAPES[name][2:]), last), loc)
        if name == "F":
            return Region(name, (self.range(loops, tiles), last), loc)
        outer = Index(Binary("mod", self.number(loops), Const(3)))
        return Region(name, (outer, Range(Const(0), self.number(loops)), last), loc)

    def range(self, loops: tuple[str, ...], tiles: tuple[str, ...]) -> DimSelect:
        if tiles and self.draw.randint(0, 3) == 0:
            return TileRange(str(self.pick(*tiles)))
        return Range(self.number(loops), self.number(loops))


def random_sample(draw: Draw) -> Sample:
    """Draw a workload with up to three loops and conditions inside each other."""
    body = _Generator(draw).body((), (), [], 0)
    params = (
        SizeParam("n"),
        *(TensorParam(t, TensorType(f32 if t in "FG" else i32, shape)) for t, shape in SHAPES.items()),
    )
    body = (Set(Slot(0), Const(3)), *body, Set(Slot(1), Const(2)), Set("x", Var("n")))
    module = Module("m", KERNELS, (WorkloadFunction("w", params, body),), "w")
    return Sample(module, draw.randint(0, 2**31), draw.randint(0, 3) == 0)


def samples() -> st.SearchStrategy[Sample]:
    """Return workloads that hypothesis makes smaller."""
    return DRAWS.map(random_sample)
