"""Where tiles live: in registers only, in the worker's scratch, or in place in the user's memory.

Buffers of tiles that are not in use at the same time share scratch (`analysis/buffers.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from pto_wsp.analysis.buffers import Lifetimes, LiveBuffer, live_at_peak, pack, round_up
from pto_wsp.analysis.steps import REDUCTIONS
from pto_wsp.ir.effects import tile_written, tiles_read
from pto_wsp.ir.kernel import Instr, KernelFunction, Load, Prefetch, Stmt, Store
from pto_wsp.isa.forms import ADDS_ONTO, PRODUCTS, Form, factors
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import record
from pto_wsp.targets.c_style.lifetimes import uses
from pto_wsp.targets.c_style.plan import (
    Alone,
    Group,
    Node,
    PlannedBranch,
    PlannedLoop,
    blocks,
    is_row_major,
    steps_of,
    walk_nodes,
)
from pto_wsp.targets.cpu.templates import TEMPLATES, CallTemplate, Fold
from pto_wsp.types.tile import TileType

MATMUL_DEPTH = 256
"""Most terms of a matrix product that are done per pass, half as many by four vectors: `matmul_depth` of
tile/matmul.hpp."""

SMALL_MATMUL_ROWS = 16
"""Below this many rows a right operand is read too seldom to be worth copying."""

QUANTISED_DEPTH = 256
"""Rows of a quantised right operand that are widened at a time: `kDepth` of tile/quantised.hpp."""

STREAM_ROWS = 8
"""Up to this number of rows a product reads its right operand once: the most rows in tile/stream.hpp."""


@record
class Memory:
    """Places of tiles.

    Attributes:
        offsets: bytes from the start of scratch, for every tile that needs memory.
        in_place: loaded tiles that are read where they are, and the views from which they have to lie apart,
            else they are copied: the kernel stores into those meanwhile.
        together: those of them that are copied where their rows do not lie close together.
        windows: loaded tiles that a product reads, as its right operand, from where they lie.
        ahead: what is prefetched while a product works, by the id of its instruction.
        extra: (node index in walk order, purpose) to the offset of memory that one node alone uses.
        total_bytes: scratch that the kernel needs.
        peak: what is in use together when it takes most.
    """

    offsets: Mapping[str, int]
    in_place: Mapping[str, Collection[str]]
    together: frozenset[str]
    windows: frozenset[str]
    ahead: Mapping[int, Prefetch]
    extra: Mapping[tuple[int, str], int]
    total_bytes: int
    peak: tuple[LiveBuffer, ...]


def row_stride(tile: TileType, lanes: int) -> int:
    """Return the elements between rows of a tile in scratch.

    Whole blocks of columns of a matrix product (one vector, or pairs of them), or 1 for a single column.
    """
    if tile.cols == 1:
        return 1
    return round_up(tile.cols, lanes * matmul_vectors(tile, lanes))


def product_stride(dst: TileType, lanes: int) -> int:
    """Return the elements between rows of what a matrix product writes, which is whole blocks of columns."""
    return max(row_stride(dst, lanes), lanes)


def tile_bytes(tile: TileType, lanes: int) -> int:
    """Return the bytes of a tile in scratch."""
    elements = tile.rows * row_stride(tile, lanes)
    return round_up(elements, lanes) * tile.dtype.itemsize


def assign_memory(kernel: KernelFunction, nodes: Sequence[Node], lanes: int) -> Memory:
    """Return the places of a planned kernel's tiles."""
    types = dict(kernel.tiles)
    windows = window_tiles(nodes, types)
    lifetimes = Lifetimes()
    lifetimes.visit(uses(nodes))
    sums = shared_sums(nodes, types)
    for operand, product in sums.items():
        for moment in lifetimes.spans[operand]:
            lifetimes.touch(product, moment)
    last_uses = {load.tile: lifetimes.spans[load.tile][1] for load in _loads(nodes) if load.tile in windows}
    ends = {id(load): last_uses[load.tile] for load in _loads(nodes) if load.tile in windows}
    prefetches = paired_prefetches(nodes)
    ends |= {id(stmt): lifetimes.nodes[id(product)][0] for product, stmt in prefetches}
    for stmt in (*_loads(nodes), *(stmt for _, stmt in prefetches)):
        if id(stmt) in ends and stmt.rows is not None:
            lifetimes.touch(stmt.rows, ends[id(stmt)])  # the window refers to them
    blocks: list[LiveBuffer] = []
    own = tiles_in_memory(nodes) - windows - sums.keys()
    for name in sorted(own, key=lambda t: lifetimes.spans[t]):
        first, last = lifetimes.spans[name]
        blocks.append(LiveBuffer(name, tile_bytes(types[name], lanes), first, last))
    for index, node in enumerate(walk_nodes(nodes)):
        for purpose, size in extra_bytes(node, types, windows, lanes).items():
            first, last = lifetimes.nodes[id(node)]
            last = max(last, ends.get(id(steps_of(node)[0].stmt), last))
            blocks.append(LiveBuffer((index, purpose), size, first, last))
    total = pack(blocks)
    peak = live_at_peak(blocks)
    offsets = {b.key: b.offset for b in blocks if isinstance(b.key, str)}
    offsets |= {operand: offsets[product] for operand, product in sums.items()}
    extra = {b.key: b.offset for b in blocks if isinstance(b.key, tuple)}
    # Whole vectors may be read beyond the last row of a right operand.
    slack = 2 * lanes * 4 if total else 0
    in_place = {t: views for t, views in in_place_tiles(nodes, types).items() if t not in windows}
    ahead = {id(product.step.stmt): stmt for product, stmt in prefetches}
    together = frozenset(in_place.keys() & _often_read(nodes, types))
    return Memory(offsets, in_place, together, windows, ahead, extra, total + slack, tuple(peak))


