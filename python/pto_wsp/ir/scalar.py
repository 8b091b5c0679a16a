"""Scalar expressions: the one expression type of bounds, offsets, predicates and scalar arguments.

Values are i64 with floor division and modulo as in Python, bool (b1), or a float in a kernel's scalar
arithmetic. Overflow, division by zero, shifts outside 0..63, elements outside their tensor, u64 values
below 0 and bounds of slices outside their range are errors wherever an expression is evaluated; the first of
them, from left to right, is reported.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, assert_never, get_args

import numpy as np

from pto_wsp.errors import BadExpression
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.types.dtype import DType, b1, f32, i64

Value = int | float | bool


@record
class Const:
    """A literal. Literals are equal if they are the same number: 0.0 is not -0.0, and NaN is NaN."""

    value: Value
    dtype: DType = i64
    loc: Location | None = None

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not Const:
            return NotImplemented
        assert isinstance(other, Const)
        a, b = self.value, other.value
        if self.dtype != other.dtype or a != b:
            return self.dtype == other.dtype and a != a and b != b
        return a != 0 or math.copysign(1, a) == math.copysign(1, b)

    def __hash__(self) -> int:
        return hash((self.value, self.dtype)) if self.value == self.value else 0


@record
class Var:
    """A named value: a loop variable, a size, a symbol or a scalar parameter, told apart by its scope."""

    name: str
    dtype: DType = i64
    loc: Location | None = None


@record
class LoopStart:
    """In a workload: the first element of the current range of the tiles loop `loop`."""

    loop: str
    loc: Location | None = None

    dtype = i64


@record
class LoopExtent:
    """In a workload: the number of elements of the current range of `loop`, clipped to its axis."""

    loop: str
    loc: Location | None = None

    dtype = i64


NUM_SLOTS = 256


@record
class Slot:
    """In a workload: the variable with a number, below NUM_SLOTS."""

    number: int
    loc: Location | None = None

    dtype = i64


@record
class FlushValue:
    """What the walk has read at flush point `number`. Only the lowering to bytecode makes these."""

    number: int
    dtype: DType
    loc: Location | None = None


@record
class TaskIndex:
    """In a key: the index of the loop around a task whose variable is `loop`, or that runs over this axis."""

    loop: str
    loc: Location | None = None

    dtype = i64


@record
class TaskKernel:
    """In a key: the number of a task's kernel in the module."""

    loc: Location | None = None

    dtype = i64


@record
class KernelNumber:
    """In a key: the number of the kernel called `kernel`."""

    kernel: str
    loc: Location | None = None

    dtype = i64


@record
class ArgExtent:
    """In a key: the rows (0) or columns (1) of what a task gives for the kernel's parameter `param`."""

    param: str
    dim: int
    loc: Location | None = None

    dtype = i64


@record
class Extent:
    """In a kernel: the valid extent of dimension `dim` of the view or tile called `name`."""

    name: str
    dim: int
    loc: Location | None = None

    dtype = i64


@record
class Element:
    """One element of an integer or bool tensor (in a workload) or view (in a kernel); outside is an error."""

    name: str
    indices: tuple[Expr, ...]
    loc: Location | None = None

    dtype = i64


@record
class TileElement:
    """In a kernel: element [row, col] of the valid part of a tile; outside of it is an error.

    Assignments alone read elements of tiles: `%s = %t[i, j] : f32`. Floats are read as f32, integers as i64,
    truth values as b1 (`element_dtype`).
    """

    name: str
    indices: tuple[Expr, ...]
    dtype: DType
    loc: Location | None = None


def element_dtype(dtype: DType) -> DType:
    """Return the type of a scalar that an element of a tile of `dtype` is read as."""
    return f32 if dtype.is_float else b1 if dtype is b1 else i64


@record
class Unary:
    """`neg`, `not`, `invert` or a conversion of one operand.

    `b1` is whether a number is not 0; `u64` is the operand, which must not be below 0; `i64` and `f32`
    convert to these types.
    """

    op: str
    a: Expr
    loc: Location | None = None

    @property
    def dtype(self) -> DType:
        """Type of the result."""
        return _UNARY_TYPES.get(self.op, self.a.dtype)


