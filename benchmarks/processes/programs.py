"""The networks of the case `processes`."""

from __future__ import annotations

import itertools
from typing import Any

from pto_wsp import (
    Channel,
    DenseDyn,
    In,
    Out,
    P,
    Program,
    Tensor,
    Tile,
    f32,
    kernel,
    network,
    process,
    pto,
    replicate,
    workload,
)
from pto_wsp.lang.workload.networks import ProcessFunction

COLS = 16
LONG = 2048
"""Elements of a body that takes about 2 us."""


@kernel
def copy(x: In[Tile[1, COLS, f32]], y: Out[Tile[1, COLS, f32]]) -> None:
    pto.store(y, x)


@kernel
def work(x: In[Tile[1, LONG, f32]], y: Out[Tile[1, LONG, f32]]) -> None:
    t = pto.exp(x * -0.5)
    t = pto.exp(t * -0.5)
    t = pto.exp(t * -0.5)
    pto.store(y, pto.exp(t * -0.5))


def _stage(name: str, source: Channel, target: Channel) -> ProcessFunction:
    def body() -> None:
        for token in source.receive():
            with target.send() as result:
                copy(x=token, y=result)

    body.__name__ = name
    return process(body)


def chain(stages: int, depth: int, **options: Any) -> Program:
    """`stages` processes with trivial bodies; `n` tokens; `options` of `compile`."""
    channels = [Channel(f"c{i}", Tensor[f32, 1, COLS], depth) for i in range(stages - 1)]
    first, last = channels[0], channels[-1]

    @process
    def begin(X: Tensor[f32, 1, COLS], n: DenseDyn) -> None:
        for _ in P(n):
            with first.send() as token:
                copy(x=X, y=token)

    @process
    def end(Y: Tensor[f32, 1, COLS]) -> None:
        for token in last.receive():
            copy(x=token, y=Y)

    middle = [_stage(f"s{i}", a, b) for i, (a, b) in enumerate(itertools.pairwise(channels))]
    return network(begin, *middle, end).compile(**options)


def long_chain(depth: int) -> Program:
    """Four processes with bodies of about 2 us."""
    channels = [Channel(f"c{i}", Tensor[f32, 1, LONG], depth) for i in range(3)]
    first, last = channels[0], channels[-1]

    @process
    def begin(X: Tensor[f32, 1, LONG], n: DenseDyn) -> None:
        for _ in P(n):
            with first.send() as token:
                work(x=X, y=token)

    @process
    def end(Y: Tensor[f32, 1, LONG]) -> None:
        for token in last.receive():
            work(x=token, y=Y)

    middle = [_long_stage(f"s{i}", a, b) for i, (a, b) in enumerate(itertools.pairwise(channels))]
    return network(begin, *middle, end).compile()


def replicated(count: int) -> Program:
    """A source of trivial bodies, `count` replicas with bodies of about 2 us, and a sink."""
    dealt = Channel("dealt", depth=2 * count, scalars=("n",))
    collected = Channel("collected", Tensor[f32, 1, LONG], depth=2 * count)

    @process
    def begin(n: DenseDyn) -> None:
        for i in P(n):
            with dealt.send(n=i):
                pass

    @process
    def middle(X: Tensor[f32, 1, LONG]) -> None:
        for _ in dealt.receive():
            with collected.send() as result:
                work(x=X, y=result)

    @process
    def end() -> None:
        for _ in collected.receive():
            pass

    return network(begin, *replicate(middle, count), end).compile()


def bodies() -> Program:
    """`n` bodies of about 2 us, one after another."""

    @workload
    def alone(X: Tensor[f32, 1, LONG], Y: Tensor[f32, 1, LONG], n: DenseDyn) -> None:
        for _ in P.range(n):
            work(x=X, y=Y)

    return alone.compile()


def deadlock() -> Program:
    """Two processes that wait for each other."""
    one, two = Channel("one", scalars=("n",)), Channel("two", scalars=("n",))
    return network(_relay("a", one, two), _relay("b", two, one)).compile()


def _long_stage(name: str, source: Channel, target: Channel) -> ProcessFunction:
    def body() -> None:
        for token in source.receive():
            with target.send() as result:
                work(x=token, y=result)

    body.__name__ = name
    return process(body)


def _relay(name: str, source: Channel, target: Channel) -> ProcessFunction:
    def body() -> None:
        for token in source.receive():
            with target.send(n=token.index):
                pass

    body.__name__ = name
    return process(body)
