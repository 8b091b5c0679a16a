"""`@process` and `network`: deterministic networks of processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from pto_wsp.errors import BadNetwork
from pto_wsp.lang.operands import kind_of
from pto_wsp.lang.source import FunctionSource
from pto_wsp.lang.workload.functions import NETWORK, ComposedBodies, declarations
from pto_wsp.lang.workload.workload import Workload, function_source
from pto_wsp.location import Location, caller_location


class ProcessFunction:
    """A process: a program order of its own, which reaches other processes through channels alone.

    Attributes:
        name: of the function; a replica has its number too.
        body: the function.
        is_replica: whether `replicate` made it.
    """

    def __init__(self, name: str, body: FunctionSource, is_replica: bool = False) -> None:
        self.name = name
        self.body = body
        self.is_replica = is_replica
        self.__name__ = name
        self.__doc__ = body.function.__doc__

    def __repr__(self) -> str:
        return f"<process {self.name}: `network({self.name}, ...)` connects it>"

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Refuse to be called: a process is a part of a network."""
        raise _bad(
            f"process `{self.name}` is called",
            "a process is a part of a network",
            f"write `network({self.name}, ...)`",
            caller_location(),
        )


def process(function: Callable[..., None], /) -> ProcessFunction:
    """Declare a process of a network. Its function runs once to be recorded, when a network first uses it.

    A process is written like a workload. It also sends to channels and receives from them.
    """
    source = function_source(function, sys._getframe(1))
    return ProcessFunction(source.function.__name__, source)


def replicate(proc: ProcessFunction, count: int) -> tuple[ProcessFunction, ...]:
    """Return `count` processes that share the work of one.

    Tokens go to the replicas in turn, and their results are collected in turn. The network therefore computes
    the same as with one process. A replica is one `receive` loop until its channel is closed, and sends one
    token to each of its channels for each token that it receives.

    Raises:
        BadNetwork: not a process, or a count below 1.
    """
    loc = caller_location()
    if not isinstance(proc, ProcessFunction):
        raise _bad("`replicate` takes a process", f"found {kind_of(proc)}", "", loc)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise _bad("`replicate` takes a number of replicas", f"expected >= 1, found {count!r}", "", loc)
    return tuple(ProcessFunction(f"{proc.name}_{number}", proc.body, True) for number in range(count))


def network(
    *processes: ProcessFunction | Sequence[ProcessFunction],
    name: str = "network",
    nondeterministic: bool = False,
) -> Workload:
    """Connect processes by the channels that they name. The result is compiled and run like a workload.

    Parameters of one name in several processes are one parameter. The order of the processes is the order of
    turns where several of them send to one channel or receive from one.

    Args:
        processes: processes, and tuples of them.
        name: of the network.
        nondeterministic: whether results may depend on the moment: targets without a clock then accept
            channels with `merge="time"`.

    Raises:
        BadNetwork: something that is not a process, a process twice, or `nondeterministic` without such a
            channel, when it is compiled.
        NameClash: parameters of one name that are declared differently.
    """
    loc = caller_location()
    found: list[ProcessFunction] = []
    for given in processes:
        found += (
            [given] if isinstance(given, ProcessFunction) else given if isinstance(given, tuple) else [given]
        )  # pyright: ignore
    for proc in found or [None]:
        if not isinstance(proc, ProcessFunction):
            raise _bad(
                "`network` takes processes", f"found {kind_of(proc)}", "decorate it with `@process`", loc
            )
    names = tuple(proc.name for proc in found)
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        advice = "use `replicate`, or give the functions different names"
        raise _bad(f"two processes are called `{twice}`", "names tell processes apart", advice, loc)
    replicas = frozenset(proc.name for proc in found if proc.is_replica)
    parts = tuple(proc.body for proc in found)
    body = ComposedBodies(NETWORK, parts, loc, names, replicas, nondeterministic)
    declarations(body)
    return Workload(body, {}, name)


def _bad(problem: str, detail: str, advice: str, loc: Location | None) -> BadNetwork:
    return BadNetwork(problem=problem, detail=detail, advice=advice, loc=loc)
