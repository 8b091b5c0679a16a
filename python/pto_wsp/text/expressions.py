"""Scalar expressions and regions of `.pto` text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from pto_wsp.ir.core import DimSelect, Full, Index, Merged, Range, Region, Rows, TileRange
from pto_wsp.ir.scalar import (
    BINARY_CALLS,
    BINARY_OPS,
    COMPARISONS,
    PRECEDENCE,
    TIGHTEST,
    UNARY_CALLS,
    ArgExtent,
    Binary,
    Const,
    Element,
    Expr,
    Extent,
    Select,
    TileElement,
    Unary,
    element_dtype,
)
from pto_wsp.support.record import replace
from pto_wsp.text.tokens import LITERAL, NAME, NUMBER, TYPE, WORD, Cursor, Token
from pto_wsp.types.dtype import DTYPES, DType, b1, f32, i64
from pto_wsp.types.space import TILE_SPACES, Space
from pto_wsp.types.tile import TileType

_OPERATORS = {sign: op for op, sign in BINARY_OPS.items() if op in PRECEDENCE}
_CALLS = {**dict.fromkeys(BINARY_CALLS, 2), "select": 3, **dict.fromkeys(UNARY_CALLS, 1)}
LITERALS = {
    "true": (True, b1),
    "false": (False, b1),
    "inf": (math.inf, f32),
    "nan": (math.nan, f32),
}


class Scope(Protocol):
    """The names that expressions of a function can use.

    Attributes:
        where: the function, for errors.
        is_bare: whether names may stand without `%`.
    """

    where: str
    is_bare: bool

    def scalar(self, name: str) -> Expr | None:
        """Return a scalar, or None if there is none of that name."""
        ...

    def extent(self, name: str, dim: int) -> Extent | ArgExtent | None:
        """Return an extent of a view, tile or argument, or None if there can be none of that name."""
        ...

    def has_elements(self, name: str) -> bool:
        """Return whether `name` is a tensor or view."""
        ...

    def tile_dtype(self, name: str) -> DType | None:
        """Return the element type of a tile, or None if there is none of that name."""
        ...

    def known(self) -> Iterable[str]:
        """Return every name, for a hint."""
        ...


def read_expression(cursor: Cursor, scope: Scope, level: int = 0) -> Expr:
    """Read an expression whose operators bind at least as tight as `level`.

    Raises:
        BadText, UnknownText, TextLimit: at the token that cannot be.
    """
    first = cursor.token
    cursor.nested(1)
    depth = 1
    if cursor.accept("("):
        found = read_expression(cursor, scope)
        cursor.expect(")")
    else:
        found = _operand(cursor, scope)
    while True:
        op = _OPERATORS.get(cursor.token.text)
        if op is None or PRECEDENCE[op] < level:
            break
        cursor.skip()
        right = read_expression(cursor, scope, PRECEDENCE[op] + 1)
        found = Binary(op, found, right, cursor.since(first))
        cursor.nested(1)
        depth += 1
        if op in COMPARISONS:
            _refuse_chain(cursor)
    cursor.nested(-depth)
    return found


def _refuse_chain(cursor: Cursor) -> None:
    op = _OPERATORS.get(cursor.token.text)
    if op in COMPARISONS:
        cursor.fail("the end of a comparison", "put a comparison that is compared in parentheses")


def _operand(cursor: Cursor, scope: Scope) -> Expr:
    first = cursor.token
    match first.kind:
        case "name":
            return _named(cursor, scope)
        case "number":
            return read_number(cursor)
        case "word" if first.text in LITERALS:
            cursor.skip()
            value, dtype = LITERALS[first.text]
            return Const(value, dtype, cursor.place(first))
        case "word" if first.text == "dim":
            return _extent(cursor, scope)
        case "word" if first.text in _CALLS:
            return _call(cursor, scope)
    if first.kind == WORD and scope.is_bare and first.text not in _OPERATORS:
        return _mentioned(cursor, scope, first.text)
    if first.text == "-":
        return _negative(cursor, scope)
    cursor.fail("an expression", "names begin with `%`" if first.kind == WORD else "")


def _negative(cursor: Cursor, scope: Scope) -> Expr:
    first = cursor.advance()
    following = cursor.token
    if following.kind == NUMBER or following.text in ("inf", "nan"):
        return read_number(cursor, first)
    cursor.nested(2)
    operand = read_expression(cursor, scope, TIGHTEST)
    cursor.nested(-2)
    return Unary("neg", operand, cursor.since(first))


def read_number(cursor: Cursor, minus: Token | None = None) -> Const:
    """Read a number, after a minus sign if there was one."""
    token = cursor.advance()
    return number_of(cursor, token, token.text, minus)


def number_of(cursor: Cursor, token: Token, text: str, minus: Token | None = None) -> Const:
    """Return the literal that `text`, part of a token, is.

    Raises:
        BadText: it needs more than 64 bits, or is beyond every floating-point number.
    """
    place = cursor.since(minus or token)
    negative = minus is not None
    if text.removeprefix("-").isdecimal():
        negative = negative or text[0] == "-"
        return Const(cursor.integer_of(token, text.removeprefix("-"), -1 if negative else 1), i64, place)
    value = float(text)
    if math.isinf(value) and text != "inf":
        cursor.fail("a number that a floating-point type can hold", token=token)
    if math.isnan(value):
        value = math.nan
    return Const(-value if negative else value, f32, place)


def _named(cursor: Cursor, scope: Scope) -> Expr:
    return _mentioned(cursor, scope, cursor.token.text[1:])


def _mentioned(cursor: Cursor, scope: Scope, name: str) -> Expr:
    """Read a scalar or an element of a tensor, whose name is the next token."""
    token = cursor.advance()
    if cursor.at("["):
        tile = scope.tile_dtype(name)
        if tile is not None:
            indices = tuple(_listed(cursor, scope))
            return TileElement(name, indices, element_dtype(tile), cursor.since(token))
        if not scope.has_elements(name):
            cursor.unknown("tensor", name, scope.where, scope.known(), token)
        return Element(name, tuple(_listed(cursor, scope)), cursor.since(token))
    found = scope.scalar(name)
    if found is None:
        cursor.unknown("scalar", name, scope.where, scope.known(), token)
    return replace(found, loc=cursor.place(token))


def _listed(cursor: Cursor, scope: Scope) -> list[Expr]:
    cursor.expect("[")
    found: list[Expr] = []
    while not cursor.accept("]"):
        if found:
            cursor.expect(",")
        found.append(read_expression(cursor, scope))
    return found


def _extent(cursor: Cursor, scope: Scope) -> Expr:
    first = cursor.advance()
    cursor.expect("(")
    token = cursor.token
    name = cursor.name()
    cursor.expect(",")
    dim = cursor.take(NUMBER, "the number of a dimension")
    number = cursor.integer_of(dim, dim.text)
    cursor.expect(")")
    found = scope.extent(name, number)
    if found is None:
        cursor.unknown("argument", name, scope.where, scope.known(), token)
    return replace(found, loc=cursor.since(first))


def _call(cursor: Cursor, scope: Scope) -> Expr:
    first = cursor.advance()
    cursor.nested(2)
    cursor.expect("(")
    args = [read_expression(cursor, scope)]
    for _ in range(_CALLS[first.text] - 1):
        cursor.expect(",")
        args.append(read_expression(cursor, scope))
    cursor.expect(")")
    cursor.nested(-2)
    place = cursor.since(first)
    if len(args) == 1:
        return Unary(first.text, args[0], place)
    if len(args) == 2:
        return Binary(first.text, args[0], args[1], place)
    return Select(args[0], args[1], args[2], place)


def read_operand(cursor: Cursor, scope: Scope) -> Expr:
    """Read a scalar operand of an instruction: `%name`, `%literal`, or an expression in parentheses."""
    token = cursor.token
    if token.kind == LITERAL:
        cursor.skip()
        return number_of(cursor, token, token.text[1:])
    if token.kind == NAME or token.text == "(":
        return read_expression(cursor, scope, TIGHTEST)
    cursor.fail("a scalar: `%name`, a literal like `%1.0`, or an expression in parentheses")


def read_region(cursor: Cursor, scope: Scope, loops: Iterable[str] = ()) -> Region:
    """Read `%tensor[...]`; `loops` are the names that stand for the range of a tiles loop."""
    first = cursor.token
    name = cursor.name("a tensor")
    if not scope.has_elements(name):
        cursor.unknown("tensor", name, scope.where, scope.known(), first)
    cursor.expect("[")
    dims: list[DimSelect] = []
    while not cursor.accept("]"):
        if dims:
            cursor.expect(",")
        dims.append(_dim(cursor, scope, loops))
    return Region(name, tuple(dims), cursor.since(first))


def _dim(cursor: Cursor, scope: Scope, loops: Iterable[str]) -> DimSelect:
    token = cursor.token
    if cursor.accept(":"):
        return Full()
    if cursor.accept("merged"):
        return Merged()
    if cursor.accept("at"):
        cursor.expect("(")
        at = read_expression(cursor, scope)
        cursor.expect(")")
        return Index(at)
    if cursor.accept("rows"):
        cursor.expect("(")
        indices = cursor.name("the tensor of indices")
        cursor.expect(",")
        start, extent = _range(cursor, scope)
        cursor.expect(")")
        return Rows(indices, start, extent)
    if token.kind == NAME and token.text[1:] in loops and cursor.ahead(1).text in (",", "]"):
        return TileRange(cursor.name())
    return Range(*_range(cursor, scope))


def _range(cursor: Cursor, scope: Scope) -> tuple[Expr, Expr]:
    start = read_expression(cursor, scope)
    cursor.expect(":+", "a range is `start :+ extent`, an index `at(i)`, a whole dimension `:`")
    return start, read_expression(cursor, scope)


def read_space(cursor: Cursor, token: Token, text: str, known: Sequence[Space]) -> Space | None:
    """Return the memory that a part of a type names, None where it is empty."""
    found = next((space for space in known if space.value == text), None)
    if text and found is None:
        cursor.fail("a memory: " + ", ".join(space.value for space in known), token=token)
    return found


TILES: dict[str, TileType] = {}


def read_tile(cursor: Cursor) -> TileType:
    """Read `!pto.tile<RxCxdtype>`.

    Raises:
        BadText: it is another type.
    """
    return tile_type(cursor, cursor.take(TYPE, "a type `!pto.tile<RxCxdtype>`"))


def tile_type(cursor: Cursor, token: Token) -> TileType:
    """Return the type that a token says.

    Raises:
        BadText: it is another type.
    """
    found = TILES.get(token.text)
    if found is None:
        whole, _, space = token.text.removeprefix("!pto.tile<").removesuffix(">").partition(",")
        inside = whole.split("x")
        if len(inside) != 3 or not token.text.startswith("!pto.tile<"):
            cursor.fail("a type `!pto.tile<RxCxdtype>`", token=token)
        rows, cols = (cursor.integer_of(token, size.strip()) for size in inside[:2])
        dtype = read_dtype(cursor, token, inside[2].strip())
        found = TileType(rows, cols, dtype, read_space(cursor, token, space.strip(), TILE_SPACES))
        TILES[token.text] = found
    return found


def read_constant(cursor: Cursor, kind: type) -> str | int | bool:
    """Read a constant attribute: a word, `true` or `false`, or an integer."""
    if kind is bool:
        return cursor.word(("true", "false"), "`true` or `false`") == "true"
    return cursor.integer() if kind is int else cursor.take(WORD, "a word").text


def read_dtype(cursor: Cursor, token: Token, name: str) -> DType:
    """Return the element type called `name`, part of a token.

    Raises:
        BadText: there is none.
    """
    found = DTYPES.get(name)
    if found is None:
        cursor.fail("an element type: " + ", ".join(DTYPES), token=token)
    return found
