"""Workload functions: programs that generate tasks.

A workload denotes tasks in program order; its reference meaning is to run them one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from pto_wsp.ir.core import Region, Rows
from pto_wsp.ir.scalar import (
    Element,
    Expr,
    FlushValue,
    LoopExtent,
    LoopStart,
    Slot,
    Value,
    Var,
    walk,
)
from pto_wsp.location import Location
from pto_wsp.support.record import record, replace
from pto_wsp.types.tile import ScalarType, TensorType

PARALLEL, SEQUENTIAL, RANGE = "parallel", "seq", "range"


TURNS, TIME, ARRIVAL = "turns", "time", "arrival"
"""How several senders of a channel are merged: in turn; by simulated time; the same, and where there is no
clock, as they come."""

MERGES = (TURNS, TIME, ARRIVAL)


@record
class Ring:
    """What makes a local tensor the ring of a channel: its first dimension numbers the buffers.

    Attributes:
        depth: tokens that can be sent before one is freed, >= 0. With 0 the ring has one buffer, and a send
            ends when its token is received.
        scalars: names of the integers that each token carries.
        latency: cycles from a send to its receipt, >= 0, or the name of a size, on targets that have a clock.
        merge: how several senders are merged, one of `MERGES`.
    """

    depth: int
    scalars: tuple[str, ...] = ()
    latency: int | str = 0
    merge: str = TURNS

    @property
    def buffers(self) -> int:
        """Number of buffers of the ring."""
        return max(self.depth, 1)


@record
class TensorParam:
    """A tensor of a run.

    Attributes:
        is_local: made by the program for the run, contents undefined; else the call binds an array to it.
        is_distinct: its elements differ from each other: by construction where the run makes them (indices
            of `group_by`); else by assumption, which each run checks.
        columns: of a tensor that lies in panels (MemLayout), the columns that it has before packing; the
            sizes of its type are those of the packed array, of which the last is the width of a panel.
        axis: name of the axis that the run makes and whose offsets the tensor holds, or None.
        channel: the channel whose buffers the tensor holds, or None.
    """

    name: str
    type: TensorType
    loc: Location | None = None
    is_local: bool = False
    is_distinct: bool = False
    columns: int | None = None
    axis: str | None = None
    channel: Ring | None = None

    @property
    def hidden_dims(self) -> int:
        """Dimensions before those that a user declared: the first one of a ring numbers its buffers."""
        return 0 if self.channel is None else 1


@record
class SizeParam:
    """A size or axis extent (i64, >= 0).

    It is taken from the arrays that use its name, or given in the call, or, where `value` is set, computed
    from other sizes before the run.
    """

    name: str
    default: int | None = None
    loc: Location | None = None
    value: Expr | None = None


@record
class ScalarParam:
    """A scalar: given in the call, or, where `value` is set, computed from other symbols before the run.

    A call need not give one that has a default.
    """

    name: str
    type: ScalarType
    loc: Location | None = None
    value: Expr | None = None
    default: int | float | None = None


class RowsParam:
    """An axis with a row for each element of the size `outer`; its offsets are a tensor [outer + 1] i64."""

    name: str
    outer: str

    @property
    def offsets(self) -> str:
        """Name of the tensor that holds where each row begins and the last one ends."""
        return self.name + ".offsets"

    @property
    def count(self) -> str:
        """Name of the size of that tensor."""
        return self.name + ".count"

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that hold its rows."""
        return (self.offsets,)


@record
class RaggedParam(RowsParam):
    """A ragged axis: row b covers the elements from offsets[b] to offsets[b + 1] of a packed dimension."""

    name: str
    outer: str
    loc: Location | None = None


