"""Kernel functions of `.pto` text."""

from __future__ import annotations

from pto_wsp.errors import RepeatedText
from pto_wsp.ir import kernel as k
from pto_wsp.ir.kernel_printer import signature_text
from pto_wsp.ir.scalar import Expr
from pto_wsp.isa.attributes import ATTRIBUTES
from pto_wsp.isa.table import BY_MNEMONIC, Instruction
from pto_wsp.support.record import replace
from pto_wsp.text.expressions import (
    LITERALS,
    read_constant,
    read_dtype,
    read_expression,
    read_operand,
    read_region,
    read_tile,
)
from pto_wsp.text.function_bodies import Body, indexed
from pto_wsp.text.native import unquoted
from pto_wsp.text.refused import refuse_composed, refuse_known
from pto_wsp.text.tokens import NAME, STRING, WORD, Cursor, Source
from pto_wsp.types.dtype import DType, i64
from pto_wsp.types.tile import ScalarType, TileType

_BLOCK_WORDS = ("FOR", "WHILE", "IF")
_MOVES = ("tload", "mgather", "tstore", "mscatter")
_STATEMENTS = (*_BLOCK_WORDS, "CALL", "PRINT", "CHECK", "tstore", "mscatter", "tprefetch", "return")


def read_kernel_body(source: Source, function: k.KernelFunction) -> k.KernelFunction:
    """Return a function with the declarations and statements of its body, and read the brace after them."""
    reader = _KernelBody(source, function)
    body = reader.whole()
    tiles, scalars = tuple(reader.tiles.items()), tuple(reader.declared.items())
    return replace(function, tiles=tiles, scalars=scalars, body=body)


