"""Where the tiles of a block lie, and which loops the steps of a group become.

Buffers of tiles that are not in use at the same time share memory (`analysis/buffers.py`). Tiles that do not
fit shared memory together with the others lie in global memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from pto_wsp.analysis.buffers import Lifetimes, LiveBuffer, live_at_peak, pack, round_up
from pto_wsp.analysis.steps import REDUCTIONS, Step
from pto_wsp.ir.effects import tile_written, tiles_read
from pto_wsp.ir.kernel import Assign, For, Instr, KernelFunction, Load, Store, walk_statements
from pto_wsp.isa.forms import ADDS_ONTO, IN_PLACE
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import record
from pto_wsp.targets.c_style.lifetimes import uses
from pto_wsp.targets.c_style.plan import Alone, Group, Node, PlannedLoop, steps_of, walk_nodes
from pto_wsp.targets.cuda.sums import changes_in_registers, uses_tensor_cores
from pto_wsp.types.tile import TileType

ROW_BYTES = 16
"""Rows of tiles begin at multiples of it, the largest asynchronous copy: `kCopyBytes` of device.hpp."""

SHARED_BYTES = 161 * 1024
"""Shared memory that a kernel can have on devices of compute capability 8.0 and 9.0; the walk has 2 KB."""

LEAST_SHARED_BYTES = 97 * 1024
"""Shared memory that a kernel can have on every device of compute capability 8.0 or higher."""

MULTIPROCESSOR_BYTES = tuple(size * 1024 for size in (100, 164, 228))
"""Shared memory of a multiprocessor: of compute capability 8.6, 8.9 and 12; of 8.0; of 9.0 and 10."""

OWN_BYTES = 1024 + 2048
"""Shared memory that a block takes besides its tiles: for the system, and for the walk."""

MOST_BLOCKS = 4
"""Blocks of a multiprocessor that run by default: while one waits for memory, others work."""

SPILLED = 1 << 40
"""Offsets from here on are in the global memory of the block, where tiles lie that do not fit."""

MOST_SPILLED_BYTES = 16 << 20
"""Global memory that a block has for tiles."""


@record
class BlockMemory:
    """Places of tiles.

    Attributes:
        offsets: bytes from the start of shared memory, or from `SPILLED` on, of tiles that need memory.
        strides: elements between rows of tiles.
        sizes: bytes of tiles.
        places: how many places a tile has, one after the other, if more than one.
        results: offsets of results that must not be made where they belong, by the id of the instruction.
        shared_bytes: shared memory that the kernel needs.
        spilled_bytes: global memory that it needs.
        spilled: the tiles in global memory that are in use together when they take most.
    """

    offsets: Mapping[str, int]
    strides: Mapping[str, int]
    sizes: Mapping[str, int]
    places: Mapping[str, int]
    results: Mapping[int, int]
    shared_bytes: int
    spilled_bytes: int
    spilled: tuple[LiveBuffer, ...]


@record
class LoadsAhead:
    """Loads of a loop that begin some iterations ahead.

    Attributes:
        loop: the loop.
        loads: in program order.
        stages: places of the tile of each; the loads begin one iteration less ahead.
    """

    loop: For
    loads: tuple[Load, ...]
    stages: int


@dataclass(slots=True)
class Segment:
    """Steps of a group that share a loop, and the reductions after it.

    Attributes:
        elementwise: the steps, with their numbers in the group.
        folds: the reductions.
        sums: the tile whose sums in registers the steps change; None if they change none.
    """

    elementwise: list[tuple[int, Step]] = field(default_factory=list)
    folds: list[tuple[int, Step]] = field(default_factory=list)
    sums: str | None = None


def row_strides(kernel: KernelFunction) -> dict[str, int]:
    """Return the elements between rows of tiles; a single column is contiguous.

    Rows of tiles that tensor cores read or write are an odd number of units of 16 bytes apart: eight rows are
    then in different banks of shared memory.
    """
    types = dict(kernel.tiles)
    of_products = {
        tile
        for stmt in walk_statements(kernel.body or ())
        if isinstance(stmt, Instr) and uses_tensor_cores(stmt, types)
        for tile in (stmt.dst, *stmt.tiles)
    }
    return {name: _row_stride(tile, name in of_products) for name, tile in types.items()}


def _row_stride(tile: TileType, is_of_product: bool) -> int:
    size = tile.dtype.itemsize
    units = round_up(tile.cols * size, ROW_BYTES) // ROW_BYTES
    if is_of_product:
        return (units | 1) * ROW_BYTES // size
    return 1 if tile.cols == 1 else units * ROW_BYTES // size


def is_fold(step: Step) -> bool:
    """Return whether a step is a reduction."""
    return isinstance(step.stmt, Instr) and TABLE[step.stmt.op].form in REDUCTIONS


def segments(group: Group, changes: Set[int]) -> list[Segment]:
    """Return the loops of a group.

    A step that overwrites what a reduction reads begins another one, and so does a second store: the windows
    of both may overlap. Steps that change sums in registers have a loop of their own.

    Args:
        group: the group.
        changes: ids of instructions that change sums in registers.
    """
    found = [Segment()]
    for number, step in enumerate(group.steps):
        if isinstance(step.stmt, Load | Assign):
            continue
        if is_fold(step):
            found[-1].folds.append((number, step))
            continue
        folded = {tile for _, fold in found[-1].folds for tile in tiles_read(fold.stmt)}
        is_stored = any(isinstance(other.stmt, Store) for _, other in found[-1].elementwise)
        tile = tile_written(step.stmt)
        sums = tile if id(step.stmt) in changes else None
        if tile in folded or (is_stored and isinstance(step.stmt, Store)) or sums != found[-1].sums:
            found.append(Segment(sums=sums))
        found[-1].elementwise.append((number, step))
    return found


def kept_tiles(group: Group, parts: Sequence[Segment], index: int) -> list[str]:
    """Return the tiles that the loop of a segment writes to memory."""
    if parts[index].sums is not None:
        return []
    made = [tile for _, step in parts[index].elementwise if (tile := tile_written(step.stmt)) is not None]
    needed = set(group.steps[-1].live)
    needed |= {tile for _, fold in parts[index].folds for tile in tiles_read(fold.stmt)}
    for part in parts[index + 1 :]:
        needed |= {tile for _, step in (*part.elementwise, *part.folds) for tile in tiles_read(step.stmt)}
    return [tile for tile in dict.fromkeys(made) if tile in needed]


def assign_memory(
    kernel: KernelFunction,
    nodes: Sequence[Node],
    sums: Mapping[int, Sequence[str]] = {},
    ahead: Sequence[LoadsAhead] = (),
) -> BlockMemory:
    """Return the places of a planned kernel's tiles.

    Args:
        kernel: the kernel.
        nodes: its planned body.
        sums: tiles whose memory is free while a loop runs, by the id of the loop.
        ahead: loads whose tiles have several places all the time that their loop runs.
    """
    types = dict(kernel.tiles)
    changes = changes_in_registers(kernel, sums)
    lifetimes = Lifetimes()
    lifetimes.visit(uses(nodes))
    loops = {id(n.stmt): lifetimes.nodes[id(n)] for n in walk_nodes(nodes) if isinstance(n, PlannedLoop)}
    spans = lifetimes.spans | {load.tile: loops[id(its.loop)] for its in ahead for load in its.loads}
    places = {load.tile: its.stages for its in ahead for load in its.loads}
    strides = row_strides(kernel)
    sizes = {name: tile.rows * strides[name] * tile.dtype.itemsize for name, tile in types.items()}
    blocks = [
        LiveBuffer(tile, sizes[tile] * places.get(tile, 1), *spans[tile])
        for tile in sorted(_tiles_in_memory(nodes, changes), key=lambda t: (spans[t], t))
    ]
    for block in blocks:
        block.gaps = tuple(loops[loop] for loop, tiles in sums.items() if block.key in tiles)
    for node in walk_nodes(nodes):
        if isinstance(node, Alone) and isinstance(node.step.stmt, Instr) and needs_result(node.step.stmt):
            size = sizes[node.step.stmt.dst]
            blocks.append(LiveBuffer(id(node.step.stmt), size, *lifetimes.nodes[id(node)]))
    shared, spilled, shared_bytes = _split(blocks)
    spilled_bytes = pack(spilled)
    found = {block.key: block.offset for block in shared}
    found |= {block.key: SPILLED + block.offset for block in spilled}
    offsets = {key: offset for key, offset in found.items() if isinstance(key, str)}
    results = {key: offset for key, offset in found.items() if isinstance(key, int)}
    peak = tuple(live_at_peak(spilled))
    return BlockMemory(offsets, strides, sizes, places, results, shared_bytes, spilled_bytes, peak)


def room_of_blocks(shared_bytes: int) -> int:
    """Return the shared memory that blocks can have instead so that equally many run on a multiprocessor.

    Only the first `MOST_BLOCKS` blocks count.
    """
    found = SHARED_BYTES
    for size in MULTIPROCESSOR_BYTES:
        blocks = min(size // (shared_bytes + OWN_BYTES), MOST_BLOCKS)
        if blocks:
            found = min(found, size // blocks - OWN_BYTES)
    return max(found, shared_bytes)


def _split(blocks: Sequence[LiveBuffer]) -> tuple[list[LiveBuffer], list[LiveBuffer], int]:
    """Return the buffers that fit shared memory, the others, and the shared memory that is used.

    Where buffers in use together do not fit, the largest one leaves.
    """
    shared, spilled = [*blocks], list[LiveBuffer]()
    while (total := pack(shared)) > SHARED_BYTES:
        largest = max(live_at_peak(shared), key=lambda block: block.size)
        shared.remove(largest)
        spilled.append(largest)
        for block in blocks:
            block.offset = 0
    return shared, spilled, total


def needs_result(instr: Instr) -> bool:
    """Return whether an instruction on whole tiles must not make its result where an operand lies."""
    form = TABLE[instr.op].form
    return form not in IN_PLACE and instr.dst in (instr.tiles[1:] if form in ADDS_ONTO else instr.tiles)


def _tiles_in_memory(nodes: Sequence[Node], changes: Set[int]) -> set[str]:
    found: set[str] = set()
    for node in walk_nodes(nodes):
        if isinstance(node, Group):
            parts = segments(node, changes)
            for index in range(len(parts)):
                found.update(kept_tiles(node, parts, index))
        found.update(_made_whole(node))
    return found


def _made_whole(node: Node) -> Iterator[str]:
    """Yield the tiles that a node makes other than in a loop over elements."""
    for step in steps_of(node):
        tile = tile_written(step.stmt)
        if tile is not None and (isinstance(node, Alone) or isinstance(step.stmt, Load) or is_fold(step)):
            yield tile
