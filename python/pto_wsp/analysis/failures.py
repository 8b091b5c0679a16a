"""Which scalar expressions can fail where they are evaluated."""

from __future__ import annotations

from pto_wsp.ir.scalar import Binary, Const, Element, Expr, TileElement, Unary, walk
from pto_wsp.types.dtype import DType, i64


def can_fail(expr: Expr) -> bool:
    """Return whether evaluating `expr` can overflow, divide by zero or read outside of a view or tile."""
    return any(_node_can_fail(node) for node in walk(expr))


def _node_can_fail(node: Expr) -> bool:
    match node:
        case Binary(op=op, a=a):
            is_integer = a.dtype.is_integer and op in ("add", "sub", "mul")
            return is_integer or op in ("floordiv", "mod", "lshift", "rshift")
        case Unary(op=op, a=a):
            return (op == "neg" and a.dtype.is_integer) or (op == "i64" and a.dtype.is_float)
        case Element() | TileElement():
            return True
        case _:
            return False


def may_be_beyond(expr: Expr, dtype: DType) -> bool:
    """Return whether a scalar operand can have a value that a tile of `dtype` cannot hold."""
    if not dtype.is_integer:
        return False
    low, high = dtype.integer_range
    return not (isinstance(expr, Const) and low <= expr.value <= high) and dtype is not i64
