"""Lines that are like one that has been read before.

A long kernel says the same few things of different names. A line whose words, types and kinds of operands
have been read once, token by token, is known: it is taken apart at its separators and looked up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Region
from pto_wsp.ir.scalar import Const, Expr, Var
from pto_wsp.location import Location
from pto_wsp.text.tokens import Source
from pto_wsp.types.dtype import DType

_FULL = (Full(), Full())
_INSTRUCTION = re.compile(
    r"\s*(%[\w.]+) = ([\w.]+) (%[\w.+-]+)(?:, (%[\w.+-]+)(?:, (%[\w.+-]+))?)? : (.*\S)\s*"
)
_MOVE = re.compile(
    r"\s*(?:%([\w.]+) = tload (%([\w.]+)\[:, :\]) : (.*\S)|tstore %([\w.]+), (%([\w.]+)\[:, :\]))\s*"
)

Shape = tuple[str | None, ...]


class Shapes:
    """What has been read of one text.

    Attributes:
        rows: for the shape of an instruction, the name of its row.
        literals: for the text of a scalar operand, its value.
    """

    def __init__(self) -> None:
        self.rows: dict[Shape, str] = {}
        self.literals: dict[str, Const] = {}


class Names:
    """The names of one kernel, as lines write them.

    Attributes:
        tiles: the types of tiles, as text.
        scalars: the types of scalars, without the sign of their names.
        views: views, without the sign of their names.
    """

    def __init__(self, scalars: Mapping[str, DType], views: Collection[str]) -> None:
        self.tiles: dict[str, str] = {}
        self.scalars = scalars
        self.views = views


def take_known(source: Source, shapes: Shapes, names: Names, found: list[k.Stmt]) -> None:
    """Take lines that are instructions of known shapes or moves of whole views, up to one that is not."""
    filename, lines, row_of, tiles = source.filename, source.lines, shapes.rows.get, names.tiles
    for number in range(source.line, len(lines) + 1):
        match = _INSTRUCTION.fullmatch(lines[number - 1])
        if match is None:
            stmt = _move(lines[number - 1], names, filename, number)
            if stmt is None:
                break
            found.append(stmt)
            continue
        dst, mnemonic, a, b, c, types = match.groups()
        operands = (a, b, c) if c else (a, b) if b else (a,)
        scalars: tuple[Expr, ...] = ()
        kinds = [tiles.get(operand) for operand in operands]
        if kinds[-1] is None:
            place = Location(filename, number, *_columns(match, 2 + len(operands)))
            scalar = _scalar(operands[-1], shapes, names, place)
            if scalar is None:
                break
            scalars, operands, kinds[-1] = (scalar,), operands[:-1], scalar.dtype.name
        row = row_of((mnemonic, types, tiles.get(dst), *kinds))
        if row is None:
            break
        loc = Location(filename, number, match.start(1) + 1, match.end(6) + 1)
        tile_names = tuple([operand[1:] for operand in operands])
        found.append(k.Instr(row, dst[1:], tile_names, scalars, (), loc))
    else:
        number = len(lines) + 1
    source.line = number


def _columns(match: re.Match[str], group: int) -> tuple[int, int]:
    start, end = match.span(group)
    return start + 1, end + 1


def _scalar(text: str, shapes: Shapes, names: Names, place: Location) -> Expr | None:
    """Return an operand if it is a scalar that is known."""
    literal = shapes.literals.get(text)
    if literal is not None:
        return Const(literal.value, literal.dtype, place)
    dtype = names.scalars.get(text[1:])
    return None if dtype is None else Var(text[1:], dtype, place)


def _move(line: str, names: Names, filename: str, number: int) -> k.Stmt | None:
    """Return the load or store of a whole view that a line is."""
    match = _MOVE.fullmatch(line)
    if match is None:
        return None
    is_load = match[1] is not None
    tile, _, view, types = match.group(1, 2, 3, 4) if is_load else match.group(5, 6, 7, 5)
    known = names.tiles.get("%" + tile)
    if view not in names.views or known is None or (is_load and known != types):
        return None
    place = Location(filename, number, *_columns(match, 2 if is_load else 6))
    region = Region(view, _FULL, place)
    start = len(line) - len(line.lstrip())
    loc = Location(filename, number, start + 1, len(line.rstrip()) + 1)
    return k.Load(tile, region, loc) if is_load else k.Store(region, tile, loc)
