"""What a kernel computes, moves and takes, as expressions of its scalars and of the extents of its views.

The statements of a kernel are walked once, with expressions for the valid shapes of tiles. `kernel_cost.py`
walks them with the numbers of a call, and counts the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn, TypeVar, assert_never

from pto_wsp.device.amounts import (
    Amount,
    Product,
    larger_of,
    names,
    product_of,
    sum_of,
    text_of,
    total_of,
    value_of,
)
from pto_wsp.device.kernel_facts import clears_sum, is_stated, load_targets, reading_spaces
from pto_wsp.device.model import Device
from pto_wsp.device.pipe_cycles import Cycles, PipeCycles, UnknownCycles, choice, together
from pto_wsp.errors import NoCost
from pto_wsp.ir import kernel as k
from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.scalar import (
    Const,
    Element,
    Expr,
    Extent,
    TileElement,
    Value,
    Var,
    binary,
    mul,
    substitute,
    walk,
)
from pto_wsp.isa.forms import PRODUCTS, Form, result_valid, valid_pairs_that_agree
from pto_wsp.isa.table import TABLE
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.quantised import FORMATS
from pto_wsp.types.tile import TileType, ViewType

T = TypeVar("T")
Shape = tuple[Expr, Expr]
ZERO = Const(0)


@record
class KernelAmounts:
    """Amounts of one call, as expressions. `str` of it writes `x.rows` for an extent of the view `x`.

    Attributes:
        kernel: the kernel.
        operations: floating-point operations; a product counts two per term.
        loaded: bytes that it loads from each view, in order.
        stored: bytes that it stores to each.
        cycles: that each pipe works where no tile is empty, without the rounding of each instruction to
            whole cycles. Pipes work at the same time, so a call takes at least the largest of them.
        unknown: why there are no cycles, or empty.
    """

    kernel: k.KernelFunction
    operations: Amount
    loaded: tuple[Amount, ...]
    stored: tuple[Amount, ...]
    cycles: Mapping[str, Amount]
    unknown: str = ""

    def text(self, amount: Amount) -> str:
        """Return one of the amounts as text."""
        ranks = {p.name: len(p.type.dims or ()) for p in self.kernel.views if isinstance(p.type, ViewType)}

        def rename(expr: Expr) -> Expr | None:
            if not isinstance(expr, Extent):
                return None
            from_end = ranks.get(expr.name, 2) - expr.dim
            suffix = {1: "cols", 2: "rows"}.get(from_end, f"shape[{expr.dim}]")
            return Var(f"{expr.name}.{suffix}")

        return text_of(amount, rename)

    def of(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> tuple[int, list[int], list[int]]:
        """Return operations, bytes loaded and bytes stored of a call.

        Args:
            shapes: valid shape of each view argument, in order.
            scalars: value of each scalar argument, in order.
        """
        scope, extents = self._call(shapes, scalars)
        loaded, stored = (
            [int(value_of(a, scope, extents)) for a in part] for part in (self.loaded, self.stored)
        )
        return int(value_of(self.operations, scope, extents)), loaded, stored

    def cycles_of(self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]) -> dict[str, float]:
        """Return the cycles that each pipe works for a call; arguments as those of `of`."""
        scope, extents = self._call(shapes, scalars)
        return {pipe: float(value_of(amount, scope, extents)) for pipe, amount in self.cycles.items()}

    def _call(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> tuple[dict[str, Value], _Extents]:
        extents = _Extents({p.name: shape for p, shape in zip(self.kernel.views, shapes, strict=True)})
        return {p.name: v for p, v in zip(self.kernel.scalar_params, scalars, strict=True)}, extents

    def texts(self) -> list[tuple[str, str]]:
        """Return the amounts that are not 0, each with what it is."""
        found = [("operations", self.text(self.operations))]
        for what, amounts in (("loaded from", self.loaded), ("stored to", self.stored)):
            pairs = zip(self.kernel.views, amounts, strict=True)
            found += [(f"bytes {what} {view.name}", self.text(amount)) for view, amount in pairs if amount]
        found += [(f"cycles of {pipe}", self.text(amount)) for pipe, amount in self.cycles.items()]
        return found + ([("cycles", f"unknown: {self.unknown}")] if self.unknown else [])

    def __str__(self) -> str:
        return "\n".join(f"{what}: {text}" for what, text in self.texts())


def kernel_amounts(kernel: k.KernelFunction, device: Device) -> KernelAmounts:
    """Return what a call of a kernel computes and moves on a device.

    Args:
        kernel: a verified kernel without calls of others.
        device: where it runs; what is loaded to two memories of a core counts twice.

    Raises:
        NoCost: it has no body, or elements decide how much it does.
    """
    walk = _Walk(kernel, device)
    if kernel.body is None:
        walk.refuse("it has no body", kernel.loc)
    if kernel.block_dim == 1:
        walk.scalars[k.BLOCK_IDX] = ZERO
    counted = walk.statements(kernel.body)
    if kernel.block_dim > 1:
        counted = counted.over(k.BLOCK_IDX, ZERO, Const(kernel.block_dim), 1)
    loaded = tuple(counted.bytes.get((p.name, k.IN), ()) for p in kernel.views)
    stored = tuple(counted.bytes.get((p.name, k.OUT), ()) for p in kernel.views)
    cycles = {} if walk.unknown else counted.cycles
    return KernelAmounts(kernel, counted.operations, loaded, stored, cycles, walk.unknown)


@record
class _Extents:
    """The extents of the views of a call."""

    shapes: Mapping[str, tuple[int, ...]]

    def extent(self, name: str, dim: int) -> int:
        return self.shapes[name][dim]

    def element(self, name: str, indices: Iterable[int], loc: Location | None) -> NoReturn:
        raise AssertionError("amounts do not depend on elements")


@record
class _Counted:
    """What statements do: operations, bytes by view and direction, and cycles by pipe."""

    operations: Amount
    bytes: Mapping[tuple[str, str], Amount]
    cycles: Cycles

    def over(self, var: str, start: Expr, stop: Expr, step: int) -> _Counted:
        """Return it for all iterations of a loop."""
        moved = {key: total_of(var, start, stop, step, amount) for key, amount in self.bytes.items()}
        cycles = {pipe: total_of(var, start, stop, step, amount) for pipe, amount in self.cycles.items()}
        return _Counted(total_of(var, start, stop, step, self.operations), moved, cycles)


NOTHING = _Counted((), {}, {})


def _added(parts: Iterable[_Counted]) -> _Counted:
    every = [*parts]
    keys = dict.fromkeys(key for part in every for key in part.bytes)
    moved = {key: sum_of(part.bytes.get(key, ()) for part in every) for key in keys}
    cycles = together([part.cycles for part in every])
    return _Counted(sum_of(part.operations for part in every), moved, cycles)


class _Walk:
    def __init__(self, kernel: k.KernelFunction, device: Device) -> None:
        self.kernel = kernel
        self.device = device
        self.types = dict(kernel.tiles)
        self.views = {p.name for p in kernel.views}
        self.uses = reading_spaces(kernel)
        self.valid: dict[str, Shape | None] = {}
        self.scalars: dict[str, Expr | None] = {p.name: Var(p.name) for p in kernel.scalar_params}
        self.at_least_one: set[Expr] = set()
        self.pipes = PipeCycles(kernel, device)
        self.unknown = "its cost is stated" if is_stated(kernel) else ""

    def work(self, cycles: Callable[[], Cycles]) -> Cycles:
        """Return the cycles of a statement, or note why they are unknown."""
        try:
            return {} if self.unknown else cycles()
        except UnknownCycles as error:
            self.unknown = str(error)
            return {}

    def refuse(self, reason: str, loc: Location | None) -> NoReturn:
        name, advice = self.kernel.name, "its amounts are known only for the numbers of a call"
        raise NoCost(kernel=name, device=self.device.name, reason=reason, advice=advice, loc=loc)

    # Statements

    def statements(self, body: Iterable[k.Stmt]) -> _Counted:
        return _added([self.statement(stmt) for stmt in body])

    def statement(self, stmt: k.Stmt) -> _Counted:
        match stmt:
            case k.Load():
                return self.load(stmt)
            case k.Store(region=region, tile=tile, loc=loc):
                shape = self.shape(tile, loc)
                num_bytes = product_of(self.types[tile].dtype.itemsize, *shape)
                cycles = self.work(lambda: self.pipes.store(tile, shape))
                return _Counted((), {(region.tensor, k.OUT): num_bytes}, cycles)
            case k.Instr():
                return self.instruction(stmt)
            case k.Assign(name=name, value=value):
                self.scalars[name] = self.maybe(value)
                return NOTHING
            case k.For():
                return self.loop(stmt)
            case k.If():
                return self.branch(stmt)
            case k.While(loc=loc):
                self.refuse("a `while` loop has no number of iterations that follows from sizes", loc)
            case k.Prefetch() | k.Print() | k.Assert():
                return NOTHING
            case k.KernelCall(loc=loc):
                self.refuse("it calls another kernel", loc)
            case _:
                assert_never(stmt)

    def load(self, stmt: k.Load) -> _Counted:
        rows, cols = self.region_shape(stmt.region, stmt.loc)
        if stmt.rows is not None:
            picked = self.shape(stmt.rows, stmt.loc)
            rows = binary("mul", *picked)
        self.valid[stmt.tile] = shape = rows, cols
        cycles = self.work(lambda: self.pipes.load(stmt.tile, shape, self.view_bytes(stmt.region.tensor)))
        places = 1 if self.device.is_flat else len(load_targets(self.uses[stmt.tile]))
        itemsize = self.types[stmt.tile].dtype.itemsize
        return _Counted((), {(stmt.region.tensor, k.IN): product_of(places * itemsize, rows, cols)}, cycles)

    def view_bytes(self, view: str) -> Expr:
        """Return the bytes of the valid elements of a view."""
        kind = self.kernel.param(view).type
        assert isinstance(kind, (TileType, ViewType)) and kind.dtype is not None
        rank = len(kind.dims or ()) if isinstance(kind, ViewType) else 2
        return reduce(mul, [self.extent_of(view, dim) for dim in range(rank)], Const(kind.dtype.itemsize))

    def loop(self, stmt: k.For) -> _Counted:
        """Walk the body of a loop. What an iteration changes is unknown in it, until nothing else changes."""
        start, stop = (
            self.known(bound, stmt.loc, "the bounds of a loop") for bound in (stmt.start, stmt.stop)
        )
        self.at_least_one.add(binary("min", Const(stmt.step), binary("sub", stop, Var(stmt.var))))
        while True:
            self.scalars[stmt.var] = Var(stmt.var)
            before = self.state
            counted = self.statements(stmt.body)
            changed = [_changed(one, other) for one, other in zip(before, self.state, strict=True)]
            if not any(changed):
                break
            self.state = tuple({**one, **other} for one, other in zip(before, changed, strict=True))
        self.forget(stmt.var)
        return counted.over(stmt.var, start, stop, stmt.step)

    def forget(self, var: str) -> None:
        """Forget what depends on the variable of a loop, after it."""
        for tile, shape in self.valid.items():
            if shape is not None and any(var in names(extent) for extent in shape):
                self.valid[tile] = None
        for name, value in self.scalars.items():
            if value is not None and var in names(value):
                self.scalars[name] = None

    def branch(self, stmt: k.If) -> _Counted:
        condition = self.known(stmt.condition, stmt.loc, "a condition")
        before = self.state
        then = self.statements(stmt.then)
        after, self.state = self.state, before
        other = self.statements(stmt.other)
        self.state = tuple(_common(one, two) for one, two in zip(after, self.state, strict=True))
        keys = dict.fromkeys([*then.bytes, *other.bytes])
        moved = {key: choice(condition, then.bytes.get(key, ()), other.bytes.get(key, ())) for key in keys}
        cycles = {
            pipe: choice(condition, then.cycles.get(pipe, ()), other.cycles.get(pipe, ()))
            for pipe in dict.fromkeys([*then.cycles, *other.cycles])
        }
        return _Counted(choice(condition, then.operations, other.operations), moved, cycles)

    @property
    def state(self) -> tuple[dict[str, Any], ...]:
        """What statements change: valid shapes of tiles, values of scalars, memories that hold tiles."""
        return dict(self.valid), dict(self.scalars), dict(self.pipes.copies)

    @state.setter
    def state(self, found: tuple[dict[str, Any], ...]) -> None:
        self.valid, self.scalars, self.pipes.copies = (dict(part) for part in found)

    # Instructions

    def instruction(self, instr: k.Instr) -> _Counted:
        """Return what an instruction does, whose result then has its shape."""
        row = TABLE[instr.op]
        attrs: dict[str, object] = dict(instr.attrs)
        attrs["valid"] = self.asked_valid(instr)
        operands = [self.shape(tile, instr.loc) for tile in instr.tiles]
        operands = _agreed(operands, valid_pairs_that_agree(row.form, operands, attrs))
        found = result_valid(row.form, operands, attrs)
        shape = _expr(found[0]), _expr(found[1])
        self.valid[instr.dst] = shape
        shapes = [*operands, shape]
        if clears_sum(instr, self.uses):
            return _Counted((), {}, self.work(lambda: self.pipes.clear(instr.dst)))
        if row.form in PRODUCTS:
            a = operands[1 if row.form is Form.MATMUL_ACC else 0]
            operations = product_of(2, shape[0], a[0 if attrs.get("trans_a") else 1], shape[1])
            return _Counted(operations, {}, self.work(lambda: self.pipes.product(instr, shapes)))
        if row.form is Form.MATMUL_QUANTISED:
            block = FORMATS[str(attrs["format"])].block
            operations = product_of(2 * block, shape[0], operands[2][0], shape[1])
            return _Counted(operations, {}, self.work(lambda: self.pipes.quantised_product(instr, shapes)))
        tiles = [self.types[name] for name in (*instr.tiles, instr.dst)]
        operations, largest = self.vector(instr, tiles, shapes)
        return _Counted(operations, {}, self.work(lambda: self.pipes.vector(instr, shapes, largest)))

    def vector(
        self, instr: k.Instr, tiles: Sequence[TileType], shapes: Sequence[Shape]
    ) -> tuple[Amount, list[int]]:
        """Return one operation for each element of the largest tile, if these are floats.

        Returns it with the indices of the tiles that may be the largest.
        """
        kinds = {(tile.dtype.itemsize, tile.dtype.is_float) for tile in tiles}
        sizes = [product_of(tile.dtype.itemsize, *shape) for tile, shape in zip(tiles, shapes, strict=True)]
        largest, found = sizes[0], self.largest(sizes)
        count = product_of(1, *shapes[0])
        for i, size in enumerate(sizes):
            if self.is_not_above(size, largest):
                continue
            if self.is_not_above(largest, size):
                largest, count = size, product_of(1, *shapes[i])
            elif len(kinds) == 1:
                count = larger_of(count, product_of(1, *shapes[i]))
                largest = product_of(tiles[0].dtype.itemsize, *_factors(count))
            else:
                self.refuse(f"the type of the largest tile of `{instr.op}` depends on sizes", instr.loc)
        return count if tiles[found[0]].dtype.is_float else (), found

    def largest(self, sizes: Sequence[Amount]) -> list[int]:
        """Return the indices of the tiles that may be the largest where none is empty."""
        found: list[int] = []
        for i, size in enumerate(sizes):
            if any(self.is_not_above(size, sizes[j], is_empty=False) for j in found):
                continue
            found = [j for j in found if not self.is_not_above(sizes[j], size, is_empty=False)] + [i]
        return found

    def is_not_above(self, one: Amount, other: Amount, is_empty: bool = True) -> bool:
        """Whether an amount is known never to be above another: the other has its factors, and more.

        Factors that may be 0 count as 1 unless `is_empty`.
        """
        if not one or not other:
            return not one
        (a,), (b,) = one, other
        assert isinstance(a, Product) and isinstance(b, Product)
        left = [*b.factors]
        for factor in a.factors:
            if factor not in left:
                return False
            left.remove(factor)
        return a.number <= b.number and (not is_empty or set(left) <= self.at_least_one)

    def asked_valid(self, instr: k.Instr) -> Shape:
        dst = self.types[instr.dst]
        asked: list[Expr] = []
        for key, capacity in (("rows", dst.rows), ("cols", dst.cols)):
            value = instr.attr(key)
            if value is None or isinstance(value, (str, int)):
                asked.append(Const(capacity))
            else:
                asked.append(self.known(value, instr.loc, "the shape of a tile"))
        return asked[0], asked[1]

    # Values

    def shape(self, tile: str, loc: Location | None) -> Shape:
        found = self.valid.get(tile)
        if found is None:
            self.refuse(f"the shape of `{tile}` differs between the ways to this place", loc)
        return found

    def region_shape(self, region: Region, loc: Location | None) -> Shape:
        kept: list[Expr] = []
        for dim, select in enumerate(region.dims):
            match select:
                case Full():
                    kept.append(self.extent_of(region.tensor, dim))
                case Index():
                    pass
                case Range(extent=extent):
                    kept.append(self.known(extent, loc, "the extent of a region"))
                case _:
                    raise AssertionError("row sets and tile ranges occur in workloads only")
        rows, cols = kept[-2:] if len(kept) > 1 else (Const(1), *kept)
        return rows, cols

    def extent_of(self, view: str, dim: int) -> Expr:
        """Return the extent of a view: a number where its type says so."""
        dims = getattr(self.kernel.param(view).type, "dims", None)
        size = None if dims is None else dims[dim]
        return Const(size) if isinstance(size, int) else Extent(view, dim)

    def known(self, expr: Expr, loc: Location | None, what: str) -> Expr:
        found = self.maybe(expr)
        if found is None:
            self.refuse(f"elements decide {what}", loc)
        return found

    def maybe(self, expr: Expr) -> Expr | None:
        """Return an expression of parameters and loops, or None where it depends on elements."""
        for part in walk(expr):
            if isinstance(part, (Element, TileElement)):
                return None
            if isinstance(part, Var) and self.scalars.get(part.name) is None:
                return None
            if isinstance(part, Extent) and part.name not in self.views and self.valid.get(part.name) is None:
                return None
        return substitute(expr, self.meaning)

    def meaning(self, part: Expr) -> Expr | None:
        if isinstance(part, Var):
            return self.scalars[part.name]
        if isinstance(part, Extent) and part.name not in self.views:
            shape = self.valid[part.name]
            assert shape is not None
            return shape[part.dim]
        if isinstance(part, Extent):
            return self.extent_of(part.name, part.dim)
        return None


def _factors(amount: Amount) -> list[Expr]:
    """Return the factors of a product, its number among them."""
    (part,) = amount
    assert isinstance(part, Product)
    return [Const(part.number), *part.factors]


def _agreed(shapes: Sequence[Shape], pairs: Iterable[tuple[object, object]]) -> list[Shape]:
    """Return shapes with one expression for each two extents that an instruction requires to be equal."""
    found = [*shapes]
    for one, other in pairs:
        a, b = _expr(one), _expr(other)
        kept, dropped = (a, b) if isinstance(a, Const) else (b, a)
        found = [(kept if r == dropped else r, kept if c == dropped else c) for r, c in found]
    return found


def _changed(before: Mapping[str, T | None], after: Mapping[str, T | None]) -> dict[str, None]:
    """Return None for each name whose meaning an iteration changes."""
    return {name: None for name, value in before.items() if value is not None and after.get(name) != value}


def _common(one: Mapping[str, T | None], other: Mapping[str, T | None]) -> dict[str, T | None]:
    """Return what two ways agree on."""
    return {name: value for name, value in one.items() if other.get(name) == value}


def _expr(value: object) -> Expr:
    return Const(value) if isinstance(value, int) else value  # pyright: ignore[reportReturnType]
