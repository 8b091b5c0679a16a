"""Networks of processes, and the channels between them."""

from __future__ import annotations

from pto_wsp.errors.base import FrontendError, RunError


class BadChannel(FrontendError):
    """A channel that cannot be declared or used like this."""

    code = "bad-channel"
    template = "channel `{name}` {problem}"
    label = "{detail}"
    hint = "{advice}"


class BadNetwork(FrontendError):
    """Processes that do not form a network."""

    code = "bad-network"
    template = "the network cannot be built: {problem}"
    label = "{detail}"
    hint = "{advice}"


class ChannelEnded(RunError):
    """A process that needs a channel whose other side has ended."""

    code = "channel-ended"
    template = "process `{process}` {does} channel `{channel}`, {why}"
    label = "{detail}"
    hint = "{advice}"


class Deadlock(RunError):
    """A network in which every process that has not ended waits for a channel."""

    code = "deadlock"
    template = "the network is in a deadlock: {count}, and none can continue\n{report}"
    hint = "{advice}"


class UnreceivedTokens(RunError):
    """Tokens that no process has received when the network ended."""

    code = "unreceived-tokens"
    template = "channel `{channel}` has {count} that no process received"
    label = "the channel is declared here"
    hint = "receive every token, for example with `for token in {channel}.receive():`"
