"""Declarations and scalars in the forms of `.pto` text of elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pto_wsp.builder.function import PTOFunctionBuilder
from pto_wsp.builder.names import MemorySpace
from pto_wsp.errors import RepeatedText, TextMismatch
from pto_wsp.ir.scalar import Expr, Extent, Var
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.text.expressions import read_dtype, read_expression, read_operand
from pto_wsp.text.tokens import TYPE, WORD, Cursor, Token
from pto_wsp.types.dtype import DTYPES, DType, b1, f32, i64
from pto_wsp.types.tile import TileType

SCALAR_WORDS = {"LI": 1, "MOV": 1, "ADD": 2, "SUB": 2, "MUL": 2, "DIV": 2, "CMP": 2}
"""Statements on scalars, with their operands beside the destination."""


TYPES = {**DTYPES, "u1": b1, "index": i64, "idx": i64}
_SHAPE = r"\.\.\.|<?[\dx?]+>?|\w+\(rows=\d+,\s*cols=\d+[^()]*\)"
_MEMREF = re.compile(rf"!pto\.memref<\s*(\w+)\s*,\s*({_SHAPE})\s*,\s*(\w+)\s*>")
"""The last form of a shape is how Python shows a record, which some printers write."""


@record
class MemrefType:
    """The declared type of a memref; without sizes, the function builder infers them."""

    apart = ("text",)

    text: str
    space: MemorySpace
    dtype: DType
    sizes: list[int | None] | None


class _AnyName:
    """The scope of expressions: every name may be a scalar; the builder knows which are."""

    where = "this form of text"
    is_bare = True

    def scalar(self, name: str) -> Var | None:
        return Var(name)

    def extent(self, name: str, dim: int) -> Extent:
        """Return an extent of a view or tile."""
        return Extent(name, dim)

    def has_elements(self, name: str) -> bool:
        return True

    def tile_dtype(self, name: str) -> DType | None:
        return None

    def known(self) -> Iterable[str]:
        return ()


ANY_NAME = _AnyName()


class ForeignScalars:
    """Drives a function builder through declarations and statements on scalars.

    Attributes:
        builder: of the function.
        is_workload: the function is an Orchestration.
        tiles: types of the tiles that have been declared.
        memrefs: types of the memrefs.
        scalars: types of the scalars that have been declared.
    """

    def __init__(self, builder: PTOFunctionBuilder, is_workload: bool) -> None:
        self.builder = builder
        self.is_workload = is_workload
        self.tiles: dict[str, TileType] = {}
        self.memrefs: dict[str, MemrefType] = {}
        self.scalars: dict[str, DType] = {}

    def memref(self, cursor: Cursor, name: str, place: Location) -> None:
        """Read the type of a memref that is a parameter."""
        found = self.memref_type(cursor, cursor.take(TYPE, "`!pto.memref<gm,shape,dtype>`"))
        self.memrefs[name] = found
        self.builder.at(place).memref(name, found.space, found.dtype, found.sizes)

    def memref_type(self, cursor: Cursor, token: Token) -> MemrefType:
        """Return the type that a token says; `!pto.memref` alone is one of f32."""
        if token.text == "!pto.memref":
            return MemrefType(token.text, MemorySpace.GM, f32, None)
        found = _MEMREF.fullmatch(token.text)
        if found is None:
            cursor.fail("`!pto.memref<gm,...,f32>`, or with a shape `8x8`", token=token)
        space, shape, dtype = found.groups()
        sizes = None if shape == "..." else _sizes(cursor, token, shape.strip("<>"))
        return MemrefType(token.text, _space(cursor, token, space), read_dtype(cursor, token, dtype), sizes)

    def directive(self, cursor: Cursor) -> None:
        """Read `.tile`, `.memref` or `.scalar`."""
        kind = cursor.advance()
        name = cursor.take(WORD, "a name").text
        cursor.expect(":")
        first = cursor.token
        if kind.text == ".memref":
            space = _space(cursor, first, cursor.take(WORD, "a memory space").text)
            dtype = self.type(cursor)
            self.memrefs[name] = MemrefType(f"{space.value} {dtype}", space, dtype, None)
            self.builder.at(cursor.whole).memref(name, space, dtype)
        elif kind.text == ".scalar":
            self.declare_scalar(cursor, name)
        elif kind.text == ".tile":
            dtype = self.type(cursor)
            cursor.expect("[")
            rows = cursor.integer()
            cursor.expect(",")
            cols = cursor.integer()
            cursor.expect("]")
            self.declare_tile(cursor, name, TileType(rows, cols, dtype))
        else:
            cursor.fail("`.tile`, `.memref`, `.scalar` or `.end`", token=kind)
        cursor.end()

    def declare_scalar(self, cursor: Cursor, name: str) -> None:
        """Read the type of a scalar, and declare it."""
        self.scalars[name] = self.type(cursor)
        self.builder.at(cursor.whole).scalar(name, self.scalars[name])

    def declare_tile(self, cursor: Cursor, name: str, tile: TileType) -> None:
        """Declare a tile. An Orchestration has no use for one, so its builder is not told."""
        if self.is_workload:
            if name in (*self.tiles, *self.memrefs, *self.scalars):
                raise RepeatedText(kind="name", name=name, loc=cursor.place(cursor.first))
            self.tiles[name] = tile
            return
        self.tiles[name] = tile
        space = None if tile.space is None else MemorySpace(tile.space.value)
        self.builder.at(cursor.whole).tile(name, tile.rows, tile.cols, tile.dtype, space)

    def type(self, cursor: Cursor) -> DType:
        """Take an element type."""
        token = cursor.take(WORD, "an element type")
        if token.text not in TYPES:
            cursor.fail("an element type: " + ", ".join(TYPES), token=token)
        return TYPES[token.text]

    # --- scalars ---

    def expression(self, cursor: Cursor) -> Expr:
        """Read an expression in which any name may be a scalar."""
        return read_expression(cursor, ANY_NAME)

    def scalar_statement(self, cursor: Cursor) -> None:
        """Read a statement on scalars."""
        word = cursor.advance().text
        dst = cursor.name("a scalar")
        if cursor.at(":"):
            self.written_type(cursor, dst, is_new=True)
        operands: list[Expr] = []
        for _ in range(SCALAR_WORDS[word]):
            cursor.expect(",")
            operands.append(self.typed(cursor))
        builder = self.builder.at(cursor.whole)
        if word == "CMP":
            cursor.expect(",")
            mode = cursor.take(WORD, "a comparison: EQ, NE, LT, LE, GT or GE").text
            builder.scalar_cmp(dst, operands[0], operands[1], mode)
        else:
            getattr(builder, f"scalar_{word.lower()}")(dst, *operands)

    def typed(self, cursor: Cursor) -> Expr:
        """Read an operand, and its type if it is written."""
        token = cursor.token
        found = read_operand(cursor, ANY_NAME) if token.kind == "literal" else self.expression(cursor)
        if cursor.at(":"):
            self.written_type(cursor, found.name if isinstance(found, Var) else "", is_new=False)
        return found

    def written_type(self, cursor: Cursor, name: str, *, is_new: bool) -> None:
        """Read the type behind a scalar: it is the declared one, or declares the scalar."""
        cursor.expect(":")
        token = cursor.token
        written = self.type(cursor)
        known = self.scalars.get(name)
        if known is None and is_new:
            self.scalars[name] = written
            self.builder.at(cursor.whole).scalar(name, written)
        elif known is not None and known is not written:
            what, place = f"the type of `{name}`", cursor.place(token)
            raise TextMismatch(what=what, found=str(written), expected=str(known), advice="", loc=place)


def _sizes(cursor: Cursor, token: Token, shape: str) -> list[int | None]:
    parts = re.findall(r"=(\d+)", shape)[:2] or shape.split("x")
    return [None if part == "?" else cursor.integer_of(token, part) for part in parts]


def _space(cursor: Cursor, token: Token, name: str) -> MemorySpace:
    for space in MemorySpace:
        if space.value == name:
            return space
    cursor.fail("a memory space: " + ", ".join(space.value for space in MemorySpace), token=token)
