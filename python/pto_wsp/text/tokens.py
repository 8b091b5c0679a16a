"""Tokens of `.pto` text, and the cursor that parsers move over them.

A statement stands on one line and goes on over the next ones while parentheses or brackets are open. A
comment has a line of its own: inside a line, `//` is floor division.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from pto_wsp.errors import BadText, TextLimit, UnknownText, did_you_mean
from pto_wsp.location import Location

MAX_CHARACTERS = 1 << 26
MAX_NESTING = 320
"""Levels of operations, parentheses and calls in one expression, calls counted thrice."""

NAME, LITERAL, NUMBER, WORD, FUNCTION, TYPE, STRING, SIGN, END = (
    "name",
    "literal",
    "number",
    "word",
    "function",
    "type",
    "string",
    "sign",
    "end",
)
NONE = "none"

_PATTERN = re.compile(
    r"""
    \s*
    (?: (?P<name> %[^\W\d]\w*(?:\.\w+)* )
    | (?P<word> [^\W\d]\w*(?:\.\w+)* )
    | (?P<sign> :\+ | := | -> | // | << | >> | <= | >= | == | != | [^\w\s"@!%.] )
    | (?P<type> !pto\.\w+(?:<(?:[^<>"\n]|"[^"\n]*"|<[^<>"\n]*>)*>)? )
    | (?P<number> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<directive> \.[A-Za-z]\w* )
    | (?P<function> @[^\W\d]\w* )
    | (?P<literal> %-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<string> "(?:[^"\\\n]|\\.)*" )
    | (?P<other> % )
    | (?P<none> $ ) )
    """,
    re.VERBOSE,
)

_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}


class Token(NamedTuple):
    """A token: its kind, its text, and where it begins (line and column count from 1)."""

    kind: str
    text: str
    line: int
    col: int

    @property
    def shown(self) -> str:
        """The token as an error shows it."""
        if self.kind == END:
            return self.text
        return f"`{self.text}`" if len(self.text) <= 40 else f"`{self.text[:40]}...`"


class Source:
    """The lines of a text, of which `line` is the number of the next one to read.

    Raises:
        TextLimit: the text is too long.
    """

    def __init__(self, text: str, filename: str) -> None:
        self.filename = filename
        self.line = 1
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
        tokens: list[Token] = []
        depth = 0
        while not self.at_end:
            number = self.line
            self.line += 1
            for token in self._tokens(self.lines[number - 1], number):
                tokens.append(token)
                if token.text in _BRACKETS:
                    depth += _BRACKETS[token.text]
            if depth <= 0:
                break
            self.skip_blank()
        last = tokens[-1] if tokens else None
        if last is None:
            end = Token(END, "the end of the text", max(1, len(self.lines)), 0)
        else:
            end = Token(END, "the end of the line", last.line, last.col + len(last.text))
        return Cursor(self.filename, tokens, end)

    def _tokens(self, text: str, number: int) -> Iterable[Token]:
        at = 0
        for found in _PATTERN.finditer(text):
            start, end = found.span()
            if start != at:
                break
            at, kind = end, found.lastgroup or NONE
            if kind == NONE:
                return
            content = found[kind]
            yield Token(kind, content, number, end - len(content) + 1)
        at += len(text[at:]) - len(text[at:].lstrip())
        what = 'the other `"` of a text in quotes' if text[at] == '"' else "a token"
        where = Location(self.filename, number, at + 1, at + 2)
        raise BadText(expected=what, found=ascii(text[at]), advice="", loc=where)


class Cursor:
    """The tokens of one statement, read from left to right.

    Attributes:
        token: the next token.
    """

    def __init__(self, filename: str, tokens: list[Token], end: Token) -> None:
        self.filename = filename
        self._tokens = tokens
        self._end = end
        self._next = 0
        self._depth = 0
        self.token = tokens[0] if tokens else end

    def _move(self, count: int = 1) -> None:
        at = self._next = self._next + count
        self.token = self._tokens[at] if at < len(self._tokens) else self._end

    @property
    def first(self) -> Token:
        """The token that the statement begins with."""
        return self._tokens[0] if self._tokens else self._end

    def ahead(self, count: int) -> Token:
        """Return a token further on."""
        at = self._next + count
        return self._tokens[at] if at < len(self._tokens) else self._end

    def advance(self) -> Token:
        """Take the next token."""
        token = self.token
        self._move()
        return token

    def at(self, text: str) -> bool:
        """Return whether the next token is this sign or word."""
        return self.token.text == text

    def accept(self, text: str) -> bool:
        """Take the next token if it is this sign or word."""
        if self.token.text != text:
            return False
        self._move()
        return True

    def expect(self, text: str, advice: str = "") -> Token:
        """Take this sign or word.

        Raises:
            BadText: there is something else.
        """
        token = self.token
        if token.text != text or token.kind == STRING:
            self.fail(f"`{text}`", advice)
        self._move()
        return token

    def take(self, kind: str, expected: str) -> Token:
        """Take a token of a kind.

        Raises:
            BadText: there is something else.
        """
        if self.token.kind != kind:
            self.fail(expected)
        return self.advance()

    def name(self, expected: str = "a name that begins with `%`") -> str:
        """Take a `%name`; return it without its sign."""
        return self.take(NAME, expected).text[1:]

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
        return self._tokens[self._next :]

    def part(self) -> Cursor:
        """Take everything up to the comma or parenthesis that ends the part; return a cursor over it."""
        first, depth = self._next, 0
        while self.token.kind != END:
            depth += _BRACKETS.get(self.token.text, 0)
            if depth < 0 or (depth == 0 and self.at(",")):
                break
            self._move()
        end = Token(END, self.token.shown, self.token.line, self.token.col)
        return Cursor(self.filename, self._tokens[first : self._next], end)

    def rest(self) -> str:
        """Take everything to the end of the statement; return it without the space in it."""
        taken = self._tokens[self._next :]
        self._move(len(taken))
        return "".join(token.text for token in taken)

    def end(self) -> None:
        """Require the end of the statement.

        Raises:
            BadText: something is left.
        """
        if self.token.kind != END:
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
        if last is None or last.line != first.line or last.kind == END:
            last = first
        width = 1 if last.kind == END else len(last.text)
        return Location(self.filename, first.line, first.col, last.col + width)

    def since(self, first: Token) -> Location:
        """Return the place from a token to the last one taken."""
        return self.place(first, self._tokens[min(self._next, len(self._tokens)) - 1])

    @property
    def whole(self) -> Location:
        """The place of the statement: of its first line, if it has several."""
        first = self.first
        on_line = [token for token in self._tokens if token.line == first.line]
        return self.place(first, on_line[-1] if on_line else None)

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
        if self.token.kind != WORD or self.token.text not in words:
            is_word = self.token.kind == WORD
            self.fail(expected, did_you_mean(self.token.text, words) if is_word else "")
        return self.advance().text

    def unknown(self, kind: str, name: str, where: str, known: Iterable[str], token: Token) -> NoReturn:
        """Raise UnknownText for a name at a token."""
        advice = did_you_mean(name, known)
        raise UnknownText(kind=kind, name=name, where=where, advice=advice, loc=self.place(token))
