"""Lines that are like one that has been read before.

A long kernel says the same few things of different names. The shape of a line is its mnemonic and its types,
with those of the names in it. A shape that has been read once, token by token, is known; a line of it needs
one match of a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import WHOLE, Region
from pto_wsp.ir.region_text import operand_text
from pto_wsp.ir.scalar import Const, Expr, Var
from pto_wsp.location import Location
from pto_wsp.text.expressions import TILES
from pto_wsp.text.tokens import Source
from pto_wsp.types.tile import TileType

_LINE = re.compile(
    r"""
    ([ ]*)
    (?: (%[\w.]+)[ ]=[ ] (?: tload[ ](%[\w.]+)\[:,[ ]:\]
                           | ([\w.]+)(?:[ ](%[\w.+-]+)(?:,[ ](%[\w.+-]+)(?:,[ ](%[\w.+-]+))?)?)? )
        [ ]:[ ](.+)
    | tstore[ ](%[\w.]+),[ ](%[\w.]+)\[:,[ ]:\]
    )$ | ^.*$""",
    re.VERBOSE | re.MULTILINE,
)
"""A line: its indentation; for a load the tile, the view and the type; for an instruction the tile that it
writes, the mnemonic, up to three operands and the types; for a declaration the tile, its word and the type;
for a store the tile and the view."""

_VIEW, _DECLARE = "view", "alloc_tile"

Words = tuple[str, str, str, str, str, str, str, str, str, str]
Shape = tuple[str | None, ...]


class Shapes:
    """What has been read of one text.

    Attributes:
        rows: for the shape of an instruction, the name of its row and its number of tiles.
        literals: for the text of a scalar operand, its value.
    """

    def __init__(self) -> None:
        self.rows: dict[Shape, tuple[str, int]] = {}
        self.literals: dict[str, Const] = {}


class Names:
    """The names of one kernel, with the sign before them.

    Attributes:
        kinds: the type of a tile, scalar or literal, as text.
        scalars: what a scalar or literal is.
        tiles: types of tiles, by their names alone.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.kinds: dict[str, str] = {"": ""}
        self.scalars: dict[str, Const | Var] = {}
        self.tiles: dict[str, TileType] = {}
        for text, literal in shapes.literals.items():
            self.scalar(text, literal)

    def scalar(self, text: str, value: Const | Var) -> None:
        """Note a scalar or literal, which is always known from here on."""
        self.kinds[text], self.scalars[text] = value.dtype.name, value

    def tile(self, name: str, type: TileType) -> None:
        """Note a tile."""
        self.kinds["%" + name], self.tiles[name] = f"!pto.{type}", type

    def view(self, text: str) -> None:
        """Note a view, which lines move as a whole."""
        self.kinds[text] = _VIEW


class Lines:
    """The lines of the body of one kernel.

    Args:
        source: the text, at the first line of the body.
        shapes: what has been read of the text.
        names: the names of the kernel.
    """

    def __init__(self, source: Source, shapes: Shapes, names: Names) -> None:
        self.source = source
        self.shapes = shapes
        self.names = names
        self.first = source.line
        body: list[str] = []
        for line in source.lines[source.line - 1 :]:
            if line.startswith("}"):
                break
            body.append(line)
        self.words: list[Words] = _LINE.findall("\n".join(body)) if body else []

    def learn(self, number: int, stmt: k.Stmt) -> None:
        """Keep the shape of the instruction that a line has been read to, if it says how to make it again."""
        at = number - self.first
        if not isinstance(stmt, k.Instr) or at >= len(self.words) or not self.words[at][3]:
            return
        for scalar in stmt.scalars:
            if isinstance(scalar, Const):
                self.shapes.literals[operand_text(scalar)] = scalar
                self.names.scalar(operand_text(scalar), scalar)
        words, kind_of, row = self.words[at], self.names.kinds.get, (stmt.op, len(stmt.tiles))
        kinds = [kind_of(word) for word in (words[1], *words[4:7])]
        operands = [word for word in words[4:7] if word]
        if None not in kinds and len(operands) == len(stmt.tiles) + len(stmt.scalars):
            shape = (words[3], words[7], *kinds)
            self.shapes.rows[shape] = row

    def take(self, found: list[k.Stmt]) -> None:
        """Take lines of known shapes and moves of whole views, up to a line that is neither."""
        source, row_of, kind_of = self.source, self.shapes.rows.get, self.names.kinds.get
        filename, lines, number, tiles = source.filename, source.lines, source.line, self.names.tiles
        for words in islice(self.words, number - self.first, None):
            indent, dst, view, mnemonic, a, b, c, types, tile, to = words
            loc = Location(filename, number, len(indent) + 1, len(lines[number - 1]) + 1)
            if mnemonic:
                row = row_of((mnemonic, types, kind_of(dst), kind_of(a), kind_of(b), kind_of(c)))
                if row is not None:
                    op, num_tiles = row
                    operands = (a[1:], b[1:], c[1:]) if c else (a[1:], b[1:]) if b else (a[1:],)
                    scalars = self.scalars(words[4 + num_tiles : 7], loc) if len(operands) > num_tiles else ()
                    found.append(k.Instr(op, dst[1:], operands[:num_tiles], scalars, (), loc))
                elif mnemonic != _DECLARE or not self.declare(dst, types):
                    break
            elif view and kind_of(view) == _VIEW and kind_of(dst) == types and dst[1:] in tiles:
                found.append(k.Load(dst[1:], self.region(view, loc), loc))
            elif to and kind_of(to) == _VIEW and tile[1:] in tiles:
                found.append(k.Store(self.region(to, loc), tile[1:], loc))
            else:
                break
            number += 1
        source.line = number

    def declare(self, word: str, text: str) -> bool:
        """Note the tile that a line declares, if its name is free and its type has been read before."""
        kind, name = TILES.get(text), word[1:]
        if kind is None or word in self.names.kinds or not name.isidentifier():
            return False
        self.names.tile(name, kind)
        return True

    def region(self, view: str, loc: Location) -> Region:
        """Return the region of a whole view that stands in a line."""
        line = self.source.lines[loc.line - 1]
        return Region(
            view[1:], WHOLE, Location(loc.file, loc.line, line.index(view + "[") + 1, line.index("]") + 2)
        )

    def scalars(self, words: Sequence[str], loc: Location) -> tuple[Expr, ...]:
        """Return the scalar operands of an instruction, which stand behind its tiles."""
        line = self.source.lines[loc.line - 1]
        start = line.index(" : ") - len(", ".join(filter(None, words)))
        found: list[Expr] = []
        for word in filter(None, words):
            place, known = (
                Location(loc.file, loc.line, start + 1, start + 1 + len(word)),
                self.names.scalars[word],
            )
            start += len(word) + len(", ")
            if isinstance(known, Const):
                found.append(Const(known.value, known.dtype, place))
            else:
                found.append(Var(known.name, known.dtype, place))
        return tuple(found)
