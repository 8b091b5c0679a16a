"""Which form a function is written in, and of which kind it is where no comment says so."""

from __future__ import annotations

from pto_wsp.support.record import record
from pto_wsp.text.foreign.functions import WORDS
from pto_wsp.text.tokens import TYPE, WORD, Cursor, Source

_HEAD_WORDS = frozenset({"index", "ragged", "sparse"})
_TILE_WORDS = ("alloc_tile", "tload", "tstore", "CPP", ".tile")


@record
class FunctionForm:
    """What the head and the body of a function show.

    Attributes:
        is_workload: it has calls, and nothing on tiles.
        is_foreign: it is in a form of elsewhere.
        is_foreign_workload: it is in one if it is a workload.
    """

    is_workload: bool
    is_foreign: bool
    is_foreign_workload: bool


def form_of(source: Source, head: Cursor, last: str) -> FunctionForm:
    """Return the form of a function whose head has been read up to its name.

    Args:
        source: the text, at the first line of the body.
        head: the head, at its parameters.
        last: the word that ends the body.
    """
    tokens = head.left()
    types = [number for number, token in enumerate(tokens) if token.kind == TYPE]
    texts = [tokens[number].text for number in types]
    words = {token.text for token in tokens if token.kind == WORD}
    plain = [number for number in types if tokens[number + 1 : number + 2] and tokens[number + 1].text != "{"]
    shows_workload = bool(words & _HEAD_WORDS) or any('"' in text for text in texts)
    if not shows_workload and types and not plain and not words & {"local", "distinct"}:
        return FunctionForm(False, False, False)
    body = _Body(source, last)
    unshaped = any("..." in text or text == "!pto.memref" for text in texts)
    is_workload = shows_workload or (body.has_calls and not body.has_tiles)
    is_foreign = last == ".end" or body.has_foreign_words or (unshaped and bool(plain))
    is_foreign = is_foreign or (bool(plain) and not is_workload)
    return FunctionForm(
        is_workload, is_foreign and not shows_workload, body.has_foreign_loops and not shows_workload
    )


class _Body:
    """What the lines of a body begin with."""

    def __init__(self, source: Source, last: str) -> None:
        self.has_calls = self.has_tiles = self.has_foreign_words = self.has_foreign_loops = False
        for line in source.lines[source.line - 1 :]:
            text = line.strip()
            word = text.partition(" ")[0]
            if word == last:
                break
            self.has_calls |= word == "CALL"
            self.has_tiles |= any(part in text for part in _TILE_WORDS)
            self.has_foreign_words |= word in WORDS or (word == "CALL" and "->" in text)
            self.has_foreign_loops |= (word == "FOR" and not text.endswith("}")) or "alloc_scalar" in text
