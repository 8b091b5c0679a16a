"""Scalars of a workload: values that exist only when the program runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pto_wsp.errors import BadOperand, RunTimeCondition, RunTimeNumber
from pto_wsp.ir.scalar import Const, Expr, format_expr
from pto_wsp.lang import arithmetic
from pto_wsp.lang.annotations import Operators, ScalarAnnotation
from pto_wsp.location import caller_location
from pto_wsp.types.dtype import b1


class Scalar:
    """A size, loop variable or scalar parameter of a workload, or an expression made of them.

    `Scalar[f32]`, `Scalar[i64]` and `Scalar[b1]` annotate scalar parameters of kernels and workloads. In a
    workload the arithmetic of a Scalar makes larger expressions, which are evaluated when the program runs:
    integers have 64 bits, `//` and `%` round down as in Python, and an overflow, division by zero or shift
    outside 0..63 is an error. `&`, `|`, `^` and `~` work on the bits of integers and on truth values. A
    Scalar has no truth value while the workload is built. An element of a tensor, or a slot, in it is read
    where the expression is used: by the loop, conditional or task that takes it.
    """

    __slots__ = ("_expr",)

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def __class_getitem__(cls, item: object) -> Any:
        return ScalarAnnotation(item)

    @property
    def expr(self) -> Expr:
        """The expression in the IR."""
        return self._expr

    def __repr__(self) -> str:
        return f"<{format_expr(self.expr)}>"

    def __hash__(self) -> int:
        return id(self)

    def __add__(self, other: Number) -> Scalar:
        return _binary("add", self, other)

    def __radd__(self, other: Number) -> Scalar:
        return _binary("add", other, self)

    def __sub__(self, other: Number) -> Scalar:
        return _binary("sub", self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return _binary("sub", other, self)

    def __mul__(self, other: Number) -> Scalar:
        return _binary("mul", self, other)

    def __rmul__(self, other: Number) -> Scalar:
        return _binary("mul", other, self)

    def __truediv__(self, other: Number) -> Scalar:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return _binary("div", other, self)

    def __floordiv__(self, other: Number) -> Scalar:
        return _binary("floordiv", self, other)

    def __rfloordiv__(self, other: Number) -> Scalar:
        return _binary("floordiv", other, self)

    def __mod__(self, other: Number) -> Scalar:
        return _binary("mod", self, other)

    def __rmod__(self, other: Number) -> Scalar:
        return _binary("mod", other, self)

    def __lt__(self, other: Number) -> Scalar:
        return _binary("lt", self, other)

    def __le__(self, other: Number) -> Scalar:
        return _binary("le", self, other)

    def __gt__(self, other: Number) -> Scalar:
        return _binary("gt", self, other)

    def __ge__(self, other: Number) -> Scalar:
        return _binary("ge", self, other)

    def __eq__(self, other: Number) -> Scalar:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _comparison("eq", self, other)

    def __ne__(self, other: Number) -> Scalar:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _comparison("ne", self, other)

    def __and__(self, other: Number) -> Scalar:
        return _binary("bitand", self, other)

    def __rand__(self, other: Number) -> Scalar:
        return _binary("bitand", other, self)

    def __or__(self, other: Number) -> Scalar:
        return _binary("bitor", self, other)

    def __ror__(self, other: Number) -> Scalar:
        return _binary("bitor", other, self)

    def __xor__(self, other: Number) -> Scalar:
        return _binary("bitxor", self, other)

    def __rxor__(self, other: Number) -> Scalar:
        return _binary("bitxor", other, self)

    def __lshift__(self, other: Number) -> Scalar:
        return _binary("lshift", self, other)

    def __rlshift__(self, other: Number) -> Scalar:
        return _binary("lshift", other, self)

    def __rshift__(self, other: Number) -> Scalar:
        return _binary("rshift", self, other)

    def __rrshift__(self, other: Number) -> Scalar:
        return _binary("rshift", other, self)

    def __neg__(self) -> Scalar:
        return Scalar(arithmetic.negate(self.expr, caller_location()))

    def __pos__(self) -> Scalar:
        return self

    def __abs__(self) -> Scalar:
        return Scalar(arithmetic.absolute(self.expr, caller_location()))

    def __invert__(self) -> Scalar:
        return Scalar(arithmetic.complement(self.expr, caller_location()))

    def min(self, other: Number) -> Scalar:
        """The smaller of two numbers."""
        return _binary("min", self, other)

    def max(self, other: Number) -> Scalar:
        """The larger of two numbers."""
        return _binary("max", self, other)

    def where(self, then: Number, other: Number) -> Scalar:
        """`then` where this truth value holds, else `other`; only the chosen one need have a value."""
        loc = caller_location()
        arms = expression(then), expression(other)
        if arms[0] is None or arms[1] is None:
            raise TypeError("where() takes numbers and scalars")
        return Scalar(arithmetic.select(self.expr, arms[0], arms[1], loc))

    def __bool__(self) -> bool:
        raise RunTimeCondition(expr=format_expr(self.expr), loc=caller_location())

    def __index__(self) -> int:
        self._no_number()

    def __int__(self) -> int:
        self._no_number()

    def __float__(self) -> float:
        self._no_number()

    def __iter__(self) -> NoReturn:
        self._no_number()

    def _no_number(self) -> NoReturn:
        raise RunTimeNumber(expr=format_expr(self.expr), loc=caller_location())


if TYPE_CHECKING:
    Number = Scalar | float | Operators
    """What arithmetic of scalars takes: a scalar, a Python number, or an element of a tensor."""
else:
    Number = Scalar | float


def expression(value: object) -> Expr | None:
    """Return a scalar or number as an expression, or None if it is something else."""
    if isinstance(value, Scalar):
        return value.expr
    return arithmetic.constant(value, caller_location()) if arithmetic.is_number(value) else None


def integer_constant(expr: Expr) -> int | None:
    """Return the value of an integer literal, or None for any other expression."""
    return int(expr.value) if isinstance(expr, Const) and expr.dtype is not b1 else None


def _binary(op: str, a: Number, b: Number) -> Any:
    left, right = expression(a), expression(b)
    if left is None or right is None:
        return NotImplemented
    return Scalar(arithmetic.combine(op, left, right, caller_location()))


def _comparison(op: str, a: Scalar, b: object) -> Any:
    """Return whether two numbers are equal, or not; Python would find anything else unequal, and go on."""
    if expression(b) is None and not isinstance(b, Operators):
        raise BadOperand(
            op=f"comparing `{format_expr(a.expr)}`",
            expected="a number",
            found=type(b).__name__,
            loc=caller_location(),
        )
    return _binary(op, a, b)  # pyright: ignore[reportArgumentType]
