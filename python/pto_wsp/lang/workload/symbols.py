"""Symbols: scalar parameters that a workload names where it uses them."""

from __future__ import annotations

from pto_wsp.errors import BadOperand
from pto_wsp.ir.scalar import Var
from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.workload.trace import current_trace
from pto_wsp.location import caller_location
from pto_wsp.types.dtype import DType, f32, i64, u64


def symbol_u64(name: str) -> Scalar:
    """Return a scalar parameter that the workload does not declare, an integer >= 0.

    `symbol_u64("limit")` makes `limit` a parameter of the program: `program(limit=3)`, or
    `program.set_symbol_u64("limit", 3)` for all later runs.

    Raises:
        BadOperand: `name` is not an identifier.
        NameClash: another parameter or size has this name.
    """
    return _symbol("symbol_u64", name, u64)


def symbol_i64(name: str) -> Scalar:
    """Return a scalar parameter that the workload does not declare, an integer. See `symbol_u64`."""
    return _symbol("symbol_i64", name, i64)


def symbol_f32(name: str) -> Scalar:
    """Return a scalar parameter that the workload does not declare, an f32. See `symbol_u64`."""
    return _symbol("symbol_f32", name, f32)


def _symbol(what: str, name: object, dtype: DType) -> Scalar:
    trace = current_trace(f"`{what}`")
    loc = caller_location()
    if not isinstance(name, str) or not name.isidentifier():
        raise BadOperand(op=what, expected="a name", found=repr(name), loc=loc)
    trace.declare_symbol(name, dtype, loc)
    return Scalar(Var(name, f32 if dtype is f32 else i64, loc))
