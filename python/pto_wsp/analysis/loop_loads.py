"""Tiles that a loop loads in each iteration: they can have two places, so that loads overlap other work."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pto_wsp.analysis.liveness import names_at_head
from pto_wsp.ir.effects import names_read, tile_written
from pto_wsp.ir.kernel import For, If, KernelFunction, Load, Stmt, While, blocks, walk_statements
from pto_wsp.ir.scalar import Const


def most_turns(loop: For | While) -> int:
    """Return how many iterations a loop has at most, as far as its numbers say."""
    if not isinstance(loop, For) or not isinstance(loop.start, Const) or not isinstance(loop.stop, Const):
        return sys.maxsize
    return len(range(int(loop.start.value), int(loop.stop.value), loop.step))


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
        if not isinstance(loop, For | While) or not is_straight(loop.body) or most_turns(loop) < 2:
            continue
        inside = {id(stmt) for block in blocks(loop) for stmt in block}
        outside = {name for stmt in stmts if id(stmt) not in inside for name in _used(stmt)}
        kept = names_at_head(loop.body, frozenset())
        fresh = {stmt.tile for stmt in loop.body if isinstance(stmt, Load)} - outside - kept
        found |= dict.fromkeys(fresh, loop)
    return found


def _used(stmt: Stmt) -> frozenset[str]:
    return names_read(stmt) | {tile_written(stmt) or ""}
