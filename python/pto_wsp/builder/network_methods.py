"""The methods of a builder that describe networks of processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pto_wsp.builder.names import ElementType, dtype_of, require_name
from pto_wsp.builder.steps import (
    ChannelDeclaration,
    Declaration,
    EndStep,
    Operand,
    ProcessStep,
    ReceiveStep,
    SendStep,
    WaitStep,
)
from pto_wsp.errors import BadOperand
from pto_wsp.ir.workload import ARRIVAL, TIME, TURNS, Ring
from pto_wsp.lang.workload.expansion import is_positive
from pto_wsp.location import Location
from pto_wsp.types.dtype import DType

T = TypeVar("T", bound="NetworkMethods")


class NetworkMethods:
    """Channels, processes and tokens, in an Orchestration."""

    @abstractmethod
    def _step(self: T, step: Any) -> T:
        """Record a step."""

    @abstractmethod
    def _declare(self: T, method: str, name: str, declaration: Declaration) -> T:
        """Record a declaration."""

    @abstractmethod
    def _here(self, method: str) -> Location:
        """Return the place of the call of a method."""

    def channel(
        self: T,
        name: str,
        dtype: ElementType | DType = ElementType.F32,
        shape: Sequence[int] | None = None,
        depth: int = 1,
        scalars: Sequence[str] = (),
        latency: int = 0,
        merge: str = TURNS,
        nondeterministic: bool = False,
    ) -> T:
        """Declare a channel.

        Args:
            name: of the channel.
            dtype: type of the elements of a token's buffer.
            shape: rows and columns of the buffer; None for tokens of scalars alone.
            depth: tokens that can be sent before one is free again; with 0 a send ends at its receipt.
            scalars: names of the integers that each token carries.
            latency: cycles from a send to its receipt, on targets that have a clock.
            merge: of several senders, `"turns"`, or `"time"`: the first that finds a free buffer sends.
            nondeterministic: with `"time"`, whether targets without a clock take tokens as they come.
        """
        loc = self._here("channel")
        is_shape = shape is None or (len(shape) == 2 and all(map(is_positive, shape)))
        if not is_shape:
            raise BadOperand(op="channel", expected="two positive sizes", found=f"`{shape!r}`", loc=loc)
        for what, value in (("depth", depth), ("latency", latency)):
            if not isinstance(value, int) or value < 0:
                expected = f"a {what} >= 0"
                raise BadOperand(op="channel", expected=expected, found=f"`{value!r}`", loc=loc)
        for scalar in scalars:
            require_name("channel", scalar, loc)
        if merge not in (TURNS, TIME) or (nondeterministic and merge == TURNS):
            expected = '`merge="turns"`, or `"time"`, which alone can be nondeterministic'
            raise BadOperand(op="channel", expected=expected, found=f"`{merge!r}`", loc=loc)
        ring = Ring(depth, tuple(scalars), latency, ARRIVAL if nondeterministic else merge)
        buffer = None if shape is None else tuple(shape)
        return self._declare("channel", name, ChannelDeclaration(dtype_of(dtype, loc), buffer, ring, loc))

    def process(self: T, name: str) -> T:
        """Begin a process; a function with processes is a network and has steps in them alone."""
        loc = self._here("process")
        require_name("process", name, loc)
        return self._step(ProcessStep(name, loc))

    def end_process(self: T) -> T:
        """End the process."""
        return self._step(EndStep(ProcessStep, "end_process", self._here("end_process")))

    def send(
        self: T, channel: str, token: str = "", scalars: Mapping[str, Operand] | None = None, index: str = ""
    ) -> T:
        """Begin a token: wait for a free buffer; it is sent when the tasks up to `end_send` are complete.

        Args:
            channel: its name.
            token: name of the buffer, which calls take like a tensor.
            scalars: the integers of the token.
            index: name of the number of the token in its channel.
        """
        loc = self._here("send")
        _require_names("send", (token, index), loc)
        return self._step(SendStep(channel, token, dict(scalars or {}), index, loc))

    def end_send(self: T) -> T:
        """End the token that was begun last."""
        return self._step(EndStep(SendStep, "end_send", self._here("end_send")))

    def receive(
        self: T,
        channel: str,
        token: str = "",
        count: Operand | None = None,
        scalars: Mapping[str, str] | None = None,
        index: str = "",
    ) -> T:
        """Begin a loop over the tokens of a channel; the buffer is free again after the tasks of the loop.

        Args:
            channel: its name.
            token: name of the buffer, which calls take like a tensor.
            count: number of tokens; without it, all until the channel is closed.
            scalars: names of the integers of the token, by those of the channel.
            index: name of the number of the token in its channel.
        """
        loc = self._here("receive")
        _require_names("receive", (token, index, *(scalars or {}).values()), loc)
        return self._step(ReceiveStep(channel, token, dict(scalars or {}), index, count, loc))

    def end_receive(self: T) -> T:
        """End the loop that `receive` began."""
        return self._step(EndStep(ReceiveStep, "end_receive", self._here("end_receive")))

    def wait(self: T, cycles: Operand) -> T:
        """Let time pass in a process, on targets that have a clock; below 0 counts as 0."""
        return self._step(WaitStep(cycles, self._here("wait")))


def _require_names(method: str, names: Sequence[str], loc: Location) -> None:
    for name in names:
        if name:
            require_name(method, name, loc)
