"""Plan a kernel's loops: which instructions share one pass over the data, and what lives in memory.

A `Group` is a run of elementwise instructions, with stores and the reductions that end them, over one
iteration space: every element goes through all of them in vector registers. Loads and scalar assignments
inside a group are done before its loop. Everything else is alone. Grouping never changes a result: each
instruction rounds to its own type, and what could change its order with a store ends the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import assert_never

from pto_wsp.analysis.extents import ExtentTable
from pto_wsp.analysis.liveness import lives_after, loop_live
from pto_wsp.analysis.steps import REDUCTIONS, Step, StepReader, may_fail
from pto_wsp.ir.core import Region
from pto_wsp.ir.effects import tile_written, tiles_read, written
from pto_wsp.ir.kernel import (
    Assert,
    Assign,
    For,
    If,
    Instr,
    KernelCall,
    KernelFunction,
    Load,
    Prefetch,
    Print,
    Stmt,
    Store,
    While,
)
from pto_wsp.ir.rules import call_left
from pto_wsp.isa.forms import Form
from pto_wsp.isa.table import TABLE
from pto_wsp.support.record import record
from pto_wsp.types.tile import TileType

ELEMENT, ROW, COLUMN = "element", "row", "column"
"""Where an operand is read: at [i, j], at [i, 0] of one column, at [0, j] of one row."""


@dataclass(slots=True, eq=False)
class Group:
    """Steps that share one loop nest. A group of one-column tiles runs over their rows as vectors.

    Attributes:
        read: tiles that its steps read.
        broadcast: those of them that are read elsewhere than at [i, j].
        loaded: tiles that its loads write.
        made: tiles that its elementwise steps write.
        folded: tiles that its reductions write.
        stored: tiles that its stores write to memory.
    """

    steps: list[Step] = field(init=False, default_factory=list)
    is_column: bool
    read: set[str] = field(init=False, default_factory=set)
    broadcast: set[str] = field(init=False, default_factory=set)
    loaded: set[str] = field(init=False, default_factory=set)
    made: set[str] = field(init=False, default_factory=set)
    folded: set[str] = field(init=False, default_factory=set)
    stored: set[str] = field(init=False, default_factory=set)

    def add(self, *steps: Step) -> Group:
        """Append steps, and return the group."""
        for step in steps:
            stmt = step.stmt
            self.steps.append(step)
            self.read.update(tiles_read(stmt))
            if isinstance(stmt, Store):
                self.stored.add(stmt.tile)
            elif isinstance(stmt, Load):
                self.loaded.add(stmt.tile)
            elif isinstance(stmt, Instr):
                self.broadcast.update(broadcast_operands(stmt))
                (self.folded if TABLE[stmt.op].form in REDUCTIONS else self.made).add(stmt.dst)
        return self


@record
class Alone:
    """A step with code of its own."""

    step: Step


@record
class PlannedLoop:
    """A loop and its planned body; `live` are the tiles whose value may be read at its head."""

    stmt: For | While
    body: list[Node]
    live: frozenset[str]


@record
class PlannedBranch:
    """A choice and its planned arms."""

    stmt: If
    then: list[Node]
    other: list[Node]


Node = Group | Alone | PlannedLoop | PlannedBranch


def plan(kernel: KernelFunction) -> list[Node]:
    """Return the planned body of a kernel."""
    planner = _Planner(kernel)
    return planner.statements(kernel.body or (), frozenset(), ExtentTable(kernel))


def blocks(node: Node) -> tuple[list[Node], ...]:
    """Return the blocks inside a node, in program order."""
    match node:
        case Group() | Alone():
            return ()
        case PlannedLoop(body=body):
            return (body,)
        case PlannedBranch(then=then, other=other):
            return then, other
        case _:
            assert_never(node)


def walk_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield nodes and the nodes inside them, in program order."""
    for node in nodes:
        yield node
        for block in blocks(node):
            yield from walk_nodes(block)


def steps_of(node: Node) -> list[Step]:
    """Return the steps of a group or lone step."""
    match node:
        case Group(steps=steps):
            return steps
        case Alone(step=step):
            return [step]
        case PlannedLoop() | PlannedBranch():
            return []
        case _:
            assert_never(node)


def turned_stores(nodes: Sequence[Node]) -> dict[int, Group]:
    """Return the stores of transposes that nothing else reads, by the ids of both nodes."""
    found: dict[int, Group] = {}
    for node, behind in pairwise(nodes):
        if not isinstance(node, Alone) or not isinstance(behind, Group) or len(behind.steps) != 1:
            continue
        turn, step = node.step.stmt, behind.steps[0]
        if isinstance(turn, Instr) and turn.op == "transpose" and isinstance(step.stmt, Store):
            tile = turn.dst
            if step.stmt.tile == tile and tile not in turn.tiles and tile not in step.live:
                found |= {id(node): behind, id(behind): behind}
    return found


def is_row_major(region: Region) -> bool:
    """Return whether a region's columns are contiguous in memory."""
    return region.kept[-1] == len(region.dims) - 1


