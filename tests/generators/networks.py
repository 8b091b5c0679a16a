"""Random networks of processes that can be run: pipelines, filters, feedback, turns, merges by time; some end
in a deadlock.

Every process writes what it receives to a tensor of its own, so that the order of tokens shows in results.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_wsp.ir import kernel as k
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Full, Index, Region
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Binary, Const, Element, Expr, Var
from pto_wsp.types import TensorType, TileType, f32, i32
from tests.generators.drawing import Draw

ROWS, COLS = 16, 8
TOKENS = 8
"""Most tokens that a source sends."""

DECIDING = 4
"""Elements of each tensor that decides what runs."""


def mix_kernel() -> k.KernelFunction:
    """Return y = 0.5 * a + b."""
    tile = TileType(1, COLS, f32)
    params = (k.Param("a", k.IN, tile), k.Param("b", k.IN, tile), k.Param("y", k.OUT, tile))
    names = ("t0", "t1", "t2", "t3")

    def whole(view: str) -> Region:
        return Region(view, (Full(), Full()))

    body = (
        k.Load("t0", whole("a")),
        k.Load("t1", whole("b")),
        k.Instr("muls", "t2", ("t0",), (Const(0.5, f32),)),
        k.Instr("add", "t3", ("t2", "t1")),
        k.Store(whole("y"), "t3"),
    )
    return k.KernelFunction("mix", params, tuple((name, tile) for name in names), (), body)


def count_kernel() -> k.KernelFunction:
    """Return y = a + 1, which decides what runs."""
    tile, whole = TileType(1, 1, i32), (Full(), Full())
    params = (k.Param("a", k.IN, tile), k.Param("y", k.OUT, tile))
    body = (
        k.Load("t0", Region("a", whole)),
        k.Instr("adds", "t1", ("t0",), (Const(1),)),
        k.Store(Region("y", whole), "t1"),
    )
    return k.KernelFunction("count", params, (("t0", tile), ("t1", tile)), (), body)


class _Channel:
    """A channel; one that can be part of a cycle is received a bounded number of times."""

    def __init__(self, name: str, ring: w.Ring) -> None:
        self.name = name
        self.ring = ring
        self.is_backward = False


class _Writer:
    """Writes one process."""

    def __init__(
        self, draw: Draw, number: int, ins: list[_Channel], outs: list[_Channel], *, decides: bool
    ) -> None:
        self.draw = draw
        self.decides = decides
        self.number = number
        self.ins, self.outs = ins, outs
        self.count = f"v{number}"
        self.fresh = 0
        self.held: list[Region] = []

    def name(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}{self.number}_{self.fresh}"

    def row(self, tensor: str, at: Expr) -> Region:
        index = Index(Binary("mod", at, Const(ROWS)))
        return Region(tensor, (index, Full(), Full()))

    def operand(self) -> Region:
        if self.held and self.draw.random() < 0.8:
            return self.draw.choice(self.held)
        return self.row("X", self.value())

    def value(self) -> Expr:
        return Binary("add", Var(self.count), Const(self.draw.randrange(4)))

    def number_of(self, most: int) -> Expr:
        """Return a number below `most`: a constant, or an element of `N` or of what tasks write."""
        constant = Const(self.draw.randrange(most))
        if not self.decides or self.draw.random() < 0.4:
            return constant
        tensor = self.draw.choice(("N", f"D{self.number}"))
        element = Element(tensor, (Const(self.draw.randrange(DECIDING)), Const(0), Const(0)))
        return Binary("min", element, Const(most - 1))

    def decide(self) -> tuple[w.Node, ...]:
        """Return tasks that change what `number_of` reads."""
        if not self.decides or self.draw.random() < 0.6:
            return ()
        source, target = (
            Region(name, (Index(Const(self.draw.randrange(DECIDING))), Full(), Full()))
            for name in (self.draw.choice(("N", f"D{self.number}")), f"D{self.number}")
        )
        return () if source == target else (w.Task("count", (source, target)),)

    def advance(self) -> w.Node:
        step = self.draw.choice((1, 1, 1, 3))
        return w.Set(self.count, Binary("add", Var(self.count), Const(step)))

    def send(self, channel: _Channel) -> w.Node:
        slot, index = self.name("s"), self.name("k")
        token = Region(channel.name, (Index(Var(slot)), Full(), Full()))
        task = w.Task("mix", (self.operand(), self.operand(), token))
        scalars = tuple(self.value() for _ in channel.ring.scalars)
        return w.Send(channel.name, slot, index, scalars, (task,))

    def record(self, token: Region) -> tuple[w.Node, ...]:
        def kept(at: Expr) -> w.Node:
            return w.Task("mix", (token, self.row("X", at), self.row(f"Y{self.number}", at)))

        if self.draw.random() < 0.6:
            return kept(Var(self.count)), self.advance()
        loop = self.name("i")  # tasks that may overlap
        at = Binary("add", Var(self.count), Var(loop))
        kind = self.draw.choice((w.PARALLEL, w.PARALLEL, w.SEQUENTIAL))
        extent = self.number_of(5)
        return *self.decide(), w.Loop(kind, loop, extent, None, (kept(at),)), self.advance()

    def receive(self, channel: _Channel, count: int | None, body: tuple[w.Node, ...] | None = None) -> w.Node:
        is_bounded = count is not None or channel.is_backward
        extent = Const(w.UNTIL_CLOSED)
        if is_bounded:
            extent = self.number_of(TOKENS) if count is None else Const(count)
        slot, index, loop = self.name("s"), self.name("k"), self.name("i")
        scalars = tuple(self.name("m") for _ in channel.ring.scalars)
        token = Region(channel.name, (Index(Var(slot)), Full(), Full()))
        self.held.append(token)
        inner = [*self.record(token)]
        if scalars and self.draw.random() < 0.5:
            mixed = Binary("mod", Binary("add", Var(self.count), Var(scalars[0])), Const(97))
            inner.append(w.Set(self.count, mixed))
        inner += body or self.forward()
        self.held.pop()
        receive = w.Receive(channel.name, slot, index, scalars, not is_bounded, tuple(inner))
        return w.Loop(w.RANGE, loop, extent, None, (receive,))

    def forward(self) -> tuple[w.Node, ...]:
        """Return what a process does with a token that it holds."""
        found: list[w.Node] = []
        for channel in self.outs:
            node = self.send(channel)
            found += self.wait()
            kind = self.draw.random()
            if kind < 0.2:  # a filter
                decided = Binary("add", Var(self.count), self.number_of(2))
                condition = Binary("eq", Binary("mod", decided, Const(2)), Const(0))
                node = w.Cond(condition, (node, self.advance()), (self.advance(),))
            elif kind < 0.3:
                node = w.Loop(w.PARALLEL, self.name("i"), Const(2), None, (node,))
            found.append(node)
        return tuple(found)

    def wait(self) -> tuple[w.Node, ...]:
        if self.draw.random() < 0.7:
            return ()
        long = Binary("mul", Binary("mod", self.value(), Const(5)), Const(self.draw.choice((-1, 1, 1000))))
        return (w.Delay(long),)

    def source(self) -> tuple[w.Node, ...]:
        first, count = self.decide(), self.number_of(TOKENS + 1)
        body = (*self.wait(), *self.decide(), *[self.send(c) for c in self.outs], self.advance())
        return (*first, w.Loop(w.PARALLEL, self.name("i"), count, None, body))

    def body(self) -> tuple[w.Node, ...]:
        """Return the nodes of the process."""
        if not self.ins:
            return self.source()
        first: list[w.Node] = []
        if self.draw.random() < 0.2 and self.outs:  # tokens that begin a feedback
            first.append(self.send(self.draw.choice(self.outs)))
        if len(self.ins) == 1:
            count = self.draw.choice((None, None, None, self.draw.randrange(TOKENS)))
            return (*first, self.receive(self.ins[0], count))
        outer, *others = self.ins
        if self.draw.random() < 0.5:  # one token of each other channel per token of the first
            inner = tuple(self.receive(c, 1, ()) for c in others)
            return (*first, self.receive(outer, None, (*inner, *self.forward())))
        return (*first, *[self.receive(c, None) for c in self.ins])


def random_network(draw: Draw, merge: str = w.TURNS, *, decides: bool = False) -> Module:
    """Return a network of up to six processes; it may end in a deadlock or with tokens left.

    Args:
        draw: the source of choices.
        merge: how the senders of most channels that have several are merged.
        decides: whether elements of the tensor `N`, and of tensors that tasks write, decide what runs.
    """
    num_processes, num_channels = draw.randrange(2, 7), draw.randrange(1, 7)
    ins: list[list[_Channel]] = [[] for _ in range(num_processes)]
    outs: list[list[_Channel]] = [[] for _ in range(num_processes)]
    channels: list[_Channel] = []
    for number in range(num_channels):
        scalars = ("m",) if draw.random() < 0.4 else ()
        depth, latency = draw.choice((0, 1, 1, 2, 3, 8)), draw.randrange(3)
        kind = merge if draw.random() < 0.8 else w.TURNS
        channel = _Channel(f"c{number}", w.Ring(depth, scalars, latency, kind))
        channels.append(channel)
        producer = draw.randrange(num_processes - 1)
        consumer = draw.randrange(producer + 1, num_processes)
        if draw.random() < 0.15:
            producer, consumer = consumer, producer  # feedback
        producers, consumers = {producer}, {consumer}
        if draw.random() < (0.2 if kind == w.TURNS else 0.8):
            producers.add(draw.randrange(num_processes))
        if draw.random() < 0.2:
            consumers.add(draw.randrange(num_processes))
        channel.is_backward = max(producers) >= min(consumers)
        for p in sorted(producers):
            outs[p].append(channel)
        for p in sorted(consumers):
            ins[p].append(channel)
    bodies = [_Writer(draw, n, ins[n], outs[n], decides=decides).body() for n in range(num_processes)]
    processes = tuple(w.Process(f"p{number}", body) for number, body in enumerate(bodies))
    kernels = (mix_kernel(), count_kernel()) if decides else (mix_kernel(),)
    params = tuple(_params(num_processes, channels, decides=decides))
    return Module("net", kernels, (w.WorkloadFunction("net", params, processes),), "net")


def _params(num_processes: int, channels: list[_Channel], *, decides: bool) -> Iterator[w.WorkloadParam]:
    """Yield the tensors of a network."""
    rows, deciding = TensorType(f32, (ROWS, 1, COLS)), TensorType(i32, (DECIDING, 1, 1))
    yield w.TensorParam("X", rows)
    for number in range(num_processes):
        yield w.TensorParam(f"Y{number}", rows)
        if decides:
            yield w.TensorParam(f"D{number}", deciding)
    for channel in channels:
        kind = TensorType(f32, (channel.ring.buffers, 1, COLS))
        yield w.TensorParam(channel.name, kind, None, True, channel=channel.ring)
    if decides:
        yield w.TensorParam("N", deciding)
