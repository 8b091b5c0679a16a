"""Lines that are like one that has been read before.

A long kernel says the same few things of different names. The shape of a line is its mnemonic and its types,
with those of the names in it. A shape that has been read once, token by token, is known; a line of it needs
one match of a pattern, and a line that its kernel repeats needs none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import WHOLE, Region
from pto_wsp.ir.region_text import operand_text
from pto_wsp.ir.scalar import Const, Expr, Var
from pto_wsp.location import Location
from pto_wsp.text.expressions import TILES
from pto_wsp.text.tokens import Source
from pto_wsp.types.tile import ScalarType, TileType, ViewType

_INSTRUCTION = re.compile(
    r" *(%[\w.]+) = ([\w.]+)(?: (%[\w.+-]+)(?:, (%[\w.+-]+)(?:, (%[\w.+-]+))?)?)? : (.+)"
)
"""A line: the tile that it writes, its mnemonic, up to three operands, and its types."""

_LOAD = re.compile(r" *(%[\w.]+) = tload (%[\w.]+)\[:, :\] : (.+)")
_STORE = re.compile(r" *tstore (%[\w.]+), (%[\w.]+)\[:, :\]")
_DECLARATION = re.compile(r" *%([\w.]+) = alloc_tile : (.+)")

_HEAD = re.compile(r"func @([^\W\d]\w*)\((.*)\) \{")
_PARAM = re.compile(r"%([^\W\d]\w*): (!pto\.memref<[^<>]*> \{[a-z, ]*\}|\w+)(?:, (?=%)|$)")

_VIEW = "view"

Shape = tuple[str | None, ...]
Make = Callable[[Location], k.Stmt]


class Shapes:
    """What has been read of one text.

    Attributes:
        rows: for the shape of an instruction, the name of its row and its number of tiles.
        literals: for the text of a scalar operand, its value.
        params: for what stands behind the name of a parameter of a kernel, its role and its type.
    """

    def __init__(self) -> None:
        self.rows: dict[Shape, tuple[str, int]] = {}
        self.literals: dict[str, Const] = {}
        self.params: dict[str, tuple[str, TileType | ViewType | ScalarType]] = {}

    def learn_head(self, line: str, params: Sequence[k.Param]) -> None:
        """Keep how the parameters of the kernel are written whose head a line has been read to."""
        head = _HEAD.fullmatch(line)
        written = _PARAM.findall(head[2]) if head is not None else []
        if [name for name, _ in written] == [param.name for param in params]:
            for (_, text), param in zip(written, params, strict=True):
                self.params[text] = (param.role, param.type)

    def known_head(self, line: str, filename: str, number: int) -> k.KernelFunction | None:
        """Return the kernel whose head a line is, bare; None where it has to be read token by token."""
        head = _HEAD.fullmatch(line)
        if head is None:
            return None
        params: dict[str, k.Param] = {}
        at, has_views = head.start(2), False
        for found in _PARAM.finditer(head[2]):
            name, text = found.groups()
            known = self.params.get(text)
            if known is None or found.start() + head.start(2) != at or name in params:
                return None
            place = Location(filename, number, at + 1, at + 2 + len(name))
            params[name] = k.Param(name, *known, place)
            at, has_views = head.start(2) + found.end(), has_views or text[0] == "!"
        if at != head.end(2) or not has_views:
            return None
        loc = Location(filename, number, 1, len(line) + 1)
        return k.KernelFunction(head[1], tuple(params.values()), loc=loc)


class Names:
    """The names of one kernel, with the sign before them.

    Attributes:
        kinds: the type of a tile, scalar or literal, as text.
        scalars: what a scalar or literal is.
        tiles: types of tiles, by their names alone.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.kinds: dict[str | None, str] = {None: ""}
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
        source: the text.
        shapes: what has been read of the text.
        names: the names of the kernel.

    Attributes:
        seen: for a line, its first and last column, and what makes its statement at a place. It stays right
            because a name of a kernel is one thing from its declaration on.
    """

    def __init__(self, source: Source, shapes: Shapes, names: Names) -> None:
        self.source = source
        self.shapes = shapes
        self.names = names
        self.seen: dict[str, tuple[int, int, Make]] = {}

    def learn(self, line: str, stmt: k.Stmt) -> None:
        """Keep the shape of the instruction that a line has been read to, if it says how to make it again."""
        words = _INSTRUCTION.fullmatch(line)
        if not isinstance(stmt, k.Instr) or words is None:
            return
        for scalar in stmt.scalars:
            if isinstance(scalar, Const):
                self.shapes.literals[operand_text(scalar)] = scalar
                self.names.scalar(operand_text(scalar), scalar)
        dst, mnemonic, *operands, types = words.groups()
        kinds = [self.names.kinds.get(word) for word in (dst, *operands)]
        given = len(operands) - operands.count(None)
        if None not in kinds and given == len(stmt.tiles) + len(stmt.scalars):
            self.shapes.rows[mnemonic, types, *kinds] = (stmt.op, len(stmt.tiles))

    def take(self, found: list[k.Stmt]) -> bool:
        """Take lines of known shapes and moves of whole views, up to a line that is neither.

        Returns:
            whether there were any.
        """
        source, seen = self.source, self.seen.get
        filename, lines, first = source.filename, source.lines, source.line
        number, count = first, len(lines)
        while number <= count:
            line = lines[number - 1]
            known = seen(line) or self.known(line)
            if known is not None:
                col, end, make = known
                found.append(make(Location(filename, number, col, end)))
            elif not self.declare(line):
                break
            number += 1
        source.line = number
        return number > first

    def known(self, line: str) -> tuple[int, int, Make] | None:
        """Return what makes the statement of a line; None where it has to be read token by token."""
        make = self._instruction(line) if "[" not in line else self._load(line) or self._store(line)
        if make is None:
            return None
        found = self.seen[line] = (len(line) - len(line.lstrip()) + 1, len(line) + 1, make)
        return found

    def _instruction(self, line: str) -> Make | None:
        words = _INSTRUCTION.fullmatch(line)
        if words is None:
            return None
        dst, mnemonic, a, b, c, types = words.groups()
        kind_of = self.names.kinds.get
        row = self.shapes.rows.get((mnemonic, types, kind_of(dst), kind_of(a), kind_of(b), kind_of(c)))
        if row is None:
            return None
        op, num_tiles = row
        operands = [word for word in (a, b, c) if word is not None]
        name, tiles = dst[1:], tuple([word[1:] for word in operands[:num_tiles]])
        if num_tiles == len(operands):
            return lambda loc: k.Instr(op, name, tiles, (), (), loc)
        given = self._scalars(operands[num_tiles:], line.index(" : "))
        return lambda loc: k.Instr(op, name, tiles, tuple([scalar(loc) for scalar in given]), (), loc)

    def _scalars(self, words: Sequence[str], end: int) -> list[Callable[[Location], Expr]]:
        """Return what makes the scalar operands of a line, which stand in it side by side up to `end`."""
        start = end - len(", ".join(words))
        found: list[Callable[[Location], Expr]] = []
        for word in words:
            found.append(_scalar(self.names.scalars[word], start + 1, start + 1 + len(word)))
            start += len(word) + len(", ")
        return found

    def _load(self, line: str) -> Make | None:
        words = _LOAD.fullmatch(line)
        if words is None:
            return None
        dst, view, types = words.groups()
        kind_of, name = self.names.kinds.get, dst[1:]
        if kind_of(view) != _VIEW or kind_of(dst) != types or name not in self.names.tiles:
            return None
        region = _whole(line, view)
        return lambda loc: k.Load(name, region(loc), loc)

    def _store(self, line: str) -> Make | None:
        words = _STORE.fullmatch(line)
        if words is None:
            return None
        name, view = words[1][1:], words[2]
        if self.names.kinds.get(view) != _VIEW or name not in self.names.tiles:
            return None
        region = _whole(line, view)
        return lambda loc: k.Store(region(loc), name, loc)

    def declare(self, line: str) -> bool:
        """Note the tile that a line declares, if its name is free and its type has been read before."""
        words = _DECLARATION.fullmatch(line)
        if words is None:
            return False
        name, kind = words[1], TILES.get(words[2])
        if kind is None or "%" + name in self.names.kinds or not name.isidentifier():
            return False
        self.names.tile(name, kind)
        return True


def _scalar(known: Const | Var, col: int, end: int) -> Callable[[Location], Expr]:
    match known:
        case Const(value=value, dtype=dtype):
            return lambda loc: Const(value, dtype, Location(loc.file, loc.line, col, end))
        case Var(name=name, dtype=dtype):
            return lambda loc: Var(name, dtype, Location(loc.file, loc.line, col, end))


def _whole(line: str, view: str) -> Callable[[Location], Region]:
    """Return what makes the region of a whole view that stands in a line."""
    name, col, end = view[1:], line.index(view + "[") + 1, line.index("]") + 2
    return lambda loc: Region(name, WHOLE, Location(loc.file, loc.line, col, end))
