"""Kernels in C++ in `.pto` text: every line of C++ follows a bar."""

from __future__ import annotations

from pto_wsp.ir import kernel as k
from pto_wsp.location import Location
from pto_wsp.text.expressions import read_number
from pto_wsp.text.tokens import FUNCTION, NUMBER, WORD, Cursor, Source
from pto_wsp.types.dtype import DTYPES

MAX_DIGITS = 4000


def read_native(source: Source) -> k.Native:
    """Read the C++ of a kernel, up to the closing brace. The C++ is not parsed."""
    head = source.statement()
    head.expect("CPP")
    kind = head.word(("unit", "body"), "`unit` or `body`")
    entry = head.take(FUNCTION, "a function: `@name`").text[1:] if kind == "unit" else ""
    order = _order(head)
    includes: list[str] = []
    while source.first_word() == "INCLUDE":
        text, _ = source.raw()
        includes.append(text.removeprefix("INCLUDE").strip())
    folder = _quoted_line(source) if source.first_word() == "FOLDER" else ""
    targets: list[str] = []
    while source.first_word() == "TARGET":
        targets.append(_quoted_line(source))
    constants: list[tuple[str, object]] = []
    while source.first_word() == "CONSTANT":
        constants.append(_constant(source.statement()))
    text, loc = _text(source)
    source.skip_blank()
    brace = source.statement()
    brace.expect("}")
    brace.end()
    return k.Native(text, entry, tuple(includes), folder, tuple(constants), order, None, loc, tuple(targets))


def _quoted_line(source: Source) -> str:
    """Read a line of a word and a text in quotes; return the text."""
    cursor = source.statement()
    cursor.advance()
    found = unquoted(cursor)
    cursor.end()
    return found


def _text(source: Source) -> tuple[str, Location | None]:
    lines: list[str] = []
    loc = None
    while source.first_word().startswith("|"):
        text, place = source.raw()
        lines.append(text[1:])
        loc = loc or Location(place.file, place.line, place.col + 1, place.end_col)
    foot = source.statement()
    foot.expect("ENDCPP", "lines of C++ begin with `|`")
    foot.end()
    return "\n".join(lines), loc


def _order(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    found: list[str] = []
    while not cursor.accept(")"):
        if found:
            cursor.expect(",")
        found.append(cursor.take(WORD, "a parameter").text)
    cursor.end()
    return tuple(found)


_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


def unquoted(cursor: Cursor) -> str:
    """Take a text in quotes and return what it says."""
    token = cursor.take("string", "a text in quotes")
    parts = token.text[1:-1].split("\\")
    found = parts[0]
    escaped = iter(parts[1:])
    for part in escaped:
        if not part:  # a backslash that was escaped: what follows it is plain
            found += "\\" + next(escaped, "")
        elif part[0] in _ESCAPES:
            found += _ESCAPES[part[0]] + part[1:]
        else:
            cursor.fail('`\\\\`, `\\"`, `\\n`, `\\r` or `\\t`', token=token)
    return found


def _constant(cursor: Cursor) -> tuple[str, object]:
    cursor.advance()
    name = cursor.name()
    cursor.expect("=")
    value = _value(cursor)
    cursor.end()
    return name, value


def _value(cursor: Cursor) -> object:
    token = cursor.token
    if token.kind == "string":
        return unquoted(cursor)
    if token.kind == WORD and token.text in DTYPES:
        return DTYPES[cursor.advance().text]
    if token.text in ("True", "False"):
        return cursor.advance().text == "True"
    minus = cursor.advance() if cursor.at("-") else None
    value = cursor.token
    if value.text.isdecimal() and len(value.text) <= MAX_DIGITS:
        return int(cursor.advance().text) * (1 if minus is None else -1)
    if value.kind == NUMBER or value.text in ("inf", "nan"):
        return read_number(cursor, minus).value
    cursor.fail("a number, a text in quotes, an element type, `True` or `False`")