class _KernelBody(Body[k.Stmt]):
    """Reads the body of a kernel.

    Attributes:
        tiles: the declared tiles.
        types: the same, as text.
        declared: the declared scalars.
    """

    def __init__(self, source: Source, function: k.KernelFunction) -> None:
        super().__init__(source, f"kernel `{function.name}`")
        self.tiles: dict[str, TileType] = {}
        self.types: dict[str, str] = {}
        self.declared: dict[str, ScalarType] = {}
        self.scalars[k.BLOCK_IDX] = i64
        for param in function.params:
            if isinstance(param.type, ScalarType):
                self.scalars[param.name] = param.type.dtype
            else:
                self.tensors.add(param.name)

    def tile_dtype(self, name: str) -> DType | None:
        """Return the element type of a tile, or None if there is none of that name."""
        tile = self.tiles.get(name)
        return None if tile is None else tile.dtype

    def statement(self, cursor: Cursor) -> k.Stmt | None:
        if cursor.kind == NAME:
            return self.assignment(cursor)
        match cursor.text:
            case "FOR":
                return self.loop(cursor)
            case "WHILE":
                return self.repeat(cursor)
            case "IF":
                return k.If(*self.choice(cursor), cursor.whole)
            case "CALL":
                return self.call(cursor)
            case "tstore" | "mscatter":
                return self.store(cursor)
            case "tprefetch":
                return self.prefetch(cursor)
            case "PRINT":
                return self.print(cursor)
            case "CHECK":
                return self.check(cursor)
        refuse_composed(cursor)
        refuse_known(cursor)
        cursor.word(_STATEMENTS, "a statement")
        cursor.fail("a statement", token=cursor.first)

    def assignment(self, cursor: Cursor) -> k.Stmt | None:
        name = cursor.name()
        cursor.expect("=")
        if cursor.kind == WORD:
            word = cursor.text
            row = BY_MNEMONIC.get(word)
            if word in ("tload", "mgather"):
                return self.load(cursor, name)
            if row is not None:
                return self.instruction(cursor, name, row)
            if word in ("alloc_tile", "alloc_scalar"):
                return self.declare(cursor, name)
            if word not in LITERALS and cursor.ahead(1).text != "(":
                refuse_composed(cursor)
                refuse_known(cursor)
                cursor.word((*BY_MNEMONIC, "alloc_tile", "alloc_scalar"), "an instruction")
        return self.assign(cursor, name)

    def declare(self, cursor: Cursor, name: str) -> None:
        kind = cursor.advance().text
        if name in self.tiles or name in self.scalars or name in self.tensors:
            raise RepeatedText(kind="name", name=name, loc=cursor.place(cursor.first))
        cursor.expect(":")
        if kind == "alloc_tile":
            self.tiles[name] = read_tile(cursor)
            self.types[name] = f"!pto.{self.tiles[name]}"
        else:
            written = cursor.take(WORD, "an element type")
            self.declared[name] = ScalarType(read_dtype(cursor, written, written.text))
            self.scalars[name] = self.declared[name].dtype
        cursor.end()

    def assign(self, cursor: Cursor, name: str) -> k.Assign:
        dtype = self.declared.get(name)
        if dtype is None:
            cursor.unknown("scalar", name, self.where, self.declared, cursor.first)
        return k.Assign(name, self.value(cursor, name), cursor.whole)

    # --- instructions ---

    def tile(self, cursor: Cursor) -> str:
        name = cursor.name("a tile")
        if name not in self.tiles:
            cursor.unknown("tile", name, self.where, self.tiles, cursor.ahead(-1))
        return name

    def load(self, cursor: Cursor, name: str) -> k.Load:
        if name not in self.tiles:
            cursor.unknown("tile", name, self.where, self.tiles, cursor.first)
        has_rows = cursor.text == "mgather"
        cursor.skip()
        region = read_region(cursor, self)
        rows = self.rows(cursor) if has_rows else None
        cursor.expect(":")
        written = cursor.token
        read_tile(cursor)
        if written.text != self.types[name]:
            self.require_type(f"the type of `{name}`", written.text, self.types[name], cursor, written)
        cursor.end()
        return k.Load(name, region, cursor.whole, rows)

    def store(self, cursor: Cursor) -> k.Store:
        has_rows = cursor.text == "mscatter"
        cursor.skip()
        name = self.tile(cursor)
        cursor.expect(",")
        region = read_region(cursor, self)
        rows = self.rows(cursor) if has_rows else None
        cursor.end()
        return k.Store(region, name, cursor.whole, rows)

    def prefetch(self, cursor: Cursor) -> k.Prefetch:
        cursor.skip()
        region = read_region(cursor, self)
        rows = self.rows(cursor) if cursor.token.text == "," else None
        cursor.end()
        return k.Prefetch(region, cursor.whole, rows)

    def print(self, cursor: Cursor) -> k.Print:
        cursor.advance()
        parts: list[k.Words | str | Expr] = []
        while not parts or cursor.accept(","):
            token = cursor.token
            if token.kind == STRING:
                parts.append(k.Words(unquoted(cursor)))
            elif token.kind == NAME and token.text[1:] in self.tiles:
                parts.append(cursor.name())
            else:
                parts.append(read_expression(cursor, self))
        cursor.end()
        return k.Print(tuple(parts), cursor.whole)

    def check(self, cursor: Cursor) -> k.Assert:
        cursor.advance()
        condition = read_expression(cursor, self)
        cursor.expect(",")
        message = unquoted(cursor)
        cursor.end()
        return k.Assert(condition, message, cursor.whole)

    def rows(self, cursor: Cursor) -> str:
        cursor.expect(",")
        return self.tile(cursor)

    def instruction(self, cursor: Cursor, dst: str, row: Instruction) -> k.Instr:
        if dst not in self.tiles:
            cursor.unknown("tile", dst, self.where, self.tiles, cursor.first)
        cursor.skip()
        tiles: list[str] = []
        scalars: list[Expr] = []
        num_tiles = row.form.num_tiles
        for number in range(num_tiles + row.form.num_scalars):
            if number:
                cursor.expect(",")
            if number < num_tiles:
                tiles.append(self.tile(cursor))
            else:
                scalars.append(read_operand(cursor, self))
        attrs = self.attributes(cursor) if cursor.at("{") else ()
        cursor.expect(":")
        instr = k.Instr(row.name, dst, tuple(tiles), tuple(scalars), attrs, cursor.whole)
        written = cursor.token
        found = cursor.rest()
        kinds = [self.types[name] for name in tiles] + [s.dtype.name for s in scalars]
        expected = signature_text(row.form, kinds, self.types[dst])
        if found != expected.replace(" ", ""):
            self.require_type("the type of this instruction", found, expected, cursor, written)
        return instr

    def attributes(self, cursor: Cursor) -> tuple[tuple[str, k.AttrValue], ...]:
        cursor.expect("{")
        found: dict[str, k.AttrValue] = {}
        while True:
            token = cursor.token
            key = cursor.word(ATTRIBUTES, "an attribute")
            if key in found:
                raise RepeatedText(kind="attribute", name=key, loc=cursor.place(token))
            cursor.expect("=")
            found[key] = self.attribute(cursor, key)
            if cursor.accept("}"):
                return tuple(found.items())
            cursor.expect(",")

    def attribute(self, cursor: Cursor, key: str) -> k.AttrValue:
        kind = ATTRIBUTES[key]
        return read_expression(cursor, self) if kind is None else read_constant(cursor, kind)

    # --- control ---

    def loop(self, cursor: Cursor) -> k.For:
        cursor.skip()
        token = cursor.token
        var = cursor.name("a loop variable")
        if var in self.scalars:
            raise RepeatedText(kind="loop variable", name=var, loc=cursor.place(token))
        indexed(cursor)
        cursor.expect(",")
        start = read_expression(cursor, self)
        indexed(cursor)
        cursor.expect(",")
        stop = read_expression(cursor, self)
        indexed(cursor)
        cursor.expect(",")
        step = cursor.integer("the step, an integer")
        indexed(cursor)
        cursor.end()
        self.scalars[var] = start.dtype
        body = self.block(("ENDFOR",))
        del self.scalars[var]
        self.close("ENDFOR")
        return k.For(var, start, stop, step, body, cursor.whole)

    def repeat(self, cursor: Cursor) -> k.While:
        cursor.skip()
        cursor.end()
        self.source.skip_blank()
        head = self.source.statement()
        head.expect("DO")
        condition = read_expression(head, self)
        head.end()
        body = self.block(("ENDWHILE",))
        self.close("ENDWHILE")
        return k.While(condition, body, cursor.whole)

    def call(self, cursor: Cursor) -> k.KernelCall:
        cursor.skip()
        name = cursor.take("function", "a function: `@name`").text[1:]
        cursor.expect("(")
        args: list[str | Expr] = []
        while not cursor.accept(")"):
            if args:
                cursor.expect(",")
            token = cursor.token
            if token.kind == NAME and token.text[1:] in self.tensors and cursor.ahead(1).text in (",", ")"):
                args.append(cursor.name())
            else:
                args.append(read_expression(cursor, self))
        cursor.end()
        return k.KernelCall(name, tuple(args), cursor.whole)
