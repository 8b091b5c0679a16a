"""Loads that read the first rows of a tensor again and again, as kernels for larger tiles do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pto_wsp.ir.effects import names_read, tile_written
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Prefetch, Stmt, walk_statements
from pto_wsp.ir.scalar import Const


def periods(kernel: KernelFunction) -> dict[str, int]:
    """Return the tiles that number rows from 0 to a period again and again, if they only name rows of loads.

    `iota %p, 0` and `rems %p, %p, period` write such a tile. A move counts its rows itself.
    """
    stmts = tuple(walk_statements(kernel.body or ()))
    found = dict(named for first, again in pairwise(stmts) if (named := _named(first, again)))
    return {tile: period for tile, period in found.items() if _uses(stmts, tile) == 2}


def _named(first: Stmt, again: Stmt) -> tuple[str, int] | None:
    match first, again:
        case (
            Instr(op="iota", dst=tile, scalars=(Const(value=0),)),
            Instr(op="rems", dst=name, tiles=(source,), scalars=(Const(value=period),)),
        ) if tile == name == source and period > 0:
            return tile, int(period)
        case _:
            return None


def _uses(stmts: Sequence[Stmt], tile: str) -> int:
    """Return how many statements use a tile, except loads and prefetches of rows that it names."""
    using = (stmt for stmt in stmts if tile in names_read(stmt) | {tile_written(stmt)})
    return sum(not _reads_rows(stmt, tile) for stmt in using)


def _reads_rows(stmt: Stmt, tile: str) -> bool:
    """Return whether a statement reads rows that a tile names, and does not write the tile."""
    return isinstance(stmt, Load | Prefetch) and stmt.rows == tile != tile_written(stmt)
