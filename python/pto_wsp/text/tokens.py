"""Tokens of `.pto` text, and the cursor that parsers move over them.

A statement stands on one line and goes on over the next ones while parentheses or brackets are open. A
comment has a line of its own: inside a line, `//` is floor division.

One call of a compiled pattern cuts a line into the texts of its tokens. Their columns are found when a
location asks for one.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from typing import NoReturn

from pto_wsp.errors import BadText, TextLimit, UnknownText, did_you_mean
from pto_wsp.location import Location

MAX_CHARACTERS = 1 << 26
MAX_NESTING = 320
"""Levels of operations, parentheses and calls in one expression, calls counted thrice."""

NAME, LITERAL, NUMBER, WORD, FUNCTION, TYPE, STRING, DIRECTIVE, SIGN, END = (
    "name",
    "literal",
    "number",
    "word",
    "function",
    "type",
    "string",
    "directive",
    "sign",
    "end",
)
_OTHER = "other"

_KINDS = (
    (NAME, r"%[^\W\d]\w*(?:\.\w+)*"),
    (WORD, r"[^\W\d]\w*(?:\.\w+)*"),
    (SIGN, r""":\+|:=|->|//|<<|>>|<=|>=|==|!=|[^\w\s"@!%.]"""),
    (TYPE, r"""!pto\.\w+(?:<(?:[^<>"\n]|"[^"\n]*"|<[^<>"\n]*>)*>)?"""),
    (NUMBER, r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    (DIRECTIVE, r"\.[A-Za-z]\w*"),
    (FUNCTION, r"@[^\W\d]\w*"),
    (LITERAL, r"%-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    (STRING, r'"(?:[^"\\\n]|\\.)*"'),
    (SIGN, "%"),
    (_OTHER, r'"[^\n]*|\S'),
)
_TOKEN = re.compile(r"\s*(" + "|".join(pattern for _, pattern in _KINDS) + ")")
_KIND = re.compile("|".join(f"({pattern})" for _, pattern in _KINDS))

_BRACKET = re.compile(r"[()\[\]]")
_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}


class _KindOf(dict[str, str]):
    """Kinds of tokens by their texts, each found once."""

    def __missing__(self, text: str) -> str:
        found = _KIND.match(text)
        assert found is not None and found.lastindex is not None
        kind = self[text] = _KINDS[found.lastindex - 1][0]
        return kind


class Token:
    """A token of a statement: its kind, its text, and where it begins (line and column count from 1).

    Attributes:
        number: of the token in its statement.
    """

    __slots__ = ("_cursor", "kind", "number", "text")

    def __init__(self, kind: str, text: str, number: int, cursor: Cursor) -> None:
        self.kind = kind
        self.text = text
        self.number = number
        self._cursor = cursor

    @property
    def line(self) -> int:
        """The line that it is on."""
        return self._cursor.start(self.number)[0]

    @property
    def col(self) -> int:
        """The column that it begins at."""
        return self._cursor.start(self.number)[1]

    @property
    def shown(self) -> str:
        """The token as an error shows it."""
        if self.kind == END:
            return self._cursor.end_text
        return f"`{self.text}`" if len(self.text) <= 40 else f"`{self.text[:40]}...`"


class Source:
    """The lines of a text, of which `line` is the number of the next one to read.

    Raises:
        TextLimit: the text is too long.
    """

    def __init__(self, text: str, filename: str) -> None:
        self.filename = filename
        self.line = 1
        self._kind_of = _KindOf()
        if len(text) > MAX_CHARACTERS:
            limit = f"{MAX_CHARACTERS} characters are read"
            raise TextLimit(what=f"{len(text)} characters", limit=limit, loc=Location(filename, 1))
        self.lines = text.split("\n")
        linecache.cache[filename] = (len(text), None, self.lines, filename)  # for the excerpts of errors

    @property
    def at_end(self) -> bool:
        """Whether there is no further line."""
        return self.line > len(self.lines)

    def peek(self) -> str:
        """Return the next line without the space around it."""
        return self.lines[self.line - 1].strip()

    def first_word(self) -> str:
        """Return the next line up to its first space; nothing at the end."""
        words = () if self.at_end else self.lines[self.line - 1].split(None, 1)
        return words[0] if words else ""

    def raw(self) -> tuple[str, Location]:
        """Take a line as it is, without the space before it; return it with its place."""
        text, loc = self.lines[self.line - 1].lstrip(), self.place()
        self.line += 1
        return text, loc

    def place(self) -> Location:
        """Return the place of the next line."""
        full = self.lines[self.line - 1]
        return Location(self.filename, self.line, len(full) - len(full.lstrip()) + 1, len(full) + 1)

    def skip_blank(self) -> None:
        """Move over lines that are empty or comments."""
        lines, number, count = self.lines, self.line, len(self.lines)
        while number <= count:
            text = lines[number - 1].lstrip()
            if text and not text.startswith("//"):
                break
            number += 1
        self.line = number

    def accept_lines(self, *texts: str) -> bool:
        """Take the next lines if they are these, but for the space around them."""
        first = self.line - 1
        if [line.strip() for line in self.lines[first : first + len(texts)]] != [*texts]:
            return False
        self.line += len(texts)
        return True

    def statement(self) -> Cursor:
        """Take the next statement: a line, and those that its open brackets lead to."""
        lines: list[tuple[int, str, int]] = []
        texts: list[str] = []
        depth = 0
        while self.line <= len(self.lines):
            text = self.lines[self.line - 1].rstrip()  # a pattern cannot skip space that nothing follows fast
            found = _TOKEN.findall(text)
            texts += found
            lines.append((self.line, text, len(found)))
            self.line += 1
            if _BRACKET.search(text):  # types and texts in quotes may contain brackets that do not count
                depth += found.count("(") + found.count("[") - found.count(")") - found.count("]")
            if depth <= 0:
                break
            self.skip_blank()
        kinds = [*map(self._kind_of.__getitem__, texts)]
        if not texts:
            return Cursor(self.filename, [(max(1, len(self.lines)), "", 0)], [], [], "the end of the text")
        cursor = Cursor(self.filename, lines, texts, kinds, "the end of the line")
        if _OTHER in kinds:
            cursor.refuse_character(kinds.index(_OTHER))
        return cursor


def _starts(lines: list[tuple[int, str, int]], texts: list[str]) -> list[tuple[int, int]]:
    """Return the line and the column at which each token of a statement begins, and those of its end.

    Only space separates the texts of tokens, so each is the next occurrence of its text.
    """
    found: list[tuple[int, int]] = []
    first = 0
    for number, line, count in lines:
        at = 0
        for text in texts[first : first + count]:
            at = line.index(text, at)
            found.append((number, at + 1))
            at += len(text)
        first += count
    number, line, _ = lines[-1]
    return [*found, (number, len(line) + 1 if line else 0)]


class Cursor:
    """The tokens of one statement, read from left to right.

    Attributes:
        filename: of the text.
        kind: of the next token.
        text: of the next token; empty at the end.
    """

    def __init__(
        self,
        filename: str,
        lines: list[tuple[int, str, int]],
        texts: list[str],
        kinds: list[str],
        end_text: str,
        offset: int = 0,
    ) -> None:
        """Keep the tokens.

        Args:
            filename: of the text.
            lines: of the statement: number, text, and how many tokens it has.
            texts: of the tokens.
            kinds: of the tokens.
            end_text: what errors call the end.
            offset: of the first token, in the statement.
        """
        self.filename = filename
        self.end_text = end_text
        self._lines = lines
        self._starts: list[tuple[int, int]] = []
        self._texts = texts
        self._kinds = kinds
        self._offset = offset
        self._next = 0
        self._depth = 0
        texts.append("")
        kinds.append(END)
        self.text = texts[0]
        self.kind = kinds[0]

    def _move(self) -> None:
        at = self._next = self._next + 1
        self.text = self._texts[at]
        self.kind = self._kinds[at]

    def _token(self, at: int) -> Token:
        at = min(at, len(self._texts) - 1)
        return Token(self._kinds[at], self._texts[at], self._offset + at, self)

    @property
    def token(self) -> Token:
        """The next token."""
        return Token(self.kind, self.text, self._offset + self._next, self)

    def start(self, number: int) -> tuple[int, int]:
        """Return the line and the column of a token, which count from 1; after the last one, of its end."""
        if not self._starts:
            self._starts = _starts(self._lines, self._texts)
        return self._starts[number]

    def refuse_character(self, number: int) -> NoReturn:
        """Raise BadText at a token that is not one."""
        line, col = self.start(number)
        character = self._texts[number][0]
        what = 'the other `"` of a text in quotes' if character == '"' else "a token"
        where = Location(self.filename, line, col, col + 1)
        raise BadText(expected=what, found=ascii(character), advice="", loc=where)

    @property
    def first(self) -> Token:
        """The token that the statement begins with."""
        return self._token(0)

    def ahead(self, count: int) -> Token:
        """Return a token further on, or for -1 the one that was taken last."""
        return self._token(self._next + count)

    def advance(self) -> Token:
        """Take the next token; the end stays."""
        token = self.token
        if self.kind != END:
            self._move()
        return token

    def skip(self) -> None:
        """Move over the next token; the end stays."""
        if self.kind != END:
            self._move()

    def at(self, text: str) -> bool:
        """Return whether the next token is this sign or word."""
        return self.text == text

    def accept(self, text: str) -> bool:
        """Take the next token if it is this sign or word."""
        if self.text != text:
            return False
        self._move()
        return True

    def expect(self, text: str, advice: str = "") -> None:
        """Take this sign or word.

        Raises:
            BadText: there is something else.
        """
        if self.text != text:
            self.fail(f"`{text}`", advice)
        self._move()

    def take(self, kind: str, expected: str) -> Token:
        """Take a token of a kind.

        Raises:
            BadText: there is something else.
        """
        if self.kind != kind:
            self.fail(expected)
        return self.advance()

    def name(self, expected: str = "a name that begins with `%`") -> str:
        """Take a `%name`; return it without its sign."""
        if self.kind != NAME:
            self.fail(expected)
        name = self.text[1:]
        at = self._next = self._next + 1  # as `_move` does; names are most of a text
        self.text = self._texts[at]
        self.kind = self._kinds[at]
        return name

    def integer(self, expected: str = "an integer") -> int:
        """Take an integer, which may be negative, of 64 bits."""
        sign = -1 if self.at("-") and self.ahead(1).kind == NUMBER else 1
        if sign < 0:
            self.advance()
        token = self.take(NUMBER, expected)
        return self.integer_of(token, token.text, sign)

    def integer_of(self, token: Token, digits: str, sign: int = 1) -> int:
        """Return the integer that a token is.

        Raises:
            BadText: it is no integer, or needs more than 64 bits.
        """
        if not digits.isdecimal():
            self.fail("an integer", token=token)
        if len(digits) > 19 or not -(2**63) <= sign * int(digits) < 2**63:
            self.fail("an integer of 64 bits", token=token)
        return sign * int(digits)

    def left(self) -> list[Token]:
        """Return the tokens that have not been taken."""
        return [self._token(at) for at in range(self._next, len(self._texts) - 1)]

    def part(self) -> Cursor:
        """Take everything up to the comma or parenthesis that ends the part; return a cursor over it."""
        first, depth = self._next, 0
        while self.kind != END:
            depth += _BRACKETS.get(self.text, 0)
            if depth < 0 or (depth == 0 and self.text == ","):
                break
            self._move()
        texts, kinds = self._texts[first : self._next], self._kinds[first : self._next]
        part = Cursor(self.filename, self._lines, texts, kinds, self.token.shown, self._offset + first)
        self.start(0)
        part._starts = self._starts
        return part

    def rest(self) -> str:
        """Take everything to the end of the statement; return it without the space in it."""
        taken = "".join(self._texts[self._next :])
        self._next = len(self._texts) - 1
        self.text, self.kind = "", END
        return taken

    def end(self) -> None:
        """Require the end of the statement.

        Raises:
            BadText: something is left.
        """
        if self.kind != END:
            advice = "comments have lines of their own" if self.at("//") else ""
            self.fail("the end of the line", advice)

    def nested(self, change: int) -> None:
        """Go some levels deeper into what nests, or back.

        Raises:
            TextLimit: that is too deep.
        """
        self._depth += change
        if self._depth > MAX_NESTING:
            limit = f"{MAX_NESTING} levels are read"
            raise TextLimit(what="an expression nested too deep", limit=limit, loc=self.place(self.token))

    def place(self, first: Token, last: Token | None = None) -> Location:
        """Return the place of a token, or from one to another on its line."""
        line, col = self.start(first.number)
        end_col = col + (1 if first.kind == END else len(first.text))
        if last is not None and last.kind != END and last.number != first.number:
            last_line, last_col = self.start(last.number)
            if last_line == line:
                end_col = last_col + len(last.text)
        return Location(self.filename, line, col, end_col)

    def since(self, first: Token) -> Location:
        """Return the place from a token to the last one taken."""
        return self.place(first, self._token(self._next - 1))

    @property
    def whole(self) -> Location:
        """The place of the statement: of its first line, if it has several."""
        line, text, _ = self._lines[0]
        return Location(self.filename, line, len(text) - len(text.lstrip()) + 1, len(text) + 1)

    def fail(self, expected: str, advice: str = "", token: Token | None = None) -> NoReturn:
        """Raise BadText at a token, the next one without one."""
        found = self.token if token is None else token
        raise BadText(expected=expected, found=found.shown, advice=advice, loc=self.place(found))

    def word(self, known: Iterable[str], expected: str) -> str:
        """Take one of these words.

        Raises:
            BadText: there is something else.
        """
        words = list(known)
        text = self.text
        if self.kind != WORD or text not in words:
            self.fail(expected, did_you_mean(text, words) if self.kind == WORD else "")
        self._move()
        return text

    def unknown(self, kind: str, name: str, where: str, known: Iterable[str], token: Token) -> NoReturn:
        """Raise UnknownText for a name at a token."""
        advice = did_you_mean(name, known)
        raise UnknownText(kind=kind, name=name, where=where, advice=advice, loc=self.place(token))
