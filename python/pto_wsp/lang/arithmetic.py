"""How scalar expressions are built from operands of mixed types, in kernels and workloads alike.

Integers are i64, floats f32, truth values b1. An integer meets a float as a float; `/` is a float; `//` and
`%` are defined for integers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TypeGuard

import numpy as np

from pto_wsp.errors import DTypeMismatch, NotYetSupported
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.scalar import BINARY_OPS, Const, Expr, Unary
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, b1, f32, i64

MAX_PARTS = 512
"""Operators, variables and constants that one expression can have."""

SCALAR_DTYPES = (f32, i64, b1)
"""Element types that scalar parameters can have."""

FOLD: dict[str, Callable[..., object]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "not": operator.not_,
}
"""Python's own operators, for operands known when the program is read."""

_OF_TRUTHS = {"bitand": "and", "bitor": "or", "bitxor": "ne"}
"""What the operators on bits are on truth values."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a Python value can become a scalar expression."""
    return isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))


def constant(value: object, loc: Location | None) -> Const:
    """Return a literal; integers must fit 64 bits.

    Raises:
        DTypeMismatch: the value does not fit.
    """
    if isinstance(value, (bool, np.bool_)):
        return Const(bool(value), b1, loc)
    if isinstance(value, (int, np.integer)):
        if not ir.I64_MIN <= int(value) <= ir.I64_MAX:
            raise DTypeMismatch(op=str(value), expected="an integer of 64 bits", found=str(value), loc=loc)
        return Const(int(value), i64, loc)
    assert isinstance(value, (float, np.floating))
    return Const(as_f32(float(value), loc), f32, loc)


def as_f32(value: float, loc: Location | None) -> float:
    """Return the f32 nearest to `value`, which must not become infinite by it."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if math.isinf(rounded) and math.isfinite(value):
        raise DTypeMismatch(op=repr(value), expected="a number that f32 can hold", found=repr(value), loc=loc)
    return rounded


def convert(expr: Expr, dtype: DType, op: str, loc: Location | None) -> Expr:
    """Return `expr` as `dtype`, where no information is lost by kind: integers may become floats.

    Raises:
        DTypeMismatch: any other change of type.
    """
    if expr.dtype is dtype:
        return expr
    if dtype is f32 and expr.dtype is i64:
        if isinstance(expr, Const):
            return Const(as_f32(float(expr.value), loc), f32, loc)
        return Unary("f32", expr, loc)
    raise DTypeMismatch(op=op, expected=str(dtype), found=str(expr.dtype), loc=loc)


def combine(op: str, a: Expr, b: Expr, loc: Location | None) -> Expr:
    """Return `a op b` for an operation of `BINARY_OPS`.

    Raises:
        DTypeMismatch: operand types for which the operation has no meaning.
    """
    sign = BINARY_OPS[op]
    _require_small((a, b), loc)
    if op in _OF_TRUTHS and a.dtype is b1 and b.dtype is b1:
        return ir.binary(_OF_TRUTHS[op], a, b, loc)
    if op in ir.LOGIC:
        for operand in (a, b):
            _require(operand, (b1,), sign, "truth values", loc)
        return ir.binary(op, a, b, loc)
    if op in ("eq", "ne") and a.dtype is b1 and b.dtype is b1:
        return ir.binary(op, a, b, loc)
    for operand in (a, b):
        _require(operand, (i64, f32), sign, "numbers", loc)
    if op in ("floordiv", "mod", *ir.BITWISE, *ir.CHECKS):
        for operand in (a, b):
            _require(operand, (i64,), sign, "integers", loc)
    dtype = f32 if op == "div" or f32 in (a.dtype, b.dtype) else i64
    return ir.binary(op, convert(a, dtype, sign, loc), convert(b, dtype, sign, loc), loc)


def _require_small(operands: tuple[Expr, ...], loc: Location | None) -> None:
    """Refuse operands that would make an endless expression, as a Python loop can: each use is a copy."""
    pending = [*operands]
    for _ in range(MAX_PARTS):
        if not pending:
            return
        pending += ir.children(pending.pop())
    feature = f"an expression of more than {MAX_PARTS} parts"
    advice = "keep what it is made of in slots: `slot_set_i64(0, ...)`, then `slot_i64(0)`"
    raise NotYetSupported(feature=feature, detail="", advice=advice, loc=loc)


def choose(op: str, a: Expr, b: Expr, loc: Location | None) -> Expr:
    """Return Python's `a and b` or `a or b` of truth values: b is not evaluated where a decides."""
    if not ir.can_fail(b):
        return combine(op, a, b, loc)
    _require(b, (b1,), op, "truth values", loc)
    decided = Const(op == "or", b1, loc)
    return select(a, b, decided, loc) if op == "and" else select(a, decided, b, loc)


def negate(a: Expr, loc: Location | None) -> Expr:
    """Return `-a`."""
    _require_small((a,), loc)
    _require(a, (i64, f32), "-", "a number", loc)
    if isinstance(a, Const) and a.value != ir.I64_MIN:
        return Const(-a.value, a.dtype, loc)
    return Unary("neg", a, loc)


def invert(a: Expr, loc: Location | None) -> Expr:
    """Return the opposite of a truth value."""
    _require(a, (b1,), "not", "a truth value", loc)
    return Const(not a.value, b1, loc) if isinstance(a, Const) else Unary("not", a, loc)


def complement(a: Expr, loc: Location | None) -> Expr:
    """Return `~a`: every bit of an integer the other way, or the opposite of a truth value."""
    if a.dtype is b1:
        return invert(a, loc)
    _require(a, (i64,), "~", "an integer or a truth value", loc)
    return Const(~int(a.value), i64, loc) if isinstance(a, Const) else Unary("invert", a, loc)


def truth(a: Expr, loc: Location | None) -> Expr:
    """Return whether `a` is true as Python sees it: numbers are where they are not 0."""
    if a.dtype is b1:
        return a
    return combine("ne", a, Const(0, i64), loc)


def absolute(a: Expr, loc: Location | None) -> Expr:
    """Return `abs(a)`; of -0.0 it is 0.0."""
    _require(a, (i64, f32), "abs", "a number", loc)
    zero = convert(Const(0, i64), a.dtype, "abs", loc)
    return ir.Select(ir.binary("le", a, zero, loc), ir.Binary("sub", zero, a, loc), a, loc)


def select(condition: Expr, then: Expr, other: Expr, loc: Location | None) -> Expr:
    """Return `then` where the condition holds, else `other`, in their common type."""
    _require_small((condition, then, other), loc)
    _require(condition, (b1,), "if", "a truth value", loc)
    if then.dtype is not other.dtype:
        dtype = f32 if f32 in (then.dtype, other.dtype) else i64
        then, other = convert(then, dtype, "if", loc), convert(other, dtype, "if", loc)
    return ir.Select(condition, then, other, loc)


def _require(expr: Expr, dtypes: tuple[DType, ...], op: str, expected: str, loc: Location | None) -> None:
    if expr.dtype not in dtypes:
        raise DTypeMismatch(op=op, expected=expected, found=str(expr.dtype), loc=loc)
