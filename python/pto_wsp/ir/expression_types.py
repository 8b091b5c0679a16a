"""The types that operations on scalars take."""

from __future__ import annotations

from typing import assert_never

from pto_wsp.errors import InvalidIR
from pto_wsp.ir.rules import require
from pto_wsp.ir.scalar import (
    ARITHMETIC,
    BINARY_OPS,
    BITWISE,
    CHECKS,
    COMPARISONS,
    LOGIC,
    UNARY_CALLS,
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
    Select,
    Slot,
    TaskIndex,
    TaskKernel,
    TileElement,
    Unary,
    Var,
)
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, b1, f32, i64

SCALAR_DTYPES = (i64, f32, b1)
"""The types that expressions have."""

_NUMBERS, _INTEGERS, _TRUTHS = (i64, f32), (i64,), (b1,)
_BINARY: dict[str, tuple[DType, ...]] = {
    **dict.fromkeys(ARITHMETIC, _NUMBERS),
    **dict.fromkeys(("floordiv", "mod", *BITWISE, *CHECKS), _INTEGERS),
    "div": (f32,),
    **dict.fromkeys(COMPARISONS, _NUMBERS),
    **dict.fromkeys(("eq", "ne"), SCALAR_DTYPES),
    **dict.fromkeys(LOGIC, _TRUTHS),
}
_UNARY: dict[str, tuple[DType, ...]] = {
    "neg": _NUMBERS,
    "not": _TRUTHS,
    "invert": _INTEGERS,
    "u64": _INTEGERS,
    **dict.fromkeys(("b1", "i64", "f32"), SCALAR_DTYPES),
}
_VALUES: dict[str, type | tuple[type, ...]] = {"i64": int, "f32": (int, float), "b1": bool}
"""Python types of literals."""


def require_types(node: Expr, loc: Location | None) -> None:
    """Raise InvalidIR unless the operands of one node of an expression have types that it takes."""
    loc = node.loc or loc
    match node:
        case Binary(op=op, a=a, b=b):
            require(op in BINARY_OPS, f"there is no operation `{op}`", loc)
            same = a.dtype is b.dtype and a.dtype in _BINARY[op]
            require(same, f"`{BINARY_OPS[op]}` of {a.dtype} and {b.dtype} has no meaning", loc)
        case Unary(op=op, a=a):
            require(op == "neg" or op in UNARY_CALLS, f"there is no operation `{op}`", loc)
            require(a.dtype in _UNARY[op], f"`{op}` of {a.dtype} has no meaning", loc)
        case Select(condition=condition, then=then, other=other):
            require(condition.dtype is b1, "a condition is a truth value", loc)
            require(then.dtype is other.dtype, f"`select` of {then.dtype} and {other.dtype}", loc)
        case Element(indices=indices) | TileElement(indices=indices):
            require(all(i.dtype is i64 for i in indices), "an index is an integer", loc)
        case Const(value=value, dtype=dtype):
            kinds = _VALUES.get(dtype.name)
            fits = kinds is not None and isinstance(value, kinds)
            if not fits or isinstance(value, bool) != (dtype is b1):
                raise InvalidIR(message=f"`{value}` is not a {dtype}", loc=loc)
        case Var() | LoopStart() | LoopExtent() | Slot() | FlushValue() | Extent():
            pass
        case TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
            pass
        case _:
            assert_never(node)