@record
class SparseParam(RowsParam):
    """A sparse axis in CSR form.

    Its indices are a tensor [entries, 1] i32, of which row b has those from offsets[b] to offsets[b + 1].
    """

    name: str
    outer: str
    loc: Location | None = None

    @property
    def indices(self) -> str:
        """Name of the tensor that holds the indices of all rows, one after the other."""
        return self.name + ".indices"

    @property
    def entries(self) -> str:
        """Name of the number of indices."""
        return self.name + ".entries"

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that hold its rows."""
        return self.offsets, self.indices


WorkloadParam = TensorParam | SizeParam | ScalarParam | RaggedParam | SparseParam


@record
class Loop:
    """A loop over [0, extent), or over tiles of `tile` elements of it.

    Attributes:
        kind: `parallel` (P), `seq` (P.seq: iteration i is complete before i + 1 begins) or `range`
            (P.range: program order, ordered by data alone).
        var: a name that nothing around the loop has. In a tiles loop it counts tiles; `start` and `length`
            are the current range, clipped to the extent.
        extent: of the axis, in elements.
        tile: elements per tile, or None for a plain loop.
        max_range: of a plain loop, the power of two that binary expansion takes the extent apart by; it is
            a hint, and the extent may be larger. None where the loop is not to be expanded.
        min_range: its smallest block, a power of two; what is left of the extent is one more loop.
        tile_levels: for blocks of some sizes, rows of the tiles that they work on: (block, rows), largest
            block first, 0 for what is left. Kernels are written for other rows, and the loop counts those.
        name: what the user calls the variable, where `var` is another name because something else in the
            function has that one; else empty.
        first: the user's variable in the first iteration, a number or an expression as text; for messages
            alone.
        step: how much the user's variable grows per iteration; for messages alone.
        block_of: the user's variable of the loop that binary expansion has made this block of; for messages
            alone.
    """

    apart = ("first", "step", "block_of")

    kind: str
    var: str
    extent: Expr
    tile: int | None
    body: tuple[Node, ...]
    loc: Location | None = None
    max_range: int | None = None
    min_range: int | None = None
    tile_levels: tuple[tuple[int, int], ...] = ()
    name: str = ""
    first: int | str = 0
    step: int = 1
    block_of: str = ""

    @property
    def called(self) -> str:
        """The variable as the user calls it."""
        return self.name or self.var

    def iteration_text(self, index: Value) -> str:
        """Return `i = 16`: the user's variable in an iteration."""
        advance = int(index) * self.step
        value = f"{self.first} + {advance}" if isinstance(self.first, str) else self.first + advance
        return f"{self.called} = {value}"

    @property
    def start(self) -> LoopStart:
        """The first element of the current range of a tiles loop."""
        return LoopStart(self.var)

    @property
    def length(self) -> LoopExtent:
        """The number of elements of the current range of a tiles loop."""
        return LoopExtent(self.var)


@record
class Task:
    """One task: a kernel applied to regions and scalars.

    Attributes:
        args: per kernel parameter, in the kernel's order, a Region or a scalar expression.
        keys: the coordinates the task was called with, for reports and traces.
        label: name that `after` of later tasks uses, unique in its function; empty where none does.
        after: labels of tasks that come before, inside the same loops or fewer: the latest task that each
            made, if it has made one, is complete before this one begins.
        workspace: bytes of workspace that the kernel asks for (>= 0), or None.
        cost: estimated run time in ns (>= 0), or None.
    """

    kernel: str
    args: tuple[Region | Expr, ...]
    keys: tuple[Expr, ...] = ()
    loc: Location | None = None
    label: str = ""
    after: tuple[str, ...] = ()
    workspace: Expr | None = None
    cost: Expr | None = None


@record
class Cond:
    """`then` where `condition`, a bool expression, holds when the walk comes to it, else `other`.

    An else-if is a Cond alone in `other`.
    """

    condition: Expr
    then: tuple[Node, ...]
    other: tuple[Node, ...] = ()
    loc: Location | None = None


Variable = str | Slot | FlushValue


@record
class Set:
    """A variable = `value`, at this place of the program order.

    Variables are i64, 0 when a run begins, and known in the whole function.

    Attributes:
        name: of the variable, or its slot; the lowering to bytecode also sets what flush points read.
    """

    name: Variable
    value: Expr
    loc: Location | None = None


@record
class Refuse:
    """The run ends here with an error: no tier of `tier` takes `size`, or an assumption does not hold.

    `bounds` are those of the tiers. `assumption` is the condition as text; empty for tiers.
    """

    tier: str
    bounds: tuple[int, ...]
    size: Expr
    loc: Location | None = None
    assumption: str = ""


@record
class WorkloadCall:
    """The tasks of another workload, at this place of the program order.

    The pass `inline` puts the body of the callee here; nothing that runs knows calls.

    Attributes:
        workload: name of a function of the module, which does not lead back to this one.
        args: per open parameter of the callee, in order: for a tensor a Region of whole dimensions and
            indices, which is the callee's tensor, for a size or scalar an expression.
    """

    workload: str
    args: tuple[Region | Expr, ...]
    loc: Location | None = None


