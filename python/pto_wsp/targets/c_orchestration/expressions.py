"""Scalar expressions of a workload in C, with the functions of include/pto/wsp/host/orchestration.h."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from pto_wsp.ir.scalar import (
    I64_MIN,
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
)
from pto_wsp.lower.postfix import float_arithmetic
from pto_wsp.targets.c_style.spelling import literal

_INFIX = {
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "&",
    "or": "|",
}
"""Both operands of `and` and `or` are evaluated, and may have no value; they are 0 or 1."""


def c_expression(expr: Expr, named: Callable[[Name], str]) -> str:
    """Return an expression in C. An operation without a value keeps an error in `o`.

    Args:
        expr: of a verified workload.
        named: the variable of a name, and the pointer to a tensor.

    Raises:
        NotYetSupported: it computes with floats.
    """
    if isinstance(expr, Const):
        return _literal(expr)
    if expr.dtype.is_float and isinstance(expr, (Binary, Select)):
        raise float_arithmetic(expr.loc)
    operands = [c_expression(part, named) for part in children(expr)]
    match expr:
        case Var(name=name):
            return named(name)
        case LoopStart() | LoopExtent() | Slot() | FlushValue():
            return named(expr)
        case Element(name=name):
            return f"ORCH_AT(o, {', '.join((named(name), *operands))})"
        case Unary():
            return _unary(expr, *operands)
        case Binary(op=op):
            return _binary(op, *operands)
        case Select():
            return "({} ? {} : {})".format(*operands)
        case Extent() | TileElement() | TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
            raise AssertionError("verified workloads have no views, tiles and keys")
        case _:
            assert_never(expr)


def _literal(expr: Const) -> str:
    if expr.dtype.is_float or expr.dtype.kind == "b":
        return literal(expr.value, expr.dtype)
    value = int(expr.value)
    if value == I64_MIN:
        return "INT64_MIN"
    return str(value) if abs(value) < 2**31 else f"INT64_C({value})"


def _unary(expr: Unary, a: str) -> str:
    match expr.op:
        case "f32":
            return f"(float)({a})"
        case _ if expr.dtype.is_float:
            raise float_arithmetic(expr.loc)
        case "i64":
            return a
        case "not":
            return f"(!({a}))"
        case "b1":
            return f"({a} != 0)"
        case "invert":
            return f"(INT64_C(-1) ^ {a})"
        case op:
            return f"orch_{op}(o, {a})"


def _binary(op: str, a: str, b: str) -> str:
    if op in _INFIX:
        return f"({a} {_INFIX[op]} {b})"
    return f"orch_{op}({a}, {b})" if op in ("min", "max") else f"orch_{op}(o, {a}, {b})"
