"""Scalar operands of a builder: numbers, names and expressions, as IR."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from typing import Protocol

from pto_wsp.builder.steps import Operand
from pto_wsp.errors import BadOperand, DTypeMismatch
from pto_wsp.ir import scalar as ir
from pto_wsp.ir.scalar import Const, Element, Expr, Extent, Var
from pto_wsp.lang import arithmetic
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType, b1, f32, i64

MAX_LENGTH = 4096
"""Characters that the text of an expression can have."""


class Names(Protocol):
    """What the names in the operands of a function mean; a name that means nothing is an error at a place."""

    def scalar(self, name: str, loc: Location | None) -> Expr:
        """Return the value of a scalar."""
        ...

    def element(self, name: str, indices: tuple[Expr, ...], op: str, loc: Location | None) -> Expr:
        """Return an element of a memref or tile, as an operand of the method `op`."""
        ...

    def extent(self, name: str, dim: int, op: str, loc: Location | None) -> Expr:
        """Return how much of a dimension of a tile or memref there is, as an operand of `op`."""
        ...


_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}


_ELEMENTS = {"load": "scalar_load", "getval": "getval"}
"""Operations that assign an element of a memref or tile, and their methods."""


class ScalarReader:
    """Reads the operands of one function.

    Args:
        names: what they can mention.
    """

    def __init__(self, names: Names) -> None:
        self._names = names

    def read(self, operand: Operand, op: str, loc: Location | None) -> Expr:
        """Return an operand of the method `op` as an expression.

        Raises:
            UnknownName: a name that is not defined.
            BadOperand, DTypeMismatch: no number, or operations on types that do not have them.
        """
        if isinstance(operand, str):
            return self._text(operand, op, loc)
        if isinstance(operand, Expr):
            return self._settled(operand, op, loc)
        if arithmetic.is_number(operand):
            return arithmetic.constant(operand, loc)
        expected = "a number, the name of a scalar, or an expression"
        raise BadOperand(op=op, expected=expected, found=type(operand).__name__, loc=loc)

    def integer(self, operand: Operand, op: str, loc: Location | None) -> Expr:
        """Return an operand that must be an integer."""
        expr = self.read(operand, op, loc)
        if expr.dtype is not i64:
            raise BadOperand(op=op, expected="an integer", found=f"`{operand}`, {expr.dtype}", loc=loc)
        return expr

    def truth(self, operand: Operand, op: str, loc: Location | None) -> Expr:
        """Return an operand as a truth value: numbers are true where they are not 0."""
        return arithmetic.truth(self.read(operand, op, loc), loc)

    def compute(self, op: str, operands: Sequence[Operand], loc: Location | None) -> Expr:
        """Return what a step assigns: its operand, or an operation. Integers are divided toward zero."""
        if op in _ELEMENTS:
            name, *indices = operands
            found = tuple(self.integer(index, _ELEMENTS[op], loc) for index in indices)
            return self._names.element(str(name), found, _ELEMENTS[op], loc)
        values = [self.read(operand, f"scalar_{op}", loc) for operand in operands]
        if op in ("li", "mov"):
            return values[0]
        a, b = values
        if op == "div" and a.dtype is i64 and b.dtype is i64:
            return _truncated(a, b, loc)
        return arithmetic.combine(op, a, b, loc)

    def _settled(self, expr: Expr, op: str, loc: Location | None) -> Expr:
        """Give the names in an expression their values."""

        def known(part: Expr) -> Expr | None:
            match part:
                case Var(name=name, loc=own):
                    return self._names.scalar(name, own or loc)
                case Element(name=name, indices=indices, loc=own):
                    found = tuple(self._settled(index, op, loc) for index in indices)
                    return self._names.element(name, found, op, own or loc)
                case Extent(name=name, dim=dim, loc=own):
                    return self._names.extent(name, dim, op, own or loc)
                case _:
                    return None

        return ir.substitute(expr, known)

    def _text(self, text: str, op: str, loc: Location | None) -> Expr:
        if text.isidentifier():
            return self._names.scalar(text, loc)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text[: MAX_LENGTH + 1].strip(), mode="eval")
            if len(text) <= MAX_LENGTH:
                return self._node(tree.body, op, loc)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        shown = text if len(text) < 60 else text[:60] + "..."
        expected = "a number, the name of a scalar, or an expression of them"
        raise BadOperand(op=op, expected=expected, found=f'"{shown}"', loc=loc)

    def _node(self, node: ast.expr, op: str, loc: Location | None) -> Expr:
        """Return one node of an expression; raises ValueError for what expressions do not have."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return arithmetic.constant(value, loc)
            case ast.Name(id="true" | "false" as name):
                return arithmetic.constant(name == "true", loc)
            case ast.Name(id=name):
                return self._names.scalar(name, loc)
            case ast.BinOp(left=left, op=sign, right=right):
                return self._two(_BINARY.get(type(sign)), left, right, op, loc)
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self._two(_BINARY.get(type(sign)), left, right, op, loc)
            case ast.BoolOp(op=sign, values=values):
                name = "and" if isinstance(sign, ast.And) else "or"
                found = [self._node(value, op, loc) for value in values]
                result = found[0]
                for value in found[1:]:
                    result = arithmetic.choose(name, result, value, loc)
                return result
            case ast.UnaryOp(op=sign, operand=operand):
                return _unary(sign, self._node(operand, op, loc), loc)
            case ast.Subscript() | ast.Call():
                return self._of_names(node, op, loc)
            case _:
                raise ValueError(type(node).__name__)

    def _of_names(self, node: ast.Subscript | ast.Call, op: str, loc: Location | None) -> Expr:
        """Return `memref[row, col]`, `dim(tile, 0)` or a function of scalars."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=place):
                parts = place.elts if isinstance(place, ast.Tuple) else [place]
                indices = tuple(self._node(part, op, loc) for part in parts)
                return self._names.element(name, indices, op, loc)
            case ast.Call(
                func=ast.Name(id="dim"), args=[ast.Name(id=name), ast.Constant(value=int() as dim)]
            ) if dim in (0, 1):
                return self._names.extent(name, dim, op, loc)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name != "dim":
                return _applied(name, [self._node(arg, op, loc) for arg in args], loc)
            case _:
                raise ValueError(type(node).__name__)

    def _two(self, name: str | None, left: ast.expr, right: ast.expr, op: str, loc: Location | None) -> Expr:
        if name is None:
            raise ValueError("an operator that expressions do not have")
        a, b = self._node(left, op, loc), self._node(right, op, loc)
        return arithmetic.combine(name, a, b, loc)


def _applied(name: str, args: Sequence[Expr], loc: Location | None) -> Expr:
    """Return a function of scalars, as `.pto` text calls them."""
    match name, args:
        case "min" | "max" | "within", [a, b]:
            return arithmetic.combine(name, a, b, loc)
        case "select", [condition, then, other]:
            return arithmetic.select(arithmetic.truth(condition, loc), then, other, loc)
        case "not", [a]:
            return arithmetic.invert(arithmetic.truth(a, loc), loc)
        case "invert", [a]:
            return arithmetic.complement(a, loc)
        case "b1", [a]:
            return arithmetic.truth(a, loc)
        case "i64", [a]:
            return a if a.dtype is i64 else ir.Unary("i64", a, loc)
        case "f32", [a]:
            return arithmetic.convert(a, f32, name, loc)
        case _:
            raise ValueError(f"no function {name} of {len(args)}")


def _unary(sign: ast.unaryop, a: Expr, loc: Location | None) -> Expr:
    match sign:
        case ast.USub():
            return arithmetic.negate(a, loc)
        case ast.Not():
            return arithmetic.invert(arithmetic.truth(a, loc), loc)
        case ast.Invert():
            return arithmetic.complement(a, loc)
        case _:
            return a


def _truncated(a: Expr, b: Expr, loc: Location | None) -> Expr:
    """Return the quotient of integers, rounded toward zero."""
    plain = arithmetic.combine("floordiv", a, b, loc)
    differ = arithmetic.combine("lt", a, Const(0), loc)
    if not (isinstance(b, Const) and b.value > 0):
        differ = arithmetic.combine("ne", differ, arithmetic.combine("lt", b, Const(0), loc), loc)
    opposite = arithmetic.combine("floordiv", arithmetic.negate(a, loc), b, loc)
    rounded_up = arithmetic.negate(opposite, loc)
    if isinstance(differ, Const):
        return rounded_up if differ.value else plain
    return arithmetic.select(differ, rounded_up, plain, loc)


def fitted(expr: Expr, dtype: DType, op: str, loc: Location | None) -> Expr:
    """Return a value as the type of the variable that takes it.

    Raises:
        DTypeMismatch: a float for an integer.
    """
    if dtype is b1:
        return arithmetic.truth(expr, loc)
    if dtype is not f32 and expr.dtype.is_float:
        hint = "declare it as f32, or give an integer"
        raise DTypeMismatch(op=op, expected=str(i64), found=str(expr.dtype), loc=loc, hint=hint)
    if expr.dtype is b1:
        expr = arithmetic.select(expr, Const(1), Const(0), loc)
    return arithmetic.convert(expr, dtype if dtype is f32 else i64, op, loc)
