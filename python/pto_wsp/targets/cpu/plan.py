"""Plan a kernel's loops: which instructions share one pass over the data, and what lives in memory.

A `Group` is a run of elementwise instructions, with stores and the reductions that end them, over one
iteration space: every element goes through all of them in vector registers. Loads and scalar assignments
inside a group are done before its loop. Everything else stands alone. Grouping never changes a result: each
instruction rounds to its own type, and what could change its order with a store ends the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pto_wsp.ir.core import Full, Index, Range, Region
from pto_wsp.ir.kernel import (
    Assign,
    Call,
    For,
    If,
    Instr,
    KernelFunction,
    Load,
    Prefetch,
    Stmt,
    Store,
    While,
    walk_statements,
)
from pto_wsp.ir.rules import call_left
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Unary, walk
from pto_wsp.isa.forms import ELEMENTWISE, Form, result_valid, valid_pairs_that_agree
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import record
from pto_wsp.targets.cpu.extents import ExtentTable, Pair, Symbol
from pto_wsp.types.dtype import DType, i64
from pto_wsp.types.tile import TileType

REDUCTIONS = frozenset({Form.ROW_REDUCE, Form.COL_REDUCE})


@record
class ValidOf:
    """The valid extent `dim` of the tile `name`, when the statement starts."""

    name: str
    dim: int


@record
class Asked:
    """The valid extent `dim` that a fill or expand instruction is asked to make."""

    dim: int


Valid = ValidOf | Asked | int


@dataclass(slots=True)
class Step:
    """A statement without a body of its own.

    Attributes:
        valid: for instructions, where the valid extents of the result come from.
        unequal: extents that must agree and are not known to: compared at run time.
        space: extents that an elementwise step iterates over.
        live: tiles whose value is read after this step.
    """

    stmt: Load | Store | Prefetch | Instr | Assign
    valid: tuple[Valid, Valid] | None = None
    unequal: list[tuple[ValidOf, Valid]] = field(default_factory=list)
    space: Pair | None = None
    live: frozenset[str] = frozenset()


@record
class Group:
    """Steps that share one loop nest. A group of one-column tiles runs over their rows as vectors."""

    steps: list[Step]
    is_column: bool


@record
class Alone:
    """A step with code of its own."""

    step: Step


@record
class Loop:
    """A loop and its planned body; `live` are the tiles whose value may be read at its head."""

    stmt: For | While
    body: list[Node]
    live: frozenset[str]


@record
class Branch:
    """A choice and its planned arms."""

    stmt: If
    then: list[Node]
    other: list[Node]


Node = Group | Alone | Loop | Branch


def plan(kernel: KernelFunction) -> list[Node]:
    """Return the planned body of a kernel."""
    planner = _Planner(kernel)
    return planner.statements(kernel.body or (), frozenset(), ExtentTable(kernel))


def walk_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield nodes and the nodes inside them, in program order."""
    for node in nodes:
        yield node
        match node:
            case Loop(body=body):
                yield from walk_nodes(body)
            case Branch(then=then, other=other):
                yield from walk_nodes(then)
                yield from walk_nodes(other)


def steps_of(node: Node) -> list[Step]:
    """Return the steps of a group or lone step."""
    match node:
        case Group(steps=steps):
            return steps
        case Alone(step=step):
            return [step]
        case _:
            return []


def tiles_read(stmt: Stmt) -> tuple[str, ...]:
    """Return the tiles whose elements a simple statement reads."""
    match stmt:
        case Store(tile=tile, rows=rows):
            return (tile,) if rows is None else (tile, rows)
        case Load(rows=str(rows)) | Prefetch(rows=str(rows)):
            return (rows,)
        case Instr(tiles=tiles):
            return tiles
        case _:
            return ()


def tile_written(stmt: Stmt) -> str | None:
    """Return the tile that a simple statement writes."""
    match stmt:
        case Load(tile=tile) | Instr(dst=tile):
            return tile
        case _:
            return None