@record
class Binary:
    """An operation of `BINARY_OPS` on two operands of one type."""

    op: str
    a: Expr
    b: Expr
    loc: Location | None = None

    @property
    def dtype(self) -> DType:
        """Type of the result: bool for comparisons and logic, else the operands'."""
        return b1 if self.op in COMPARISONS or self.op in LOGIC else self.a.dtype


@record
class Select:
    """`then` where `condition` holds, else `other`. Only the chosen operand need have a value."""

    condition: Expr
    then: Expr
    other: Expr
    loc: Location | None = None

    @property
    def dtype(self) -> DType:
        """Type of the arms."""
        return self.then.dtype


Name = str | LoopStart | LoopExtent | Slot | FlushValue
"""What tables of values and registers know a leaf by: a `Var` by its name, others by themselves."""

KeyLeaf = TaskIndex | TaskKernel | KernelNumber | ArgExtent
"""What keys of schedules are made of, besides literals."""

Leaf = Const | Var | LoopStart | LoopExtent | Slot | FlushValue | Extent | KeyLeaf

Expr = Leaf | Element | TileElement | Unary | Binary | Select

_UNARY_TYPES = {"not": b1, "b1": b1, "i64": i64, "u64": i64, "f32": f32}

ARITHMETIC: dict[str, str] = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "min": "min",
    "max": "max",
}
BITWISE: dict[str, str] = {"bitand": "&", "bitor": "|", "bitxor": "^", "lshift": "<<", "rshift": ">>"}
COMPARISONS: dict[str, str] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
LOGIC: dict[str, str] = {"and": "and", "or": "or"}
CHECKS: dict[str, str] = {"within": "within"}
"""`within(a, b)` is a, which must lie in [0, b]: the bound of a slice of a range of b elements."""
BINARY_OPS: dict[str, str] = {**ARITHMETIC, **BITWISE, **COMPARISONS, **LOGIC, **CHECKS}
BINARY_CALLS = ("min", "max", *CHECKS)
"""Operations on two operands that are written as calls."""

I64_MIN, I64_MAX = -(2**63), 2**63 - 1

DIVISION_BY_ZERO = "division by zero"
OVERFLOW = "it overflows 64 bits"
SHIFT_OUTSIDE = "it shifts by {value}, outside 0..63"
BELOW_ZERO = "{value} is below 0, and a u64 is not"
OUTSIDE_RANGE = "index {value} of a range is outside 0..{limit}"
OUTSIDE_RANGE_HINT = "slices are not clipped: clip a bound with `.min(range.extent)`"

_PYTHON: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
    "bitand": lambda a, b: int(a) & int(b),
    "bitor": lambda a, b: int(a) | int(b),
    "bitxor": lambda a, b: int(a) ^ int(b),
    "lshift": lambda a, b: int(a) << int(b),
    "rshift": lambda a, b: int(a) >> int(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "within": lambda a, b: a,
}


def const(value: Value, loc: Location | None = None) -> Const:
    """Return a literal whose type follows from the Python type of `value`."""
    if isinstance(value, (bool, np.bool_)):
        return Const(bool(value), b1, loc)
    if isinstance(value, (float, np.floating)):
        return Const(float(value), f32, loc)
    return Const(int(value), i64, loc)


def binary(op: str, a: Expr, b: Expr, loc: Location | None = None) -> Expr:
    """Return `a op b`, folded where both are integer literals or an operand is neutral.

    Folding keeps every fault: an operand that can fail is part of the result.
    """
    if isinstance(a, Const) and isinstance(b, Const) and a.dtype is not f32 and b.dtype is not f32:
        try:
            return const(apply_binary(op, a.value, b.value), loc)
        except BadExpression:
            return Binary(op, a, b, loc)
    if a.dtype is i64:
        neutral = _NEUTRAL.get(op)
        if neutral is not None and isinstance(b, Const) and b.value == neutral:
            return a
        if op in ("add", "mul") and isinstance(a, Const) and a.value == neutral:
            return b
        if op == "mul" and Const(0) in (a, b) and not can_fail(a) and not can_fail(b):
            return Const(0, loc=loc)
    return Binary(op, a, b, loc)


