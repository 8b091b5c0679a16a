"""The verifier of networks: what processes share, and how they use channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pto_wsp.errors import BadNetwork
from pto_wsp.ir import workload as w
from pto_wsp.ir.core import Index, Region, Rows
from pto_wsp.ir.kernel import IN, KernelFunction
from pto_wsp.ir.rules import require, require_distinct
from pto_wsp.ir.scalar import Element, Var, name_of, walk
from pto_wsp.location import Location
from pto_wsp.support.record import record


def verify_network(workload: w.WorkloadFunction, kernels: dict[str, KernelFunction]) -> None:
    """Check the processes and channels of a function whose nodes are sound by themselves.

    Raises:
        InvalidIR: a process in a wrong place, or a send or receive that does not fit its channel.
        BadNetwork: a tensor that processes share without a channel, a channel that one side alone uses, or a
            token that no task writes.
    """
    channels = {tensor.name: tensor for tensor in workload.tensors if tensor.channel is not None}
    nested = [n for top in workload.body for block in w.blocks(top) for n in w.walk_nodes(block)]
    inner = next((node for node in nested if isinstance(node, w.Process)), None)
    require(inner is None, "a process is inside another node", None if inner is None else inner.loc)
    if not workload.processes:
        moves = (n for n in w.walk_nodes(workload.body) if isinstance(n, (w.Send, w.Receive, w.Delay)))
        move = next(moves, None)
        require(move is None and not channels, "a workload has a channel", workload.loc)
        return
    outside = next((node for node in workload.body if not isinstance(node, w.Process)), None)
    if outside is not None:
        raise BadNetwork(
            problem="a network has processes alone",
            detail="this is outside of every process",
            advice="let a process do it",
            loc=outside.loc,
        )
    require_distinct([p.name for p in workload.processes], workload.loc, "two processes are called `{}`")
    for tensor in channels.values():
        assert tensor.channel is not None
        require(tensor.channel.merge in w.MERGES, f"no kind of merge: {tensor.channel.merge}", tensor.loc)
    for process in workload.processes:
        _verify_moves(process.body, channels, kernels)
        _verify_variables(process, workload)
    _verify_sides(workload, channels)
    _verify_sharing(workload, channels, kernels)


def _verify_moves(
    body: Sequence[w.Node], channels: dict[str, w.TensorParam], kernels: dict[str, KernelFunction]
) -> None:
    """Check the sends and receives of a block against their channels."""
    for node in body:
        if isinstance(node, (w.Send, w.Receive)):
            tensor = channels.get(node.channel)
            require(tensor is not None, f"`{node.channel}` is not a channel", node.loc)
            assert tensor is not None and tensor.channel is not None
            count = len(tensor.channel.scalars)
            require(len(node.scalars) == count, f"`{node.channel}` has {count} scalars", node.loc)
            has_buffers = len(tensor.type.dims) > 1
            if isinstance(node, w.Send) and has_buffers and not _is_written(node, kernels):
                raise BadNetwork(
                    problem=f"no task writes the token that is sent to `{node.channel}`",
                    detail="its buffer would hold what an earlier token left",
                    advice="call a kernel that writes the token in the body of the `send`",
                    loc=node.loc,
                )
        if isinstance(node, w.Receive) and node.ends_loop:
            require(len(body) == 1, "a receive that ends its loop is not alone in it", node.loc)
        for block in w.blocks(node):
            is_end = any(isinstance(n, w.Receive) and n.ends_loop for n in block)
            sound = isinstance(node, w.Loop) and node.kind == w.RANGE and node.tile is None
            require(sound or not is_end, "a receive that ends a loop is not in a plain loop", node.loc)
            _verify_moves(block, channels, kernels)


def _is_written(send: w.Send, kernels: dict[str, KernelFunction]) -> bool:
    for task in w.tasks(send.body):
        for param, arg in zip(kernels[task.kernel].params, task.args, strict=True):
            is_token = isinstance(arg, Region) and arg.tensor == send.channel
            if is_token and param.role != IN:
                return True
    return False


def _verify_variables(process: w.Process, workload: w.WorkloadFunction) -> None:
    """Refuse to read a variable that other processes alone assign: each process has its own."""
    own = {node.name for node in w.walk_nodes(process.body) if isinstance(node, w.Set)}
    others = {variable for variable in workload.variables if variable not in own}
    for node in w.walk_nodes(process.body):
        for part in (part for expr in w.node_expressions(node) for part in walk(expr)):
            if name_of(part) in others:
                raise BadNetwork(
                    problem=f"process `{process.name}` reads a variable that it does not assign",
                    detail="each process has variables of its own",
                    advice="send the value as a scalar of a token",
                    loc=part.loc or node.loc,
                )


def _verify_sides(workload: w.WorkloadFunction, channels: dict[str, w.TensorParam]) -> None:
    moves = [node for process in workload.processes for node in w.walk_nodes(process.body)]
    sent = {node.channel for node in moves if isinstance(node, w.Send)}
    received = {node.channel for node in moves if isinstance(node, w.Receive)}
    for name, tensor in channels.items():
        missing = "sends to" if name not in sent else "receives from" if name not in received else ""
        if missing:
            raise BadNetwork(
                problem=f"no process of the network {missing} channel `{name}`",
                detail="the channel is declared here",
                advice=f"add a process that {missing} channel `{name}` to `network(...)`",
                loc=tensor.loc,
            )


class _Use(NamedTuple):
    """A node of a process that reads or writes a tensor."""

    tensor: str
    writes: bool
    loc: Location | None
    region: Region | None


@record
class _First:
    """The first use of a tensor by each process, and the first by which a process writes it."""

    uses: dict[str, _Use]
    writes: dict[str, _Use]


def _verify_sharing(
    workload: w.WorkloadFunction, channels: dict[str, w.TensorParam], kernels: dict[str, KernelFunction]
) -> None:
    """Refuse tensors that one process writes and another one uses, and buffers outside of their token."""
    found: dict[str, _First] = {}
    for process in workload.processes:
        for use in _uses(process.body, frozenset(), frozenset(channels), kernels):
            first = found.setdefault(use.tensor, _First({}, {}))
            first.uses.setdefault(process.name, use)
            if use.writes:
                first.writes.setdefault(process.name, use)
    for name, first in found.items():
        for writer, write in first.writes.items():
            other = next((p for p in first.uses if p != writer), None)
            if other is None or name in channels:
                continue
            does = "writes" if first.uses[other].writes else "reads"
            raise BadNetwork(
                problem=f"process `{other}` {does} `{name}`, which process `{writer}` writes",
                detail="no channel orders the two",
                advice="send the values through a channel",
                loc=first.uses[other].loc,
                notes=[(f"`{writer}` writes it here", write.loc)],
            )


def _uses(
    body: Sequence[w.Node],
    open_slots: frozenset[tuple[str, str]],
    channels: frozenset[str],
    kernels: dict[str, KernelFunction],
) -> Iterator[_Use]:
    """Yield what nodes read and write. A buffer is used in its token alone."""
    for node in body:
        for use in _own_uses(node, kernels):
            if use.tensor in channels and use.region is not None:
                first = use.region.dims[0]
                slot = first.at.name if isinstance(first, Index) and isinstance(first.at, Var) else ""
                is_open = (use.tensor, slot) in open_slots
                require(is_open, f"a buffer of `{use.tensor}` is used outside of its token", use.loc)
            yield use
        inner = open_slots
        if isinstance(node, (w.Send, w.Receive)):
            inner |= {(node.channel, node.slot)}
        for block in w.blocks(node):
            yield from _uses(block, inner, channels, kernels)


def _own_uses(node: w.Node, kernels: dict[str, KernelFunction]) -> Iterator[_Use]:
    for part in (part for expr in w.node_expressions(node) for part in walk(expr)):
        if isinstance(part, Element):
            region = Region(part.name, tuple(map(Index, part.indices)), part.loc)
            yield _Use(part.name, False, part.loc or node.loc, region)
    if not isinstance(node, w.Task):
        return
    for param, arg in zip(kernels[node.kernel].params, node.args, strict=True):
        if isinstance(arg, Region):
            yield _Use(arg.tensor, param.role != IN, arg.loc or node.loc, arg)
            for dim in arg.dims:
                if isinstance(dim, Rows):
                    yield _Use(dim.indices, False, arg.loc or node.loc, None)
