"""The forms of `.pto` text that PTO programs are written in elsewhere.

They leave to the reader what our own form says: roles of parameters, shapes of memrefs, which scalars are
parameters. A function builder decides them, step by step; the steps have the places of their lines.
"""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp.builder.function import PTOFunctionBuilder
from pto_wsp.builder.steps import Argument, Operand
from pto_wsp.errors import BadText, NoMeaning, TextLimit
from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Expr
from pto_wsp.support.record import record
from pto_wsp.text.foreign.scalars import SCALAR_WORDS, TYPES
from pto_wsp.text.foreign.tiles import ForeignTiles
from pto_wsp.text.function_bodies import MAX_BLOCKS, indexed, read_ranges
from pto_wsp.text.parameters import read_params
from pto_wsp.text.refused import refuse_known
from pto_wsp.text.tokens import DIRECTIVE, END, FUNCTION, NAME, Cursor, Source, Token

WORDS = frozenset({*SCALAR_WORDS, "IF_BIT", "RETURN", "LOAD", "STORE", "BREAK", "CONTINUE", "YIELD"})
"""Statements that only these forms have."""

_STATEMENTS = (
    *WORDS,
    "FOR",
    "ENDFOR",
    "IF",
    "ELSE",
    "ENDIF",
    "WHILE",
    "DO",
    "ENDWHILE",
    "CALL",
    "tstore",
    "tstore.fp",
)
_GIVE = ("IF", "ELSE")
_ENDS = {"FOR": "ENDFOR", "IF": "ENDIF", "IF_BIT": "ENDIF", "ELSE": "ENDIF", "WHILE": "ENDWHILE"}


@record
class _While:
    """An open WHILE: the lines before its DO, which come again at its end."""

    first: int
    last: int


def read_foreign(
    source: Source,
    head: Cursor,
    builder: PTOFunctionBuilder,
    is_workload: bool,
    require: Callable[[Cursor, Token], None],
) -> k.KernelFunction | w.WorkloadFunction:
    """Drive a builder through a function, and return the function.

    Args:
        source: the text, at the first line of the body.
        head: the head of the function, behind its name.
        builder: of the function.
        is_workload: the function is an Orchestration.
        require: called with each function that is called, before it is.
    """
    reader = _ForeignReader(source, builder, is_workload, require, "}" if head.at("(") else ".end")
    if head.at("("):
        read_params(head, lambda cursor, token, name: reader.memref(cursor, name, cursor.place(token)))
        head.expect("{")
    head.end()
    reader.body()
    function = builder.at(head.whole).build()
    reader.require_claims(function)
    return function


