r"""Grammars that answers obey: rules in the notation of GBNF, as an automaton over the bytes of a text.

    root ::= item ("," item)*      # alternatives with |, groups, ? * + {2} {2,} {2,5}
    item ::= [0-9]+ | "\"" [^"\\]* "\""

Rules may be recursive, but not on their left. A state of the automaton is a set of stacks: the symbols that
must follow. States are numbered as they are met; 0 is the state after a wrong byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from examples.llm.config import UnknownModel

JSON = r"""
root   ::= object
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ("," ws member)*)? "}" ws
member ::= string ":" ws value ws
array  ::= "[" ws (value ws ("," ws value ws)*)? "]"
string ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?
ws     ::= [ \t\n]{0,20}
"""
"""Objects of JSON."""

MOST_COPIES, MOST_CHARACTER = 256, 0x10FFFF
"""Largest count of a repetition, and largest character."""

TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<name>[A-Za-z][\w-]*)|(?P<is>::=)|(?P<text>"(?:[^"\\\n]|\\.)*")"""
    r"""|(?P<set>\[(?:[^\]\\\n]|\\.)*\])|(?P<count>\{\d+(?:,\d*)?\})|(?P<sign>[|()?*+.])"""
)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.DOTALL)
NAMED = {"n": "\n", "t": "\t", "r": "\r"}

Bytes = tuple[int, int]
"""A range of bytes, both ends included: a symbol of a rule."""

Symbol = Bytes | str
"""A range of bytes, or the name of a rule."""

Sequence = tuple[Symbol, ...]


class BadGrammar(UnknownModel):
    """A grammar that cannot be used; the message has the line and column."""


@dataclass(frozen=True)
class Rules:
    """The alternatives of every rule, by name; the text of an answer is `root`."""

    alternatives: dict[str, list[Sequence]]


def parse(text: str) -> Rules:
    """Return the rules of a grammar.

    Raises:
        BadGrammar: text that is not a rule, a rule that is missing or twice there, or recursion on the left.
    """
    found = _Parser(text).rules()
    for name, alternatives in found.items():
        for symbol in (s for sequence in alternatives for s in sequence if isinstance(s, str)):
            if symbol not in found:
                raise BadGrammar(f"grammar: rule `{name}` uses `{symbol}`, which is not a rule")
    if "root" not in found:
        raise BadGrammar("grammar: expected a rule `root`, found none")
    _require_progress(found)
    _require_ends(found)
    return Rules(found)


def _require_ends(rules: dict[str, list[Sequence]]) -> None:
    """Refuse rules that no text fulfils: an answer could come to a place without an allowed token."""
    ends: set[str] = set()
    while True:
        more = {
            name for name, found in rules.items()
            if any(all(not isinstance(s, str) or s in ends for s in one) for one in found)
        }  # fmt: skip
        if more == ends:
            break
        ends = more
    for name in rules:
        if name not in ends:
            raise BadGrammar(f"grammar: rule `{_shown(name)}` never ends; expected an alternative without it")


def _shown(name: str) -> str:
    return "( )" if name.startswith("#") else name


def _require_progress(rules: dict[str, list[Sequence]]) -> None:
    """Refuse rules that come back to themselves before a byte."""
    empty: set[str] = set()
    while True:
        more = {n for n, found in rules.items() if any(all(s in empty for s in one) for one in found)}
        if more == empty:
            break
        empty = more
    first = {
        name: {s for one in found for s in _first(one, empty) if isinstance(s, str)}
        for name, found in rules.items()
    }
    for name in rules:
        reached, todo = set(), list(first[name])
        while todo:
            rule = todo.pop()
            if rule not in reached:
                reached.add(rule)
                todo += first[rule]
        if name in reached:
            raise BadGrammar(f"grammar: rule `{_shown(name)}` begins with itself; expected a byte before it")


def _first(sequence: Sequence, empty: set[str]) -> Iterable[Symbol]:
    """Yield the symbols that may be the first one with bytes."""
    for symbol in sequence:
        yield symbol
        if symbol not in empty:
            return