_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}


def add(a: Expr, b: Expr, loc: Location | None = None) -> Expr:
    """Return `a + b`."""
    return binary("add", a, b, loc)


def mul(a: Expr, b: Expr, loc: Location | None = None) -> Expr:
    """Return `a * b`."""
    return binary("mul", a, b, loc)


def ceildiv(a: Expr, tile: int, loc: Location | None = None) -> Expr:
    """Return `a / tile` rounded up, for a >= 0."""
    return binary("floordiv", add(a, Const(tile - 1), loc), Const(tile), loc)


def can_fail(expr: Expr) -> bool:
    """Return whether the evaluation of `expr` can raise BadExpression."""
    return any(_node_can_fail(node) for node in walk(expr))


def _node_can_fail(node: Expr) -> bool:
    match node:
        case Element() | TileElement():
            return True
        case Binary(op="add" | "sub" | "mul", a=a) | Unary(op="neg", a=a):
            return a.dtype.is_integer
        case Binary(op=op):
            return op in ("floordiv", "mod", "lshift", "rshift", *CHECKS)
        case Unary(op="i64", a=a):
            return a.dtype.is_float
        case Unary(op=op):
            return op == "u64"
        case Select() | Const() | Var() | LoopStart() | LoopExtent() | Slot() | FlushValue() | Extent():
            return False
        case TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
            return False
        case _:
            assert_never(node)


def apply_binary(op: str, a: Value, b: Value, loc: Location | None = None) -> Value:
    """Evaluate one operation on values; what has no value in i64 raises BadExpression."""
    if op in ("div", "floordiv", "mod") and b == 0:
        if op == "div":
            with np.errstate(divide="ignore", invalid="ignore"):
                return float(np.float32(a) / np.float32(b))
        raise BadExpression(reason=DIVISION_BY_ZERO, loc=loc)
    if op in ("lshift", "rshift") and not 0 <= b <= 63:
        raise BadExpression(reason=SHIFT_OUTSIDE.format(value=b), loc=loc)
    if op == "within" and not 0 <= a <= b:
        raise BadExpression(reason=OUTSIDE_RANGE.format(value=a, limit=b), loc=loc, hint=OUTSIDE_RANGE_HINT)
    result = _PYTHON[op](a, b)
    return round_f32(result) if isinstance(result, float) else checked(result, loc)


def checked(value: Value, loc: Location | None) -> Value:
    """Return an i64; raise BadExpression at `loc` where 64 bits do not hold it."""
    if not I64_MIN <= value <= I64_MAX:
        raise BadExpression(reason=OVERFLOW, loc=loc)
    return value


_F32 = struct.Struct("f")


def round_f32(value: Value) -> float:
    """Return the f32 nearest to a number, as a Python float."""
    if isinstance(value, int) and 2**53 < abs(value) <= I64_MAX:
        return float(np.float32(np.int64(value)))  # rounded once, not through f64
    try:
        return _F32.unpack(_F32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


_CHILDREN: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys(get_args(Leaf), lambda expr: ()),
    **dict.fromkeys((Element, TileElement), lambda expr: expr.indices),
    Unary: lambda expr: (expr.a,),
    Binary: lambda expr: (expr.a, expr.b),
    Select: lambda expr: (expr.condition, expr.then, expr.other),
}


def name_of(expr: Expr) -> Name | None:
    """Return what tables of values and registers know `expr` by; None if it is not in them."""
    match expr:
        case Var(name=name):
            return name
        case LoopStart() | LoopExtent() | Slot() | FlushValue():
            return expr
        case _:
            return None


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of `expr`."""
    return _CHILDREN[expr.__class__](expr)


def walk(expr: Expr) -> Sequence[Expr]:
    """Return `expr` and everything below it, each before its operands."""
    found = [expr]
    for node in found:
        found += _CHILDREN[node.__class__](node)
    return found


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return `expr` with each of its operands changed, folded as `binary` folds."""
    match expr:
        case Const() | Var() | LoopStart() | LoopExtent() | Slot() | FlushValue() | Extent():
            return expr
        case TaskIndex() | TaskKernel() | KernelNumber() | ArgExtent():
            return expr
        case Element() | TileElement():
            return replace(expr, indices=tuple(map(change, expr.indices)))
        case Unary(op=op, a=a, loc=loc):
            return Unary(op, change(a), loc)
        case Binary(op=op, a=a, b=b, loc=loc):
            return binary(op, change(a), change(b), loc)
        case Select(condition=condition, then=then, other=other, loc=loc):
            return Select(change(condition), change(then), change(other), loc)
        case _:
            assert_never(expr)


