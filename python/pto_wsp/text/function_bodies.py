"""What the bodies of kernels and of workloads have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from pto_wsp.errors import RepeatedText, TextLimit, TextMismatch
from pto_wsp.ir.scalar import Expr, Extent, Var
from pto_wsp.text.expressions import read_dtype, read_expression
from pto_wsp.text.tokens import END, WORD, Cursor, Source, Token
from pto_wsp.types.dtype import DType

MAX_BLOCKS = 64

T = TypeVar("T")


class Body(Generic[T]):
    """Reads the body of a function, and is the scope of its expressions.

    Attributes:
        where: the function, for errors.
        scalars: types of what expressions can name.
        tensors: names of tensors or views.
    """

    def __init__(self, source: Source, where: str) -> None:
        self.source = source
        self.where = where
        self.is_bare = False
        self.scalars: dict[str, DType] = {}
        self.tensors: set[str] = set()
        self._depth = 0

    @abstractmethod
    def statement(self, cursor: Cursor) -> T | None:
        """Read one statement, and the blocks inside it; a declaration gives None."""

    # --- the scope of expressions ---

    def scalar(self, name: str) -> Expr | None:
        """Return a scalar, or None if there is none of that name."""
        return Var(name, self.scalars[name]) if name in self.scalars else None

    def extent(self, name: str, dim: int) -> Extent:
        """Return an extent of a view or tile."""
        return Extent(name, dim)

    def has_elements(self, name: str) -> bool:
        """Return whether `name` is a tensor or view."""
        return name in self.tensors

    def tile_dtype(self, name: str) -> DType | None:
        """Return the element type of a tile, or None if there is none of that name."""
        return None

    def known(self) -> Iterable[str]:
        """Return every name, for a hint."""
        return {*self.scalars, *self.tensors}

    # --- blocks ---

    def whole(self) -> tuple[T, ...]:
        """Read all statements, and the brace behind them."""
        found = self.block(("return", "}"))
        if self.source.accept_lines("return", "}"):
            return found
        cursor = self.source.statement()
        if cursor.accept("return"):
            cursor.end()
            self.source.skip_blank()
            cursor = self.source.statement()
        cursor.expect("}")
        cursor.end()
        return found

    def block(self, ends: tuple[str, ...]) -> tuple[T, ...]:
        """Read statements up to a line that begins with one of `ends`, which is left."""
        source = self.source
        self._depth += 1
        found: list[T] = []
        while True:
            source.skip_blank()
            line = source.line
            cursor = source.statement()
            if cursor.kind == END or cursor.text in ends:
                source.line = line
                break
            if self._depth > MAX_BLOCKS:
                limit = f"{MAX_BLOCKS} levels are read"
                raise TextLimit(what="blocks nested too deep", limit=limit, loc=cursor.whole)
            stmt = self.statement(cursor)
            if stmt is not None:
                found.append(stmt)
        self._depth -= 1
        return tuple(found)

    def close(self, *ends: str) -> str:
        """Take the line that ends a block."""
        cursor = self.source.statement()
        found = cursor.word(ends, " or ".join(f"`{end}`" for end in ends))
        cursor.end()
        return found

    def choice(self, cursor: Cursor) -> tuple[Expr, tuple[T, ...], tuple[T, ...]]:
        """Read an IF: its condition and its two blocks."""
        cursor.skip()
        condition = read_expression(cursor, self)
        cursor.expect(":")
        cursor.expect("u1")
        cursor.end()
        then = self.block(("ELSE", "ENDIF"))
        other: tuple[T, ...] = ()
        if self.close("ELSE", "ENDIF") == "ELSE":
            other = self.block(("ENDIF",))
            self.close("ENDIF")
        return condition, then, other

    # --- statements ---

    def value(self, cursor: Cursor, name: str) -> Expr:
        """Read the value that is assigned to `name`, its type and the end of the line."""
        value = read_expression(cursor, self)
        cursor.expect(":")
        written = cursor.take(WORD, "an element type")
        read_dtype(cursor, written, written.text)
        self.require_type(f"the value of `{name}`", written.text, str(value.dtype), cursor, written)
        cursor.end()
        return value

    def require_type(self, what: str, found: str, expected: str, cursor: Cursor, token: Token) -> None:
        """Refuse a type that is written and is not what follows from the rest of the text."""
        if found != expected:
            place = cursor.since(token)
            raise TextMismatch(what=what, found=found, expected=expected, advice="", loc=place)


def indexed(cursor: Cursor) -> None:
    """Take the `:idx` behind a bound."""
    cursor.expect(":")
    cursor.expect("idx")


def read_ranges(cursor: Cursor) -> tuple[int | None, int | None, tuple[tuple[int, int], ...]]:
    """Read what binary expansion is told."""
    found: dict[str, int] = {}
    levels: dict[int, int] = {}
    while cursor.token.kind == WORD:
        token = cursor.token
        key = cursor.word(("max_range", "min_range", "tile_levels"), "a range of the loop")
        if key in found or (key == "tile_levels" and levels):
            raise RepeatedText(kind="range", name=key, loc=cursor.place(token))
        cursor.expect("=")
        if key == "tile_levels":
            levels = _levels(cursor)
        else:
            found[key] = cursor.integer()
    return found.get("max_range"), found.get("min_range"), tuple(levels.items())


def _levels(cursor: Cursor) -> dict[int, int]:
    cursor.expect("{")
    found: dict[int, int] = {}
    while True:
        token = cursor.token
        block = cursor.integer("a size of blocks")
        if block in found:
            raise RepeatedText(kind="level", name=str(block), loc=cursor.place(token))
        cursor.expect(":")
        found[block] = cursor.integer("rows of a tile")
        if cursor.accept("}"):
            return found
        cursor.expect(",")