class _ForeignReader(ForeignTiles):
    def __init__(
        self,
        source: Source,
        builder: PTOFunctionBuilder,
        is_workload: bool,
        require: Callable[[Cursor, Token], None],
        end: str,
    ) -> None:
        super().__init__(source, builder, is_workload)
        self.require = require
        self.last_word = end
        self.whiles: list[_While] = []
        self.blocks: list[Token] = []
        self.given: dict[int, list[str]] = {}
        self.lone: dict[str, Callable[[Cursor], None]] = {
            **dict.fromkeys(("LOAD", "STORE"), self.move_element),
            **dict.fromkeys(("BREAK", "CONTINUE"), self.leave_loop),
            **dict.fromkeys(("return", "RETURN"), self.end_function),
            **dict.fromkeys(("tstore", "mscatter"), self.store),
            "tstore.fp": self.store_scaled,
            "YIELD": self.give,
            "CALL": self.call,
        }

    def body(self) -> None:
        """Read all statements, and the line behind them."""
        source = self.source
        while True:
            source.skip_blank()
            word = source.first_word()
            cursor = source.statement()
            if word == self.last_word or not word:
                self.require_closed(cursor)
                cursor.expect(self.last_word)
                if word == ".end":
                    cursor.expect(self.builder.name)
                cursor.end()
                return
            self.statement(cursor.token.text, cursor)

    # --- statements ---

    def statement(self, word: str, cursor: Cursor) -> None:
        if cursor.token.kind == NAME:
            self.assignment(cursor)
        elif cursor.token.kind == DIRECTIVE:
            self.directive(cursor)
        elif word in SCALAR_WORDS:
            self.scalar_statement(cursor)
        elif word in self.lone:
            self.lone[word](cursor)
        else:
            self.control(word, cursor)
        cursor.end()

    def control(self, word: str, cursor: Cursor) -> None:
        match word:
            case "FOR":
                self.loop(cursor)
            case "ENDFOR":
                self.leave(cursor, "FOR").end_for()
            case "IF":
                self.condition(cursor)
            case "IF_BIT":
                self.bit(cursor)
            case "ELSE":
                self.leave(cursor, "IF", "IF_BIT").else_block()
                self.blocks.append(cursor.first)
            case "ENDIF":
                self.leave(cursor, "IF", "IF_BIT", "ELSE").endif()
            case "WHILE":
                self.repeat(cursor)
            case "ENDWHILE":
                self.end_repeat(cursor)
            case _:
                token = cursor.token
                refuse_known(cursor)
                cursor.word(_STATEMENTS, "a statement")
                cursor.fail("a statement that stands alone", token=token)

    def enter(self, cursor: Cursor) -> PTOFunctionBuilder:
        """Take the word that begins a block; return the builder at its place."""
        self.blocks.append(cursor.advance())
        if len(self.blocks) > MAX_BLOCKS:
            limit = f"{MAX_BLOCKS} levels are read"
            raise TextLimit(what="blocks nested too deep", limit=limit, loc=cursor.whole)
        return self.builder.at(cursor.whole)

    def leave(self, cursor: Cursor, *words: str) -> PTOFunctionBuilder:
        """Take the word that ends a block of one of `words`; return the builder at its place."""
        if not self.blocks:
            cursor.fail("a statement: no block is open here")
        if self.blocks[-1].text not in words:
            self.require_closed(cursor)
        self.blocks.pop()
        cursor.advance()
        return self.builder.at(cursor.whole)

    def require_closed(self, cursor: Cursor) -> None:
        """Refuse what comes before the end of a block."""
        if self.blocks:
            word, line = self.blocks[-1].text, self.blocks[-1].line
            cursor.fail(f"`{_ENDS[word]}` for the `{word}` of line {line}")

    def end_function(self, cursor: Cursor) -> None:
        token = cursor.advance()
        if cursor.at("("):
            form, reason = f"`{token.text}` with values", "functions give no values"
            place = cursor.place(cursor.token)
            raise NoMeaning(form=form, reason=reason, advice="store them to a memref", loc=place)
        self.source.skip_blank()
        following = self.source.first_word()
        if following not in (self.last_word, "return"):
            cursor.fail(f"`{self.last_word}` behind `{token.text}`", token=token)

    # --- control ---

    def loop(self, cursor: Cursor) -> None:
        builder = self.enter(cursor)
        var = cursor.name("a loop variable")
        bounds: list[Expr] = []
        for _ in range(2):
            indexed(cursor)
            cursor.expect(",")
            bounds.append(self.expression(cursor))
        indexed(cursor)
        cursor.expect(",")
        step = cursor.integer("the step, an integer")
        indexed(cursor)
        most, least, levels = read_ranges(cursor)
        kind = "range"
        if cursor.accept("{"):
            kind = cursor.word(("range", "parallel", "seq"), "the kind of the loop")
            cursor.expect("}")
        builder.at(cursor.whole).for_loop(
            var, bounds[0], bounds[1], step, most, least, dict(levels) or None, kind
        )

    def condition(self, cursor: Cursor) -> None:
        builder = self.enter(cursor)
        given: list[str] = []
        if cursor.at("(") and self.is_list(cursor):
            given = self.names(cursor)
            cursor.expect(",")
        self.given[len(self.blocks)] = given
        found = self.typed(cursor)
        if cursor.accept(","):
            self.names(cursor)
        builder.if_then(found)

    def leave_loop(self, cursor: Cursor) -> None:
        """Read `BREAK` or `CONTINUE`."""
        word, builder = cursor.advance().text, self.builder.at(cursor.whole)
        builder.break_loop() if word == "BREAK" else builder.continue_loop()

    def give(self, cursor: Cursor) -> None:
        """Read `YIELD (%a, %b)` in `IF (%x, %y), ...`: what the block gives."""
        token = cursor.advance()
        outs = self.given.get(len(self.blocks), []) if self.blocks and self.blocks[-1].text in _GIVE else []
        values = self.names(cursor)
        if len(values) != len(outs):
            expected = (
                f"{len(outs)} values, as the block's `IF` says" if outs else "a block of `IF (outs), ...`"
            )
            cursor.fail(expected, token=token)
        for number, (out, value) in enumerate(zip(outs, values, strict=True)):
            if value in outs[:number]:
                cursor.fail("values that no name before them changes", token=token)
            builder = self.builder.at(cursor.whole)
            builder.mov(out, value) if value in self.tiles else builder.scalar_mov(out, value)

    def bit(self, cursor: Cursor) -> None:
        builder = self.enter(cursor)
        found = self.typed(cursor)
        cursor.expect(",")
        builder.if_bit(found, cursor.integer("a power of two"))

    def is_list(self, cursor: Cursor) -> bool:
        """Return whether the parentheses here hold names alone, and a comma follows."""
        number = 1
        while cursor.ahead(number).kind == NAME or cursor.ahead(number).text in (",", ":", *TYPES):
            number += 1
        return cursor.ahead(number).text == ")" and cursor.ahead(number + 1).text == ","

    def names(self, cursor: Cursor) -> list[str]:
        """Read names in parentheses: what a block takes or gives, which all are known behind it anyway."""
        cursor.expect("(")
        found: list[str] = []
        while not cursor.accept(")"):
            if found:
                cursor.expect(",")
            token = cursor.token
            name = cursor.name()
            if name not in self.tiles and name not in self.scalars:
                cursor.unknown("name", name, "this function", {*self.tiles, *self.scalars}, token)
            if cursor.at(":"):
                self.written_type(cursor, name, is_new=False)
            found.append(name)
        return found

    def repeat(self, cursor: Cursor) -> None:
        """Read WHILE to its DO: what is between them is done before each test."""
        builder = self.enter(cursor)
        if cursor.at("("):
            self.names(cursor)
            if cursor.accept(","):
                self.names(cursor)
        cursor.end()
        source, first = self.source, self.source.line
        while source.skip_blank() or source.first_word() != "DO":
            if source.first_word() not in SCALAR_WORDS:
                source.statement().fail("`DO`, or statements on scalars before it")
            inner = source.statement()
            self.statement(inner.token.text, inner)
        self.whiles.append(_While(first, source.line))
        head = source.statement()
        head.expect("DO")
        builder.at(cursor.whole).while_loop(self.typed(head) if head.kind != END else self.tested(cursor))
        head.end()

    def tested(self, cursor: Cursor) -> Expr:
        """Return the condition that stands behind the ENDWHILE of the loop that begins here."""
        source, line, depth = self.source, self.source.line, 1
        while depth:
            source.skip_blank()
            word = source.first_word()
            if not word:
                found, expected = "the end of the text", "`ENDWHILE`"
                raise BadText(expected=expected, found=found, advice="", loc=cursor.whole)
            depth += (word == "WHILE") - (word == "ENDWHILE")
            source.line += 1
        source.line -= 1
        end = source.statement()
        end.expect("ENDWHILE")
        found = self.typed(end)
        source.line = line
        return found

    def end_repeat(self, cursor: Cursor) -> None:
        builder = self.leave(cursor, "WHILE")
        if cursor.kind != END:
            self.typed(cursor)
        if not self.whiles:
            builder.end_while()
            return
        loop, line, num_tests = self.whiles.pop(), self.source.line, 0
        self.source.line = loop.first
        while self.source.skip_blank() or self.source.line < loop.last:
            inner = self.source.statement()
            self.statement(inner.token.text, inner)
            num_tests += 1
        self.source.line = line
        builder.at(cursor.whole).end_while(num_tests)

    # --- calls ---

    def call(self, cursor: Cursor) -> None:
        cursor.advance()
        token = cursor.take(FUNCTION, "a function: `@name`")
        self.require(cursor, token)
        cursor.expect("(")
        args: dict[str, Argument] = {}
        while not cursor.accept(")"):
            if args:
                cursor.expect(",")
            param = cursor.token
            name = cursor.name("a parameter of the function")
            if name in args:
                cursor.fail("another parameter", token=param)
            cursor.expect("->")
            args[name] = self.argument(cursor)
        self.builder.at(cursor.whole).call(token.text[1:], args)

    def argument(self, cursor: Cursor) -> Argument:
        """Read `%tensor`, `(%tensor, row, col)`, `(%tensor, row, col, rows, cols)` or a scalar."""
        if cursor.token.kind == NAME and cursor.ahead(1).text in (",", ")"):
            return cursor.name()
        if not (cursor.at("(") and cursor.ahead(1).kind == NAME and cursor.ahead(2).text == ","):
            return self.typed(cursor)
        cursor.advance()
        tensor = cursor.name()
        found: list[Operand] = [tensor]
        while cursor.accept(","):
            found.append(self.expression(cursor))
        cursor.expect(")")
        return tuple(found)
