"""Channels between the processes of a network, and their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NoReturn

from pto_wsp.errors import (
    BadChannel,
    BadOperand,
    OutsideWorkload,
    UnknownMember,
    UnsupportedSyntax,
    did_you_mean,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Index
from pto_wsp.ir.scalar import I64_MAX, Const, Expr, Var
from pto_wsp.lang.annotations import TensorAnnotation
from pto_wsp.lang.operands import Number, Scalar, expression, kind_of
from pto_wsp.lang.source import leaving_statements, loop_statement, loop_targets, with_statement
from pto_wsp.lang.workload.blocks import OpenBlock, OpenReceive, OpenSend, left_early
from pto_wsp.lang.workload.python_variables import require_one_value
from pto_wsp.lang.workload.sparse import Held
from pto_wsp.lang.workload.tensor import Tensor, View, parse_dim
from pto_wsp.lang.workload.trace import WorkloadTrace, current_trace
from pto_wsp.location import Location, caller_location
from pto_wsp.types.dtype import DType, i64

_REFUSED = ("try_send", "try_receive", "select", "peek")


class Channel:
    """A channel: a queue of tokens with a bounded number of buffers.

    `with ch.send() as token:` waits for a free buffer; tasks write it, and it is sent when they are complete.
    `for token in ch.receive():` gets every token until the channel is closed; tasks read the buffer, which is
    free again when they are complete. A channel is closed when all processes that send to it have ended.

    Several processes that send take turns in declared order; so do several that receive. A process that has
    ended loses its turn.

    Args:
        name: an identifier, unique in the network.
        type: the buffer of a token, such as `Tensor[f32, 64, 128]`; None for tokens of scalars alone.
        depth: tokens that can be sent before one is free again, >= 0. With 0 a send ends when its token is
            received.
        latency: cycles between a send and its receipt, >= 0, or the name of a size, which each run gives.
            Targets without a clock accept and ignore it.
        scalars: names of the integers that each token carries.
        merge: which of several senders sends the next token: `"turns"`, or `"time"`: the one that first finds
            a free buffer. On targets without a clock that depends on the moment, and the network must say so:
            `network(..., nondeterministic=True)`.

    Raises:
        BadChannel: a name, type, depth, latency, scalar or merge that a channel cannot have.
    """

    def __init__(
        self,
        name: str,
        type: object = None,
        depth: int = 1,
        *,
        latency: int | str = 0,
        scalars: Sequence[str] = (),
        merge: str = w.TURNS,
    ) -> None:
        self.name = name
        self.loc = caller_location()
        if not isinstance(name, str) or not name.isidentifier():
            raise self._bad("cannot have this name", f"expected an identifier, found {name!r}")
        self.dtype, self.dims = self._type(type)
        if not isinstance(depth, int) or isinstance(depth, bool) or depth < 0:
            raise self._bad("cannot have this depth", f"expected an integer >= 0, found {depth!r}")
        cycles = parse_dim(latency)
        if cycles is None or cycles == "" or (isinstance(cycles, int) and cycles > I64_MAX):
            expected = "expected an integer of 0 to 2**63 - 1, or the name of a size"
            raise self._bad("cannot have this latency", f"{expected}, found {latency!r}")
        names = (scalars,) if isinstance(scalars, str) else tuple(scalars)
        if len({*names}) < len(names) or not all(isinstance(n, str) and n.isidentifier() for n in names):
            raise self._bad("cannot have these scalars", f"expected different identifiers, found {scalars!r}")
        if merge not in (w.TURNS, w.TIME):
            raise self._bad("cannot have this merge", f'expected "turns" or "time", found {merge!r}')
        self.record = w.Ring(depth, names, cycles, merge)

    def __repr__(self) -> str:
        return f"<channel {self.name}, depth {self.record.depth}>"

    def _bad(self, problem: str, detail: str, advice: str = "", loc: Location | None = None) -> BadChannel:
        return BadChannel(
            name=str(self.name), problem=problem, detail=detail, advice=advice, loc=loc or self.loc
        )

    def _type(self, given: object) -> tuple[DType, tuple[int | str, ...]]:
        """Return the element type and the sizes of a buffer; those of no buffer are a ring of i64."""
        if given is None:
            return i64, ()
        if isinstance(given, Channel) or given is Channel:
            advice = "send a scalar that selects one of several channels, with a `P.when` for each"
            raise self._bad("carries channels", "channels of channels are not supported", advice)
        args = given.args if isinstance(given, TensorAnnotation) else ()
        dims = tuple(parse_dim(dim) for dim in args[1:])
        if not args or not isinstance(args[0], DType) or not dims or None in dims:
            expected = "expected `Tensor[dtype, dims...]` or None"
            raise self._bad("cannot have this type", f"{expected}, found {given!r}")
        return args[0], tuple(dim for dim in dims if dim is not None)

    def ring(self) -> Held:
        """Return the tensor that holds the buffers."""
        return Held(self.name, self.dtype, (self.record.buffers, *self.dims))

    def send(self, **scalars: Number) -> Sending:
        """Begin a token: `with ch.send() as token:`.

        Args:
            scalars: the integers that the token carries, one for each scalar of the channel. They are
                evaluated before the process waits for a free buffer.

        Raises:
            BadChannel: other scalars than those of the channel.
            OutsideWorkload: no process is being built.
        """
        trace = _process(f"`{self.name}.send`")
        loc = caller_location()
        values: list[Expr] = []
        for name in self.record.scalars:
            expr = expression(scalars.pop(name, None))
            if expr is None or expr.dtype is not i64:
                found = "none" if expr is None else str(expr.dtype)
                detail = f"expected an integer `{name}=`, found {found}"
                raise self._bad("sends a token without a scalar", detail, loc=loc)
            values.append(expr)
        if scalars:
            known = did_you_mean(next(iter(scalars)), self.record.scalars)
            detail = f"found `{next(iter(scalars))}`"
            raise self._bad("has no such scalar", detail, known, loc)
        statement = None if loc is None else with_statement(loc)
        if loc is None or statement is None:
            raise UnsupportedSyntax(
                construct=f"`{self.name}.send` that no `with` statement opens",
                where="process",
                detail="its body cannot be seen",
                advice=f"write `with {self.name}.send() as token:`",
                loc=loc,
            )
        for keyword, place in leaving_statements(loc.file, statement):
            raise left_early(f"`{self.name}.send`", f"`{keyword}`", place)
        require_one_value(loc.file, statement)
        return Sending(trace, self, tuple(values), loc)

    def send_at(self, loc: Location) -> Sending:
        """Begin a token without scalars, where a part of the library sends it on behalf of `loc`."""
        return Sending(_process(f"`{self.name}.send`"), self, (), loc)

    def receive(self, count: Number | str | None = None) -> _Receiving:
        """Iterate over tokens: `for token in ch.receive():`.

        Args:
            count: number of tokens, or the name of a size. A channel that is closed before is an error of
                the run. Without it the loop ends where the channel is closed.

        Raises:
            BadOperand: a count that is not an extent.
            OutsideWorkload: no process is being built.
        """
        trace = _process(f"`{self.name}.receive`")
        extent = None if count is None else trace.extent_of(count, caller_location())
        return _Receiving(self, extent)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _REFUSED:
            reason = "its outcome would depend on the moment, and a network is deterministic"
            raise self._bad(f"has no `{name}`", reason, "use `send` and `receive`", caller_location())
        raise AttributeError(name)


class ChannelToken(View):
    """A token in the body of a send or receive: its buffer, which tasks take like any view.

    Attributes:
        scalars: the integers that the token carries: `token.scalars.n`.
        index: number of the token in its channel, from 0.
    """

    scalars: Scalars
    index: Scalar

    def __repr__(self) -> str:
        return f"<token of {self.label}>"


class Scalars:
    """The integers that a token carries, by name."""

    def __init__(self, channel: str, values: dict[str, Expr]) -> None:
        self._channel = channel
        self._values = values

    def __getattr__(self, name: str) -> Scalar:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._values:
            return Scalar(self._values[name])
        where = f"the scalars of channel `{self._channel}`"
        advice = did_you_mean(name, self._values)
        raise UnknownMember(name=name, where=where, advice=advice, loc=caller_location())


class Sending:
    """What `with` takes: its body describes the tasks that write the buffer."""

    def __init__(
        self, trace: WorkloadTrace, channel: Channel, scalars: tuple[Expr, ...], loc: Location
    ) -> None:
        self._trace = trace
        self._channel = channel
        self._scalars = scalars
        self._loc = loc
        self._block: OpenBlock | None = None

    def __enter__(self) -> ChannelToken:
        trace, channel = self._trace, self._channel
        ring = trace.channel(channel, self._loc)
        slot = trace.unique(f"{channel.name}.slot")
        index = trace.unique(f"{channel.name}.index")
        send = OpenSend(channel.name, slot, index, self._scalars, self._loc, [])
        trace.blocks.add(send)
        self._block = trace.blocks.enter(send.body, f"`{channel.name}.send`", self._loc)
        values = dict(zip(channel.record.scalars, self._scalars, strict=True))
        return _token(channel, ring, slot, index, values, self._loc)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            return  # the block stays open, which ends the recording with an error if this one is caught
        assert self._block is not None
        self._trace.blocks.leave(self._block)


class _Receiving:
    """What `for` takes: its body describes what happens to each token."""

    def __init__(self, channel: Channel, extent: Expr | None) -> None:
        self._channel = channel
        self._extent = extent

    def __iter__(self) -> Iterator[ChannelToken]:
        loc = caller_location()
        names, loc = loop_targets(loc) if loc is not None else ((), None)
        statement = None if loc is None else loop_statement(loc)
        if loc is not None and statement is not None:
            require_one_value(loc.file, statement)
        trace = _process(f"`{self._channel.name}.receive`")
        return self._once(trace, names[0] if len(names) == 1 else "token", loc)

    def _once(self, trace: WorkloadTrace, name: str, loc: Location | None) -> Iterator[ChannelToken]:
        channel = self._channel
        ring = trace.channel(channel, loc)
        extent = Const(w.UNTIL_CLOSED) if self._extent is None else self._extent
        _, block = trace.open_loop(w.RANGE, name, extent, None, loc)
        slot, index = (trace.unique(f"{channel.name}.{part}") for part in ("slot", "index"))
        names = {n: trace.unique(f"{channel.name}.{n}") for n in channel.record.scalars}
        is_endless = self._extent is None
        receive = OpenReceive(channel.name, slot, index, tuple(names.values()), is_endless, loc, [])
        trace.blocks.add(receive)
        inner = trace.blocks.enter(receive.body, f"`{channel.name}.receive`", loc)
        yield _token(channel, ring, slot, index, {n: Var(v) for n, v in names.items()}, loc)
        trace.blocks.leave(inner)
        trace.blocks.leave(block)


def wait(cycles: Number) -> None:
    """Let time pass in a process: `wait(200)`.

    The clock of the process advances on the target `sim`. `cpu` and `interp` have no clock, so it changes
    nothing there.

    Args:
        cycles: an integer that sizes, loops, scalars of tokens or elements of tensors can decide; a value
            below 0 counts as 0.

    Raises:
        BadOperand: not an integer, or a number below 0.
        OutsideWorkload: no process is being built.
    """
    trace = _process("`wait`")
    loc = caller_location()
    expr = expression(cycles)
    is_negative = isinstance(expr, Const) and expr.value < 0
    if expr is None or expr.dtype is not i64 or is_negative:
        found = repr(cycles) if is_negative else kind_of(cycles)
        raise BadOperand(op="wait", expected="cycles: an integer >= 0", found=found, loc=loc)
    trace.blocks.add(w.Delay(expr, loc))


def _token(
    channel: Channel, ring: Tensor, slot: str, index: str, scalars: dict[str, Expr], loc: Location | None
) -> ChannelToken:
    token = ChannelToken(ring, f"{channel.name}'s token", (Index(Var(slot)),), loc)
    token.scalars = Scalars(channel.name, scalars)
    token.index = Scalar(Var(index))
    return token


def _process(what: str) -> WorkloadTrace:
    """Return the trace of the process that is being built.

    Raises:
        OutsideWorkload: `what` is used while none is.
    """
    trace = current_trace(what, "process")
    if not trace.is_in_process:
        raise OutsideWorkload(what=what, where="process", loc=caller_location())
    return trace
