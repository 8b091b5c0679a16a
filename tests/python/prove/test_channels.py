"""Claims about channels: a proof never contradicts a run, and each refutation is a deadlock."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, note

from pto_wsp import Channel, In, Out, P, Tensor, Tile, errors, f32, i32, kernel, network, process, pto
from pto_wsp.ir.verify import verify
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.prove.finding import CHANNELS, INDEPENDENT, INSIDE, PROVED, REFUTED, UNKNOWN, Finding
from pto_wsp.prove.prove import prove
from pto_wsp.runtime.compiling import compile_module
from tests.generators.drawing import DRAWS, Draw, tries
from tests.generators.networks import COLS, ROWS, random_network
from tests.python.lang.workload.test_networks import pipeline
from tests.python.runtime.test_networks import there_and_back

pytest.importorskip("islpy")


@kernel
def copy(x: In[Tile[4, 8, f32]], y: Out[Tile[4, 8, f32]]):
    pto.store(y, x)


def answer(net: Workload) -> Finding:
    (found,) = (f for f in net.prove().findings if f.claim == CHANNELS)
    return found


@given(DRAWS)
@tries(300)
def test_random_networks(draw: Draw) -> None:
    """A random network has one call, so each answer is that of its run."""
    module = random_network(draw)
    note(str(module))
    findings = prove(verify(module)).findings
    (found,) = (f for f in findings if f.claim == CHANNELS)
    assert not [f for f in findings if f.status == REFUTED and f is not found]
    tensors = [t for t in module.entry_workload.tensors if not t.is_local]
    arrays = {t.name: np.zeros((ROWS, 1, COLS), np.float32) for t in tensors}
    try:
        compile_module(module, "interp").run(**arrays)
    except errors.Deadlock:
        assert found.status == REFUTED
    except errors.PtoError:
        assert found.status == PROVED
    else:
        assert found.status == PROVED


def test_a_pipeline_is_proved_for_all_sizes() -> None:
    assert answer(pipeline(1)).status == PROVED
    (unknown,) = pipeline(1).prove().unknown
    assert "`doubled.at` comes with a token" in unknown.reason


parts = Channel("parts", Tensor[f32, 4, 8], scalars=("at",))


@process
def collect(Y: Tensor[f32, "n", 4, 8], Z: Tensor[f32, "n", 4, 8]) -> None:
    for part in parts.receive():
        for i in P("n"):
            copy[i](x=part, y=Y[i])
        for i in P("n"):
            copy[i](x=part, y=Z[part.scalars.at])
        copy(x=part[0:4], y=Y[0])


def findings_of(*processes: object) -> dict[tuple[str, str], Finding]:
    return {(f.claim, f.subject): f for f in network(*processes).prove().findings}


def test_tasks_of_each_process_are_decided() -> None:
    """Buffers of channels separate nothing and join nothing; what comes with a token is not known."""

    @process
    def divide(X: Tensor[f32, "n", 4, 8], W: Tensor[f32, "n", 4, 8]) -> None:
        for i in P("n"):
            copy[i](x=X[i], y=W[0])
        for j in P("n"):
            with parts.send(at=j) as part:
                copy[j](x=X[j], y=part)

    found = findings_of(divide, collect)
    status = {subject: f.status for (claim, subject), f in found.items() if claim == INDEPENDENT}
    assert found[INDEPENDENT, "`P` over `j`"].status == PROVED and len(status) == 2
    regions = {subject: f.status for (claim, subject), f in found.items() if claim == INSIDE}
    unknown = [subject for subject, answer in regions.items() if answer != PROVED]
    assert regions["`X[at(j), :, :]`"] == PROVED
    assert all("parts.at" in subject or subject.startswith("`Y[at(0)") for subject in unknown) and unknown
    refuted = network(divide, collect).prove().refuted
    assert [f.subject for f in refuted] == ["`P` over `i`"]


def test_what_tokens_would_break_is_unknown() -> None:
    """No token comes, so no region is outside."""

    @process
    def silent(X: Tensor[f32, "n", 4, 8]) -> None:
        for i in P.range(0):
            with parts.send(at=i) as part:
                copy[i](x=X[i], y=part)

    @process
    def beyond(Y: Tensor[f32, "n", 4, 8]) -> None:
        for part in parts.receive():
            for i in P("n"):
                copy[i](x=part, y=Y[i + 1])

    found = network(silent, beyond).prove()
    (unknown,) = found.unknown
    assert not found.refuted and unknown.counter is not None
    assert "how many tokens of `parts` come" in unknown.reason
    x, y = np.ones((2, 3, 4, 8), np.float32)
    network(silent, beyond).compile("interp").run(X=x, Y=y)


@pytest.mark.parametrize("depths", [(1, 1), (0, 2), (3, 1), (9, 9)])
def test_the_counter_example_is_the_smallest_call(depths: tuple[int, int]) -> None:
    net = there_and_back(*depths)
    found = answer(net)
    assert found.counter is not None and found.status == REFUTED
    ((name, least),) = found.counter.sizes
    assert name == "n" and re.search(rf"`rows` has depth {depths[0]}", str(found))
    program = net.compile()
    program(n=least - 1)
    with pytest.raises(errors.Deadlock):
        program(n=least)


def test_tokens_inside_tokens_are_not_proved_by_shape() -> None:
    """A process that holds a token of a channel, and receives the next one, needs two buffers."""

    def pairs(depth: int) -> Workload:
        numbers = Channel("numbers", Tensor[f32, 4, 8], depth=depth)

        @process
        def first(X: Tensor[f32, 4, 8]) -> None:
            for _ in P.range(2):
                with numbers.send() as token:
                    copy(x=X, y=token)

        @process
        def second(Y: Tensor[f32, 4, 8]) -> None:
            for token in numbers.receive(1):
                for _ in numbers.receive(1):
                    copy(x=token, y=Y)

        return network(first, second)

    assert answer(pairs(1)).status == REFUTED and answer(pairs(2)).status == PROVED
    x = np.zeros((4, 8), np.float32)
    with pytest.raises(errors.Deadlock):
        pairs(1).compile()(X=x, Y=x.copy())
    pairs(2).compile()(X=x, Y=x.copy())


def test_data_that_decides_leaves_the_answer_open() -> None:
    there, back = (Channel(name, Tensor[f32, 4, 8]) for name in ("there", "back"))

    @process
    def first(X: Tensor[f32, 4, 8], Count: Tensor[i32, 1]) -> None:
        for _ in P.range(Count[0]):
            with there.send() as token:
                copy(x=X, y=token)
        for _ in back.receive(Count[0]):
            pass

    @process
    def second() -> None:
        for token in there.receive():
            with back.send() as result:
                copy(x=token, y=result)

    found = answer(network(first, second))
    assert found.status == UNKNOWN and "`Count` is data" in found.reason
