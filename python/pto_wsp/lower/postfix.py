"""Scalar expressions as postfix code: part of the lowering to bytecode."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import assert_never

from pto_wsp.errors import NotYetSupported
from pto_wsp.ir.scalar import (
    ArgExtent,
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    FlushValue,
    KernelNumber,
    LoopExtent,
    LoopStart,
    Name,
    Select,
    Slot,
    TaskIndex,
    TaskKernel,
    TileElement,
    Unary,
    Var,
    children,
    walk,
)
from pto_wsp.location import Location
from pto_wsp.lower import bytecode as bc
from pto_wsp.lower.bytecode import Op

_UNARY_OPS = {
    "neg": Op.EXPR_NEG,
    "not": Op.EXPR_NOT,
    "invert": Op.EXPR_INVERT,
    "b1": Op.EXPR_BOOL,
    "u64": Op.EXPR_U64,
    "f32": Op.EXPR_F32,
}
_BINARY_OPS = {
    "add": Op.EXPR_ADD,
    "sub": Op.EXPR_SUB,
    "mul": Op.EXPR_MUL,
    "floordiv": Op.EXPR_FLOORDIV,
    "mod": Op.EXPR_MOD,
    "min": Op.EXPR_MIN,
    "max": Op.EXPR_MAX,
    "bitand": Op.EXPR_BITAND,
    "bitor": Op.EXPR_BITOR,
    "bitxor": Op.EXPR_XOR,
    "lshift": Op.EXPR_SHL,
    "rshift": Op.EXPR_SHR,
    "lt": Op.EXPR_LT,
    "le": Op.EXPR_LE,
    "eq": Op.EXPR_EQ,
    "ne": Op.EXPR_NE,
    "and": Op.EXPR_AND,
    "or": Op.EXPR_OR,
    "within": Op.EXPR_WITHIN,
}
_OPPOSITE_OPS = {"gt": Op.EXPR_LE, "ge": Op.EXPR_LT}
"""Comparisons that are the opposite of one with an opcode. Operands keep their order, and so do faults."""

Emit = Callable[[Op, int, int, "Location | None"], None]
Key = tuple[Expr, tuple["Location | None", ...]]


def key_of(expr: Expr) -> Key:
    """Return a key that distinguishes expressions by text and place, because an error names its place."""
    return expr, tuple(node.loc for node in walk(expr))


class Postfix:
    """Writes expressions.

    Args:
        emit: appends an instruction: opcode, operands and the place it comes from.
        constant: numbers eight bytes of the constant table.
        registers: the register of each loop variable, range of a loop, variable and flush point.
        symbols: the number of each size and scalar.
        tensors: the number of each tensor.
    """

    def __init__(
        self,
        emit: Emit,
        constant: Callable[[bytes], int],
        registers: Mapping[Name, int],
        symbols: Mapping[str, int],
        tensors: Mapping[str, int],
    ) -> None:
        self._emit = emit
        self._constant = constant
        self._registers = registers
        self._symbols = symbols
        self._tensors = tensors

    def write(self, expr: Expr) -> None:
        """Append the code of `expr`.

        Raises:
            NotYetSupported: arithmetic on floats, or more operands at a time than the engine takes.
        """
        if num_operands(expr) > bc.MAX_EXPR_STACK:
            raise NotYetSupported(
                feature=f"an expression that keeps more than {bc.MAX_EXPR_STACK} operands",
                detail="nested too deep",
                advice="put parts of it into variables",
                loc=expr.loc,
            )
        integers = expr.a if isinstance(expr, Unary) and expr.op == "f32" else expr
        for node in walk(integers):
            if node.dtype.is_float:
                raise float_arithmetic(node.loc or expr.loc)
        self._write(expr)
        self._emit(Op.EXPR_END, 0, 0, None)

    def _write(self, expr: Expr) -> None:
        loc = expr.loc
        match expr:
            case Const(value=value):
                self._emit(Op.EXPR_CONST, 0, self._constant(struct.pack("<q", int(value))), loc)
            case Var() | LoopStart() | LoopExtent() | Slot() | FlushValue():
                self._named(expr)
            case Element(name=name, indices=indices):
                self._operands(indices)
                self._emit(Op.EXPR_ELEMENT, self._tensors[name], len(indices), loc)
            case Unary(op=op, a=a):
                self._write(a)
                if op != "i64":
                    self._emit(_UNARY_OPS[op], 0, 0, loc)
            case Binary(op="gt" | "ge" as op, a=a, b=b):
                self._operands((a, b))
                self._emit(_OPPOSITE_OPS[op], 0, 0, loc)
                self._emit(Op.EXPR_NOT, 0, 0, loc)
            case Binary(op=op, a=a, b=b):
                self._operands((a, b))
                self._emit(_BINARY_OPS[op], 0, 0, loc)
            case Select(condition=condition, then=then, other=other):
                self._operands((condition, then, other))
                self._emit(Op.EXPR_SELECT, 0, 0, loc)
            case Extent() | TileElement() | TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
                raise AssertionError("verified workloads have no views, tiles and keys")
            case _:
                assert_never(expr)

    def _named(self, leaf: Var | LoopStart | LoopExtent | Slot | FlushValue) -> None:
        name = leaf.name if isinstance(leaf, Var) else leaf
        if name in self._registers:
            self._emit(Op.EXPR_REG, 0, self._registers[name], leaf.loc)
        else:
            assert isinstance(name, str)
            self._emit(Op.EXPR_SYMBOL, 0, self._symbols[name], leaf.loc)

    def _operands(self, exprs: tuple[Expr, ...]) -> None:
        for expr in exprs:
            self._write(expr)


def float_arithmetic(loc: Location | None) -> NotYetSupported:
    """Return the error of a float where the engine computes with integers."""
    return NotYetSupported(
        feature="arithmetic on float scalars in a workload",
        detail="expected a literal or a scalar parameter of the kernel's own type",
        advice="compute it in the kernel, or pass the value to the program",
        loc=loc,
    )


def num_operands(expr: Expr) -> int:
    """Return the largest number of live operands during the evaluation of `expr`."""
    operands = children(expr)
    return max(i + num_operands(operand) for i, operand in enumerate(operands)) if operands else 1
