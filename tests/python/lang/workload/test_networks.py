"""Networks of processes: what they compute, what they refuse, and their text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import (
    Channel,
    In,
    Out,
    P,
    Tensor,
    Tile,
    combine,
    f32,
    i32,
    kernel,
    network,
    parse,
    process,
    pto,
    replicate,
    slot_i64,
    slot_set_i64,
    wait,
    workload,
)
from pto_wsp.errors import (
    BadChannel,
    BadNetwork,
    BadOperand,
    NotYetSupported,
    OutsideWorkload,
    OverlappingArrays,
    PtoError,
    UnsupportedByTarget,
    UnsupportedSyntax,
)
from pto_wsp.lang.schedule.directives.ready import ReadyPolicy
from pto_wsp.lang.workload.networks import ProcessFunction
from pto_wsp.lang.workload.workload import Workload

RNG = np.random.default_rng(3)


@kernel
def copy(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]) -> None:
    pto.store(y, x)


@kernel
def double(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]) -> None:
    pto.store(y, x + x)


def pipeline(depth: int, replicas: int = 0) -> Workload:
    """Load, double, store."""
    loaded = Channel("loaded", Tensor[f32, 4, 8], depth=depth)
    doubled = Channel("doubled", Tensor[f32, 4, 8], depth=depth, scalars=("at",))

    @process
    def load(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            with loaded.send() as token:
                copy[i](x=X[i], y=token)

    @process
    def compute() -> None:
        for token in loaded.receive():
            with doubled.send(at=token.index) as result:
                double(x=token, y=result)

    @process
    def store(Y: Tensor[f32, "n", 4, 8]) -> None:
        for token in doubled.receive():
            copy(x=token, y=Y[token.scalars.at])

    middle = replicate(compute, replicas) if replicas else compute
    return network(load, middle, store, name="doubling")


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_depths_and_replicas_do_not_change_results(depth: int, replicas: int) -> None:
    x = RNG.standard_normal((7, 4, 8)).astype(np.float32)
    y = np.zeros_like(x)
    program = pipeline(depth, replicas).compile(target="interp")
    for _ in range(2):
        program(X=x, Y=y)
    assert np.array_equal(y, 2 * x)
    assert program.stats is not None and program.stats.tasks == 21


def test_text_of_a_network_is_read_back() -> None:
    text = str(pipeline(2, 2).trace().module)
    assert "PROCESS @compute_1" in text and "depth = 2, latency = 0, scalars = [at]" in text
    assert str(parse(text)) == text
    assert parse(text) == pipeline(2, 2).trace().module


def test_tokens_decide_control() -> None:
    """A filter sends the even tokens on; the last process counts what it gets in a slot of its own."""
    numbers = Channel("numbers", depth=2, scalars=("n",))
    kept = Channel("kept", Tensor[f32, 4, 8], depth=1, scalars=("n",))

    @process
    def count() -> None:
        for i in P(9):
            with numbers.send(n=i * 3):
                pass

    @process
    def keep(X: Tensor[f32, 27, 4, 8]) -> None:
        for token in numbers.receive():
            n = token.scalars.n
            with P.when(n % 2 == 0), kept.send(n=n) as found:
                copy(x=X[n], y=found)

    @process
    def write(Y: Tensor[f32, 9, 4, 8]) -> None:
        slot_set_i64(3, 0)
        for token in kept.receive():
            copy(x=token, y=Y[slot_i64(3)])
            slot_set_i64(3, slot_i64(3) + 1)

    x = RNG.standard_normal((27, 4, 8)).astype(np.float32)
    y = np.zeros((9, 4, 8), np.float32)
    network(count, keep, write).compile(target="interp")(X=x, Y=y)
    assert np.array_equal(y[:5], x[::6])
    assert not y[5:].any()


def test_producers_and_consumers_take_turns() -> None:
    merged = Channel("merged", depth=2, scalars=("n",))
    shared = Channel("shared", Tensor[f32, 4, 8], depth=4)

    def counting(name: str, first: int, count: int) -> ProcessFunction:
        def body() -> None:
            for i in P(count):
                with merged.send(n=i + first):
                    pass

        body.__name__ = name
        return process(body)

    @process
    def collect(X: Tensor[f32, 32, 4, 8]) -> None:
        for token in merged.receive():
            with shared.send() as found:
                copy(x=X[token.scalars.n], y=found)

    @process
    def odd(Y: Tensor[f32, 8, 4, 8]) -> None:
        for token in shared.receive(2):
            copy(x=token, y=Y[token.index])

    @process
    def rest(Z: Tensor[f32, 8, 4, 8]) -> None:
        for token in shared.receive():
            copy(x=token, y=Z[token.index])

    x = RNG.standard_normal((32, 4, 8)).astype(np.float32)
    y, z = np.zeros((8, 4, 8), np.float32), np.zeros((8, 4, 8), np.float32)
    net = network(counting("a", 0, 2), counting("b", 10, 4), collect, odd, rest)
    net.compile(target="interp")(X=x, Y=y, Z=z)
    order = [0, 10, 1, 11, 12, 13]  # `a` ends after its second turn, `odd` after its second
    assert np.array_equal(y[[0, 2]], x[[order[0], order[2]]])
    assert np.array_equal(z[[1, 3, 4, 5]], x[[order[i] for i in (1, 3, 4, 5)]])


# --- refusals ---


def refused(kind: type[PtoError], match: str, make: Callable[[], object]) -> None:
    with pytest.raises(kind, match=match):
        make()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"name": "not a name"}, "name"),
        ({"depth": -1}, "depth"),
        ({"depth": True}, "depth"),
        ({"latency": 1.5}, "latency"),
        ({"latency": -1}, "latency"),
        ({"latency": 2**63}, "latency"),
        ({"latency": "2 hops"}, "the name of a size"),
        ({"scalars": ("a", "a")}, "scalars"),
        ({"type": f32}, "type"),
        ({"type": Channel}, "carries channels"),
    ],
)
def test_wrong_channels_are_refused(options: dict[str, object], match: str) -> None:
    given: dict[str, object] = {"name": "c", "type": None, **options}
    refused(BadChannel, match, lambda: Channel(**given))  # pyright: ignore[reportArgumentType]


def test_outcomes_that_depend_on_the_moment_are_refused() -> None:
    channel = Channel("c", scalars=("n",))
    refused(BadChannel, "has no `try_send`", lambda: channel.try_send)
    refused(BadChannel, "has no `try_receive`", lambda: channel.try_receive)
    assert not hasattr(channel, "other")


def test_channels_are_used_in_processes() -> None:
    channel = Channel("c", scalars=("n",))

    @workload
    def outside() -> None:
        with channel.send(n=1):
            pass

    refused(OutsideWorkload, "only inside a process", outside.trace)


def test_scalars_of_a_token_are_those_of_the_channel() -> None:
    channel = Channel("c", scalars=("n",))

    @process
    def without() -> None:
        with channel.send():
            pass

    @process
    def other() -> None:
        with channel.send(n=1, m=2):
            pass

    refused(BadChannel, "without a scalar", network(without).trace)
    refused(BadChannel, "no such scalar", network(other).trace)


def test_a_send_needs_a_with_statement_and_a_task() -> None:
    channel = Channel("c", Tensor[f32, 4, 8])

    @process
    def bare() -> None:
        channel.send()

    @process
    def empty() -> None:
        with channel.send():
            pass

    @process
    def reader(Y: Tensor[f32, 4, 8]) -> None:
        for token in channel.receive():
            copy(x=token, y=Y)

    refused(UnsupportedSyntax, "no `with` statement", network(bare, reader).trace)
    refused(BadNetwork, "no task writes", lambda: network(empty, reader).compile(target="interp"))


def test_buffers_are_used_in_their_token_alone() -> None:
    channel = Channel("c", Tensor[f32, 4, 8])
    held: list[Tensor] = []

    @process
    def writer(X: Tensor[f32, 4, 8]) -> None:
        with channel.send() as token:
            copy(x=X, y=token)

    @process
    def reader(Y: Tensor[f32, 4, 8]) -> None:
        for token in channel.receive():
            held.append(token)
            copy(x=token, y=Y)
        copy(x=held[-1], y=Y)

    refused(PtoError, "slot", lambda: network(writer, reader).compile(target="interp"))


def test_replicas_send_one_token_for_one() -> None:
    a, b = Channel("a", scalars=("n",)), Channel("b", scalars=("n",))

    @process
    def twice() -> None:
        for token in a.receive():
            for _ in P(2):
                with b.send(n=token.index):
                    pass

    @process
    def bounded() -> None:
        for token in a.receive(3):
            with b.send(n=token.index):
                pass

    refused(BadNetwork, "cannot be replicated", network(replicate(twice, 2)).trace)
    refused(BadNetwork, "cannot be replicated", network(replicate(bounded, 2)).trace)
    refused(BadNetwork, "number of replicas", lambda: replicate(twice, 0))


def test_wait_takes_cycles_in_processes_and_changes_nothing_without_a_clock() -> None:
    rows = Channel("rows", Tensor[f32, 4, 8])

    def waiting(cycles: object) -> Workload:
        @process
        def writer(X: Tensor[f32, "n", 4, 8], L: Tensor[i32, "n"]) -> None:
            for i in P("n"):
                wait(cycles if cycles is not None else L[i])  # pyright: ignore[reportArgumentType]
                with rows.send() as token:
                    copy(x=X[i], y=token)

        @process
        def reader(Y: Tensor[f32, "n", 4, 8]) -> None:
            for token in rows.receive():
                copy(x=token, y=Y[token.index])

        return network(writer, reader)

    text = str(waiting(None).trace().module)
    assert "WAIT %L[%i]" in text and parse(text) == waiting(None).trace().module
    x, lengths = RNG.standard_normal((3, 4, 8)).astype(np.float32), np.array([5, -2, 1 << 30], np.int32)
    for target in ("interp", "cpu"):
        y = np.zeros_like(x)
        waiting(None).compile(target=target)(X=x, Y=y, L=lengths)
        assert np.array_equal(x, y)
    refused(BadOperand, "cannot take", waiting(-1).trace)
    refused(BadOperand, "cannot take", waiting(1.5).trace)

    @workload
    def outside() -> None:
        wait(1)

    refused(OutsideWorkload, "only inside a process", outside.trace)


def test_variables_belong_to_a_process() -> None:
    a = Channel("a", scalars=("n",))

    @process
    def writer() -> None:
        slot_set_i64(3, 1)
        with a.send(n=slot_i64(3)):
            pass

    @process
    def reader(Y: Tensor[f32, 4, 4, 8], X: Tensor[f32, 4, 8]) -> None:
        for _ in a.receive():
            copy(x=X, y=Y[slot_i64(3)])

    match = "reads a variable that it does not assign"
    refused(BadNetwork, match, lambda: network(writer, reader).compile(target="interp"))


def test_networks_and_workloads_do_not_mix() -> None:
    net = pipeline(1)

    @process
    def alone() -> None:
        pass

    @workload
    def plain(A: Tensor[f32, 4, 8], B: Tensor[f32, 4, 8]) -> None:
        copy(x=A, y=B)

    refused(BadNetwork, "is called", lambda: alone())
    refused(BadNetwork, "takes processes", lambda: network(plain))  # pyright: ignore[reportArgumentType]
    refused(BadNetwork, "takes processes", network)
    refused(BadNetwork, "two processes", lambda: network(alone, alone))
    refused(BadNetwork, "processes alone", lambda: combine(net, plain).compile(target="interp"))
    refused(BadNetwork, "part of a workload", lambda: combine(plain, net).trace())


def test_what_needs_one_program_order_is_refused() -> None:
    net = pipeline(1)
    program = net.compile(target="interp")
    x = np.ones((2, 4, 8), np.float32)
    refused(UnsupportedByTarget, "records nothing", lambda: program(X=x, Y=x.copy(), trace=True))
    refused(NotYetSupported, "`check='values'`", lambda: program(X=x, Y=x.copy(), check="values"))
    refused(NotYetSupported, "`task` of a network", lambda: program.task(0))
    refused(NotYetSupported, "`task_graph` of", lambda: program.task_graph(X=x, Y=x.copy()))
    scheduled = net.task_graph(ready=ReadyPolicy.fifo())
    refused(UnsupportedByTarget, "of a network", lambda: scheduled.compile(target="interp"))


def test_one_array_under_two_names_is_refused() -> None:
    program = pipeline(1).compile(target="interp")
    x = np.ones((2, 4, 8), np.float32)
    refused(OverlappingArrays, "one name in all processes", lambda: program(X=x, Y=x))
