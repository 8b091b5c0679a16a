"""Workload functions: programs that generate tasks.

A workload denotes tasks in program order; its reference meaning is to run them one after another.
Source: seed 003 sections 2 and 3; ARCHITECTURE 4.3 and 4.5.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.ir.core import Region
from pto_wsp.ir.scalar import Element, Expr, walk
from pto_wsp.location import Location
from pto_wsp.support.record import record
from pto_wsp.types.tile import ScalarType, TensorType

PARALLEL, SEQUENTIAL, RANGE = "parallel", "seq", "range"


@record
class TensorParam:
    """A tensor that a run binds to an array."""

    name: str
    type: TensorType
    loc: Location | None = None


@record
class SizeParam:
    """A size or axis extent: taken from the arrays that use its name, or given in the call (i64, >= 0)."""

    name: str
    default: int | None = None
    loc: Location | None = None


@record
class ScalarParam:
    """A scalar that a run passes on to kernels."""

    name: str
    type: ScalarType
    loc: Location | None = None


@record
class RaggedParam:
    """A ragged axis with a row for each element of the size `outer`.

    Its offsets are a tensor [outer + 1] of the function, called `offsets`, whose size is called `count`.
    """

    name: str
    outer: str
    loc: Location | None = None

    @property
    def offsets(self) -> str:
        """Name of the tensor that holds where each row begins and the last one ends."""
        return self.name + ".offsets"

    @property
    def count(self) -> str:
        """Name of the size of that tensor."""
        return self.name + ".count"


WorkloadParam = TensorParam | SizeParam | ScalarParam | RaggedParam


@record
class Loop:
    """A loop over [0, extent), or over tiles of `tile` elements of it.

    Attributes:
        kind: `parallel` (P), `seq` (P.seq: iteration i is complete before i + 1 begins) or `range`
            (P.range: program order, ordered by data alone).
        var: unique in its function. In a tiles loop it counts tiles; `var + ".start"` and `var + ".len"`
            name the current range, clipped to the extent.
        extent: of the axis, in elements.
        tile: elements per tile, or None for a plain loop.
    """

    kind: str
    var: str
    extent: Expr
    tile: int | None
    body: tuple[Node, ...]
    loc: Location | None = None

    @property
    def start(self) -> str:
        """Name of the first element of the current range of a tiles loop."""
        return self.var + ".start"

    @property
    def length(self) -> str:
        """Name of the number of elements of the current range of a tiles loop."""
        return self.var + ".len"


@record
class Task:
    """One task: a kernel applied to regions and scalars.

    Attributes:
        args: per kernel parameter, in the kernel's order, a Region or a scalar expression.
        keys: the coordinates the task was called with, for reports and traces.
    """

    kernel: str
    args: tuple[Region | Expr, ...]
    keys: tuple[Expr, ...] = ()
    loc: Location | None = None


Node = Loop | Task


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
    def symbols(self) -> tuple[SizeParam | ScalarParam, ...]:
        """Sizes and scalars, in order."""
        return tuple(p for p in self.params if isinstance(p, (SizeParam, ScalarParam)))

    def tensor(self, name: str) -> TensorParam:
        """Return the tensor called `name`."""
        return next(t for t in self.tensors if t.name == name)


def walk_nodes(body: tuple[Node, ...]) -> Iterator[Node]:
    """Yield every node of `body` and of the loops inside it, in program order."""
    for node in body:
        yield node
        if isinstance(node, Loop):
            yield from walk_nodes(node.body)


def deciding_tensors(body: tuple[Node, ...]) -> set[str]:
    """Return the names of the tensors whose elements expressions of `body` read."""
    exprs: list[Expr] = []
    for node in walk_nodes(body):
        if isinstance(node, Loop):
            exprs.append(node.extent)
            continue
        exprs += node.keys
        for arg in node.args:
            exprs += arg.expressions if isinstance(arg, Region) else (arg,)
    return {e.name for expr in exprs for e in walk(expr) if isinstance(e, Element)}


def tasks(body: tuple[Node, ...]) -> Iterator[Task]:
    """Yield every task of `body`, in program order of the text."""
    return (node for node in walk_nodes(body) if isinstance(node, Task))