def substitute(expr: Expr, exchange: Callable[[Expr], Expr | None]) -> Expr:
    """Return `expr` with every node for which `exchange` gives another one exchanged, outermost first."""
    exchanged = exchange(expr)
    return rebuild(expr, lambda operand: substitute(operand, exchange)) if exchanged is None else exchanged


PRECEDENCE: dict[str, int] = {
    **{"or": 1, "and": 2, **dict.fromkeys(COMPARISONS, 3), "bitor": 4, "bitxor": 5, "bitand": 6},
    **{"lshift": 7, "rshift": 7, "add": 8, "sub": 8, "mul": 9, "div": 9, "floordiv": 9, "mod": 9},
}
TIGHTEST = 10
UNARY_CALLS = ("not", "invert", "b1", "i64", "u64", "f32")
"""Operations on one operand that are written as calls."""


def format_expr(expr: Expr, prefix: str = "") -> str:
    """Return `expr` as text, each name with `prefix` before it (`%` in `.pto` text)."""
    return _format(expr, prefix, 0)


def _leaf(leaf: Leaf, prefix: str) -> str:
    match leaf:
        case Const():
            return _literal(leaf)
        case Var(name=name):
            return prefix + name
        case LoopStart(loop=loop):
            return f"{prefix}{loop}.start"
        case LoopExtent(loop=loop):
            return f"{prefix}{loop}.len"
        case Slot(number=number):
            return f"{prefix}slot.{number}"
        case FlushValue(number=number):
            return f"{prefix}flush#{number}"
        case Extent(name=name, dim=dim):
            return f"dim({prefix}{name}, {dim})"
        case _:
            return _key_leaf(leaf, prefix)


def _key_leaf(leaf: KeyLeaf, prefix: str) -> str:
    match leaf:
        case TaskIndex(loop=loop):
            return f"{prefix}t.{loop}"
        case TaskKernel():
            return f"{prefix}t.kernel"
        case KernelNumber(kernel=kernel):
            return f"{prefix}kernel.{kernel}"
        case ArgExtent(param=param, dim=dim):
            return f"dim({prefix}t.args.{param}, {dim})"
        case _:
            assert_never(leaf)


def _format(expr: Expr, prefix: str, outer: int) -> str:
    match expr:
        case Element(name=name, indices=indices) | TileElement(name=name, indices=indices):
            return f"{prefix}{name}[{', '.join(_format(i, prefix, 0) for i in indices)}]"
        case Unary(op="neg", a=a):
            return f"-({_literal(a)})" if isinstance(a, Const) else "-" + _format(a, prefix, TIGHTEST)
        case Unary(op=op):
            return _call(op, expr, prefix)
        case Select():
            return _call("select", expr, prefix)
        case Binary(op=op) if op in BINARY_CALLS:
            return _call(op, expr, prefix)
        case Binary(op=op, a=a, b=b):
            level = PRECEDENCE[op]
            left = level + 1 if op in COMPARISONS else level
            text = f"{_format(a, prefix, left)} {BINARY_OPS[op]} {_format(b, prefix, level + 1)}"
            return f"({text})" if level < outer else text
        case _:
            return _leaf(expr, prefix)


def _literal(literal: Const) -> str:
    """Return a literal so that its type shows: floats have a point, an exponent, or a name."""
    if literal.dtype is b1:
        return "true" if literal.value else "false"
    return repr(float(literal.value)) if literal.dtype.is_float else repr(int(literal.value))


def _call(name: str, expr: Expr, prefix: str) -> str:
    return f"{name}({', '.join(_format(child, prefix, 0) for child in children(expr))})"
