"""Loads that begin one iteration ahead: their tiles have two places, and copies overlap arithmetic."""

from __future__ import annotations

from pto_wsp.analysis.loop_loads import is_straight, loaded_tiles
from pto_wsp.ir.effects import names_read, tile_written
from pto_wsp.ir.kernel import Assign, For, KernelFunction, Load, Store, walk_statements
from pto_wsp.ir.scalar import Element, TileElement, walk


def loads_ahead(kernel: KernelFunction) -> list[tuple[For, Load]]:
    """Return the loads that can begin in the iteration before, with their loops, in program order.

    The loop stores nothing, so no load reads what an iteration writes. The region follows from the variable
    of the loop, and from values that the loop does not change.
    """
    loops = [s for s in walk_statements(kernel.body or ()) if isinstance(s, For) and is_straight(s.body)]
    tiles = loaded_tiles(kernel)
    return [
        (loop, load)
        for loop in loops
        for load in _of_loop(loop, {tile for tile, its in tiles.items() if its is loop})
    ]


def _of_loop(loop: For, tiles: set[str]) -> tuple[Load, ...]:
    if any(isinstance(stmt, Store) for stmt in loop.body):
        return ()
    written = [tile_written(stmt) for stmt in loop.body]
    changed = {stmt.name for stmt in loop.body if isinstance(stmt, Assign)} | set(written)
    return tuple(
        stmt
        for stmt in loop.body
        if isinstance(stmt, Load)
        and stmt.tile in tiles
        and written.count(stmt.tile) == 1
        and stmt.rows is None
        and not names_read(stmt) & changed
        and not _reads_elements(stmt)
    )


def _reads_elements(load: Load) -> bool:
    parts = (part for expr in load.region.expressions for part in walk(expr))
    return any(isinstance(part, Element | TileElement) for part in parts)
