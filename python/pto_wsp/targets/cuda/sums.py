"""Sums of products that tensor cores add: their shapes in registers, and those that stay there in a loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeGuard

from pto_wsp.ir.effects import names_read, tile_written, tiles_read
from pto_wsp.ir.kernel import (
    For,
    Instr,
    KernelFunction,
    Stmt,
    While,
    blocks,
    rebuild,
    statement_expressions,
    walk_statements,
)
from pto_wsp.ir.scalar import TileElement, walk
from pto_wsp.isa.forms import ADDS_ONTO, PRODUCTS, factors
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import record, replace
from pto_wsp.targets.c_style.plan import ELEMENT, operand_places
from pto_wsp.targets.cpu.templates import TEMPLATES, Vector
from pto_wsp.types.dtype import bf16, f16
from pto_wsp.types.tile import TileType

WARPS = 4
"""Warps of a block, which share the sums of a tile: `kSumsWarps` of sums.hpp."""

SQUARE = 16
"""Rows and columns of the sums that a warp adds together: `kSquare` of sums.hpp."""

MOST_REGISTERS = 128
"""Registers of a thread for sums, of the 255 that it has: 16,384 sums of a block of 128 threads."""

FEW_REGISTERS = 32
"""Registers for sums that a kernel shares with the code that calls it."""


@record
class Shape:
    """How the warps of a block share sums: the arguments of `Sums` in sums.hpp.

    Attributes:
        rows, cols: squares of a warp.
        across: warps side by side.
    """

    rows: int
    cols: int
    across: int

    @property
    def registers(self) -> int:
        """Registers of each thread."""
        return self.rows * self.cols * SQUARE * SQUARE // 32


def shape_of(tile: TileType) -> Shape:
    """Return the shape of all sums of a tile with the fewest registers, then the fewest loads."""
    down, across = -(-tile.rows // SQUARE), -(-tile.cols // SQUARE)
    shapes = [Shape(-(-down * side // WARPS), -(-across // side), side) for side in (1, 2, 4)]
    return min(shapes, key=lambda shape: (shape.registers, shape.rows + shape.cols))


def part_shape(tile: TileType) -> Shape:
    """Return the shape of the sums of a tile that are added together: all, where registers suffice."""
    whole = shape_of(tile)
    if whole.registers <= MOST_REGISTERS:
        return whole
    return shape_of(TileType(min(tile.rows, 128), min(tile.cols, 128), tile.dtype))


def uses_tensor_cores(stmt: Stmt, types: Mapping[str, TileType]) -> TypeGuard[Instr]:
    """Return whether a statement is a product of two tiles of f16, or of two of bf16."""
    if not isinstance(stmt, Instr) or TABLE[stmt.op].form not in PRODUCTS:
        return False
    a, b = (types[tile].dtype for tile in factors(TABLE[stmt.op].form, stmt.tiles))
    return a is b and a in (f16, bf16)


def sums_in_registers(kernel: KernelFunction) -> Mapping[int, tuple[str, ...]]:
    """Return the tiles whose sums stay in registers while a loop runs, by the id of the loop.

    In the loop, products of tensor cores add to such a tile, elementwise instructions change it in place, and
    nothing else uses it. Of nested loops, the outer one counts. Registers are given in program order; other
    products of the loop have theirs, too.
    """
    return dict(_of_body(kernel.body or (), dict(kernel.tiles), 0, frozenset()))


def changes_in_registers(kernel: KernelFunction, sums: Mapping[int, Sequence[str]]) -> frozenset[int]:
    """Return the ids of the elementwise instructions that change sums where these lie in registers.

    Args:
        kernel: the kernel.
        sums: its sums in registers, by the id of the loop.
    """
    types = dict(kernel.tiles)
    loops = (stmt for stmt in walk_statements(kernel.body or ()) if id(stmt) in sums)
    return frozenset(
        id(stmt)
        for loop in loops
        if isinstance(loop, For | While)
        for stmt in walk_statements(loop.body)
        if tile_written(stmt) in sums[id(loop)] and not uses_tensor_cores(stmt, types)
    )


def add_in_place(kernel: KernelFunction) -> KernelFunction:
    """Return a kernel in which products that add to one another in turn have one tile: their last result.

    `s = d * x`, `d = s + a @ b` becomes `d = d * x`, `d = d + a @ b` where nothing else has `s`, and nothing
    in between has `d`. Other elementwise instructions and products make such a link `s`, too.
    """
    statements = [*walk_statements(kernel.body or ())]
    mentions = Counter(name for stmt in statements for name in _names(stmt))
    links = {name for name, count in mentions.items() if count == 2}
    types, left_out = dict(kernel.tiles), set[str]()
    sums = _sums_by_links(statements, types, links)

    def rewritten(block: Sequence[Stmt]) -> tuple[Stmt, ...]:
        found = [rebuild(stmt, rewritten) for stmt in block]
        for place in reversed(range(len(found))):
            stmt = found[place]
            if not _makes_sums(stmt, types) or stmt.dst not in sums:
                continue
            link = stmt.tiles[0]
            if link not in links or types[link] != types[stmt.dst]:
                continue
            for before in reversed(range(place)):
                maker = found[before]
                if _makes_sums(maker, types) and maker.dst == link:
                    found[before] = replace(maker, dst=stmt.dst)
                    found[place] = replace(stmt, tiles=(stmt.dst, *stmt.tiles[1:]))
                    left_out.add(link)
                    break
                if stmt.dst in {name for its in walk_statements([maker]) for name in _names(its)}:
                    break
        return tuple(found)

    body = rewritten(kernel.body or ())
    if not left_out:
        return kernel
    return replace(kernel, body=body, tiles=tuple(t for t in kernel.tiles if t[0] not in left_out))


def _sums_by_links(
    statements: Sequence[Stmt], types: Mapping[str, TileType], links: Set[str]
) -> frozenset[str]:
    """Return the tiles that products add to or make, and those that follow from them by links."""
    found = set[str]()
    for stmt in statements:
        if _adds(stmt, types):
            found |= {stmt.dst, stmt.tiles[0]}
        elif _is_elementwise(stmt, types) and stmt.tiles[0] in found & links:
            found.add(stmt.dst)
    return frozenset(found)


def _names(stmt: Stmt) -> set[str]:
    result = tile_written(stmt)
    return {*names_read(stmt), *([] if result is None else [result])}


def most_registers(kernel: KernelFunction, sums: Mapping[int, Sequence[str]]) -> int:
    """Return the registers of a thread for the sums of one product, or of one loop."""
    types = dict(kernel.tiles)
    statements = walk_statements(kernel.body or ())
    alone = (part_shape(types[s.dst]).registers for s in statements if uses_tensor_cores(s, types))
    together = (sum(shape_of(types[tile]).registers for tile in tiles) for tiles in sums.values())
    return max((*alone, *together), default=0)


def _of_body(
    body: Iterable[Stmt], types: Mapping[str, TileType], taken: int, above: Set[str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for stmt in body:
        found: tuple[str, ...] = ()
        if isinstance(stmt, For | While):
            found = _of_loop(stmt, types, taken, above)
            if found:
                yield id(stmt), found
        inner = taken + sum(shape_of(types[tile]).registers for tile in found)
        for block in blocks(stmt):
            yield from _of_body(block, types, inner, above | set(found))


def _of_loop(
    loop: For | While, types: Mapping[str, TileType], taken: int, above: Set[str]
) -> tuple[str, ...]:
    inside = [*([loop] if isinstance(loop, While) else []), *walk_statements(loop.body)]
    added = dict.fromkeys(stmt.dst for stmt in inside if _adds_in_place(stmt, types))
    others = {tile for stmt in inside for tile in _used_otherwise(stmt, types)}
    products = {stmt.dst for stmt in inside if isinstance(stmt, Instr) and uses_tensor_cores(stmt, types)}
    found: list[str] = []
    for tile in added:
        if tile in others or tile in above:
            continue
        rest = products - above - {*found, tile}
        registers = taken + sum(shape_of(types[its]).registers for its in (*found, tile))
        if registers + max((part_shape(types[its]).registers for its in rest), default=0) <= MOST_REGISTERS:
            found.append(tile)
    return tuple(found)


def _adds(stmt: Stmt, types: Mapping[str, TileType]) -> TypeGuard[Instr]:
    return uses_tensor_cores(stmt, types) and TABLE[stmt.op].form in ADDS_ONTO


def _adds_in_place(stmt: Stmt, types: Mapping[str, TileType]) -> TypeGuard[Instr]:
    return _adds(stmt, types) and stmt.dst == stmt.tiles[0]


def _is_elementwise(stmt: Stmt, types: Mapping[str, TileType]) -> TypeGuard[Instr]:
    """Return whether element [i, j] of a result follows from that element of its first operand."""
    if not isinstance(stmt, Instr) or not isinstance(TEMPLATES[stmt.op], Vector) or not stmt.tiles:
        return False
    is_column = types[stmt.dst].cols == 1
    return not is_column and operand_places(stmt, is_column=False)[0] == ELEMENT


def _makes_sums(stmt: Stmt, types: Mapping[str, TileType]) -> TypeGuard[Instr]:
    return _adds(stmt, types) or _is_elementwise(stmt, types)


def _used_otherwise(stmt: Stmt, types: Mapping[str, TileType]) -> list[str]:
    """Return the tiles that a statement uses, without a sum that it adds to or changes in place."""
    touched = list(_touched(stmt))
    if not _makes_sums(stmt, types) or stmt.dst != stmt.tiles[0] or touched.count(stmt.dst) != 2:
        return touched
    return [tile for tile in touched if tile != stmt.dst]


def _touched(stmt: Stmt) -> Sequence[str]:
    """Return the tiles whose elements a statement reads or writes."""
    parts = (part for expr in statement_expressions(stmt) for part in walk(expr))
    elements = [part.name for part in parts if isinstance(part, TileElement)]
    result = tile_written(stmt)
    return [*tiles_read(stmt), *elements, *([] if result is None else [result])]