def tiles_in_memory(nodes: Sequence[Node]) -> set[str]:
    """Return the tiles that need a buffer: all but those that live and die inside one group."""
    found: set[str] = set()
    for node in walk_nodes(nodes):
        steps = steps_of(node)
        for step in steps:
            tile = tile_written(step.stmt)
            if tile is None:
                continue
            is_fold = isinstance(step.stmt, Instr) and TABLE[step.stmt.op].form in REDUCTIONS
            if isinstance(node, Alone) or isinstance(step.stmt, Load) or is_fold or tile in steps[-1].live:
                found.add(tile)
        found |= {stmt.tile for stmt in stores_of(node)[1:]}
    return found


def stores_of(node: Node) -> list[Store]:
    """Return the stores of a group."""
    return [s.stmt for s in steps_of(node) if isinstance(s.stmt, Store)] if isinstance(node, Group) else []


def is_inner_fold(instr: Instr, group: Group) -> bool:
    """Return whether a reduction runs along the vectors of its group's rows."""
    return (TABLE[instr.op].form is Form.ROW_REDUCE) != group.is_column


def extra_bytes(
    node: Node, types: Mapping[str, TileType], windows: frozenset[str], lanes: int
) -> dict[str, int]:
    """Return the memory that a node needs in addition to its tiles, by purpose."""
    needs: dict[str, int] = {}
    if isinstance(node, Group):
        for number, step in enumerate(node.steps):
            template = TEMPLATES[step.stmt.op] if isinstance(step.stmt, Instr) else None
            if isinstance(template, Fold):
                assert isinstance(step.stmt, Instr)
                if not is_inner_fold(step.stmt, node):
                    source = types[step.stmt.tiles[0]]
                    width = source.rows if node.is_column else source.cols
                    lane_bytes = max(4, source.dtype.itemsize)
                    needs[f"fold{number}"] = template.partials * round_up(width, lanes) * lane_bytes
    elif isinstance(node, Alone) and isinstance(node.step.stmt, Load | Store | Prefetch):
        rows = node.step.stmt.rows
        if rows is not None:
            needs["rows"] = types[rows].rows * types[rows].cols * 4
    elif isinstance(node, Alone) and isinstance(node.step.stmt, Instr):
        needs = _whole_tile_bytes(node.step.stmt, types, windows, lanes)
    return needs


