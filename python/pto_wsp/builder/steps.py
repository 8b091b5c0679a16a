"""What a function builder records: one step per call, in order, each with the place of the call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

from pto_wsp.ir.scalar import Expr
from pto_wsp.ir.workload import Ring
from pto_wsp.lang.workload.expansion import NOT_EXPANDED, Expansion
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.dtype import DType
from pto_wsp.types.space import Space
from pto_wsp.types.tile import TileType

Operand = str | int | float | Expr
"""A number, the name of a scalar, an expression as text (`"2 * i + 1"`), or one as IR."""

Argument = str | int | float | Expr | tuple[Operand, ...]
"""What a call gives for a parameter: a memref, a place in one as a tuple, or a scalar."""


@record
class Memref:
    """A declared memref.

    Attributes:
        shape: None where uses decide it; a dimension is None where only a run knows it.
        is_local: made by the run, not given by the call.
        elements: how many it has, where that is said instead of a shape.
        space: where it lies if it is local; None where the target chooses.
    """

    dtype: DType
    shape: tuple[int | None, ...] | None
    is_local: bool
    loc: Location
    elements: int | None = None
    space: Space | None = None


@record
class TileDeclaration:
    """A declared tile."""

    type: TileType
    loc: Location


@record
class ScalarDeclaration:
    """A declared scalar: a variable, or a parameter where nothing assigns it."""

    dtype: DType
    loc: Location


@record
class ChannelDeclaration:
    """A declared channel. `shape` is that of a token's buffer, None for tokens of scalars alone."""

    dtype: DType
    shape: tuple[int, ...] | None
    ring: Ring
    loc: Location


Declaration = Memref | TileDeclaration | ScalarDeclaration | ChannelDeclaration


@record
class Transfer:
    """A method that moves a tile from or to a place in a memref, or looks there; the two may be swapped.

    `scale` is the tile of factors of a `store_fp`, and how that rounds.
    """

    method: str
    first: str
    second: str
    row: Operand
    col: Operand
    rows: str | None
    loc: Location
    scale: tuple[str, str] | None = None


@record
class TileStep:
    """A row of the table, or a composition: the destination, its operands, and what it takes by name."""

    row: str
    method: str
    dst: str
    operands: tuple[Operand, ...]
    options: Mapping[str, object]
    loc: Location


@record
class ScalarStep:
    """`dst` = `op` of operands: a row of BINARY_OPS, `li` of a number, `mov` of anything.

    `load` is of a memref, a row and a column.
    """

    dst: str
    op: str
    operands: tuple[Operand, ...]
    loc: Location


@record
class CallStep:
    """A call of another function, with arguments by parameter."""

    callee: str
    args: Mapping[str, Argument]
    loc: Location


@record
class PrintStep:
    """What an InCore function prints: text, and names of tiles and scalars."""

    text: str
    values: tuple[Operand, ...]
    loc: Location


@record
class CheckStep:
    """A condition that ends the run with a message unless it holds."""

    condition: Operand
    message: str
    loc: Location


@record
class ImportStep:
    """A function that the module has to have."""

    name: str
    loc: Location


@record
class WaitStep:
    """The clock of a process advances."""

    cycles: Operand
    loc: Location


@record
class ReturnStep:
    """The end of the function."""

    loc: Location


@record
class LoopStep:
    """The beginning of a counting loop. `tile` names the tile whose rows or columns it counts, if any."""

    var: str
    lower: Operand
    upper: Operand
    step: int
    loc: Location
    kind: str = "range"
    expansion: Expansion = NOT_EXPANDED
    tile: tuple[str, int] | None = None


@record
class LeaveStep:
    """The end of an iteration of the loop around it, and, where it `is_last`, of the loop."""

    method: str
    is_last: bool
    loc: Location


@record
class WhileStep:
    """The beginning of a loop that runs while a condition holds, and a variable `unless` is 0."""

    condition: Operand
    loc: Location
    unless: str = ""