@record
class Process:
    """A process of a network: its own program order. The body of a network has processes alone."""

    name: str
    body: tuple[Node, ...]
    loc: Location | None = None


@record
class Send:
    """A token: the tasks of `body` write its buffer, and it is sent when they are complete.

    The process waits for its turn and for a free buffer before the body.

    Attributes:
        channel: name of the tensor that is the ring.
        slot: a variable, known in the body: the buffer of the token.
        index: a variable, known in the body: the number of the token in the channel.
        scalars: the integers of the token, evaluated before the process waits.
    """

    channel: str
    slot: str
    index: str
    scalars: tuple[Expr, ...]
    body: tuple[Node, ...]
    loc: Location | None = None


UNTIL_CLOSED = 1 << 53
"""The extent of a loop that receives until its channel is closed."""


@record
class Receive:
    """The next token of a channel: its buffer is free again when the tasks of `body` are complete.

    Attributes:
        channel: name of the tensor that is the ring.
        slot: a variable, known in the body: the buffer of the token.
        index: a variable, known in the body: the number of the token in the channel.
        scalars: variables, known in the body: the integers of the token.
        ends_loop: the loop around it, of which it is the only node, ends where the channel is closed. Without
            it a closed channel is an error.
    """

    channel: str
    slot: str
    index: str
    scalars: tuple[str, ...]
    ends_loop: bool
    body: tuple[Node, ...]
    loc: Location | None = None


@record
class Delay:
    """The clock of a process advances by `cycles`, an integer; below 0 counts as 0.

    It changes nothing on targets without a clock.
    """

    cycles: Expr
    loc: Location | None = None


NetworkNode = Process | Send | Receive | Delay
Node = Loop | Task | Cond | Set | Refuse | WorkloadCall | NetworkNode


@record
class WorkloadFunction:
    """An Orchestration function."""

    name: str
    params: tuple[WorkloadParam, ...]
    body: tuple[Node, ...]
    loc: Location | None = None

    @property
    def tensors(self) -> tuple[TensorParam, ...]:
        """Tensor parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, TensorParam))

    @property
    def raggeds(self) -> tuple[RaggedParam, ...]:
        """Ragged axes, in order."""
        return tuple(p for p in self.params if isinstance(p, RaggedParam))

    @property
    def sparses(self) -> tuple[SparseParam, ...]:
        """Sparse axes that a call binds, in order."""
        return tuple(p for p in self.params if isinstance(p, SparseParam))

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Names and slots that some Set of the function assigns, each once."""
        return tuple(dict.fromkeys(n.name for n in walk_nodes(self.body) if isinstance(n, Set)))

    @property
    def axes_by_offsets(self) -> dict[str, str]:
        """Axes of rows, given and made by the run, by the tensor that holds their offsets."""
        given = {p.offsets: p.name for p in self.params if isinstance(p, RowsParam)}
        return given | {t.name: t.axis for t in self.tensors if t.axis is not None}

    @property
    def symbols(self) -> tuple[SizeParam | ScalarParam, ...]:
        """Sizes and scalars, in order."""
        return tuple(p for p in self.params if isinstance(p, (SizeParam, ScalarParam)))

    @property
    def processes(self) -> tuple[Process, ...]:
        """Processes of a network, in declared order; none of a workload."""
        return tuple(node for node in self.body if isinstance(node, Process))

    @property
    def open_params(self) -> tuple[WorkloadParam, ...]:
        """Parameters that follow from no other: what a Call gives."""
        given = {d for t in self.tensors if not t.is_local for d in t.type.dims}
        return tuple(p for p in self.params if _is_open(p) and p.name not in given)

    def tensor(self, name: str) -> TensorParam:
        """Return the tensor called `name`."""
        return next(t for t in self.tensors if t.name == name)


def _is_open(param: WorkloadParam) -> bool:
    match param:
        case TensorParam():
            return not param.is_local
        case SizeParam() | ScalarParam():
            return param.value is None
        case _:
            return True


Block = tuple[Node, ...]


