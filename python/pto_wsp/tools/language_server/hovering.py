"""What an editor shows for a word: the row of the instruction table, or the entry of the reference."""

from __future__ import annotations

import re
from functools import cache

from pto_wsp.isa import BY_FUNCTION, BY_MNEMONIC
from pto_wsp.isa.table import Instruction
from pto_wsp.lang.kernel.help import SHAPES, bound_text
from pto_wsp.tools.reference import entries

_WORD = re.compile(r"[A-Za-z_][\w.]*")


def word_at(line: str, column: int) -> str:
    """Return the dotted word around a column (from 0) of a line, cut after the part that the column is in."""
    for match in _WORD.finditer(line):
        if match.start() <= column <= match.end():
            end = line.find(".", column, match.end())
            return line[match.start() : match.end() if end < 0 else end]
    return ""


def hover(word: str, is_text: bool) -> str | None:
    """Return Markdown about a word of a document, or None.

    Args:
        word: dotted in Python, as `pto.exp` or `P.tiles`; a mnemonic in text.
        is_text: whether the document is `.pto` text.
    """
    if is_text:
        row = BY_MNEMONIC.get(word)
        return None if row is None else _row(row)
    module, _, name = word.rpartition(".")
    if module == "pto" and name in BY_FUNCTION:
        return _row(BY_FUNCTION[name])
    return _reference().get(word)


def _row(row: Instruction) -> str:
    """Return a row of the instruction table as a list."""
    shapes, example = SHAPES[row.form]
    types = " ".join(sorted(str(dtype) for dtype in row.dtypes))
    lines = [f"**{row.name}**: {row.doc}", "", f"- shapes: {shapes}", f"- element types: {types}"]
    lines += [f"- error: {bound_text(row.bound)}", f"- text: `{row.mnemonic}`"]
    if row.function is not None:
        lines += ["", f"```python\n{example.format(name=row.function)}\n```"]
    return "\n".join(lines)


@cache
def _reference() -> dict[str, str]:
    """Return the entries of the reference by heading."""
    return {heading: text for _, heading, text in entries()}