class _Parser:
    """Reads rules; groups and repetitions become rules of their own."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._cut())
        self._place = 0
        self._rules: dict[str, list[Sequence]] = {}

    def _cut(self) -> Iterable[tuple[str, str, int]]:
        place = 0
        while place < len(self._text):
            match = TOKEN.match(self._text, place)
            if match is None:
                raise self._error(place, f"found {self._text[place]!r}")
            if match.lastgroup:
                yield match.lastgroup, match[0], place
            place = match.end()
        yield "end", "", place

    def _error(self, place: int, problem: str) -> BadGrammar:
        line = self._text.count("\n", 0, place) + 1
        col = place - self._text.rfind("\n", 0, place)
        return BadGrammar(f"grammar, line {line}, column {col}: {problem}")

    def _next(self) -> tuple[str, str, int]:
        self._place += 1
        return self._tokens[self._place - 1]

    @property
    def _kind(self) -> tuple[str, str]:
        return self._tokens[self._place][:2]

    def rules(self) -> dict[str, list[Sequence]]:
        while self._kind[0] != "end":
            (kind, name, place), (sign, _, after) = self._next(), self._next()
            if kind != "name" or sign != "is":
                raise self._error(place if kind != "name" else after, "expected NAME ::= ...")
            if name in self._rules:
                raise self._error(place, f"rule `{name}` is there twice")
            self._rules[name] = []
            self._rules[name] = self._alternatives()
        return self._rules

    def _alternatives(self) -> list[Sequence]:
        found = [self._sequence()]
        while self._kind == ("sign", "|"):
            self._next()
            found.append(self._sequence())
        return found

    def _sequence(self) -> Sequence:
        found: list[Symbol] = []
        while not self._ends():
            item = self._item()
            while self._kind[0] == "count" or self._kind in (("sign", "?"), ("sign", "*"), ("sign", "+")):
                item = (self._repeated(item, *self._next()[1:]),)
            found += item
        return tuple(found)

    def _ends(self) -> bool:
        """Return whether a sequence ends: at the end, at a sign, or where the next rule begins."""
        if self._kind[0] == "name":
            return self._tokens[self._place + 1][0] == "is"
        return self._kind[0] == "end" or self._kind in (("sign", "|"), ("sign", ")"))

    def _item(self) -> Sequence:
        kind, text, place = self._next()
        if kind == "name":
            return (text,)
        if kind == "text":
            return tuple((b, b) for b in "".join(_characters(text[1:-1])).encode())
        if kind == "set":
            return (self._made([one for pair in self._set(text, place) for one in byte_ranges(*pair)]),)
        if text == ".":
            return (self._made(list(byte_ranges(0, MOST_CHARACTER))),)
        if text == "(":
            found = self._alternatives()
            if self._next()[1] != ")":
                raise self._error(place, "expected ) after it")
            return (self._made(found),)
        raise self._error(place, f"found {text or 'the end'!r}")

    def _made(self, alternatives: list[Sequence]) -> str:
        name = f"#{len(self._rules)}"  # not a name that text can have
        self._rules[name] = alternatives
        return name

    def _repeated(self, item: Sequence, sign: str, place: int) -> str:
        """Return the rule of an item some number of times."""
        least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(sign, (-1, None))
        if least < 0:
            low, comma, high = sign[1:-1].partition(",")
            least, most = int(low), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > MOST_COPIES or (most is not None and most < least):
            raise self._error(place, f"expected a count of at most {MOST_COPIES}, found {sign}")
        rest: Sequence = ()
        if most is None:
            again = self._made([()])
            self._rules[again] = [(*item, again), ()]
            rest = (again,)
        else:
            for _ in range(most - least):
                rest = (self._made([(*item, *rest), ()]),)
        return self._made([(*item * least, *rest)])

    def _set(self, text: str, place: int) -> list[tuple[int, int]]:
        """Return the ranges of characters of [a-z] or [^a-z]."""
        negated, found = text[1:2] == "^", list(_characters(text[2 if text[1:2] == "^" else 1 : -1], True))
        ranges, i = [], 0
        while i < len(found):
            is_range = i + 2 < len(found) and found[i + 1] == "-"
            low, high = ord(found[i][-1]), ord(found[i + 2 if is_range else i][-1])
            if high < low:
                raise self._error(place, f"expected a range from low to high, found {text}")
            ranges.append((low, high))
            i += 3 if is_range else 1
        return sorted(_without(ranges) if negated else ranges)


def _characters(text: str, keeps_escapes: bool = False) -> Iterable[str]:
    r"""Yield characters. One of a set that was escaped has a backslash before it: \- is not a range."""
    for match in ESCAPE.finditer(text):
        code = match[1] or match[2] or match[3]
        if code or match[4] is not None:
            character = chr(int(code, 16)) if code else NAMED.get(match[4], match[4])
            yield "\\" + character if keeps_escapes else character
        else:
            yield match[5]


def _without(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the characters that are in none of some ranges."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if start < low:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return [*found, (start, MOST_CHARACTER)] if start <= MOST_CHARACTER else found


def byte_ranges(low: int, high: int) -> Iterable[Sequence]:
    """Yield the UTF-8 of a range of characters, as sequences of ranges of bytes."""
    for first, last in (
        (0, 0x7F),
        (0x80, 0x7FF),
        (0x800, 0xD7FF),
        (0xE000, 0xFFFF),
        (0x10000, MOST_CHARACTER),
    ):
        if max(low, first) <= min(high, last):
            start, end = (tuple(chr(c).encode()) for c in (max(low, first), min(high, last)))
            yield from _between(start, end)


def _between(start: tuple[int, ...], end: tuple[int, ...]) -> Iterable[Sequence]:
    """Yield ranges of bytes from one sequence to another of the same length."""
    if len(start) == 1:
        yield ((start[0], end[0]),)
        return
    least, most = (0x80,) * (len(start) - 1), (0xBF,) * (len(start) - 1)
    if start[0] == end[0]:
        for rest in _between(start[1:], end[1:]):
            yield ((start[0], start[0]), *rest)
        return
    first, last = start[0], end[0]
    if start[1:] != least:
        for rest in _between(start[1:], most):
            yield ((first, first), *rest)
        first += 1
    if end[1:] != most:
        for rest in _between(least, end[1:]):
            yield ((last, last), *rest)
        last -= 1
    if first <= last:
        yield ((first, last), *((0x80, 0xBF) for _ in least))
