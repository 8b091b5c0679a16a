"""The value of a scalar expression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol, assert_never, cast

import numpy as np

from pto_wsp.errors import BadExpression
from pto_wsp.ir.scalar import (
    BELOW_ZERO,
    I64_MAX,
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
    Value,
    Var,
    apply_binary,
    checked,
    round_f32,
)
from pto_wsp.location import Location
from pto_wsp.types.dtype import f32

Scope = Mapping[Name, Value] | Mapping[str, Value]
"""Values by what names them; kernels, and what follows from sizes, have names alone."""


class ExtentReader(Protocol):
    """What an expression may ask of the views and tensors around it."""

    def extent(self, name: str, dim: int) -> int:
        """Return the valid extent of dimension `dim` of a kernel's view or tile."""
        ...

    def element(self, name: str, indices: Iterable[int], loc: Location | None) -> Value:
        """Return an element of a tensor, view or tile; raise BadExpression at `loc` outside of it.

        Each index is taken, and checked, before the next one.
        """
        ...


def evaluate(expr: Expr, scope: Scope, reader: ExtentReader | None = None) -> Value:
    """Return the value of `expr`.

    Args:
        expr: what to evaluate.
        scope: values of what it names.
        reader: answers for the extents and elements that it mentions.

    Raises:
        BadExpression: overflow of i64, division by zero, a shift outside 0..63, an element outside its
            tensor, or a u64 below 0.
    """
    match expr:
        case Const(value=value, dtype=dtype):
            return round_f32(value) if dtype is f32 else value
        case Var(name=name):
            return scope[name]
        case LoopStart() | LoopExtent() | Slot() | FlushValue():
            return cast("Mapping[Name, Value]", scope)[expr]
        case TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
            raise AssertionError("a key has no value before it is one of a task")
        case Extent(name=name, dim=dim):
            assert reader is not None
            return reader.extent(name, dim)
        case Element(name=name, indices=indices, loc=loc) | TileElement(name=name, indices=indices, loc=loc):
            assert reader is not None
            return reader.element(name, (int(evaluate(i, scope, reader)) for i in indices), loc)
        case Unary():
            return _apply_unary(expr, evaluate(expr.a, scope, reader))
        case Binary(op=op, a=a, b=b, loc=loc):
            return apply_binary(op, evaluate(a, scope, reader), evaluate(b, scope, reader), loc)
        case Select(condition=condition, then=then, other=other):
            return evaluate(then if evaluate(condition, scope, reader) else other, scope, reader)
        case _:
            assert_never(expr)


def element_outside(name: str, index: int, dim: int, size: int) -> str:
    """Return why an element that is not part of its tensor has no value."""
    axis, is_rows, _ = name.partition(".offsets")
    if is_rows:
        return f"`{axis}` has {size - 1} row{'s' * (size != 2)}, and a row after the last one is read"
    return f"`{name}` is read at {index}, outside its dimension {dim} of size {size}"


def read_element(name: str, array: np.ndarray, indices: Iterable[int], loc: Location | None) -> int:
    """Return `array[indices]` as an integer; outside of the array is an error, as are negative indices."""
    return int(checked(int(array[element_place(name, array, indices, loc)]), loc))


def element_place(
    name: str, array: np.ndarray, indices: Iterable[int], loc: Location | None
) -> tuple[int, ...]:
    """Return the indices of an element; raise BadExpression where it is not part of the array."""
    at: list[int] = []
    for dim, (size, index) in enumerate(zip(array.shape, indices, strict=True)):
        if not 0 <= index < size:
            raise BadExpression(reason=element_outside(name, index, dim, size), loc=loc)
        at.append(index)
    return tuple(at)


def _apply_unary(expr: Unary, a: Value) -> Value:
    match expr.op:
        case "neg":
            return -a if isinstance(a, float) else checked(-a, expr.loc)
        case "not":
            return not a
        case "invert":
            return ~int(a)
        case "b1":
            return bool(a)
        case "f32":
            return round_f32(a)
        case "u64" if a < 0:
            raise BadExpression(reason=BELOW_ZERO.format(value=a), loc=expr.loc)
        case _:
            return checked(int(a) if math.isfinite(a) else I64_MAX + 1, expr.loc)
