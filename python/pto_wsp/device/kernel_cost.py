"""What a kernel costs on a device, from its IR: cycles per pipe, bytes per argument, operations.

The statements of a kernel are walked as in `interp`, with the valid shapes of tiles instead of their
elements. Each instruction costs what the device says of its row; each load, store and move between memories
is a transfer. `scoreboard.py` says how instructions overlap.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NoReturn, assert_never

from pto_wsp.device.cost import KernelCost, stated_cost, view_bytes
from pto_wsp.device.kernel_facts import (
    buffers_that_fit,
    clears_sum,
    core_kinds,
    factor_spaces,
    load_targets,
    reading_spaces,
    terms_dims,
    terms_of_parts,
)
from pto_wsp.device.model import Device
from pto_wsp.device.scoreboard import Scoreboard
from pto_wsp.errors import BadExpression, NoCost
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.evaluate import evaluate
from pto_wsp.ir.rules import call_left
from pto_wsp.ir.scalar import Expr, Value
from pto_wsp.isa.forms import PRODUCTS, Form, result_valid
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.quantised import FORMATS
from pto_wsp.types.space import Space

Shape = tuple[int, int]

_STATE = ("board", "valid", "copies", "scalars", "loaded", "stored", "spilled", "operations")
"""What a walk changes."""

_MAX_ITERATIONS = 1 << 20
"""A `while` loop that is walked for longer is taken to be endless."""


def kernel_cost(
    kernel: k.KernelFunction,
    device: Device,
    shapes: Sequence[tuple[int, ...]],
    scalars: Sequence[Value],
    num_buffers: int | None = None,
) -> KernelCost:
    """Return what a call costs.

    Args:
        kernel: a verified kernel without calls of others.
        device: where it runs.
        shapes: valid shape of each view argument, in order.
        scalars: value of each scalar argument, in order.
        num_buffers: buffers of each tile that is loaded: 1, or 2 where loads overlap the work on the tile
            before. By default 2 where these fit the memories of a core.

    Raises:
        NoCost: it is in C++ or only declared; its control flow depends on elements; or the device has no
            way between two memories that it needs.
    """
    if (stated := stated_cost(kernel, device, shapes, scalars)) is not None:
        return stated
    walk = _Walk(kernel, device, shapes, scalars, num_buffers or buffers_that_fit(kernel, device))
    return walk.cost()


class _Unknown(Exception):
    """A value that depends on elements."""


class _Walk:
    def __init__(
        self,
        kernel: k.KernelFunction,
        device: Device,
        shapes: Sequence[tuple[int, ...]],
        scalars: Sequence[Value],
        num_buffers: int,
    ) -> None:
        self.kernel = kernel
        self.device = device
        self.types = dict(kernel.tiles)
        self.views = {p.name: shape for p, shape in zip(kernel.views, shapes, strict=True)}
        self.numbers = {p.name: i for i, p in enumerate(kernel.views)}
        self.view_bytes = [view_bytes(p, shape) for p, shape in zip(kernel.views, shapes, strict=True)]
        self.scalars: dict[str, Value | None] = {
            p.name: v for p, v in zip(kernel.scalar_params, scalars, strict=True)
        }
        self.valid: dict[str, Shape] = {}
        self.copies: dict[str, set[Space]] = {}
        self.uses = reading_spaces(kernel)
        self.ways, self.widths, self.product_pipe = device.ways, device.widths, device.product_pipe
        self.is_flat = device.is_flat
        self.terms = dict(terms_dims(kernel))
        self.board = Scoreboard(num_buffers)
        self.loaded, self.stored = [0] * len(self.views), [0] * len(self.views)
        self.spilled = self.operations = 0
        self.kinds = core_kinds(kernel, device)
        self.part_terms = terms_of_parts(kernel, self.kinds)

    def cost(self) -> KernelCost:
        if self.kernel.body is None:
            what = "it is written in C++" if self.kernel.native is not None else "it has no body"
            self.refuse(what, self.kernel.loc, "state its cost: `@NAME.cost`, or `PTO_CYCLES(n)` in its C++")
        for block in range(self.kernel.block_dim):
            self.scalars[k.BLOCK_IDX] = block
            self.statements(self.kernel.body)
        return KernelCost(
            units=tuple(kind.name for kind in self.kinds),
            cycles=self.board.end,
            busy=dict(self.board.busy),
            loaded=tuple(self.loaded),
            stored=tuple(self.stored),
            spilled=self.spilled,
            operations=self.operations,
        )

    def refuse(self, reason: str, loc: Location | None, advice: str) -> NoReturn:
        advice = advice.replace("NAME", self.kernel.name)
        raise NoCost(kernel=self.kernel.name, device=self.device.name, reason=reason, advice=advice, loc=loc)

    # Statements

    def statements(self, body: Iterable[k.Stmt]) -> None:
        for stmt in body:
            match stmt:
                case k.Load() | k.Store() | k.Prefetch():
                    self.transfer(stmt)
                case k.Instr():
                    self.instruction(stmt)
                case k.Assign() | k.Assert() | k.Print():
                    self.scalar(stmt)
                case k.For():
                    self.loop(stmt)
                case k.If():
                    self.choice(stmt)
                case k.While():
                    self.repeat(stmt)
                case k.KernelCall(kernel=name, loc=loc):
                    raise call_left(name, loc)
                case _:
                    assert_never(stmt)

    def scalar(self, stmt: k.Assign | k.Assert | k.Print) -> None:
        """Issue what has no pipe. A device prints in its own time."""
        if isinstance(stmt, k.Assign):
            self.scalars[stmt.name] = self.value(stmt.value)
        if not isinstance(stmt, k.Print):
            self.board.issued += 1

    def choice(self, stmt: k.If) -> None:
        """Pipes of one kind of core end together around a choice: no flag knows which way was taken."""
        ends_together = len(self.kinds) == 1 and not self.is_flat
        self.board.issued = (self.board.end if ends_together else self.board.issued) + 1
        self.statements(stmt.then if self.known(stmt.condition, stmt.loc, "a condition") else stmt.other)
        if ends_together:
            self.board.issued = self.board.end

    def repeat(self, stmt: k.While) -> None:
        for _ in range(_MAX_ITERATIONS):
            if not self.known(stmt.condition, stmt.loc, "the condition of a loop"):
                return
            self.statements(stmt.body)
        self.refuse("a loop of it does not end", stmt.loc, "state its cost: `@NAME.cost` returns cycles")

    def loop(self, stmt: k.For) -> None:
        """Walk a loop. Once two iterations leave the core in the same state, those that follow are counted.

        The last two iterations are walked. If the last but one differs from those that were counted, the
        loop is walked whole.
        """
        start = int(self.known(stmt.start, stmt.loc, "the bounds of a loop"))
        stop = int(self.known(stmt.stop, stmt.loc, "the bounds of a loop"))
        values = range(start, stop, stmt.step)
        before = self.snapshot()
        for done, value in enumerate(values, 1):
            after = self.iteration(stmt, value)
            left = len(values) - 2 - done
            if done > 1 and left > 0 and before.state == after.state:
                saved = copy.deepcopy(self.state())
                self.skip(before, after, left)
                if self.iteration(stmt, values[-2]).state == after.state:
                    self.iteration(stmt, values[-1])
                    return
                self.__dict__.update(saved)
            before = after

    def iteration(self, stmt: k.For, value: int) -> _Snapshot:
        self.scalars[stmt.var] = value
        self.statements(stmt.body)
        return self.snapshot()

    def state(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in _STATE}

    def snapshot(self) -> _Snapshot:
        end = self.board.end
        state = (dict(self.valid), self.board.since(end))
        counts = (*self.loaded, *self.stored, self.spilled, self.operations)
        return _Snapshot(end, dict(self.board.busy), counts, state)

    def skip(self, before: _Snapshot, after: _Snapshot, times: int) -> None:
        """Repeat what the latest iteration did."""
        busy = {pipe: (n - before.busy.get(pipe, 0.0)) * times for pipe, n in after.busy.items()}
        self.board.shift((after.end - before.end) * times, busy)
        counts = [new + (new - old) * times for old, new in zip(before.counts, after.counts, strict=True)]
        views = len(self.loaded)
        self.loaded, self.stored = counts[:views], counts[views : 2 * views]
        self.spilled, self.operations = counts[2 * views :]

    # Transfers

    def transfer(self, stmt: k.Load | k.Store | k.Prefetch) -> None:
        match stmt:
            case k.Load():
                self.load(stmt)
            case k.Store():
                self.store(stmt)
            case k.Prefetch():
                self.board.issued += 1

    def load(self, stmt: k.Load) -> None:
        shape = self.region_shape(stmt.region, stmt.loc)
        if stmt.rows is not None:
            rows, cols = self.valid[stmt.rows]
            shape = (max(rows * cols, 0), shape[1])
        self.valid[stmt.tile] = shape
        num_bytes = shape[0] * shape[1] * self.types[stmt.tile].dtype.itemsize
        self.copies[stmt.tile] = set()
        number = self.numbers[stmt.region.tensor]
        for space in (Space.UB,) if self.is_flat else load_targets(self.uses[stmt.tile]):
            has_parts = space is Space.L1 and stmt.tile in self.terms
            for part, size in self.parts(stmt.tile) if has_parts else [(None, num_bytes)]:
                self.move(Space.GM, space, stmt.tile, size, stmt.loc, number=number, part=part)

    def parts(self, tile: str) -> list[tuple[int, int]]:
        """Return the parts of a factor in L1 that move to L0 one after the other, with their bytes."""
        valid, dim = self.valid[tile], self.terms[tile]
        line = valid[1 - dim] * self.types[tile].dtype.itemsize
        return [(part, terms * line) for part, terms in enumerate(self.split(valid[dim]))]

    def split(self, terms: int) -> list[int]:
        """Return the terms of each part of a product."""
        step = self.part_terms or max(terms, 1)
        return [min(step, terms - first) for first in range(0, max(terms, 1), step)]

    def store(self, stmt: k.Store) -> None:
        rows, cols = self.valid[stmt.tile]
        num_bytes = rows * cols * self.types[stmt.tile].dtype.itemsize
        source = self.where(stmt.tile)
        self.move(source, Space.GM, stmt.tile, num_bytes, stmt.loc, number=self.numbers[stmt.region.tensor])

    def where(self, tile: str) -> Space:
        """Return a memory that holds a tile."""
        copies = self.copies[tile]
        order = (Space.UB, Space.L0C, Space.L1)
        return next((space for space in order if space in copies), Space.UB)

    def move(
        self,
        source: Space,
        target: Space,
        tile: str,
        num_bytes: int,
        loc: Location | None,
        number: int | None = None,
        part: int | None = None,
    ) -> None:
        """Move a tile, or a part; `number` is that of the argument at one of the ends."""
        is_in_l0 = target in (Space.L0A, Space.L0B)
        if target is not Space.GM and not is_in_l0:
            self.copies.setdefault(tile, set()).add(target)
        if number is not None:
            counts = self.loaded if source is Space.GM else self.stored
            counts[number] += num_bytes
        else:
            self.spilled += num_bytes if Space.GM in (source, target) else 0
        name = tile if part is None else f"{tile} {part}"
        held = name if (name, source.value) in self.board.tiles else tile
        reads = [] if source is Space.GM else [(held, source.value)]
        writes = None if target is Space.GM else (tile if is_in_l0 else name, target.value)
        way = self.ways.get((source, target))
        if way is None:
            self.refuse(
                f"there is no way from {source.value} to {target.value}",
                loc,
                "describe one in `transfers` of the device",
            )
        is_load = source is Space.GM or is_in_l0
        cycles = way.cycles(num_bytes)
        if number is not None and source is Space.GM:
            cycles = self.device.load_cycles(way, num_bytes, self.view_bytes[number])
        self.board.run(way.pipe, cycles, reads, writes, is_load)

    def at(self, space: Space) -> Space:
        """Return the memory of a core of this role: a flat core has UB only."""
        return Space.UB if self.is_flat else space

    def bring(self, tile: str, space: Space, loc: Location | None) -> None:
        """Make sure that a memory holds a tile."""
        if self.is_flat or space in self.copies[tile]:
            return
        rows, cols = self.valid[tile]
        self.carry(tile, self.where(tile), space, rows * cols * self.types[tile].dtype.itemsize, loc)

    def carry(self, tile: str, source: Space, space: Space, num_bytes: int, loc: Location | None) -> None:
        """Move a tile to a memory, by way of others where there is no direct way."""
        if self.is_flat:
            return
        for between in ((), (Space.L1,), (Space.GM,), (Space.GM, Space.L1)):
            steps = list(pairwise((source, *between, space)))
            if all(step in self.ways for step in steps):
                for start, end in steps:
                    self.move(start, end, tile, num_bytes, loc)
                return
        self.move(source, space, tile, num_bytes, loc)

    # Instructions

    def instruction(self, instr: k.Instr) -> None:
        row = TABLE[instr.op]
        attrs: dict[str, object] = dict(instr.attrs)
        attrs["valid"] = self.asked_valid(instr)
        operands = [self.valid[t] for t in instr.tiles]
        result = result_valid(row.form, operands, attrs)
        shape = (_integer(result[0]), _integer(result[1]))
        self.valid[instr.dst] = shape
        if clears_sum(instr, self.uses):
            self.copies[instr.dst] = {self.at(Space.L0C)}
        elif row.form in PRODUCTS:
            self.product(instr, row.form, shape, attrs)
        elif row.form is Form.MATMUL_QUANTISED:
            self.quantised_product(instr, shape, FORMATS[str(attrs["format"])].block)
        else:
            for tile in instr.tiles:
                self.bring(tile, Space.UB, instr.loc)
            self.vector(instr, operands, shape)

    def vector(self, instr: k.Instr, operands: Sequence[Shape], shape: Shape) -> None:
        tiles = [(valid, self.types[name]) for valid, name in zip(operands, instr.tiles, strict=True)]
        tiles.append((shape, self.types[instr.dst]))
        (rows, cols), tile = max(tiles, key=lambda item: item[0][0] * item[0][1] * item[1].dtype.itemsize)
        # Cores hold a tile of one column as a row.
        shape = (1, rows) if tile.cols == 1 else (rows, cols)
        cycles = self.device.costs[instr.op].of_vector(*shape, tile.dtype.itemsize, self.widths)
        reads = [(t, Space.UB.value) for t in instr.tiles]
        self.board.run("vector", cycles, reads, (instr.dst, Space.UB.value))
        self.copies[instr.dst] = {Space.UB}
        if tile.dtype.is_float:
            self.operations += rows * cols

    def product(self, instr: k.Instr, form: Form, shape: Shape, attrs: Mapping[str, object]) -> None:
        """Multiply on the cube. It adds to sums in L0C; a vector core adds products to other sums."""
        places = factor_spaces(form, instr.tiles)
        a, acc, dst = places[0][0], instr.tiles[0], instr.dst
        is_in_cube = self.is_flat or Space.L0C in self.copies[acc]
        adds_later = form is Form.MATMUL_ACC and not is_in_cube
        if adds_later:
            places, dst = places[:2], f"{dst} product"
        for tile, space in places[2:]:
            self.bring(tile, space, instr.loc)
        for tile, _ in places[:2]:
            self.bring(tile, Space.L1, instr.loc)
        inner = self.valid[a][0 if attrs.get("trans_a") else 1]
        itemsize = self.types[a].dtype.itemsize
        cost = self.device.costs[instr.op]
        if attrs.get("trans_b") and cost.transposed is not None:
            cost = cost.transposed
        reads = [(tile, self.at(space).value) for tile, space in places]
        for part, terms in enumerate([inner] if self.is_flat else self.split(inner)):
            for tile, space in () if self.is_flat else places[:2]:
                self.move(Space.L1, space, tile, self.parts(tile)[part][1], instr.loc, part=part)
            cycles = cost.of_product(shape[0], terms, shape[1], itemsize, self.widths)
            self.board.run(self.product_pipe, cycles, reads, (dst, self.at(Space.L0C).value))
        self.copies[dst] = {self.at(Space.L0C)}
        self.operations += 2 * shape[0] * inner * shape[1]
        if adds_later:
            self.bring(acc, Space.UB, instr.loc)
            self.add_product(instr, acc, dst, shape)

    def quantised_product(self, instr: k.Instr, shape: Shape, block: int) -> None:
        """Unpack the matrix on the vector core, multiply on the cube, and add to the sums on the vector core.

        Devices have no instruction for it. The unpacked matrix is of f16, and products leave in f32.
        """
        acc, x, w = instr.tiles
        (blocks, num_bytes), (rows, cols) = self.valid[w], shape
        inner, cost = blocks * block, self.device.costs[instr.op]
        matrix, product = f"{w} unpacked", f"{instr.dst} product"
        for tile, space in ((acc, Space.UB), (w, Space.UB), (x, Space.L0A)):
            self.bring(tile, space, instr.loc)
        spaces = (Space.UB, Space.L0A, Space.L0B, Space.L0C)
        ub, l0a, l0b, l0c = (self.at(space).value for space in spaces)
        self.board.run("vector", cost.of_vector(blocks, num_bytes, 1, self.widths), [(w, ub)], (matrix, ub))
        self.carry(matrix, Space.UB, Space.L0B, 2 * inner * cols, instr.loc)
        factors = [(x, l0a), (matrix, l0b)]
        self.board.run(
            self.product_pipe, cost.of_product(rows, inner, cols, 2, self.widths), factors, (product, l0c)
        )
        self.operations += 2 * rows * inner * cols
        self.add_product(instr, acc, product, shape)

    def add_product(self, instr: k.Instr, acc: str, product: str, shape: Shape) -> None:
        """Add a product in L0C to sums in UB."""
        rows, cols = shape
        ub = Space.UB.value
        self.carry(product, Space.L0C, Space.UB, 4 * rows * cols, instr.loc)
        cycles = self.device.costs["add"].of_vector(rows, cols, 4, self.widths)
        self.board.run("vector", cycles, [(acc, ub), (product, ub)], (instr.dst, ub))
        self.copies[instr.dst] = {Space.UB}

    def asked_valid(self, instr: k.Instr) -> Shape:
        dst = self.types[instr.dst]
        asked = []
        for key, capacity in (("rows", dst.rows), ("cols", dst.cols)):
            expr = instr.attr(key)
            if expr is None or isinstance(expr, (str, int)):
                asked.append(capacity)
            else:
                asked.append(int(self.known(expr, instr.loc, "the shape of a tile")))
        return asked[0], asked[1]

    # Values

    def region_shape(self, region: Region, loc: Location | None) -> Shape:
        view = self.views[region.tensor]
        kept: list[int] = []
        for dim, select in enumerate(region.dims):
            match select:
                case Full():
                    kept.append(view[dim])
                case Index():
                    pass
                case Range(extent=extent):
                    kept.append(max(int(self.known(extent, loc, "the extent of a region")), 0))
                case _:
                    raise AssertionError("row sets occur in workloads only")
        rows, cols = kept[-2:] if len(kept) > 1 else (1, *kept)
        return rows, cols

    def value(self, expr: Expr) -> Value | None:
        """Return a value, or None where it depends on elements."""
        try:
            return evaluate(expr, self.scope, self)
        except _Unknown:
            return None
        except BadExpression as error:
            self.refuse(str(error.fields["reason"]), error.loc, "check the shapes and scalars of the call")

    @property
    def scope(self) -> Mapping[str, Value]:
        return _Known(self.scalars)

    def known(self, expr: Expr, loc: Location | None, what: str) -> Value:
        value = self.value(expr)
        if value is None:
            self.refuse(f"elements decide {what}", loc, "state its cost: `@NAME.cost` returns cycles")
        return value

    def extent(self, name: str, dim: int) -> int:
        shape: tuple[int, ...] = self.views[name] if name in self.views else self.valid[name]
        return shape[dim]

    def element(self, name: str, indices: Iterable[int], loc: Location | None) -> Value:
        raise _Unknown


@record
class _Snapshot:
    """What has been counted until a moment, and the state of the walk relative to it."""

    end: float
    busy: dict[str, float]
    counts: tuple[int, ...]
    state: tuple[object, ...]


class _Known(dict[str, Value]):
    """Scalars; one that depends on elements has no value."""

    def __init__(self, scalars: Mapping[str, Value | None]) -> None:
        super().__init__({name: value for name, value in scalars.items() if value is not None})

    def __missing__(self, name: str) -> Value:
        raise _Unknown


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value
