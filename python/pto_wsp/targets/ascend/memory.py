"""Addresses of a kernel's tiles in the unified buffer of a vector core."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.analysis.buffers import ALIGN, kernel_lifetimes, round_up
from pto_wsp.analysis.loop_loads import loaded_tiles
from pto_wsp.ir.kernel import Instr, KernelFunction, walk_statements
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import record, replace
from pto_wsp.targets.ascend.generation import Generation
from pto_wsp.targets.ascend.hazards import Touched
from pto_wsp.targets.ascend.places import Occupant, place, unplaced
from pto_wsp.targets.ascend.templates import TEMPLATES, Calls
from pto_wsp.types.dtype import b1
from pto_wsp.types.tile import TileType

BLOCK = 32
"""Bytes of a block: rows are multiples of it, and tiles begin at multiples of it."""

SELECT_BYTES = 64
"""Bytes of the temporary tile of a select. Numbers have two blocks after it, and then a row."""

ROW_AT = SELECT_BYTES + 2 * BLOCK
"""The first byte of that row."""

FRACTAL_ROWS = 16
"""Rows of elements of 2 or 4 bytes that a transpose takes together."""

_SAME_PLACE = (Form.UNARY, Form.BINARY, Form.TILE_SCALAR)


@record
class TilePlaces:
    """Where the tiles of a kernel are.

    Attributes:
        offsets: the first byte of each tile.
        shifts: how far after it the tile is in every second iteration of its loop, if it has two places.
        scratch: the first byte of the temporary tile.
        total_bytes: what tiles and the temporary tile take.
    """

    offsets: Mapping[str, int]
    shifts: Mapping[str, int]
    scratch: int
    total_bytes: int


def physical_shape(tile: TileType) -> tuple[int, int]:
    """Return rows and columns in memory. A column is held as one row, and rows are whole blocks.

    A tile of b1 has a bit per element: its columns are bytes.
    """
    rows, cols = (1, tile.rows) if tile.cols == 1 else tile.shape
    if tile.dtype is b1:
        return rows, round_up(-(-cols // 8), BLOCK)
    return rows, round_up(cols * tile.dtype.itemsize, BLOCK) // tile.dtype.itemsize


def physical_bytes(tile: TileType) -> int:
    """Return the bytes of a tile in memory."""
    rows, cols = physical_shape(tile)
    return rows * cols * tile.dtype.itemsize


def assign_memory(kernel: KernelFunction, generation: Generation) -> TilePlaces:
    """Return addresses in which tiles that are in use together do not overlap.

    Raises:
        TilesTooLarge: they do not fit.
    """
    types = dict(kernel.tiles)
    lifetimes = kernel_lifetimes(kernel, _is_in_place)
    loaded = loaded_tiles(kernel)
    occupants = [
        Occupant(
            name,
            round_up(physical_bytes(types[name]), ALIGN),
            lifetimes.spans[name],
            name in loaded,
            lifetimes.nodes[id(loop)] if (loop := loaded.get(name)) else None,
        )
        for name, _ in kernel.tiles
        if name in lifetimes.spans
    ]
    needed = (scratch_bytes(instr, types) for instr in _instructions(kernel))
    extra = round_up(max(needed, default=0), ALIGN)
    places = place(occupants, generation.ub_bytes - extra)
    total = places.total + extra
    if total > generation.ub_bytes:
        raise unplaced(kernel, occupants, total, generation.ub_bytes)
    return TilePlaces(places.offsets, places.shifts, places.total, total)  # pyright: ignore[reportArgumentType]


def scratch_bytes(instr: Instr, types: Mapping[str, TileType]) -> int:
    """Return the bytes of the temporary tile of an instruction.

    It has the shape of the first operand, except for a select and for numbers, which have parts of it.
    """
    template, form = TEMPLATES[instr.op], TABLE[instr.op].form
    if form is Form.SELECT:
        return SELECT_BYTES
    if form is Form.IOTA:
        return ROW_AT + physical_bytes(replace(types[instr.dst], rows=1))
    if form is Form.TRANSPOSE and 1 not in types[instr.dst].shape:
        return physical_bytes(transpose_scratch(types[instr.tiles[0]]))
    is_composed = isinstance(template, Calls) and any("{t}" in line for line in template.lines)
    is_needed = is_composed or form in (Form.ROW_REDUCE, Form.COL_REDUCE)
    return physical_bytes(types[instr.tiles[0]]) if is_needed else 0


def transpose_scratch(source: TileType) -> TileType:
    """Return the temporary tile of the transpose of a matrix: its columns as rows of whole fractals."""
    return replace(source, rows=source.cols, cols=round_up(source.rows, FRACTAL_ROWS))


def broadcast_scratch(generation: Generation) -> tuple[Touched, ...]:
    """Return what broadcasts of columns overwrite in addition to their result."""
    start = generation.ub_bytes
    return (Touched("ub", start, start + generation.ub_reserved),) if generation.ub_reserved else ()


def _is_in_place(instr: Instr) -> bool:
    template = TEMPLATES[instr.op]
    same = TABLE[instr.op].form in _SAME_PLACE
    return same and isinstance(template, Calls) and template.is_in_place


def _instructions(kernel: KernelFunction) -> list[Instr]:
    return [stmt for stmt in walk_statements(kernel.body or ()) if isinstance(stmt, Instr)]
