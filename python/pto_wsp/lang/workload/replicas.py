"""The rule for replicated processes: one token is sent for each token that is received."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pto_wsp.errors import BadNetwork
from pto_wsp.ir import workload as w
from pto_wsp.lang.workload.blocks import (
    OpenCond,
    OpenLoop,
    OpenNode,
    OpenProcess,
    OpenReceive,
    OpenSend,
    OpenTask,
)
from pto_wsp.location import Location


def require_one_for_one(process: OpenProcess) -> None:
    """Refuse a replica whose tokens would not come out in the order in which they went in.

    A replica receives from one channel until it is closed. For each token it sends one token to each of its
    channels, outside of conditions and loops.

    Raises:
        BadNetwork: it does something else.
    """
    match process.body:
        case [OpenLoop(body=[OpenReceive() as receive])] if receive.ends_loop:
            pass
        case _:
            raise _refused(process, "it is not one `receive` loop that lasts until its channel is closed")
    sent: list[str] = []
    for node, is_always in _sends(receive.body, True):
        if isinstance(node, OpenReceive):
            raise _refused(process, "it receives from a second channel", node.loc)
        if not is_always:
            raise _refused(process, f"it sends to `{node.channel}` in a condition or loop", node.loc)
        if node.channel in sent:
            raise _refused(process, f"it sends two tokens to `{node.channel}` for one", node.loc)
        sent.append(node.channel)


def _sends(body: Sequence[OpenNode], is_always: bool) -> Iterator[tuple[OpenSend | OpenReceive, bool]]:
    for node in body:
        match node:
            case OpenSend():
                yield node, is_always
                yield from _sends(node.body, is_always)
            case OpenReceive():
                yield node, is_always
            case OpenLoop(body=inner):
                yield from _sends(inner, False)
            case OpenCond(then=then, other=other):
                yield from _sends((*then, *other), False)
            case OpenTask() | w.Set() | w.Refuse() | w.Delay() | OpenProcess():
                pass


def _refused(process: OpenProcess, reason: str, loc: Location | None = None) -> BadNetwork:
    return BadNetwork(
        problem=f"process `{process.name}` cannot be replicated",
        detail=reason,
        advice="a replica sends one token to each of its channels for each token that it receives",
        loc=loc or process.loc,
    )
