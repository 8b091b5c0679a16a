"""Networks on the target `sim`: clocks of processes, waits for channels, and what the report says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pto_wsp import (
    Channel,
    In,
    Out,
    P,
    Tensor,
    Tile,
    f32,
    i64,
    kernel,
    network,
    process,
    pto,
    replicate,
    wait,
)
from pto_wsp.device.model import Cache, Device, Dispatchers, HostLink
from pto_wsp.device.reader import get_device
from pto_wsp.errors import ChannelEnded, Deadlock, NotSimulated
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.simulation import SimulationReport, report_of
from pto_wsp.support.record import replace
from pto_wsp.text import parse

LOAD, WORK, STORE, TOKENS = 100, 300, 50, 10


@kernel
def load(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]) -> None:
    pto.store(y, x)


@kernel
def work(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]) -> None:
    pto.store(y, x + x)


@kernel
def store(x: In[Tile[1, 8, f32]], y: Out[Tile[1, 8, f32]]) -> None:
    pto.store(y, x)


@load.cost
def _load_cost() -> int:
    return LOAD


@work.cost
def _work_cost() -> int:
    return WORK


@store.cost
def _store_cost() -> int:
    return STORE


def device(cores: int = 8) -> Device:
    """A device on which a task takes its cycles and nothing else takes any."""
    preset = get_device("ascend_910b")
    kinds = tuple(replace(kind, count=cores) for kind in preset.cores)
    return replace(
        preset,
        cores=kinds,
        gm_rate=math.inf,
        l2=Cache(),
        dispatchers=Dispatchers(16),
        host=HostLink(),
    )


def pipeline(depth: int, replicas: int = 1, latency: int | str = 0) -> Workload:
    """Load, work, store."""
    loaded = Channel("loaded", Tensor[f32, 1, 8], depth, latency=latency)
    ready = Channel("ready", Tensor[f32, 1, 8], depth)

    @process
    def loads(X: Tensor[f32, "n", 1, 8]) -> None:
        for i in P("n"):
            with loaded.send() as token:
                load[i](x=X[i], y=token)

    @process
    def works() -> None:
        for token in loaded.receive():
            with ready.send() as result:
                work(x=token, y=result)

    @process
    def stores(Y: Tensor[f32, "n", 1, 8]) -> None:
        for token in ready.receive():
            store(x=token, y=Y[token.index])

    return network(loads, replicate(works, replicas), stores)


def report(workload: Workload, cores: int = 8, *, values: bool = True) -> SimulationReport:
    x = np.arange(8 * TOKENS, dtype=np.float32).reshape(TOKENS, 1, 8)
    y = np.zeros_like(x)
    program = workload.compile(target="sim", device=device(cores), values=values)
    program.run(X=x, Y=y)
    assert np.array_equal(y, 2 * x) == values
    return report_of(program)


@pytest.mark.parametrize(
    ("depth", "cycles"),
    [
        # One buffer: a load begins when the work of the token before is complete.
        (1, TOKENS * (LOAD + WORK) + STORE),
        # Two buffers: the work is never interrupted.
        (2, LOAD + TOKENS * WORK + STORE),
        (3, LOAD + TOKENS * WORK + STORE),
    ],
)
def test_more_buffers_overlap_stages_as_theory_says(depth: int, cycles: int) -> None:
    found = report(pipeline(depth))
    assert found.cycles == cycles
    assert report(pipeline(depth), values=False).cycles == cycles


def test_the_report_names_waits_and_the_bottleneck() -> None:
    found = report(pipeline(2)).network
    assert found is not None and found.bottleneck == "works_0"
    loads, works, stores = found.processes
    assert [line.busy for line in found.processes] == [TOKENS * c for c in (LOAD, WORK, STORE)]
    assert works.tokens == {"loaded": LOAD} and not works.buffers
    assert loads.buffers.keys() == {"loaded"} and not loads.tokens
    assert stores.tokens["ready"] == pytest.approx(LOAD + TOKENS * WORK - (TOKENS - 1) * STORE)
    loaded, ready = found.channels
    assert (loaded.tokens, loaded.most, ready.tokens) == (TOKENS, 2, TOKENS)
    assert ready.interval == found.interval == WORK
    assert found.latency is not None and found.latency >= LOAD + WORK + STORE
    times, fill = found.fill("loaded")
    assert fill.max() == 2 and fill[-1] == 0 and np.all(np.diff(times) >= 0)
    assert "bottleneck: process `works_0`" in str(found) and "a token of loaded" in str(found)
    svg = found.to_svg()
    assert svg.count("<rect") > 3 * TOKENS and "the bottleneck" in svg


def test_replicas_share_the_bottleneck() -> None:
    assert report(pipeline(6, replicas=3)).cycles < 0.5 * report(pipeline(6)).cycles


def test_processes_compete_for_cores() -> None:
    found = report(pipeline(4), cores=1)
    assert found.cycles == TOKENS * (LOAD + WORK + STORE)
    assert found.network is not None and sum(line.cores for line in found.network.processes) > 0


def test_latency_delays_the_first_token_and_none_of_a_full_pipeline() -> None:
    assert report(pipeline(8, latency=70)).cycles == report(pipeline(8)).cycles + 70


def test_a_size_of_the_run_can_be_the_latency() -> None:
    workload = pipeline(8, latency="hops")
    text = str(workload.trace().module)
    assert "latency = %hops" in text and parse(text) == workload.trace().module
    assert report(pipeline(8, latency="n")).cycles == report(pipeline(8)).cycles + TOKENS
    x = np.zeros((TOKENS, 1, 8), np.float32)
    program = workload.compile(target="sim", device=device(8), values=False)
    cycles: list[float] = []
    for hops in (0, 30, 70):
        program.run(X=x, Y=x.copy(), hops=hops)
        cycles.append(report_of(program).cycles)
    assert [count - cycles[0] for count in cycles] == [0, 30, 70]
    for target in ("cpu", "interp"):
        workload.compile(target=target).run(X=x, Y=x.copy(), hops=5)


def test_an_error_of_a_network_is_found_without_values() -> None:
    one, two = Channel("one", scalars=("n",)), Channel("two", scalars=("n",))

    @process
    def a() -> None:
        for token in one.receive():
            with two.send(n=token.index):
                pass

    @process
    def b() -> None:
        for token in two.receive():
            with one.send(n=token.index):
                pass

    @process
    def ends() -> None:
        with one.send(n=1):
            pass

    @process
    def asks() -> None:
        for _ in one.receive(2):
            pass

    with pytest.raises(Deadlock, match=r"process `a`"):
        network(a, b).compile(target="sim", values=False).run()
    with pytest.raises(ChannelEnded, match="asks"):
        network(ends, asks).compile(target="sim", values=False).run()


def test_values_that_tasks_write_do_not_decide() -> None:
    counts = Channel("counts", Tensor[i64, 1, 1])

    @kernel
    def count(x: In[Tile[1, 1, i64]], y: Out[Tile[1, 1, i64]]) -> None:
        pto.store(y, x)

    @process
    def tells(N: Tensor[i64, 1, 1]) -> None:
        with counts.send() as token:
            count(x=N, y=token)

    @process
    def follows() -> None:
        for token in counts.receive():
            for _ in P(token[0, 0]):
                with other.send(n=1):
                    pass

    other = Channel("other", scalars=("n",), depth=4)

    @process
    def sink() -> None:
        for _ in other.receive():
            pass

    deciding = network(tells, follows, sink)
    for values in (True, False):
        with pytest.raises(NotSimulated, match="counts"):
            deciding.compile(target="sim", values=values).run(N=np.ones((1, 1), np.int64))


def test_wait_lets_time_pass_in_its_process() -> None:
    """A source that waits is the bottleneck; scalars decide how long it waits."""
    ticks, values = Channel("ticks", depth=4, scalars=("n",)), Channel("values", Tensor[f32, 1, 8], 4)

    @process
    def clock() -> None:
        for i in P(TOKENS):
            with ticks.send(n=i):
                pass

    @process
    def source(X: Tensor[f32, TOKENS, 1, 8]) -> None:
        for tick in ticks.receive():
            n = tick.scalars.n
            wait(100 * n)
            wait(-n)
            with values.send() as token:
                load(x=X[n], y=token)

    @process
    def sink(Y: Tensor[f32, TOKENS, 1, 8]) -> None:
        for token in values.receive():
            store(x=token, y=Y[token.index])

    program = network(clock, source, sink).compile(target="sim", device=device())
    x = np.arange(8 * TOKENS, dtype=np.float32).reshape(TOKENS, 1, 8)
    y = np.zeros_like(x)
    program.run(X=x, Y=y)
    assert np.array_equal(x, y)
    found = report_of(program).network
    waited = 100 * TOKENS * (TOKENS - 1) // 2
    assert report_of(program).cycles == waited + TOKENS * LOAD + STORE
    assert found is not None and [line.waited for line in found.processes] == [0, waited, 0]
    assert found.bottleneck == "source" and "`wait`" in str(found)
