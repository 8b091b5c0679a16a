"""Scalar expressions have the same value, or the same error and place, in bytecode as in `evaluate`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from pto_wsp import errors
from pto_wsp.ir.core import Full, Region
from pto_wsp.ir.kernel import Instr, KernelFunction, Param, Store
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import I64_MAX, I64_MIN, Binary, Const, Element, Expr, Select, Slot, Unary, Var
from pto_wsp.ir.workload import ScalarParam, Set, Task, TensorParam, WorkloadFunction
from pto_wsp.location import Location
from pto_wsp.runtime.program import Program
from pto_wsp.support.record import replace
from pto_wsp.types import ScalarType, TensorType, TileType, i8, i16, i32, i64, u8, u16, u32, u64
from pto_wsp.types.dtype import b1
from tests.generators.drawing import tries

NUMBERS = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "min",
    "max",
    "bitand",
    "bitor",
    "bitxor",
    "lshift",
    "rshift",
    "within",
)
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
DTYPES = (i8, i16, i32, i64, u8, u16, u32, u64, b1)
EDGES = (0, 1, 2, -1, 7, 62, 63, 64, 2**31, -(2**31), 2**32, 2**62, I64_MAX, I64_MIN, I64_MIN + 1)
SHAPE = (3, 2)

WHOLE = (Full(), Full())
KEEP = KernelFunction(
    "keep",
    (Param("y", "out", TileType(1, 1, i64)), Param("v", "in", ScalarType(i64))),
    tiles=(("t", TileType(1, 1, i64)),),
    body=(Instr("expands", "t", (), (Var("v"),)), Store(Region("y", WHOLE), "t")),
)


@dataclass(frozen=True)
class Case:
    """An expression with what its names stand for."""

    expr: Expr
    numbers: dict[str, int]
    arrays: dict[str, np.ndarray]

    def module(self, sets_first: bool) -> Module:
        expr = Unary("i64", self.expr)
        body = (Task("keep", (Region("Y", WHOLE), Var("x") if sets_first else expr)),)
        params = (
            TensorParam("Y", TensorType(i64, (1, 1))),
            *(TensorParam(f"A{t}", TensorType(t, SHAPE)) for t in DTYPES),
            *(ScalarParam(name, ScalarType(b1 if name == "p" else i64)) for name in self.numbers),
        )
        sets = (Set(Slot(3), Const(-9)), *((Set("x", self.expr),) if sets_first else ()))
        return Module("m", (KEEP,), (WorkloadFunction("w", params, (*sets, *body)),), "w")


numbers = st.sampled_from(EDGES) | st.integers(-4, 4) | st.integers(I64_MIN, I64_MAX)


class _Generator:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.places = itertools.count(1)

    def at(self, expr: Expr) -> Expr:
        return replace(expr, loc=Location("w.py", next(self.places), 1, 2))

    def number(self, depth: int) -> Expr:
        match self.draw(st.integers(0, 2 if depth == 0 else 9)):
            case 0:
                return self.at(Const(self.draw(numbers)))
            case 1 | 2:
                return self.at(self.draw(st.sampled_from([Var("a"), Var("b"), Slot(3)])))
            case 3:
                op = self.draw(st.sampled_from(["neg", "invert", "u64"]))
                return self.at(Unary(op, self.number(depth - 1)))
            case 4:
                return self.at(Unary("i64", self.truth(depth - 1)))
            case 5:
                arms = (self.truth(depth - 1), self.number(depth - 1), self.number(depth - 1))
                return self.at(Select(*arms))
            case 6:
                return self.element(depth)
            case _:
                op = self.draw(st.sampled_from(NUMBERS))
                return self.at(Binary(op, self.number(depth - 1), self.number(depth - 1)))

    def element(self, depth: int) -> Expr:
        near = [self.at(Const(self.draw(st.integers(-1, n)))) for n in SHAPE]
        indices = tuple(i if self.draw(st.booleans()) else self.number(depth - 1) for i in near)
        return self.at(Element(f"A{self.draw(st.sampled_from(DTYPES))}", indices))

    def truth(self, depth: int) -> Expr:
        match self.draw(st.integers(0, 1 if depth <= 0 else 6)):
            case 0:
                return self.at(Const(self.draw(st.booleans()), b1))
            case 1:
                return self.at(Var("p", b1))
            case 2:
                return self.at(Unary("not", self.truth(depth - 1)))
            case 3:
                return self.at(Unary("b1", self.number(depth - 1)))
            case 4:
                op = self.draw(st.sampled_from(["and", "or", "eq", "ne"]))
                return self.at(Binary(op, self.truth(depth - 1), self.truth(depth - 1)))
            case _:
                op = self.draw(st.sampled_from(COMPARISONS))
                return self.at(Binary(op, self.number(depth - 1), self.number(depth - 1)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    generator = _Generator(draw)
    expr = generator.truth(3) if draw(st.integers(0, 4)) == 0 else generator.number(4)
    arrays = {}
    for dtype in DTYPES:
        own = dtype.to_numpy()
        low, high = (0, 1) if dtype is b1 else (np.iinfo(own).min, np.iinfo(own).max)
        values = st.sampled_from([int(low), int(high)]) | st.integers(max(int(low), -3), min(int(high), 3))
        drawn = draw(st.lists(values, min_size=6, max_size=6))
        arrays[f"A{dtype}"] = np.array(drawn, own).reshape(SHAPE)
    given_numbers = {"a": draw(numbers), "b": draw(numbers), "p": draw(st.integers(0, 1))}
    return Case(expr, given_numbers, arrays)


def outcome(module: Module, target: str, case: Case) -> object:
    """Return the value, or class, message and place of the error."""
    program = Program(module, {}, target)
    y = np.full((1, 1), 77, np.int64)
    try:
        program(Y=y, **case.arrays, **case.numbers, workers=1)
    except errors.BadExpression as error:
        assert y[0, 0] == 77
        return error.message, error.loc
    return int(y[0, 0])


@tries(200)
@given(cases(), st.booleans())
def test_bytecode_means_what_expressions_mean(case: Case, sets_first: bool) -> None:
    module = case.module(sets_first)
    note(f"{module}\n{case.arrays}\n{case.numbers}")
    assert outcome(module, "cpu", case) == outcome(module, "interp", case)


def test_every_index_has_a_value_before_one_is_compared_with_its_dimension() -> None:
    wrong = Unary("u64", Var("a"), Location("w.py", 1, 1, 2))
    for indices in ((Const(-1), wrong), (wrong, Const(9)), (Const(9), Const(-1))):
        arrays = {f"A{dtype}": np.zeros(SHAPE, dtype.to_numpy()) for dtype in DTYPES}
        case = Case(Element("Ai8", indices), {"a": -1, "b": 0, "p": 0}, arrays)
        module = case.module(False)
        assert outcome(module, "cpu", case) == outcome(module, "interp", case)
