"""Loads that begin some iterations ahead: their tiles have several places, and copies overlap arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_wsp.analysis.loop_loads import is_straight, loaded_tiles, most_turns
from pto_wsp.ir.effects import names_read, tile_written
from pto_wsp.ir.kernel import Assign, For, KernelFunction, Load, Store, walk_statements
from pto_wsp.ir.scalar import Element, TileElement, walk
from pto_wsp.support.record import replace
from pto_wsp.targets.cuda.memory import LEAST_SHARED_BYTES, BlockMemory, LoadsAhead

MOST_STAGES = 4
"""Places of a tile at most."""

Plan = Callable[[Sequence[LoadsAhead]], BlockMemory]
"""Returns the memory of a kernel whose loads begin ahead like this."""


def with_two_places(kernel: KernelFunction, plan: Plan) -> tuple[list[LoadsAhead], BlockMemory]:
    """Return loads that begin one iteration ahead, in program order as far as every GPU has memory."""
    found: list[LoadsAhead] = []
    memory = plan(found)
    for loop, load in loads_ahead(kernel):
        others = [its for its in found if its.loop is not loop]
        before = tuple(each for its in found if its.loop is loop for each in its.loads)
        tried = [*others, LoadsAhead(loop, (*before, load), 2)]
        larger = plan(tried)
        if _fits(larger, LEAST_SHARED_BYTES):
            found, memory = tried, larger
    return found, memory


def with_more_places(
    kernel: KernelFunction, ahead: Sequence[LoadsAhead], plan: Plan, most_bytes: int
) -> list[LoadsAhead]:
    """Return loads that begin up to three iterations ahead, in program order as far as there is memory.

    A loop has at most as many stages as iterations. Where a load in place waits for all copies before it,
    more than two stages are useless.
    """
    found = list(ahead)
    for number, its in enumerate(ahead):
        if len(its.loads) < sum(isinstance(stmt, Load) for stmt in its.loop.body):
            continue
        for stages in range(min(MOST_STAGES, most_turns(its.loop, kernel)), 2, -1):
            tried = [*found[:number], replace(its, stages=stages), *found[number + 1 :]]
            if _fits(plan(tried), most_bytes):
                found = tried
                break
    return found


def _fits(memory: BlockMemory, most_bytes: int) -> bool:
    return memory.shared_bytes <= most_bytes and not memory.spilled_bytes


def loads_ahead(kernel: KernelFunction) -> list[tuple[For, Load]]:
    """Return the loads that can begin in an iteration before, with their loops, in program order.

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