@record
class IfStep:
    """The beginning of a conditional: on a scalar, or on one bit of it."""

    condition: Operand
    bit: int | None
    loc: Location


@record
class ProcessStep:
    """The beginning of a process of a network."""

    name: str
    loc: Location


@record
class SendStep:
    """The beginning of a token that is sent.

    Attributes:
        channel: its name.
        token: name of the buffer in the steps up to `end_send`, or empty.
        scalars: of the token, by name.
        index: name of the number of the token, or empty.
    """

    channel: str
    token: str
    scalars: Mapping[str, Operand]
    index: str
    loc: Location


@record
class ReceiveStep:
    """The beginning of a loop over tokens that are received.

    Attributes:
        channel: its name.
        token: name of the buffer in the steps up to `end_receive`, or empty.
        scalars: names of the scalars of the token, by those of the channel.
        index: name of the number of the token, or empty.
        count: how many tokens, or None: until the channel is closed.
    """

    channel: str
    token: str
    scalars: Mapping[str, str]
    index: str
    count: Operand | None
    loc: Location


@record
class ElseStep:
    """The beginning of the other branch."""

    loc: Location


METHODS: dict[type, str] = {ProcessStep: "process", SendStep: "send", ReceiveStep: "receive"}
"""The methods that begin blocks of networks."""

OfNetwork = ProcessStep | SendStep | ReceiveStep
Opening = LoopStep | WhileStep | IfStep | OfNetwork


@record
class EndStep:
    """The end of `count` blocks of a kind; `method` is what the user wrote.

    The last `num_tests` steps of a `WhileStep` are done before its condition is tested again.
    """

    closes: type[Opening]
    method: str
    loc: Location
    count: int = 1
    num_tests: int = 0


Debugging = PrintStep | CheckStep
Plain = (
    Transfer | TileStep | ScalarStep | CallStep | Debugging | ImportStep | WaitStep | ReturnStep | LeaveStep
)
Step = Plain | Opening | ElseStep | EndStep


@record
class StepBlock:
    """An opening step with the steps of its body, and of its other branch; `num_tests` as in EndStep."""

    opening: Opening
    body: tuple[Plain | StepBlock, ...]
    other: tuple[Plain | StepBlock, ...] = ()
    num_tests: int = 0


Tree = tuple[Plain | StepBlock, ...]


def assignments(tree: Tree) -> list[ScalarStep]:
    """Return the steps of a tree that assign scalars, in order."""
    found: list[ScalarStep] = []
    for step in tree:
        if isinstance(step, StepBlock):
            found += assignments((*step.body, *step.other))
        elif isinstance(step, ScalarStep):
            found.append(step)
    return found


def tiles_and_loops(tree: Tree) -> set[str]:
    """Return the names of what steps write and move, and of loop variables."""
    found: set[str] = set()
    for step in tree:
        match step:
            case StepBlock(opening=opening, body=body, other=other):
                found |= tiles_and_loops((*body, *other))
                found |= {opening.var} if isinstance(opening, LoopStep) else set()
            case Transfer(first=first, second=second):
                found |= {first, second}
            case TileStep(dst=dst):
                found.add(dst)
            case ScalarStep() | CallStep() | PrintStep() | CheckStep():
                pass
            case ImportStep() | WaitStep() | ReturnStep() | LeaveStep():
                pass
            case _:
                assert_never(step)
    return found


def assigned_once(tree: Tree, ops: Collection[str] = ()) -> frozenset[str]:
    """Return the scalars that one step alone assigns, outside of blocks.

    Args:
        tree: the steps of a function.
        ops: what the step may be; anything without it.
    """
    every = [step.dst for step in assignments(tree)]
    outermost = [step for step in tree if isinstance(step, ScalarStep) and (not ops or step.op in ops)]
    return frozenset(step.dst for step in outermost if every.count(step.dst) == 1)