def _whole_tile_bytes(
    instr: Instr, types: Mapping[str, TileType], windows: frozenset[str], lanes: int
) -> dict[str, int]:
    needs: dict[str, int] = {}
    dst = types[instr.dst]
    template = TEMPLATES[instr.op]
    if isinstance(template, CallTemplate):
        if instr.dst in instr.tiles and not template.is_in_place:
            needs["result"] = tile_bytes(dst, lanes)
        if template.needs_spare:
            needs["spare"] = row_stride(dst, lanes) * dst.dtype.itemsize
        return needs
    form = TABLE[instr.op].form
    if form is Form.TRANSPOSE:
        return {"result": tile_bytes(dst, lanes)} if instr.dst in instr.tiles else {}
    return _product_bytes(instr, types, windows, lanes)


def _product_bytes(
    instr: Instr, types: Mapping[str, TileType], windows: frozenset[str], lanes: int
) -> dict[str, int]:
    needs: dict[str, int] = {}
    form, dst = TABLE[instr.op].form, types[instr.dst]
    if instr.dst in (instr.tiles[1:] if form in ADDS_ONTO else instr.tiles) or dst.cols == 1:
        needs["result"] = dst.rows * product_stride(dst, lanes) * dst.dtype.itemsize
    if form is Form.MATMUL_QUANTISED:
        panel = QUANTISED_DEPTH * matmul_vectors(dst, lanes) * lanes * dst.dtype.itemsize
        return needs if dst.rows <= STREAM_ROWS else needs | {"panel": panel}
    matrices = factors(form, instr.tiles)
    is_window = matrices[1] in windows
    if is_window and can_stream(instr, types):
        return needs
    right = types[matrices[1]]
    if instr.attr("trans_b"):
        right = TileType(right.cols, right.rows, right.dtype)
    if is_window:
        width = lanes * matmul_vectors(dst, lanes)
        return needs | {"right": right.rows * round_up(right.cols, width) * dst.dtype.itemsize}
    if instr.attr("trans_b"):
        needs["right"] = tile_bytes(right, lanes)
    vectors = matmul_vectors(dst, lanes)
    depth = min(right.rows, MATMUL_DEPTH if vectors <= 2 else MATMUL_DEPTH // 2)
    needs["panel"] = depth * vectors * lanes * dst.dtype.itemsize
    return needs


def matmul_vectors(dst: TileType, lanes: int) -> int:
    """Return the vectors of columns that a block of a product has; with 512 bits there are 32 registers."""
    if dst.cols <= lanes:
        return 1
    return 4 if lanes == 16 and dst.cols > 2 * lanes else 2


# --- sums that products add to ----------------------------------------------------------------------------


def shared_sums(nodes: Sequence[Node], types: Mapping[str, TileType]) -> dict[str, str]:
    """Return the tiles that are made where the product lies that adds to them, with its destination.

    A group makes such a tile, and the product alone reads it. Between them the destination is in no use. The
    group may compute with its old elements, for tiles of one type are read where the new ones are made, or
    before; but not store them, which may have to wait in their memory.
    """
    everywhere = [step.stmt for node in walk_nodes(nodes) for step in steps_of(node)]
    num_uses = Counter(tile for stmt in everywhere for tile in (*tiles_read(stmt), tile_written(stmt)))
    found: dict[str, str] = {}
    for body in _bodies(nodes):
        for position, node in enumerate(body):
            instr = node.step.stmt if isinstance(node, Alone) else None
            if not isinstance(instr, Instr) or TABLE[instr.op].form not in ADDS_ONTO:
                continue
            operand, dst = instr.tiles[0], instr.dst
            is_alike = types[operand] == types[dst] and types[dst].cols > 1
            # Made once, and read once.
            if is_alike and num_uses[operand] == 2 and dst not in instr.tiles:
                if _is_made_over(operand, dst, body[:position]):
                    found[operand] = dst
    return found


def _is_made_over(tile: str, other: str, before: Sequence[Node]) -> bool:
    """Return whether the last nodes of a body make a tile and, since, do not use the memory of another."""
    for node in reversed(before):
        stmts = [step.stmt for n in walk_nodes([node]) for step in steps_of(n)]
        written = [tile_written(stmt) for stmt in stmts]
        if isinstance(node, Group) and tile in written:
            return other not in written and other not in (stmt.tile for stmt in stores_of(node))
        if other in written or any(other in tiles_read(stmt) for stmt in stmts):
            return False
    return False


# --- reading in place -------------------------------------------------------------------------------------


def in_place_tiles(nodes: Sequence[Node], types: Mapping[str, TileType]) -> dict[str, Collection[str]]:
    """Return the loaded tiles that can be read where they are, and from which views they have to lie apart.

    Such a tile is written by its load alone. The views are those that are stored to between the load and the
    last use, but by the group of the last use itself, which copies the tile if its store overlaps it.
    """
    writers: dict[str, int] = {}
    for node in walk_nodes(nodes):
        for step in steps_of(node):
            tile = tile_written(step.stmt)
            if tile is not None:
                writers[tile] = writers.get(tile, 0) + 1
    found: dict[str, Collection[str]] = {}
    for body in _bodies(nodes):
        for position, node in enumerate(body):
            for step in steps_of(node):
                stmt = step.stmt
                if not isinstance(stmt, Load) or stmt.rows is not None or writers[stmt.tile] > 1:
                    continue
                if types[stmt.tile].cols > 1 and is_row_major(stmt.region):
                    uses = sum(_uses(n, stmt.tile) for n in walk_nodes(nodes))
                    stored = _stored_meanwhile(stmt.tile, body[position:], uses)
                    if stored is not None:
                        found[stmt.tile] = stored
    return found


def window_tiles(nodes: Sequence[Node], types: Mapping[str, TileType]) -> frozenset[str]:
    """Return the loaded tiles that need no copy: products alone read them, each as its right operand.

    A product of few rows reads rows of the view where they lie, whichever they are (tile/stream.hpp). One of
    many rows puts the operand into panels (tile/matmul.hpp): it does so once, in the body of the load.
    """
    writers = [tile_written(step.stmt) for node in walk_nodes(nodes) for step in steps_of(node)]
    uses: dict[str, list[Stmt | None]] = {}
    for node in walk_nodes(nodes):
        for stmt in (step.stmt for step in steps_of(node)):
            for tile in tiles_read(stmt):
                uses.setdefault(tile, []).append(stmt if is_right_operand(tile, stmt) else None)
    found: set[str] = set()
    for body in _bodies(nodes):
        for position, node in enumerate(body):
            for stmt in (s.stmt for s in steps_of(node) if isinstance(s.stmt, Load)):
                of = uses.get(stmt.tile, [None])
                is_single = all(writers.count(t) == 1 for t in (stmt.tile, stmt.rows) if t is not None)
                if not is_single or types[stmt.tile].cols == 1 or not is_row_major(stmt.region):
                    continue
                inside = {id(s.stmt) for n in body[position:] for s in steps_of(n)}
                if all(can_stream(use, types) for use in of) or _is_packed(stmt, of, inside, types):
                    if _stored_meanwhile(stmt.tile, body[position:], len(of)) == ():
                        found.add(stmt.tile)
    return frozenset(found)


def _is_packed(
    load: Load, uses: Sequence[Stmt | None], inside: set[int], types: Mapping[str, TileType]
) -> bool:
    """Return whether one product in floats, of the statements `inside`, copies or turns what is loaded."""
    if len(uses) != 1 or not isinstance(uses[0], Instr) or id(uses[0]) not in inside:
        return False
    if types[uses[0].dst].dtype.is_integer:
        return False
    return load.rows is not None or bool(uses[0].attr("trans_b"))


def paired_prefetches(nodes: Sequence[Node]) -> list[tuple[Alone, Prefetch]]:
    """Return the prefetches that can be spread over a later product, with it."""
    found: list[tuple[Alone, Prefetch]] = []
    for body in _bodies(nodes):
        pending: Prefetch | None = None
        for node in body:
            match node:
                case Alone(step=step) if isinstance(step.stmt, Prefetch):
                    pending = step.stmt
                case Alone(step=step) if isinstance(step.stmt, Instr) and pending is not None:
                    if TABLE[step.stmt.op].form in PRODUCTS:
                        found.append((node, pending))
                        pending = None
                case PlannedLoop() | PlannedBranch():
                    pending = None
                case Alone() | Group():
                    pass
                case _:
                    assert_never(node)
    return found


def is_right_operand(tile: str, stmt: Stmt) -> bool:
    """Return whether a statement is a product that reads a tile as its right operand and nowhere else."""
    if not isinstance(stmt, Instr) or TABLE[stmt.op].form not in PRODUCTS:
        return False
    return factors(TABLE[stmt.op].form, stmt.tiles)[1] == tile and stmt.tiles.count(tile) == 1


def can_stream(stmt: Stmt | None, types: Mapping[str, TileType]) -> bool:
    """Return whether a statement is a product that may read its right operand where it lies, row by row."""
    if not isinstance(stmt, Instr) or TABLE[stmt.op].form not in (Form.MATMUL, Form.MATMUL_ACC):
        return False
    is_turned = stmt.attr("trans_a") and stmt.attr("trans_b")
    dst = types[stmt.dst]
    return dst.rows <= STREAM_ROWS and dst.cols > 1 and dst.dtype.is_float and not is_turned


def _loads(nodes: Sequence[Node]) -> list[Load]:
    found = (step.stmt for node in walk_nodes(nodes) for step in steps_of(node))
    return [stmt for stmt in found if isinstance(stmt, Load)]


def _stored_meanwhile(tile: str, following: Sequence[Node], uses: int) -> tuple[str, ...] | None:
    """Return the views that are stored to up to the last use; None where that is not among `following`."""
    views: dict[str, None] = {}
    for node in following:
        inside = list(walk_nodes([node]))
        uses -= sum(_uses(n, tile) for n in inside)
        if uses > 0 or not isinstance(node, Group):
            stores = (s.stmt for n in inside for s in steps_of(n) if isinstance(s.stmt, Store))
            views |= dict.fromkeys(store.region.tensor for store in stores)
        if uses == 0:
            return tuple(views)
    return None


def _uses(node: Node, tile: str) -> int:
    return sum(tiles_read(step.stmt).count(tile) for step in steps_of(node))


def _often_read(nodes: Sequence[Node], types: Mapping[str, TileType]) -> set[str]:
    """Return right operands of products of many rows: worth a copy with their rows close together."""
    found: set[str] = set()
    for node in walk_nodes(nodes):
        for step in steps_of(node):
            stmt = step.stmt
            if isinstance(stmt, Instr) and TABLE[stmt.op].form in PRODUCTS:
                if not stmt.attr("trans_b") and types[stmt.dst].rows >= SMALL_MATMUL_ROWS:
                    found.add(factors(TABLE[stmt.op].form, stmt.tiles)[1])
    return found


def _bodies(nodes: Sequence[Node]) -> list[Sequence[Node]]:
    return [nodes, *(block for node in walk_nodes(nodes) for block in blocks(node))]