def live_before(body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the tiles whose value at the start of `body` may be read, given those read after it."""
    for stmt in reversed(body):
        live = _live_before_one(stmt, live)
    return live


def _live_before_one(stmt: Stmt, live: frozenset[str]) -> frozenset[str]:
    match stmt:
        case For(body=body) | While(body=body):
            return loop_live(body, live)
        case If(then=then, other=other):
            return live_before(then, live) | live_before(other, live)
        case _:
            return (live - {tile_written(stmt)}) | frozenset(tiles_read(stmt))


def loop_live(body: Sequence[Stmt], live: frozenset[str]) -> frozenset[str]:
    """Return the tiles live at the head of a loop: read after it, or by some iteration."""
    while True:
        more = live | live_before(body, live)
        if more == live:
            return live
        live = more


def rows_dim(tile: TileType) -> int:
    """Return the dimension along which a tile of row numbers lies."""
    return 1 if tile.rows == 1 else 0


def is_row_major(region: Region) -> bool:
    """Return whether a region's columns are contiguous in memory."""
    return region.kept[-1] == len(region.dims) - 1


def can_fail(expr: Expr) -> bool:
    """Return whether evaluating `expr` can overflow, divide by zero or read outside of a view."""
    return any(_node_can_fail(node) for node in walk(expr))


def _node_can_fail(node: Expr) -> bool:
    match node:
        case Binary(op=op, a=a):
            is_integer = a.dtype.is_integer and op in ("add", "sub", "mul")
            return is_integer or op in ("floordiv", "mod", "lshift", "rshift")
        case Unary(op=op, a=a):
            return (op == "neg" and a.dtype.is_integer) or (op == "i64" and a.dtype.is_float)
        case Element():
            return True
        case _:
            return False


def may_be_beyond(expr: Expr, dtype: DType) -> bool:
    """Return whether a scalar operand can have a value that a tile of `dtype` cannot hold."""
    if not dtype.is_integer:
        return False
    low, high = dtype.integer_range
    return not (isinstance(expr, Const) and low <= expr.value <= high) and dtype is not i64


class _Planner:
    def __init__(self, kernel: KernelFunction) -> None:
        self.types: dict[str, TileType] = dict(kernel.tiles)

    def statements(
        self, body: Sequence[Stmt], live_after: frozenset[str], extents: ExtentTable
    ) -> list[Node]:
        nodes: list[Node] = []
        for i, stmt in enumerate(body):
            live = live_before(body[i + 1 :], live_after)
            match stmt:
                case For() | While():
                    nodes.append(self.loop(stmt, live, extents))
                case If(then=then, other=other):
                    arms = [self.statements(arm, live, extents.copy()) for arm in (then, other)]
                    extents.forget(*_written(then + other))
                    nodes.append(Branch(stmt, *arms))
                case Call(kernel=name, loc=loc):
                    raise call_left(name, loc)
                case _:
                    step = self.step(stmt, extents)
                    step.live = live
                    self.place(step, nodes, extents)
        return nodes

    def loop(self, stmt: For | While, live: frozenset[str], extents: ExtentTable) -> Loop:
        tiles, scalars = _written(stmt.body)
        if isinstance(stmt, For):
            scalars.add(stmt.var)
        extents.forget(tiles, scalars)
        head = loop_live(stmt.body, live)
        body = self.statements(stmt.body, head, extents.copy())
        extents.forget(tiles, scalars)
        return Loop(stmt, body, head)

    def step(self, stmt: Load | Store | Prefetch | Instr | Assign, extents: ExtentTable) -> Step:
        match stmt:
            case Assign(name=name):
                extents.assign([name])
                return Step(stmt)
            case Prefetch():
                return Step(stmt)
            case Load(tile=tile):
                extents.set_tile(tile, self.moved_extents(stmt, extents))
                return Step(stmt)
            case Store(tile=tile):
                step = Step(stmt)
                wanted = extents.resolve(self.moved_extents(stmt, extents))
                for dim in (0, 1):
                    if extents.tile(tile)[dim] != wanted[dim]:
                        step.unequal.append((ValidOf(tile, dim), dim))
                        extents.equate(extents.tile(tile)[dim], wanted[dim])
                step.space = extents.tile(tile)
                return step
            case Instr():
                return self.instruction(stmt, extents)

    def moved_extents(self, stmt: Load | Store, extents: ExtentTable) -> Pair:
        """Return the symbols of the extents of what a load or store moves."""
        rows, cols = region_extents(stmt.region, extents)
        if stmt.rows is not None:
            rows = extents.tile(stmt.rows)[rows_dim(self.types[stmt.rows])]
        return rows, cols

    def instruction(self, instr: Instr, extents: ExtentTable) -> Step:
        row = TABLE[instr.op]
        tokens = [(ValidOf(t, 0), ValidOf(t, 1)) for t in instr.tiles]
        attrs = dict(instr.attrs) | {"valid": (Asked(0), Asked(1))}
        step = Step(instr)

        def symbol(valid: object) -> Symbol:
            match valid:
                case ValidOf(name=name, dim=dim):
                    return extents.tile(name)[dim]
                case Asked(dim=dim):
                    asked = instr.attr(("rows", "cols")[dim])
                    capacity = self.types[instr.dst].shape[dim]
                    return extents.resolve_one(capacity if asked is None else extents.value(_expr(asked)))
                case _:
                    assert isinstance(valid, int)
                    return valid

        for a, b in valid_pairs_that_agree(row.form, tokens, attrs):
            if symbol(a) != symbol(b):
                assert isinstance(a, ValidOf) and isinstance(b, ValidOf | int)
                step.unequal.append((a, b))
                extents.equate(symbol(a), symbol(b))
        valid = result_valid(row.form, tokens, attrs)
        result = (symbol(valid[0]), symbol(valid[1]))
        if row.form in ELEMENTWISE:
            step.space = result
        elif row.form in REDUCTIONS:
            step.space = extents.tile(instr.tiles[0])
        assert isinstance(valid[0], Valid) and isinstance(valid[1], Valid)
        step.valid = (valid[0], valid[1])
        extents.set_tile(instr.dst, result)
        return step

    def place(self, step: Step, nodes: list[Node], extents: ExtentTable) -> None:
        """Add a step to the last group if it fits there, else as a node of its own."""
        group = nodes[-1] if nodes and isinstance(nodes[-1], Group) else None
        if group is not None and self.joins(step, group, extents):
            group.steps.append(step)
        elif self.is_fusible(step):
            nodes.append(Group([step], self.is_column(step)))
        else:
            nodes.append(Alone(step))

    def is_column(self, step: Step) -> bool:
        """Return whether a step iterates over a tile of one column."""
        stmt = step.stmt
        assert isinstance(stmt, Store | Instr)
        if isinstance(stmt, Store):
            return self.types[stmt.tile].cols == 1
        tile = stmt.tiles[0] if TABLE[stmt.op].form in REDUCTIONS else stmt.dst
        return self.types[tile].cols == 1

    def is_fusible(self, step: Step) -> bool:
        match step.stmt:
            case Instr():
                return step.space is not None
            case Store(tile=tile, region=region, rows=rows):
                return self.types[tile].cols > 1 and is_row_major(region) and rows is None
            case _:
                return False

    def joins(self, step: Step, group: Group, extents: ExtentTable) -> bool:
        stored = any(isinstance(s.stmt, Store) for s in group.steps)
        if stored and may_fail(step, self.types):
            return False
        if not self.is_fusible(step):
            return self.is_prelude(step, group, stored)
        space = next(s.space for s in group.steps if s.space is not None)
        assert step.space is not None
        if extents.resolve(step.space) != extents.resolve(space) or self.is_column(step) != group.is_column:
            return False
        return not self.conflicts(step, group)

    def is_prelude(self, step: Step, group: Group, stored: bool) -> bool:
        """Return whether a load or assignment may be done before the group's loop."""
        if isinstance(step.stmt, Assign):
            return True
        if not isinstance(step.stmt, Load) or stored or step.stmt.rows is not None:
            return False
        touched = {t for s in group.steps for t in (*tiles_read(s.stmt), tile_written(s.stmt))}
        return step.stmt.tile not in touched

    def conflicts(self, step: Step, group: Group) -> bool:
        """Return whether a step needs what the loop has only partly made, or overwrites what it reads."""
        made, folded, broadcast = set(), set(), set()
        for other in group.steps:
            if not isinstance(other.stmt, Instr):
                continue
            is_fold = TABLE[other.stmt.op].form in REDUCTIONS
            (folded if is_fold else made).add(other.stmt.dst)
            broadcast |= set(broadcast_operands(other.stmt))
        written = tile_written(step.stmt)
        if folded & {*tiles_read(step.stmt), written} or written in broadcast:
            return True
        if isinstance(step.stmt, Store):
            return False
        assert isinstance(step.stmt, Instr)
        if TABLE[step.stmt.op].form in REDUCTIONS:
            used = {t for other in group.steps for t in tiles_read(other.stmt)} | made
            return written in used
        return bool(made & set(broadcast_operands(step.stmt)))


def broadcast_operands(instr: Instr) -> tuple[str, ...]:
    """Return the operands that an instruction reads elsewhere than at [i, j]."""
    match TABLE[instr.op].form:
        case Form.ROW_BROADCAST | Form.COL_BROADCAST:
            return instr.tiles[1:]
        case Form.ROW_EXPAND | Form.COL_EXPAND:
            return instr.tiles
        case _:
            return ()


def scalar_tile(instr: Instr) -> str:
    """Return the tile whose type the scalar operands of an instruction take."""
    return instr.tiles[-1] if instr.tiles else instr.dst


def may_fail(step: Step, types: dict[str, TileType]) -> bool:
    """Return whether a step has a check of its own."""
    stmt = step.stmt
    if step.unequal:
        return True
    match stmt:
        case Assign(value=value):
            return can_fail(value)
        case Instr(scalars=scalars):
            asked = [stmt.attr(key) for key in ("rows", "cols")]
            dtype = types[scalar_tile(stmt)].dtype
            bad = any(can_fail(s) or may_be_beyond(s, dtype) for s in scalars)
            return bad or any(a is not None for a in asked)
        case Load(region=region) | Store(region=region) | Prefetch(region=region):
            return any(not isinstance(dim, Full) for dim in region.dims) or isinstance(stmt, Load)


def region_extents(region: Region, extents: ExtentTable) -> Pair:
    """Return the symbols of a region's two kept extents."""
    found: list[Symbol] = []
    for dim, entry in enumerate(region.dims):
        match entry:
            case Full():
                found.append(extents.view(region.tensor, dim))
            case Range(extent=extent):
                found.append(extents.value(extent))
            case Index():
                pass
            case _:
                raise AssertionError("tile ranges occur in workloads only")
    return found[0], found[1]


def _written(body: Sequence[Stmt]) -> tuple[set[str], set[str]]:
    """Return the tiles and scalars that a body may write."""
    tiles: set[str] = set()
    scalars: set[str] = set()
    for stmt in walk_statements(tuple(body)):
        tile = tile_written(stmt)
        if tile is not None:
            tiles.add(tile)
        if isinstance(stmt, Assign):
            scalars.add(stmt.name)
        elif isinstance(stmt, For):
            scalars.add(stmt.var)
    return tiles, scalars


def _expr(value: object) -> Expr:
    assert isinstance(value, Expr)
    return value