def blocks(node: Node) -> tuple[Block, ...]:
    """Return the blocks inside a node, in program order."""
    match node:
        case Task() | Set() | Refuse() | WorkloadCall() | Delay():
            return ()
        case Loop(body=body) | Process(body=body) | Send(body=body) | Receive(body=body):
            return (body,)
        case Cond(then=then, other=other):
            return then, other
        case _:
            assert_never(node)


def rebuild(node: Node, change: Callable[[Block], Iterable[Node]]) -> Node:
    """Return a node with each of the blocks inside it changed."""
    match node:
        case Task() | Set() | Refuse() | WorkloadCall() | Delay():
            return node
        case Loop() | Process() | Send() | Receive():
            return replace(node, body=tuple(change(node.body)))
        case Cond(then=then, other=other):
            return replace(node, then=tuple(change(then)), other=tuple(change(other)))
        case _:
            assert_never(node)


def walk_nodes(body: Iterable[Node]) -> Iterator[Node]:
    """Yield every node of `body` and of the blocks inside it, in program order of the text."""
    for node in body:
        yield node
        for block in blocks(node):
            yield from walk_nodes(block)


def assigned(variable: Variable) -> Expr:
    """Return the value of a variable as an expression."""
    return Var(variable) if isinstance(variable, str) else variable


def node_expressions(node: Node) -> tuple[Expr, ...]:
    """Return the expressions of a node itself, without those of the nodes inside it.

    Those of a task are its arguments', in order, then its workspace, its cost and its coordinates.
    """
    match node:
        case Loop(extent=extent):
            return (extent,)
        case Cond(condition=condition):
            return (condition,)
        case Set(value=value):
            return (value,)
        case Refuse(size=size):
            return (size,)
        case WorkloadCall(args=args):
            return _argument_expressions(args)
        case Send(scalars=scalars):
            return scalars
        case Delay(cycles=cycles):
            return (cycles,)
        case Process() | Receive():
            return ()
        case Task():
            found = _argument_expressions(node.args)
            amounts = [e for e in (node.workspace, node.cost) if e is not None]
            return (*found, *amounts, *node.keys)
        case _:
            assert_never(node)


def _argument_expressions(args: Iterable[Region | Expr]) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for arg in args:
        found += arg.expressions if isinstance(arg, Region) else (arg,)
    return tuple(found)


def _mapped_arguments(
    args: Iterable[Region | Expr], change: Callable[[Expr], Expr]
) -> tuple[Region | Expr, ...]:
    return tuple(a.mapped(change) if isinstance(a, Region) else change(a) for a in args)


def map_expressions(node: Node, change: Callable[[Expr], Expr]) -> Node:
    """Return a node with each of its own expressions changed."""
    match node:
        case Loop(extent=extent):
            return replace(node, extent=change(extent))
        case Cond(condition=condition):
            return replace(node, condition=change(condition))
        case Set(value=value):
            return replace(node, value=change(value))
        case Refuse(size=size):
            return replace(node, size=change(size))
        case WorkloadCall(args=args):
            return replace(node, args=_mapped_arguments(args, change))
        case Send(scalars=scalars):
            return replace(node, scalars=tuple(map(change, scalars)))
        case Delay(cycles=cycles):
            return replace(node, cycles=change(cycles))
        case Process() | Receive():
            return node
        case Task(args=args, keys=keys, workspace=workspace, cost=cost):
            return replace(
                node,
                args=_mapped_arguments(args, change),
                workspace=None if workspace is None else change(workspace),
                cost=None if cost is None else change(cost),
                keys=tuple(change(key) for key in keys),
            )
        case _:
            assert_never(node)


def deciding_tensors(body: tuple[Node, ...]) -> set[str]:
    """Return the names of the tensors whose elements expressions or row sets of `body` read."""
    exprs = [e for node in walk_nodes(body) for e in node_expressions(node)]
    found = {e.name for expr in exprs for e in walk(expr) if isinstance(e, Element)}
    regions = [arg for task in tasks(body) for arg in task.args if isinstance(arg, Region)]
    return found | {dim.indices for region in regions for dim in region.dims if isinstance(dim, Rows)}


def tasks(body: tuple[Node, ...]) -> Iterator[Task]:
    """Yield every task of `body`, in program order of the text."""
    return (node for node in walk_nodes(body) if isinstance(node, Task))