class _Planner:
    def __init__(self, kernel: KernelFunction) -> None:
        self.types: dict[str, TileType] = dict(kernel.tiles)
        self.reader = StepReader(kernel)

    def statements(
        self, body: Sequence[Stmt], live_after: frozenset[str], extents: ExtentTable
    ) -> list[Node]:
        nodes: list[Node] = []
        for stmt, live in zip(body, lives_after(body, live_after), strict=True):
            match stmt:
                case For() | While():
                    nodes.append(self.loop(stmt, live, extents))
                case If(then=then, other=other):
                    arms = [self.statements(arm, live, extents.copy()) for arm in (then, other)]
                    extents.forget(*written(then + other))
                    nodes.append(PlannedBranch(stmt, *arms))
                case KernelCall(kernel=name, loc=loc):
                    raise call_left(name, loc)
                case _:
                    step = self.reader.step(stmt, extents)
                    step.live = live
                    self.place(step, nodes, extents)
        return nodes

    def loop(self, stmt: For | While, live: frozenset[str], extents: ExtentTable) -> PlannedLoop:
        tiles, scalars = written(stmt.body)
        if isinstance(stmt, For):
            scalars.add(stmt.var)
        extents.forget(tiles, scalars)
        head = loop_live(stmt.body, live)
        body = self.statements(stmt.body, head, extents.copy())
        extents.forget(tiles, scalars)
        return PlannedLoop(stmt, body, head)

    def place(self, step: Step, nodes: list[Node], extents: ExtentTable) -> None:
        """Add a step to the last group if it fits there, else as a node of its own."""
        group = nodes[-1] if nodes and isinstance(nodes[-1], Group) else None
        both = self.merged(nodes, extents) if step.unequal else None
        if both is not None and self.joins(step, both, extents):
            both.add(step)
            nodes[-2:] = [both]
        elif group is not None and self.joins(step, group, extents):
            group.add(step)
        elif self.is_fusible(step):
            nodes.append(Group(self.is_column(step)).add(step))
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
            case Load() | Prefetch() | Assign() | Print() | Assert():
                return False
            case _:
                assert_never(step.stmt)

    def joins(self, step: Step, group: Group, extents: ExtentTable) -> bool:
        if group.stored and may_fail(step, self.types):
            return False
        if not self.is_fusible(step):
            return self.is_prelude(step, group)
        space = next(s.space for s in group.steps if s.space is not None)
        assert step.space is not None
        if extents.resolve(step.space) != extents.resolve(space) or self.is_column(step) != group.is_column:
            return False
        return not self.conflicts(step, group)

    def merged(self, nodes: list[Node], extents: ExtentTable) -> Group | None:
        """Return the last two groups as one, if they may share a loop: their extents were just found equal.

        The caller moves the step that compares them after it; that step is done before the loop.
        """
        match nodes[-2:]:
            case [Group() as first, Group() as second]:
                if first.is_column != second.is_column:
                    return None
            case _:
                return None
        if first.stored or second.stored:
            return None
        if all(self.joins(step, first, extents) for step in second.steps):
            return Group(first.is_column).add(*first.steps, *second.steps)
        return None

    def is_prelude(self, step: Step, group: Group) -> bool:
        """Return whether a load or assignment may be done before the group's loop."""
        written = group.made | group.folded | group.loaded
        if isinstance(step.stmt, Assign):
            return written.isdisjoint(tiles_read(step.stmt))
        if not isinstance(step.stmt, Load) or group.stored or step.stmt.rows is not None:
            return False
        return step.stmt.tile not in written | group.read

    def conflicts(self, step: Step, group: Group) -> bool:
        """Return whether a step needs what the loop has only partly made, or overwrites what it reads."""
        result = tile_written(step.stmt)
        # What is stored may have to wait in its tile's memory until the loop is over.
        if not group.folded.isdisjoint({*tiles_read(step.stmt), result}):
            return True
        if result in group.broadcast or result in group.stored:
            return True
        if isinstance(step.stmt, Store):
            return False
        assert isinstance(step.stmt, Instr)
        if TABLE[step.stmt.op].form in REDUCTIONS:
            return result in group.read or result in group.made
        return not group.made.isdisjoint(broadcast_operands(step.stmt))


def broadcast_operands(instr: Instr) -> tuple[str, ...]:
    """Return the operands that an instruction reads elsewhere than at [i, j]."""
    match TABLE[instr.op].form:
        case Form.ROW_BROADCAST | Form.COL_BROADCAST:
            return instr.tiles[1:]
        case Form.ROW_EXPAND | Form.COL_EXPAND:
            return instr.tiles
        case _:
            return ()


def operand_places(instr: Instr, is_column: bool) -> list[str]:
    """Return where each tile operand of an instruction is read."""
    form = TABLE[instr.op].form
    if is_column:
        # Its loop runs along the rows, so that the two kinds of broadcast change places.
        if form is Form.COL_BROADCAST:
            return [ELEMENT, ROW]
        return [ROW if form is Form.COL_EXPAND else ELEMENT] * len(instr.tiles)
    match form:
        case Form.ROW_BROADCAST:
            return [ELEMENT, ROW]
        case Form.COL_BROADCAST:
            return [ELEMENT, COLUMN]
        case Form.ROW_EXPAND:
            return [ROW]
        case Form.COL_EXPAND:
            return [COLUMN]
        case _:
            return [ELEMENT] * len(instr.tiles)
