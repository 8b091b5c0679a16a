"""Networks of the function builder: equal to those of `@process`, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import (
    Channel,
    ElementType,
    In,
    MemorySpace,
    Out,
    P,
    PTOFunctionBuilder,
    PTOModule,
    Scalar,
    Tensor,
    Tile,
    f32,
    i64,
    kernel,
    network,
    parse,
    process,
    pto,
    slot_i64,
    slot_set_i64,
    wait,
)
from pto_wsp.errors import (
    BadBlock,
    BadNetwork,
    BadOperand,
    InvalidIR,
    NameClash,
    PtoError,
    UnknownName,
    UnsupportedByTarget,
    WrongFunctionKind,
)

F32, I32, GM = ElementType.F32, ElementType.I32, MemorySpace.GLOBAL
RNG = np.random.default_rng(34)


def module() -> PTOModule:
    """Return a module with two kernels on tiles of 4 rows and 8 columns."""
    found = PTOModule("stages")
    for name, factor in (("move", 1.0), ("twice", 2.0)):
        (
            PTOFunctionBuilder(name, found)
            .in_core()
            .memref("x", GM, F32)
            .memref("y", GM, F32)
            .tile("t", 4, 8, F32)
            .load("t", "x")
            .muls("u", "t", factor)
            .store("y", "u")
            .build()
        )
    return found


def begun(found: PTOModule | None = None) -> PTOFunctionBuilder:
    return PTOFunctionBuilder("net", found or module()).not_in_core()


def filtering() -> PTOModule:
    """Load all tiles, double those of even numbers, and store them one after the other."""
    found = module()
    (
        begun(found)
        .memref("X", GM, F32)
        .memref("Y", GM, F32)
        .scalar("n", I32)
        .channel("loaded", F32, shape=(4, 8), depth=2, scalars=("at",), latency=3)
        .channel("kept", F32, shape=(4, 8), depth=0)
        .process("load")
        .for_loop("i", 0, "n", kind="parallel")
        .wait("7 * i - 3")
        .send("loaded", "token", {"at": "i"})
        .call("move", {"x": ("X", "i", 0), "y": "token"})
        .end_send()
        .end_for()
        .end_process()
        .process("keep")
        .receive("loaded", "token", scalars={"at": "k"})
        .if_then("1 - k % 2")
        .send("kept", "result", index="number")
        .call("twice", {"x": "token", "y": "result"})
        .end_send()
        .endif()
        .end_receive()
        .end_process()
        .process("store")
        .scalar_mov("row", 0)
        .receive("kept", "token", index="k")
        .call("move", {"x": "token", "y": ("Y", "row", 0)})
        .scalar_add("row", "row", 1)
        .end_receive()
        .end_process()
        .build()
    )
    return found


@kernel
def move(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]) -> None:
    pto.store(y, x * 1.0)


@kernel
def twice(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]) -> None:
    pto.store(y, x * 2.0)


def written() -> object:
    """The same network as processes."""
    loaded = Channel("loaded", Tensor[f32, 4, 8], depth=2, scalars=("at",), latency=3)
    kept = Channel("kept", Tensor[f32, 4, 8], depth=0)

    @process
    def load(X: Tensor[f32, "rows", 8], n: Scalar[i64]) -> None:
        for i in P(n):
            wait(7 * i - 3)
            with loaded.send(at=i) as token:
                move(x=X[4 * i : 4 * i + 4], y=token)

    @process
    def keep() -> None:
        for token in loaded.receive():
            with P.when(token.scalars.at % 2 == 0), kept.send() as result:
                twice(x=token, y=result)

    @process
    def store(Y: Tensor[f32, "out", 8]) -> None:
        slot_set_i64(0, 0)
        for token in kept.receive():
            row = slot_i64(0)
            move(x=token, y=Y[4 * row : 4 * row + 4])
            slot_set_i64(0, slot_i64(0) + 1)

    return network(load, keep, store)


@pytest.mark.parametrize("target", ["interp", "cpu", "sim"])
def test_a_network_of_steps_computes_what_processes_do(target: str) -> None:
    x = RNG.standard_normal((28, 8)).astype(np.float32)
    y, z = np.zeros((28, 8), np.float32), np.zeros((28, 8), np.float32)
    filtering().compile(target, entry="net")(X=x, Y=y, n=7)
    written().compile(target=target)(X=x, Y=z, n=7)  # pyright: ignore
    assert np.array_equal(y, z)
    assert np.array_equal(y[:16], 2 * x.reshape(7, 4, 8)[::2].reshape(16, 8)) and not y[16:].any()


def test_text_says_all_of_it() -> None:
    found = filtering()
    text = str(found)
    assert parse(text) == found
    assert "PROCESS @keep" in text and "WAIT" in text and "latency = 3, scalars = [at]" in text


def test_counts_and_elements_of_tokens() -> None:
    """A count bounds the tokens; an element of a token decides how many."""
    found = PTOModule("counts")
    (
        PTOFunctionBuilder("put", found)
        .in_core()
        .memref("x", GM, I32)
        .memref("y", GM, I32)
        .tile("t", 1, 1, I32)
        .load("t", "x")
        .store("y", "t")
        .build()
    )
    (
        begun(found)
        .memref("N", GM, I32, shape=(1, 1))
        .memref("Y", GM, I32, shape=(4, 1))
        .channel("many", I32, shape=(1, 1))
        .channel("ticks", depth=3, scalars=("n",))
        .process("say")
        .send("many", "token")
        .call("put", {"x": "N", "y": "token"})
        .end_send()
        .end_process()
        .process("tick")
        .receive("many", "token", count=1)
        .for_loop("i", 0, "token[0, 0]")
        .send("ticks", scalars={"n": "i"})
        .end_send()
        .end_for()
        .end_receive()
        .end_process()
        .process("note")
        .receive("ticks", scalars={"n": "n"})
        .call("put", {"x": "N", "y": ("Y", "n", 0)})
        .end_receive()
        .end_process()
        .build()
    )
    for target in ("interp", "cpu"):
        y = np.zeros((4, 1), np.int32)
        found.compile(target, entry="net")(N=np.full((1, 1), 3, np.int32), Y=y)
        assert y.ravel().tolist() == [3, 3, 3, 0]


def test_merges_by_time_are_declared_at_the_channel() -> None:
    def merging(**options: object) -> PTOModule:
        found = module()
        builder = begun(found).memref("X", GM, F32).memref("Y", GM, F32)
        builder.channel("all", F32, (4, 8), **options)  # pyright: ignore
        for name in ("a", "b"):
            builder.process(name).send("all", "t").call("move", {"x": "X", "y": "t"}).end_send().end_process()
        builder.process("z").receive("all", "t", index="k")
        builder.call("move", {"x": "t", "y": ("Y", "k", 0)}).end_receive().end_process().build()
        return found

    x, y = np.ones((4, 8), np.float32), np.zeros((8, 8), np.float32)
    with pytest.raises(UnsupportedByTarget, match="no clock"):
        merging(merge="time").compile("cpu", entry="net")
    for options, target in (({"merge": "time"}, "sim"), ({"merge": "time", "nondeterministic": True}, "cpu")):
        merging(**options).compile(target, entry="net")(X=x, Y=y)
        assert y.all()
        y[:] = 0


def plain() -> PTOFunctionBuilder:
    return begun().memref("X", GM, F32).channel("c", F32, (4, 8), scalars=("n",)).process("p")


MISTAKES: tuple[tuple[type[PtoError], str, Callable[[], object]], ...] = (
    (UnknownName, "channel", lambda: plain().send("d", "t").end_send().end_process().build()),
    (BadOperand, "no `n`", lambda: plain().send("c", "t").end_send().end_process().build()),
    (BadOperand, "`m`", lambda: plain().send("c", "t", {"n": 1, "m": 1}).end_send().end_process().build()),
    (
        BadOperand,
        "`m`",
        lambda: plain().receive("c", "t", scalars={"m": "m"}).end_receive().end_process().build(),
    ),
    (NameClash, "X", lambda: plain().receive("c", "X").end_receive().end_process().build()),
    (BadBlock, "end_send", lambda: plain().send("c", "t", {"n": 1}).end_process().build()),
    (BadBlock, "end_process", lambda: plain().build()),
    (BadBlock, "none", lambda: begun().end_receive().build()),
    (BadBlock, "inside", lambda: plain().receive("c").break_loop().end_receive().end_process().build()),
    (BadOperand, "two positive sizes", lambda: begun().channel("c", F32, (4,))),
    (BadOperand, "depth", lambda: begun().channel("c", F32, (4, 8), depth=-1)),
    (BadOperand, "turns", lambda: begun().channel("c", scalars=("n",), nondeterministic=True)),
    (WrongFunctionKind, "send", lambda: PTOFunctionBuilder("k").in_core().send("c").end_send().build()),
    (WrongFunctionKind, "wait", lambda: PTOFunctionBuilder("k").in_core().wait(1).build()),
    (WrongFunctionKind, "channel", lambda: PTOFunctionBuilder("k").in_core().channel("c").build()),
)


@pytest.mark.parametrize(("kind", "match", "make"), MISTAKES)
def test_mistakes(kind: type[PtoError], match: str, make: Callable[[], object]) -> None:
    with pytest.raises(kind, match=match) as caught:
        make()
    assert caught.value.loc is not None and caught.value.loc.file == __file__


def test_what_the_network_as_a_whole_refuses() -> None:
    found = module()
    begun(found).memref("X", GM, F32).channel("c", F32, (4, 8)).process("p").receive(
        "c", "t"
    ).end_receive().end_process().build()
    with pytest.raises(BadNetwork, match="sends to"):
        found.compile("interp", entry="net")
    outside = module()
    begun(outside).wait(3).build()
    with pytest.raises(InvalidIR):
        outside.compile("interp", entry="net")
