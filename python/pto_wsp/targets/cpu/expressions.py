"""Scalar expressions and names in C++."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import BLOCK_IDX
from pto_wsp.ir.scalar import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    I64_MIN,
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    FlushValue,
    LoopExtent,
    LoopStart,
    Select,
    Slot,
    TileElement,
    Unary,
    Value,
    Var,
)
from pto_wsp.types.dtype import DType

FIELDS = ("rows", "cols")

INTEGERS: dict[str, str] = {
    f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)
}
"""C++ types of integer elements."""


def mangle(prefix: str, name: str) -> str:
    """Return a C++ name for a Python identifier: different ones for different prefixes and names."""
    return f"{prefix}_{name}" if name.isascii() else f"{prefix}u_{name.encode().hex()}"


def tile_name(name: str) -> str:
    """Return the C++ variable of a tile."""
    return mangle("t", name)


def view_name(name: str) -> str:
    """Return the C++ variable of a tensor parameter."""
    return mangle("p", name)


def scalar_name(name: str) -> str:
    """Return the C++ variable of a scalar."""
    return mangle("s", name)


def scalar_type(dtype: DType) -> str:
    """Return the C++ type of a scalar."""
    return "float" if dtype.is_float else "bool" if dtype.kind == "b" else "int64_t"


def literal(value: Value, dtype: DType) -> str:
    """Return a literal of the C++ type of a scalar."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if not dtype.is_float:
        number = int(value)
        return "INT64_MIN" if number == I64_MIN else f"int64_t{{{number}}}"
    rounded = float(np.float32(value))
    if math.isnan(rounded):
        return '__builtin_nanf("")'
    if math.isinf(rounded):
        return "-__builtin_inff()" if rounded < 0 else "__builtin_inff()"
    return rounded.hex() + "f"


class ExpressionWriter:
    """Writes expressions; operations that can fail set the variable called `failed`.

    Args:
        views: element types of the kernel's tensor parameters.
    """

    def __init__(self, views: Mapping[str, DType | None]) -> None:
        self._views = views

    def text(self, expr: Expr, failed: str) -> str:
        """Return `expr` in C++."""
        match expr:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype)
            case Var(name=name):
                is_block = name == BLOCK_IDX
                return "static_cast<int64_t>(context->block_idx)" if is_block else scalar_name(name)
            case Extent(name=name, dim=dim):
                if name in self._views:
                    return f"{view_name(name)}.shape[{dim}]"
                return f"{tile_name(name)}.{FIELDS[dim]}"
            case Unary(op=op, a=a):
                return self._unary(op, a, failed)
            case Binary():
                return self._binary(expr, failed)
            case Select(condition=c, then=t, other=o):
                return f"({self.text(c, failed)} ? {self.text(t, failed)} : {self.text(o, failed)})"
            case Element() | TileElement():
                return self._element(expr, failed)
            case LoopStart() | LoopExtent() | Slot() | FlushValue():
                raise AssertionError("verified kernels have no values of workloads")

    def _element(self, expr: Element | TileElement, failed: str) -> str:
        places = "".join(f", {self.text(index, failed)}" for index in expr.indices)
        if isinstance(expr, TileElement):
            return f"scalar::element({tile_name(expr.name)}, {failed}{places})"
        dtype = self._views[expr.name]
        assert dtype is not None
        return f"scalar::element<{INTEGERS[dtype.name]}>({view_name(expr.name)}, {failed}{places})"

    def _unary(self, op: str, a: Expr, failed: str) -> str:
        text = self.text(a, failed)
        match op:
            case "not":
                return f"!{text}"
            case "invert":
                return f"~{text}"
            case "f32":
                return f"static_cast<float>({text})"
            case "i64" if not a.dtype.is_float:
                return f"static_cast<int64_t>({text})"
            case "neg" if a.dtype.is_float:
                return f"-({text})"
            case _:
                return f"scalar::{'to_i64' if op == 'i64' else op}({text}, {failed})"

    def _binary(self, expr: Binary, failed: str) -> str:
        op, a, b = expr.op, self.text(expr.a, failed), self.text(expr.b, failed)
        if op in COMPARISONS:
            return f"({a} {COMPARISONS[op]} {b})"
        if op in ("and", "or"):
            # Both operands are evaluated, and may fail, as everywhere.
            return f"({a} {'&' if op == 'and' else '|'} {b})"
        if op in ("bitand", "bitor", "bitxor"):
            return f"({a} {BITWISE[op]} {b})"
        if op in ("min", "max"):
            return f"scalar::{op}({a}, {b})"
        if op == "div" and not expr.dtype.is_float:
            raise UnsupportedByTarget(target="cpu", what="`/` of integers", reason="use `//`", loc=expr.loc)
        if expr.dtype.is_float and op in ("add", "sub", "mul", "div"):
            return f"({a} {ARITHMETIC[op]} {b})"
        return f"scalar::{op}({a}, {b}, {failed})"
