"""Symbols: scalar parameters that a workload names where it uses them."""

from __future__ import annotations

from pto_wsp.errors import BadOperand
from pto_wsp.ir.scalar import Var
from pto_wsp.lang.operands import Scalar
from pto_wsp.lang.workload.trace import current_trace
from pto_wsp.location import caller_location
from pto_wsp.types.dtype import DType, f32, i64, u64


def symbol_u64(name: str) -> Scalar:
    """Return a symbol that holds an integer >= 0; programs take it by name, and it keeps its name everywhere.

    Raises:
        BadOperand: `name` is no identifier.
        NameClash: something else has this name.
    """
    return _symbol("symbol_u64", name, u64)


def symbol_i64(name: str) -> Scalar:
    """Return a symbol that holds an integer, as `symbol_u64` does."""
    return _symbol("symbol_i64", name, i64)


def symbol_f32(name: str) -> Scalar:
    """Return a symbol that holds a number, as `symbol_u64` does."""
    return _symbol("symbol_f32", name, f32)


def _symbol(what: str, name: object, dtype: DType) -> Scalar:
    trace = current_trace(f"`{what}`")
    loc = caller_location()
    if not isinstance(name, str) or not name.isidentifier():
        raise BadOperand(op=what, expected="a name", found=repr(name), loc=loc)
    trace.declare_symbol(name, dtype, loc)
    return Scalar(Var(name, f32 if dtype is f32 else i64, loc))
