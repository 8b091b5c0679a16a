"""Cycles that the pipes of a core work for statements of a kernel, as expressions of sizes.

`kernel_cost.py` computes the same with the numbers of a call, and rounds each instruction down to whole
cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pto_wsp.device.amounts import Alternative, Amount, product_of, scaled, sum_of
from pto_wsp.device.kernel_facts import (
    core_kinds,
    factor_spaces,
    load_targets,
    reading_spaces,
    terms_dims,
    terms_of_parts,
)
from pto_wsp.device.model import Device, InstructionCost, Route
from pto_wsp.ir import kernel as k
from pto_wsp.ir.scalar import Const, Expr, binary, ceildiv, mul
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.types.quantised import FORMATS
from pto_wsp.types.space import Space
from pto_wsp.types.tile import TileType

Shape = tuple[Expr, Expr]
Cycles = Mapping[str, Amount]
"""Cycles by pipe."""

ONE = product_of(1)


class UnknownCycles(Exception):
    """The cycles of a statement do not follow from sizes; the text says why."""


class PipeCycles:
    """A walk over the statements of a kernel.

    Attributes:
        copies: the memories that hold each tile, as far as they are known.
    """

    def __init__(self, kernel: k.KernelFunction, device: Device) -> None:
        self.device, self.ways, self.widths, self.is_flat = device, device.ways, device.widths, device.is_flat
        self.types = dict(kernel.tiles)
        self.uses = reading_spaces(kernel)
        self.terms = dict(terms_dims(kernel))
        self.part_terms = terms_of_parts(kernel, core_kinds(kernel, device))
        self.copies: dict[str, frozenset[Space] | None] = {}

    # Transfers

    def load(self, tile: str, shape: Shape, view_bytes: Expr) -> Cycles:
        """Return the cycles of a load of a tile from a view of some bytes."""
        num_bytes, found = self.bytes_of(tile, shape), list[Cycles]()
        self.copies[tile] = frozenset()
        for space in (Space.UB,) if self.is_flat else load_targets(self.uses[tile]):
            has_parts = space is Space.L1 and tile in self.terms
            count = self.parts(shape[self.terms[tile]]) if has_parts else ONE
            way = self.way(Space.GM, space)
            found.append({way.pipe: self.load_cycles(way, num_bytes, count, view_bytes)})
            self.hold(tile, space)
        return together(found)

    def load_cycles(self, way: Route, num_bytes: Amount, count: Amount, view_bytes: Expr) -> Amount:
        """Return the cycles of a load from the nearest memory that holds the view."""
        if not self.device.core_caches:
            return transfer_cycles(way.start, way.rate, num_bytes, count)
        found = transfer_cycles(way.start, self.device.l2.core_rate, num_bytes, count)
        for cache in reversed(self.device.core_caches):
            here = transfer_cycles(way.start, cache.rate, num_bytes, count)
            found = choice(binary("le", view_bytes, Const(cache.size)), here, found)
        return found

    def store(self, tile: str, shape: Shape) -> Cycles:
        """Return the cycles of a store of a tile."""
        return self.move(self.where(tile), Space.GM, tile, self.bytes_of(tile, shape))

    def move(self, source: Space, target: Space, tile: str, num_bytes: Amount, count: Amount = ONE) -> Cycles:
        """Return the cycles in which `count` moves take bytes from one memory to another."""
        way = self.way(source, target)
        if target not in (Space.GM, Space.L0A, Space.L0B):
            self.hold(tile, target)
        return {way.pipe: transfer_cycles(way.start, way.rate, num_bytes, count)}

    def bring(self, tile: str, space: Space, shape: Shape) -> Cycles:
        """Return the cycles after which a memory holds a tile."""
        if self.is_flat or space in self.held(tile):
            return {}
        return self.carry(tile, self.where(tile), space, self.bytes_of(tile, shape))

    def carry(self, tile: str, source: Space, space: Space, num_bytes: Amount) -> Cycles:
        """Return the cycles of moves to a memory, by way of others where there is no direct way."""
        if self.is_flat:
            return {}
        for between in ((), (Space.L1,), (Space.GM,), (Space.GM, Space.L1)):
            steps = list(pairwise((source, *between, space)))
            if all(step in self.ways for step in steps):
                return together([self.move(*step, tile, num_bytes) for step in steps])
        return self.move(source, space, tile, num_bytes)

    def way(self, source: Space, target: Space) -> Route:
        """Return the direct way between two memories."""
        found = self.ways.get((source, target))
        if found is None:
            raise UnknownCycles(f"there is no way from {source.value} to {target.value}")
        return found

    def where(self, tile: str) -> Space:
        """Return a memory that holds a tile."""
        held = self.held(tile)
        return next((space for space in (Space.UB, Space.L0C, Space.L1) if space in held), Space.UB)

    def held(self, tile: str) -> frozenset[Space]:
        """Return the memories that hold a tile."""
        found = self.copies.get(tile)
        if found is None:
            raise UnknownCycles(f"the memory that holds `{tile}` differs between the ways to this place")
        return found

    def hold(self, tile: str, space: Space) -> None:
        """Take note that a memory holds a tile, too."""
        self.copies[tile] = (self.copies.get(tile) or frozenset()) | {space}

    def at(self, space: Space) -> Space:
        """Return the memory of a core of this role: a flat core has UB only."""
        return Space.UB if self.is_flat else space

    def bytes_of(self, tile: str, shape: Shape) -> Amount:
        """Return the bytes of the valid elements of a tile."""
        return product_of(self.types[tile].dtype.itemsize, *shape)

    def parts(self, terms: Expr) -> Amount:
        """Return in how many parts the terms of a product move to L0."""
        if not self.part_terms:
            return ONE
        return product_of(1, binary("max", ceildiv(terms, self.part_terms), Const(1)))

    # Instructions

    def clear(self, tile: str) -> Cycles:
        """Take note of a sum that begins with zeros on the cube."""
        self.copies[tile] = frozenset({self.at(Space.L0C)})
        return {}

    def vector(self, instr: k.Instr, shapes: Sequence[Shape], largest: Sequence[int]) -> Cycles:
        """Return the cycles of vector work.

        Args:
            instr: the instruction.
            shapes: of its operands, and of its result.
            largest: indices of the tiles that may be the largest.
        """
        found = [self.bring(t, Space.UB, shape) for t, shape in zip(instr.tiles, shapes, strict=False)]
        tiles = [self.types[name] for name in (*instr.tiles, instr.dst)]
        most, cycles = self.of_tile(instr, tiles[largest[0]], shapes[largest[0]])
        for i in largest[1:]:
            num_bytes, here = self.of_tile(instr, tiles[i], shapes[i])
            cycles = choice(binary("gt", num_bytes, most), here, cycles)
            most = binary("max", num_bytes, most)
        found.append({"vector": cycles})
        self.copies[instr.dst] = frozenset({Space.UB})
        return together(found)

    def of_tile(self, instr: k.Instr, tile: TileType, shape: Shape) -> tuple[Expr, Amount]:
        """Return the bytes of a tile, and the cycles of an instruction if this is its largest one."""
        rows, cols = shape
        itemsize = tile.dtype.itemsize
        # Cores hold a tile of one column as a row.
        held = (Const(1), rows) if tile.cols == 1 else shape
        cycles = self.of_vector(self.device.costs[instr.op], held, itemsize)
        return mul(mul(rows, cols), Const(itemsize)), cycles

    def of_vector(self, cost: InstructionCost, shape: Shape, itemsize: int) -> Amount:
        """Return the cycles of an instruction on tiles."""
        rows, cols = shape
        repeats = product_of(1, rows, ceildiv(mul(cols, Const(itemsize)), self.widths.vector))
        parts = [(ONE, cost.start), (repeats, cost.repeat), (product_of(1, rows), cost.row)]
        found = sum_of(scaled(amount, each) for amount, each in parts)
        if cost.wide is None:
            return found
        least, wide = cost.wide
        return choice(binary("ge", cols, Const(least)), self.of_vector(wide, shape, itemsize), found)

    def product(self, instr: k.Instr, shapes: Sequence[Shape]) -> Cycles:
        """Return the cycles of a product; `shapes` are those of its operands, and of its result."""
        form = TABLE[instr.op].form
        places, acc, dst = factor_spaces(form, instr.tiles), instr.tiles[0], instr.dst
        valid, result = dict(zip(instr.tiles, shapes, strict=False)), shapes[-1]
        is_in_cube = self.is_flat or Space.L0C in (self.copies.get(acc) or ())
        adds_later = form is Form.MATMUL_ACC and not is_in_cube
        if adds_later:
            self.held(acc)
            places, dst = places[:2], f"{dst} product"
        factors = [tile for tile, _ in places[:2]]
        found = [self.bring(tile, space, valid[tile]) for tile, space in places[2:]]
        found += [self.bring(tile, Space.L1, valid[tile]) for tile in factors]
        inner = valid[factors[0]][0 if instr.attr("trans_a") else 1]
        count = ONE if self.is_flat else self.parts(inner)
        for tile, space in () if self.is_flat else places[:2]:
            found.append(self.move(Space.L1, space, tile, self.bytes_of(tile, valid[tile]), count))
        cost = self.device.costs[instr.op]
        if instr.attr("trans_b") and cost.transposed is not None:
            cost = cost.transposed
        itemsize = self.types[factors[0]].dtype.itemsize
        cycles = self.of_product(cost, (result[0], inner, result[1]), itemsize, count)
        found.append({self.device.product_pipe: cycles})
        self.copies[dst] = frozenset({self.at(Space.L0C)})
        if adds_later:
            found += [self.bring(acc, Space.UB, valid[acc]), self.add_product(instr.dst, dst, result)]
        return together(found)

    def of_product(
        self, cost: InstructionCost, sizes: tuple[Expr, Expr, Expr], itemsize: int, count: Amount
    ) -> Amount:
        """Return the cycles of a product [rows, inner] x [inner, cols], in `count` parts of whole blocks."""
        rows, inner, cols = sizes
        inner_blocks = ceildiv(mul(inner, Const(itemsize)), self.widths.inner)
        right = inner_blocks, ceildiv(cols, self.widths.cols)
        blocks = product_of(1, ceildiv(rows, self.widths.rows), *right)
        block = cost.block_of_4 if itemsize == 4 else cost.block
        parts = [(count, cost.start), (blocks, block), (product_of(1, *right), cost.right)]
        return sum_of(scaled(amount, each) for amount, each in parts)

    def quantised_product(self, instr: k.Instr, shapes: Sequence[Shape]) -> Cycles:
        """Return the cycles of unpacking a matrix, of the product, and of adding it."""
        acc, x, w = instr.tiles
        valid, result = dict(zip(instr.tiles, shapes, strict=False)), shapes[-1]
        (blocks, num_bytes), cost = valid[w], self.device.costs[instr.op]
        inner = mul(blocks, Const(FORMATS[str(instr.attr("format"))].block))
        matrix, product = f"{w} unpacked", f"{instr.dst} product"
        found = [
            self.bring(tile, space, valid[tile])
            for tile, space in ((acc, Space.UB), (w, Space.UB), (x, Space.L0A))
        ]
        found.append({"vector": self.of_vector(cost, (blocks, num_bytes), 1)})
        found.append(self.carry(matrix, Space.UB, Space.L0B, product_of(2, inner, result[1])))
        cycles = self.of_product(cost, (result[0], inner, result[1]), 2, ONE)
        found += [{self.device.product_pipe: cycles}, self.add_product(instr.dst, product, result)]
        return together(found)

    def add_product(self, dst: str, product: str, shape: Shape) -> Cycles:
        """Return the cycles of adding a product in L0C to sums in UB."""
        moved = self.carry(product, Space.L0C, Space.UB, product_of(4, *shape))
        self.copies[dst] = frozenset({Space.UB})
        return together([moved, {"vector": self.of_vector(self.device.costs["add"], shape, 4)}])


def transfer_cycles(start: float, rate: float, num_bytes: Amount, count: Amount) -> Amount:
    """Return the cycles of `count` transfers of some bytes together."""
    return sum_of([scaled(count, start), scaled(num_bytes, 1 / rate)])


def choice(condition: Expr, then: Amount, other: Amount) -> Amount:
    """Return one of two amounts."""
    if isinstance(condition, Const):
        return then if condition.value else other
    return then if then == other else (Alternative(condition, then, other),)


def together(parts: Sequence[Cycles]) -> Cycles:
    """Return the cycles of all parts."""
    pipes = dict.fromkeys(pipe for part in parts for pipe in part)
    return {pipe: sum_of(part.get(pipe, ()) for part in parts) for pipe in pipes}
