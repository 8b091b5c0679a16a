"""Expressions and regions as `.pto` text."""

from __future__ import annotations

import math

from pto_wsp.ir.core import WHOLE, DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.scalar import Const, Expr, Var, format_expr
from pto_wsp.types.dtype import b1


def expr_text(expr: Expr) -> str:
    """Return an expression as text."""
    return format_expr(expr, "%")


def operand_text(expr: Expr) -> str:
    """Return a scalar operand as text."""
    match expr:
        case Var(name=name):
            return "%" + name
        case Const(value=value) if expr.dtype is not b1 and math.isfinite(value):
            return "%" + expr_text(expr)
        case _:
            return f"({expr_text(expr)})"


def region_text(region: Region) -> str:
    """Return a region as text."""
    if region.dims is WHOLE:
        return f"%{region.tensor}[:, :]"
    return f"%{region.tensor}[" + ", ".join(_dim(d) for d in region.dims) + "]"


def _dim(dim: DimSelect) -> str:
    match dim:
        case Full():
            return ":"
        case Index(at=at):
            return f"at({expr_text(at)})"
        case TileRange(loop=loop):
            return f"%{loop}"
        case Range(start=start, extent=extent):
            return f"{expr_text(start)} :+ {expr_text(extent)}"
        case Rows(indices=indices, start=start, extent=extent):
            return f"rows(%{indices}, {expr_text(start)} :+ {expr_text(extent)})"
        case Merged():
            return "merged"


def quoted(text: str) -> str:
    """Return a text between quotes, on one line."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + text.translate(str.maketrans(escapes)) + '"'
