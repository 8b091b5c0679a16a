"""What is recorded of a workload's body: its nodes, and the blocks that are still open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from pto_wsp.errors import NotYetSupported, UnsupportedSyntax
from pto_wsp.ir import workload as w
from pto_wsp.ir.scalar import Expr, Var
from pto_wsp.lang.kernel.declarations import SpecialisableKernel
from pto_wsp.lang.workload.expansion import NOT_EXPANDED, Expansion
from pto_wsp.location import Location
from pto_wsp.support.record import record

MAX_ALTERNATIVES = 256
"""Alternatives of a conditional; each is inside the one before."""


@record
class OpenTask:
    """A task with its arguments as they were given, by parameter of its kernel.

    Attributes:
        after: tasks that it waits for explicitly.
        scope: what names mean in the function that makes it.
    """

    kernel: SpecialisableKernel
    args: dict[str, object]
    keys: tuple[Expr, ...]
    loc: Location | None
    after: list[OpenTask]
    scope: Mapping[str, object]


@record
class OpenLoop:
    """A loop whose body is being recorded, or has been."""

    kind: str
    var: str
    extent: Expr
    tile: int | None
    loc: Location | None
    body: list[OpenNode]
    name: str
    expansion: Expansion = NOT_EXPANDED

    @property
    def index(self) -> Var:
        """Its variable."""
        return Var(self.var)


@record
class OpenCond:
    """A conditional one of whose bodies is being recorded, or has been."""

    condition: Expr
    loc: Location | None
    then: list[OpenNode]
    other: list[OpenNode]


@record
class OpenProcess:
    """A process whose body is being recorded, or has been."""

    name: str
    loc: Location | None
    body: list[OpenNode]


@record
class OpenSend:
    """A token whose tasks are being recorded, or have been: see `ir.workload.Send`."""

    channel: str
    slot: str
    index: str
    scalars: tuple[Expr, ...]
    loc: Location | None
    body: list[OpenNode]


@record
class OpenReceive:
    """A token whose uses are being recorded, or have been: see `ir.workload.Receive`."""

    channel: str
    slot: str
    index: str
    scalars: tuple[str, ...]
    ends_loop: bool
    loc: Location | None
    body: list[OpenNode]


OpenNode = OpenLoop | OpenTask | OpenCond | w.Set | w.Refuse | w.Delay | OpenProcess | OpenSend | OpenReceive


def tasks_of(nodes: Iterable[OpenNode]) -> Iterator[OpenTask]:
    """Yield every task of nodes and of the blocks inside them, in program order of the text."""
    for node in nodes:
        match node:
            case OpenTask():
                yield node
            case OpenLoop() | OpenProcess() | OpenSend() | OpenReceive():
                yield from tasks_of(node.body)
            case OpenCond():
                yield from tasks_of(node.then)
                yield from tasks_of(node.other)
            case w.Set() | w.Refuse() | w.Delay():
                pass
            case _:
                assert_never(node)


class Chain:
    """A conditional with its alternatives.

    Attributes:
        loc: place of its `P.when`.
        rest: where the next alternative is recorded; a list without readers once all is decided.
        is_complete: whether its `P.otherwise()` without a predicate has come.
    """

    def __init__(self, loc: Location | None, rest: list[OpenNode]) -> None:
        self.loc = loc
        self.rest = rest
        self.is_complete = False
        self._count = 0

    def alternative(self, predicate: Expr | bool, loc: Location | None) -> list[OpenNode]:
        """Return where the body of an alternative is recorded.

        A predicate that is known while the workload is built makes no node: its body replaces it, or
        is dropped.
        """
        if predicate is True:
            body, self.rest = self.rest, []
            return body
        if predicate is False:
            return []
        self._count += 1
        if self._count > MAX_ALTERNATIVES:
            feature = f"more than {MAX_ALTERNATIVES} alternatives of one condition"
            advice = "select kernels by a size with `tier`, or split the chain by a condition around it"
            raise NotYetSupported(feature=feature, detail="", advice=advice, loc=loc)
        cond = OpenCond(predicate, loc, [], [])
        self.rest.append(cond)
        self.rest = cond.other
        return cond.then


class OpenBlock:
    """The list of nodes that receives the next recorded node.

    Attributes:
        nodes: what has been recorded.
        what: the construct whose body it is, for messages.
        loc: its place.
        chain: the conditional that the last node belongs to, which `P.otherwise` may continue.
        ended: the last such conditional that a node after it has ended, and that node's place.
    """

    __slots__ = ("chain", "ended", "loc", "nodes", "what")

    def __init__(self, nodes: list[OpenNode], what: str, loc: Location | None) -> None:
        self.nodes = nodes
        self.what = what
        self.loc = loc
        self.chain: Chain | None = None
        self.ended: tuple[Chain, Location | None] | None = None


class Blocks:
    """The blocks that are open, innermost last."""

    def __init__(self) -> None:
        self.body: list[OpenNode] = []
        self._open = [OpenBlock(self.body, "the workload", None)]

    @property
    def innermost(self) -> OpenBlock:
        """The block that is being recorded."""
        return self._open[-1]

    def __contains__(self, block: object) -> bool:
        return any(block is b for b in self._open)

    def add(self, node: OpenNode) -> None:
        """Record a node."""
        self.innermost.nodes.append(node)
        self.end_chain(node.loc)

    def end_chain(self, loc: Location | None) -> None:
        """Let no `P.otherwise` continue what has been recorded so far; `loc` is the reason's place."""
        block = self.innermost
        if block.chain is not None:
            block.ended, block.chain = (block.chain, loc), None

    def enter(self, nodes: list[OpenNode], what: str, loc: Location | None) -> OpenBlock:
        """Begin a block: `nodes` receives the next recorded nodes."""
        self._open.append(OpenBlock(nodes, what, loc))
        return self.innermost

    def leave(self, block: OpenBlock) -> None:
        """End a block.

        Raises:
            UnsupportedSyntax: a block inside it was left before its end.
        """
        if self.innermost is not block:
            raise self._left_early()
        self._open.pop()

    def finish(self) -> None:
        """End the recording.

        Raises:
            UnsupportedSyntax: a block was left before its end.
        """
        if len(self._open) > 1:
            raise self._left_early()

    def _left_early(self) -> UnsupportedSyntax:
        inner = self.innermost
        return left_early(
            inner.what, "`break` or `return`" if inner.what == "a loop" else "an exception", inner.loc
        )


def left_early(what: str, how: str, loc: Location | None) -> UnsupportedSyntax:
    """Return the error that a body was left before its end."""
    return UnsupportedSyntax(
        construct=f"leaving {what} with {how}",
        where="workload",
        detail="its body does not reach its end",
        advice="a loop describes all its iterations: make it shorter with `P(n)` of a smaller extent"
        if what == "a loop"
        else "a body describes what happens if its condition holds: put what is skipped under another one",
        loc=loc,
    )
