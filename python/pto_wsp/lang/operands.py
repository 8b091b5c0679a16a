"""What kernels and workloads compute with: scalars, tiles, and the operators of tiles and views.

A scalar is a value that exists only when the program runs; its operators make expressions of the IR. A kernel
is never executed by Python, so the operators of tiles and views exist for type checkers and editors. They
raise an error outside a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pto_wsp.errors import BadOperand, OutsideWorkload, RunTimeCondition, RunTimeNumber
from pto_wsp.ir.scalar import Const, Expr, format_expr
from pto_wsp.lang import arithmetic
from pto_wsp.lang.annotations import ScalarAnnotation, TileAnnotation, as_tuple
from pto_wsp.location import caller_location
from pto_wsp.types.dtype import b1


class Scalar:
    """A size, loop variable or scalar parameter of a workload, or an expression of them.

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

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse to be an index of an array of numpy, or an array."""
        self._no_number("pass the array to the program, as a parameter `Tensor[dtype, size]`, and index that")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: object) -> Any:
        """Compute with scalars of numpy as with numbers."""
        op = _UFUNCS.get(ufunc.__name__)
        if op is None or method != "__call__" or options or any(expression(i) is None for i in inputs):
            self._no_number()
        return _binary(op, *inputs)

    def _no_number(self, hint: str | None = None) -> NoReturn:
        raise RunTimeNumber(expr=format_expr(self.expr), loc=caller_location(), hint=hint)


def _only_in_kernels(what: str) -> NoReturn:
    raise OutsideWorkload(what=what, where="kernel", loc=caller_location())


class Operators:
    """Operators of tiles and views. `[R, 1]` and `[1, C]` operands are broadcast."""

    def __add__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __radd__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __sub__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __rsub__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __mul__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __rmul__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __truediv__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __rtruediv__(self, other: Operand) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __matmul__(self, other: Operators) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __neg__(self) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __pos__(self) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __abs__(self) -> Tile:
        _only_in_kernels("arithmetic on tiles and tensors")

    def __lt__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __le__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __gt__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __ge__(self, other: Operand) -> Tile:
        _only_in_kernels("comparing tiles and tensors")

    def __eq__(self, other: Operand) -> Tile:  # pyright: ignore[reportIncompatibleMethodOverride]
        _only_in_kernels("comparing tiles and tensors")

    def __ne__(self, other: Operand) -> Tile:  # pyright: ignore[reportIncompatibleMethodOverride]
        _only_in_kernels("comparing tiles and tensors")

    __hash__ = object.__hash__

    if TYPE_CHECKING:
        # Bits of integer tiles and masks; the others are of elements of integer tensors, which are scalars.

        def __floordiv__(self, other: Operand) -> Tile: ...

        def __rfloordiv__(self, other: Operand) -> Tile: ...

        def __mod__(self, other: Operand) -> Tile: ...

        def __rmod__(self, other: Operand) -> Tile: ...

        def __and__(self, other: Operand) -> Tile: ...

        def __rand__(self, other: Operand) -> Tile: ...

        def __or__(self, other: Operand) -> Tile: ...

        def __ror__(self, other: Operand) -> Tile: ...

        def __xor__(self, other: Operand) -> Tile: ...

        def __rxor__(self, other: Operand) -> Tile: ...

        def __lshift__(self, other: Operand) -> Tile: ...

        def __rlshift__(self, other: Operand) -> Tile: ...

        def __rshift__(self, other: Operand) -> Tile: ...

        def __rrshift__(self, other: Operand) -> Tile: ...

        def __invert__(self) -> Tile: ...

        def min(self, other: Operand) -> Any:
            """The smaller of an element and a number."""
            ...

        def max(self, other: Operand) -> Any:
            """The larger of an element and a number."""
            ...

        def where(self, then: Operand, other: Operand) -> Any:
            """Choose by an element that is a truth value."""
            ...

        @property
        def rows(self) -> Scalar:
            """Valid rows."""
            ...

        @property
        def cols(self) -> Scalar:
            """Valid columns."""
            ...

        @property
        def shape(self) -> tuple[Scalar, ...]:
            """Valid extents."""
            ...


class Tile(Operators):
    """`Tile[rows, cols, dtype]`: a tile of at most rows x cols elements; the rest of it is not valid.

    As the annotation of a kernel parameter it is a view of a tensor that the body uses as a whole; an
    `In[Tile[...]]` that the body computes with is loaded once, at the start.
    """

    def __init__(self) -> None:
        _only_in_kernels("making a tile")

    def __class_getitem__(cls, item: object) -> Any:
        return TileAnnotation(as_tuple(item))

    if TYPE_CHECKING:

        @property
        def T(self) -> Tile:
            """The transposed tile; free of cost as an operand of `pto.matmul`."""
            ...

        def __getitem__(self, index: object) -> Tile:
            """A part of a tile that is a kernel parameter."""
            ...


Number = Operand = Scalar | float | Operators
"""What operators take: of scalars, a scalar, a Python number or an element of a tensor."""


def expression(value: object) -> Expr | None:
    """Return a scalar or number as an expression, or None if it is something else."""
    if isinstance(value, Scalar):
        return value.expr
    return arithmetic.constant(value, caller_location()) if arithmetic.is_number(value) else None


def integer_constant(expr: Expr) -> int | None:
    """Return the value of an integer literal, or None for any other expression."""
    return int(expr.value) if isinstance(expr, Const) and expr.dtype is not b1 else None


_UFUNCS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "minimum": "min",
    "maximum": "max",
    "bitwise_and": "bitand",
    "bitwise_or": "bitor",
    "bitwise_xor": "bitxor",
    "left_shift": "lshift",
    "right_shift": "rshift",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
}
"""What the functions of numpy on two numbers are here."""


def _binary(op: str, a: Number, b: Number) -> Any:
    left, right = expression(a), expression(b)
    if text := next((operand for operand in (a, b) if isinstance(operand, str)), None):
        expected = f"a number; a size in arithmetic is a parameter, `{text}: DenseDyn`"
        raise BadOperand(op="arithmetic", expected=expected, found=repr(text), loc=caller_location())
    if left is None or right is None:
        return NotImplemented
    return Scalar(arithmetic.combine(op, left, right, caller_location()))


def _comparison(op: str, a: Scalar, b: object) -> Any:
    """Compare two numbers; other operands are errors, which Python would silently find unequal."""
    if expression(b) is None and not isinstance(b, Operators):
        raise BadOperand(
            op=f"comparing `{format_expr(a.expr)}`",
            expected="a number",
            found=type(b).__name__,
            loc=caller_location(),
        )
    return _binary(op, a, b)  # pyright: ignore[reportArgumentType]


def kind_of(value: object) -> str:
    """Return what a value is, for messages."""
    if isinstance(value, (int, float, str)):
        return repr(value)
    return "a truth value or float" if isinstance(value, Scalar) else type(value).__name__
