"""The reference meaning of a network: its processes are stepped in declared order.

A network with bounded channels is determinate: the tokens of every channel, the results, and the place where
a process fails or waits for ever do not depend on the order of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import assert_never

import numpy as np

from pto_wsp.errors import (
    ChannelEnded,
    Deadlock,
    KernelFailed,
    RunError,
    RunInterrupted,
    TimeLimitReached,
    UnreceivedTokens,
)
from pto_wsp.interp.workload import (
    NOTHING_LATE,
    Blocked,
    BoundTask,
    CallKernel,
    Scope,
    Step,
    TaskRunner,
    Walk,
)
from pto_wsp.ir import workload as w
from pto_wsp.ir.module import Module
from pto_wsp.ir.scalar import Value
from pto_wsp.support.record import record
from pto_wsp.support.text import counted

TURN_TO_SEND = "for its turn to send to"
TURN_TO_RECEIVE = "for its turn to receive from"
BUFFER = "for a free buffer of"
TOKEN = "for a token of"
RECEIPT = "for the receipt of its token of"


WAITS = ("", TURN_TO_SEND, TURN_TO_RECEIVE, BUFFER, TOKEN, RECEIPT)
"""What a process waits for, by the numbers of `Admission` in include/pto/wsp/sched/channel.hpp."""


class _State(Enum):
    RUNNING = auto()
    ENDED = auto()
    FAILED = auto()


class _OtherFailed(Exception):
    """A process needs another one that has failed. The other one has the error of the run."""


class _OtherSideEnded(Exception):
    """A process needs the other side of a channel, all of which has ended."""


@record
class Fill:
    """How full a channel is: tokens sent, received and freed. Tokens that are being sent count as sent."""

    channel: str
    sent: int
    received: int
    freed: int


class _Buffer:
    """A buffer of a ring: free unless it has an owner.

    Attributes:
        owner: the process that sends the token; then, once it is received, the one that receives it.
        is_sent: its token waits to be received.
        scalars: of the token.
    """

    def __init__(self) -> None:
        self.owner: _Process | None = None
        self.is_sent = False
        self.scalars: tuple[int, ...] = ()


class _Side:
    """The processes of one side of a channel, which take turns in declared order.

    Senders that are merged by time have no turns, or those of an earlier run.
    """

    def __init__(
        self, processes: Sequence[_Process], by_time: bool = False, order: Sequence[_Process] | None = None
    ) -> None:
        self._processes = processes
        self._by_time = by_time and len(processes) > 1
        self._order = order if self._by_time else None
        self._turn = 0

    @property
    def _has_order(self) -> bool:
        return self._order is not None and self._turn < len(self._order)

    @property
    def next(self) -> _Process | None:
        """The process whose turn it is, or None if all have ended; without turns one that runs, if any."""
        if self._order is not None and self._has_order:
            return self._order[self._turn]
        count = len(self._processes)
        order = [self._processes[(self._turn + k) % count] for k in range(count)]
        left = [p for p in order if p.state is not _State.ENDED]
        running = [p for p in left if p.state is _State.RUNNING] if self._by_time else []
        return next(iter(running or left), None)

    def has_turn(self, process: _Process) -> bool:
        """Return whether it is the turn of a process. Raises _OtherFailed if it is that of a failed one."""
        other = process if self._by_time and not self._has_order else self.next
        if other is process:
            return True
        _require_sound(other)
        return False

    def advance(self, process: _Process) -> None:
        """End the turn of a process."""
        if not self._by_time:
            self._turn = self._processes.index(process) + 1
        elif self._order is not None:
            self._turn += 1


def _require_sound(process: _Process | None) -> None:
    """Refuse to wait for a process that has failed, or for the next of a side that has ended."""
    if process is None:
        raise _OtherSideEnded
    if process.state is _State.FAILED:
        raise _OtherFailed


class _Channel:
    """A channel during a run. The functions that ask return why a process waits, or an empty text."""

    def __init__(
        self,
        tensor: w.TensorParam,
        ring: w.Ring,
        processes: Sequence[_Process],
        depth: int,
        order: Sequence[_Process] | None,
    ) -> None:
        self.tensor = tensor
        self.is_rendezvous = depth == 0
        self.buffers = [_Buffer() for _ in range(max(depth, 1))]
        senders = [p for p in processes if p.moves(w.Send, tensor.name)]
        self.senders = _Side(senders, ring.merge != w.TURNS, order)
        self.receivers = _Side([p for p in processes if p.moves(w.Receive, tensor.name)])
        self.sent = self.received = self.freed = 0

    @property
    def fill(self) -> Fill:
        return Fill(self.tensor.name, self.sent, self.received, self.freed)

    def buffer(self, token: int) -> _Buffer:
        return self.buffers[token % len(self.buffers)]

    def why_not_send(self, process: _Process) -> str:
        if not self.senders.has_turn(process):
            return TURN_TO_SEND
        buffer = self.buffer(self.sent)
        if buffer.owner is None:
            return ""
        _require_sound(self.receivers.next if buffer.is_sent else buffer.owner)
        return BUFFER

    def why_not_go_on(self, token: int) -> str:
        """Return why the sender of a token waits before its send ends."""
        if self.received > token or not self.is_rendezvous:
            return ""
        _require_sound(self.receivers.next)
        return RECEIPT

    def why_not_receive(self, process: _Process) -> str:
        if self.sent == self.received:
            _require_sound(self.senders.next)
            return TOKEN
        if not self.receivers.has_turn(process):
            return TURN_TO_RECEIVE
        buffer = self.buffer(self.received)
        if buffer.is_sent:
            return ""
        _require_sound(buffer.owner)
        return TOKEN

    def open(self, process: _Process, scalars: tuple[int, ...]) -> int:
        """Begin a token; return its number."""
        buffer = self.buffer(self.sent)
        buffer.owner, buffer.scalars = process, scalars
        self.senders.advance(process)
        self.sent += 1
        return self.sent - 1

    def take(self, process: _Process) -> int:
        """Receive the next token; return its number."""
        buffer = self.buffer(self.received)
        buffer.owner, buffer.is_sent = process, False
        self.receivers.advance(process)
        self.received += 1
        return self.received - 1

    def free(self, token: int) -> None:
        self.buffer(token).owner = None
        self.freed += 1


class _ProcessWalk(Walk):
    """A walk of a process, which waits at sends and receives."""

    def __init__(
        self, process: _Process, scope: Scope, run: TaskRunner, channels: Mapping[str, _Channel]
    ) -> None:
        super().__init__(scope, run.reader, NOTHING_LATE)
        self.process = process
        self.poll = run.poll
        self.channels = channels

    def move(self, node: w.NetworkNode, loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        """Walk a send, a receive or a wait."""
        match node:
            case w.Send():
                yield from self.send(node, loops)
            case w.Receive():
                yield from self.receive(node, loops)
            case w.Delay(cycles=cycles):
                self.value(cycles, loops)  # there is no clock, but the expression may fail
            case w.Process():
                raise AssertionError("processes are walked one by one")
            case _:
                assert_never(node)

    def send(self, node: w.Send, loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        channel = self.channels[node.channel]
        scalars = tuple(int(self.value(expr, loops)) for expr in node.scalars)
        yield from self.wait(node, lambda: channel.why_not_send(self.process))
        token = channel.open(self.process, scalars)
        self.scope[node.slot], self.scope[node.index] = token % len(channel.buffers), token
        yield from self.nodes(node.body, loops)
        channel.buffer(token).is_sent = True
        yield from self.wait(node, lambda: channel.why_not_go_on(token))

    def receive(self, node: w.Receive, loops: tuple[w.Loop, ...]) -> Iterator[Step]:
        channel = self.channels[node.channel]
        try:
            yield from self.wait(node, lambda: channel.why_not_receive(self.process))
        except ChannelEnded:
            if not node.ends_loop:
                raise
            self.is_closed = True
            return
        token = channel.take(self.process)
        self.scope[node.slot], self.scope[node.index] = token % len(channel.buffers), token
        self.scope.update(zip(node.scalars, channel.buffer(token).scalars, strict=True))
        yield from self.nodes(node.body, loops)
        channel.free(token)

    def wait(self, node: w.Send | w.Receive, why: Callable[[], str]) -> Iterator[Step]:
        """Yield as long as there is a reason to wait."""
        self.poll()
        try:
            blocked: Blocked | None = None
            while reason := why():
                if blocked is None or blocked.reason != reason:
                    blocked = Blocked(node, reason)
                yield blocked
        except _OtherSideEnded:
            received = self.channels[node.channel].received
            raise channel_ended(self.process.node, node, received) from None


class _Process:
    """A process during a run."""

    def __init__(self, node: w.Process) -> None:
        self.node = node
        self.state = _State.RUNNING
        self.error: RunError | None = None
        self.blocked: Blocked | None = None
        self.tasks = 0
        self._steps: Iterator[Step] = iter(())
        self._nodes = [*w.walk_nodes(node.body)]

    def moves(self, kind: type[w.Send] | type[w.Receive], channel: str) -> bool:
        """Return whether the process has a send or receive of a channel."""
        return any(isinstance(node, kind) and node.channel == channel for node in self._nodes)

    @property
    def waits(self) -> Blocked | None:
        """Where the process waits, or None if it has ended or failed."""
        return self.blocked if self.state is _State.RUNNING else None

    def begin(self, walk: Walk) -> None:
        """Begin at the first step of a walk."""
        self._steps = walk.nodes(self.node.body, ())

    def step(self, run: TaskRunner) -> bool:
        """Go on until the process waits, ends or fails. Return False if it could not go on at all."""
        has_moved = False
        while self.state is _State.RUNNING:
            try:
                step = next(self._steps, None)
                if isinstance(step, Blocked):
                    has_moved = has_moved or step is not self.blocked
                    self.blocked = step
                    return has_moved
                if step is None:
                    self.state = _State.ENDED
                elif isinstance(step, BoundTask):
                    run.task(step, self.tasks)
                    self.tasks += 1
            except (RunInterrupted, TimeLimitReached):
                raise
            except _OtherFailed:
                self.state = _State.FAILED
            except RunError as error:
                self.error = error if isinstance(error, KernelFailed) else error.found_late(self.tasks)
                self.state = _State.FAILED
            has_moved = True
        return has_moved


def run_network(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, Value],
    call: CallKernel,
    poll: Callable[[], None] = lambda: None,
    merges: Mapping[str, Sequence[int]] | None = None,
) -> int:
    """Run the entry of `module`, a network, and return the number of tasks.

    Args:
        module: a verified module.
        arrays: an array per tensor of the entry, written in place; the rings of channels are 0.
        sizes: values of its sizes and scalars.
        call: runs a kernel.
        poll: called before each task; an exception in it ends the run.
        merges: numbers of the senders of a channel that is merged by time, in order. Those of other channels
            send as they are stepped.

    Raises:
        RunError: that of the first declared process that fails without the failure of another.
        Deadlock: every process that has not ended waits.
        UnreceivedTokens: a token that was sent is received by no process.
    """
    network = module.entry_workload
    run = TaskRunner(module, arrays, NOTHING_LATE, call, poll)
    processes, channels = step_all(network, sizes, run, {}, merges or {})
    error = next((p.error for p in processes if p.error is not None), None)
    if error is not None:
        raise error
    fills = [channel.fill for channel in channels.values()]
    blocked = [(p.node, p.waits) for p in processes if p.waits is not None]
    if blocked:
        raise deadlock(network, blocked, fills)
    left = unreceived(network, fills)
    if left is not None:
        raise left
    return sum(process.tasks for process in processes)


def step_all(
    network: w.WorkloadFunction,
    sizes: Mapping[str, Value],
    run: TaskRunner,
    depths: Mapping[str, int],
    merges: Mapping[str, Sequence[int]],
) -> tuple[list[_Process], dict[str, _Channel]]:
    """Step all processes until none can go on.

    Args:
        network: the network.
        sizes: values of its sizes and scalars.
        run: runs tasks.
        depths: of channels that do not have their own depth.
        merges: as in `run_network`.

    Returns:
        The processes and the channels at the end.
    """
    processes = [_Process(node) for node in network.processes]
    channels: dict[str, _Channel] = {}
    for tensor in network.tensors:
        if (ring := tensor.channel) is not None:
            numbers = merges.get(tensor.name)
            order = None if numbers is None else [processes[number] for number in numbers]
            depth = depths.get(tensor.name, ring.depth)
            channels[tensor.name] = _Channel(tensor, ring, processes, depth, order)
    for process in processes:
        scope: Scope = {**dict.fromkeys(network.variables, 0), **sizes}
        process.begin(_ProcessWalk(process, scope, run, channels))
    while any([process.step(run) for process in processes]):
        pass
    return processes, channels


def deadlock(
    network: w.WorkloadFunction, blocked: Sequence[tuple[w.Process, Blocked]], fills: Sequence[Fill]
) -> Deadlock:
    """Return the error of processes that wait for ever, in declared order."""
    by_name = {fill.channel: fill for fill in fills}
    lines: list[str] = []
    for process, at in blocked:
        place = f" at {at.node.loc}" if at.node.loc is not None else ""
        lines.append(f"  process `{process.name}`{place} waits {at.reason} `{at.node.channel}`")
    for name in dict.fromkeys(at.node.channel for _, at in blocked):
        fill, channel = by_name[name], network.tensor(name).channel
        assert channel is not None
        used = f"{fill.sent - fill.freed} of {counted(channel.buffers, 'buffer')} in use"
        lines.append(
            f"  channel `{name}`, depth {channel.depth}: {used}, "
            f"{counted(fill.sent, 'token')} sent, {fill.received} received"
        )
    waits_for_buffer = [at.node.channel for _, at in blocked if at.reason in (BUFFER, RECEIPT)]
    hint = (
        f"give `{waits_for_buffer[0]}` a larger depth, or receive its tokens earlier"
        if waits_for_buffer
        else "no depth helps: a process of the cycle must send before it receives"
    )
    count = counted(len(blocked), "process", "processes") + (" waits" if len(blocked) == 1 else " wait")
    return Deadlock(count=count, report="\n".join(lines), advice=hint, loc=blocked[0][1].node.loc)


def channel_ended(process: w.Process, node: w.Send | w.Receive, received: int) -> ChannelEnded:
    """Return the error of a process that needs the other side of a channel, which has ended."""
    is_send = isinstance(node, w.Send)
    side = "receive from" if is_send else "send to"
    return ChannelEnded(
        process=process.name,
        does="sends to" if is_send else "waits for a token of",
        channel=node.channel,
        why=f"and the processes that {side} it have ended",
        detail=f"after {counted(received, 'token')} that were received",
        advice="receive until the channel is closed: `for token in ch.receive():`",
        loc=node.loc,
    )


def unreceived(network: w.WorkloadFunction, fills: Sequence[Fill]) -> UnreceivedTokens | None:
    """Return the error of tokens that are left when all processes have ended, or None."""
    for fill in fills:
        if fill.sent != fill.received:
            count = counted(fill.sent - fill.received, "token")
            loc = network.tensor(fill.channel).loc
            return UnreceivedTokens(count=count, channel=fill.channel, loc=loc)
    return None
