"""Scalar expressions as text."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.errors import UnsupportedByTarget
from pto_wsp.ir.kernel import BLOCK_IDX
from pto_wsp.ir.scalar import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    Select,
    TileElement,
    Unary,
    Var,
)
from pto_wsp.targets.c_style.spelling import FIELDS, INTEGERS, Spelling, scalar_name, tile_name, view_name
from pto_wsp.types.dtype import DType


class ExpressionWriter:
    """Writes expressions; operations that can fail set the variable called `failed`.

    Args:
        spelling: of the language.
        views: element types of the kernel's tensor parameters.
    """

    def __init__(self, spelling: Spelling, views: Mapping[str, DType | None]) -> None:
        self._spelling = spelling
        self._views = views

    def text(self, expr: Expr, failed: str) -> str:
        """Return the value of `expr`."""
        match expr:
            case Const(value=value, dtype=dtype):
                return self._spelling.literal(value, dtype)
            case Var(name=name):
                return self._variable(name)
            case Extent(name=name, dim=dim):
                return self._extent(name, dim)
            case Unary(op=op, a=a):
                return self._unary(op, a, failed)
            case Binary():
                return self._binary(expr, failed)
            case Select(condition=c, then=t, other=o):
                return f"({self.text(c, failed)} ? {self.text(t, failed)} : {self.text(o, failed)})"
            case Element() | TileElement():
                return self._element(expr, failed)
            case _:
                raise AssertionError("verified kernels have no values of workloads and keys")

    def _variable(self, name: str) -> str:
        if name == BLOCK_IDX:
            return self._spelling.cast("int64_t", "context->block_idx")
        return scalar_name(name)

    def _extent(self, name: str, dim: int) -> str:
        if name in self._views:
            return f"{view_name(name)}.shape[{dim}]"
        return f"{tile_name(name)}.{FIELDS[dim]}"

    def _element(self, expr: Element | TileElement, failed: str) -> str:
        places = [self.text(index, failed) for index in expr.indices]
        if isinstance(expr, TileElement):
            return self._spelling.element(expr, "", places, failed)
        dtype = self._views[expr.name]
        assert dtype is not None
        return self._spelling.element(expr, INTEGERS[dtype.name], places, failed)

    def _unary(self, op: str, a: Expr, failed: str) -> str:
        text = self.text(a, failed)
        match op:
            case "not":
                return f"!{text}"
            case "invert":
                return f"~{text}"
            case "f32":
                return self._spelling.cast("float", text)
            case "i64" if not a.dtype.is_float:
                return self._spelling.cast("int64_t", text)
            case "neg" if a.dtype.is_float:
                return f"-({text})"
            case _:
                return self._spelling.call("to_i64" if op == "i64" else op, [text], failed)

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
            return self._spelling.call(op, [a, b], "")
        if op == "div" and not expr.dtype.is_float:
            what, target = "`/` of integers", self._spelling.target
            raise UnsupportedByTarget(target=target, what=what, reason="use `//`", loc=expr.loc)
        if expr.dtype.is_float and op in ("add", "sub", "mul", "div"):
            return f"({a} {ARITHMETIC[op]} {b})"
        return self._spelling.call(op, [a, b], failed)
