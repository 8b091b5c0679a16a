"""Tiles that a loop loads in each iteration: they can have two places, so that loads overlap other work."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pto_wsp.analysis.liveness import names_at_head
from pto_wsp.ir.effects import names_read, tile_written
from pto_wsp.ir.kernel import For, If, KernelFunction, Load, Stmt, While, blocks, walk_statements
from pto_wsp.ir.scalar import Const, Expr, Extent
from pto_wsp.types.tile import TileType, ViewType


def most_turns(loop: For | While, kernel: KernelFunction) -> int:
    """Return how many iterations a loop has at most: by its numbers, or by the type of a parameter."""
    if not isinstance(loop, For) or not isinstance(loop.start, Const):
        return sys.maxsize
    stop = _largest(loop.stop, kernel)
    return sys.maxsize if stop is None else len(range(int(loop.start.value), stop, loop.step))


def _largest(expr: Expr, kernel: KernelFunction) -> int | None:
    """Return what a constant or an extent of a parameter is at most, or None."""
    if isinstance(expr, Const):
        return int(expr.value)
    types = [view.type for view in kernel.views if isinstance(expr, Extent) and view.name == expr.name]
    if not types or not isinstance(expr, Extent):
        return None
    kind = types[0]
    if isinstance(kind, TileType):
        return (kind.rows, kind.cols)[expr.dim]
    return kind.dims[expr.dim] if isinstance(kind, ViewType) and kind.dims is not None else None


def is_straight(body: Iterable[Stmt]) -> bool:
    """Return whether statements hold no loop and no choice."""
    return not any(isinstance(stmt, For | While | If) for stmt in body)


def loaded_tiles(kernel: KernelFunction) -> dict[str, For | While | None]:
    """Return the tiles that loads write, with the only loop that uses a tile, if it loads it every time.

    The loop is straight; it is None for other tiles.
    """
    stmts = tuple(walk_statements(kernel.body or ()))
    found: dict[str, For | While | None] = {s.tile: None for s in stmts if isinstance(s, Load)}
    for loop in stmts:
        if not isinstance(loop, For | While) or not is_straight(loop.body) or most_turns(loop, kernel) < 2:
            continue
        inside = {id(stmt) for block in blocks(loop) for stmt in block}
        outside = {name for stmt in stmts if id(stmt) not in inside for name in _used(stmt)}
        kept = names_at_head(loop.body, frozenset())
        fresh = {stmt.tile for stmt in loop.body if isinstance(stmt, Load)} - outside - kept
        found |= dict.fromkeys(fresh, loop)
    return found


def _used(stmt: Stmt) -> frozenset[str]:
    return names_read(stmt) | {tile_written(stmt) or ""}
