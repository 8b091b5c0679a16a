"""Addresses of a kernel's operands in L1, and of its sums in L0C of a cube core."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp.analysis.buffers import ALIGN, kernel_lifetimes, round_up
from pto_wsp.analysis.loop_loads import loaded_tiles
from pto_wsp.device.kernel_facts import L0_ROWS, terms_that_fit
from pto_wsp.ir.kernel import Instr, KernelFunction, walk_statements
from pto_wsp.support.record import record
from pto_wsp.targets.ascend.generation import L0_BYTES, L1_BYTES, Generation
from pto_wsp.targets.ascend.memory import BLOCK
from pto_wsp.targets.ascend.places import Occupant, place, unplaced
from pto_wsp.types.dtype import DType
from pto_wsp.types.tile import TileType

LEFT, RIGHT, TURNED = "left", "right", "turned"
"""Places of operands; TURNED is a right operand that is the transpose of its tile."""

_SUM_ROW = 64
"""Bytes of a row of a fractal of sums."""


@record
class Operand:
    """A tile in its place in a product."""

    tile: str
    role: str

    @property
    def terms_dim(self) -> int:
        """The dimension of the tile along which products are summed."""
        return 0 if self.role == RIGHT else 1


def operands_of(instr: Instr) -> tuple[Operand, ...]:
    """Return the left and the right operand of a product; none of other instructions."""
    if not instr.op.startswith("matmul"):
        return ()
    left, right = instr.tiles[instr.op == "matmul_acc" :][:2]
    return Operand(left, LEFT), Operand(right, TURNED if instr.attr("trans_b") else RIGHT)


@record
class CubePlaces:
    """Where operands and sums are.

    Attributes:
        depth: terms of each part of an operand.
        places: the first byte in L1 of each operand.
        shifts: how far after it the operand is in every second iteration of its loop, if it has two places.
        sums: the first byte in L0C of each sum, with rows and columns in memory.
        l1_bytes, l0c_bytes: what they take.
        tight: sums whose rows are not stored one by one: a tile that begins at a row would end after L0C.
    """

    depth: int
    places: Mapping[Operand, int]
    shifts: Mapping[Operand, int]
    sums: Mapping[str, tuple[int, int, int]]
    l1_bytes: int
    l0c_bytes: int
    tight: frozenset[str] = frozenset()

    def parts_of(self, operand: Operand, types: Mapping[str, TileType]) -> int:
        """Return the number of parts of an operand."""
        return -(-types[operand.tile].shape[operand.terms_dim] // self.depth)

    def part_shape(self, operand: Operand, types: Mapping[str, TileType]) -> tuple[int, int]:
        """Return rows and columns of a part in memory."""
        return _part_shape(operand, types, self.depth)

    def part_bytes(self, operand: Operand, types: Mapping[str, TileType]) -> int:
        """Return the bytes of a part in memory."""
        rows, cols = self.part_shape(operand, types)
        return rows * cols * types[operand.tile].dtype.itemsize


def assign_cube_memory(kernel: KernelFunction, generation: Generation) -> CubePlaces:
    """Return addresses in which operands, and sums, that are in use together do not overlap.

    Raises:
        TilesTooLarge: they do not fit.
    """
    types = dict(kernel.tiles)
    products = [s for s in walk_statements(kernel.body or ()) if isinstance(s, Instr)]
    operands = tuple(dict.fromkeys(operand for instr in products for operand in operands_of(instr)))
    depth = _depth(kernel, operands, types)
    lifetimes, loaded = kernel_lifetimes(kernel), loaded_tiles(kernel)
    empty = CubePlaces(depth, {}, {}, {}, 0, 0)
    blocks = [
        Occupant(
            operand,
            round_up(empty.parts_of(operand, types) * empty.part_bytes(operand, types), ALIGN),
            lifetimes.spans[operand.tile],
            True,
            lifetimes.nodes[id(loop)] if (loop := loaded.get(operand.tile)) else None,
        )
        for operand in operands
    ]
    # A row that is moved alone is a tile that begins at the row, and so ends after the whole.
    slack = BLOCK * max((max(_part_shape(o, types, depth)) for o in operands), default=0)
    in_l1 = place(blocks, L1_BYTES - slack)
    if in_l1.total + slack > L1_BYTES:
        tiles = [Occupant(o.tile, block.size, block.span) for o, block in zip(operands, blocks, strict=True)]
        raise unplaced(kernel, tiles, in_l1.total + slack, L1_BYTES)
    names = tuple(dict.fromkeys(instr.dst for instr in products))
    shapes = {name: _sum_shape(types[name]) for name in names}
    sums = [Occupant(name, rows * cols * 4, lifetimes.spans[name]) for name, (rows, cols) in shapes.items()]
    row = _SUM_ROW * max((rows for rows, _ in shapes.values()), default=0)
    in_l0c = place(sums, generation.l0c_bytes - row)
    if in_l0c.total > generation.l0c_bytes:
        raise unplaced(kernel, sums, in_l0c.total, generation.l0c_bytes)
    free = generation.l0c_bytes - in_l0c.total
    tight = frozenset(name for name, (rows, _) in shapes.items() if _SUM_ROW * rows > free)
    found = {name: (in_l0c.offsets[name], *shapes[name]) for name in names}
    sizes = in_l1.total + slack, in_l0c.total
    return CubePlaces(depth, in_l1.offsets, in_l1.shifts, found, *sizes, tight)  # pyright: ignore[reportArgumentType]


def _unit(dtype: DType) -> int:
    """Return the numbers of which rows and columns of operands are multiples."""
    return max(L0_ROWS, BLOCK // dtype.itemsize)


def _sum_shape(tile: TileType) -> tuple[int, int]:
    unit = BLOCK if not tile.dtype.is_float else L0_ROWS
    return round_up(tile.rows, L0_ROWS), round_up(tile.cols, unit)


def _part_shape(operand: Operand, types: Mapping[str, TileType], depth: int) -> tuple[int, int]:
    tile = types[operand.tile]
    if operand.role == LEFT:
        return round_up(tile.rows, L0_ROWS), depth
    return depth, round_up(tile.shape[1 - operand.terms_dim], _unit(tile.dtype))


def _depth(kernel: KernelFunction, operands: tuple[Operand, ...], types: Mapping[str, TileType]) -> int:
    """Return how many terms of each operand fit a half of its L0 memory, or all of them."""
    depth, longest = 1 << 12, 1
    for operand in operands:
        tile = types[operand.tile]
        unit = _unit(tile.dtype)
        fitting = terms_that_fit(tile, operand.terms_dim, L0_BYTES)
        if fitting == 0:
            other = round_up(tile.shape[1 - operand.terms_dim], unit)
            needed = other * unit * tile.dtype.itemsize
            raise unplaced(kernel, [Occupant(operand.tile, needed, (0, 0))], needed, L0_BYTES // 2)
        depth = min(depth, fitting)
        longest = max(longest, round_up(tile.shape[operand.terms_dim], unit))
    return min(depth, longest)
