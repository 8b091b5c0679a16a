"""A decode server: requests arrive over time, join a batch, generate tokens and leave.

A source lets time pass between arrivals. A channel merges arrivals and completed steps by time. Every run is
compared with numpy in f64, and the simulated device shows what larger batches gain.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from pto_wsp import (
    Channel,
    In,
    Out,
    P,
    Scalar,
    Tensor,
    Tile,
    f32,
    i32,
    i64,
    kernel,
    network,
    process,
    pto,
    replicate,
    slot_i64,
    slot_set_i64,
    wait,
)
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.simulation import SimulationReport, report_of

DIM, MOST_TOKENS = 64, 16
TOLERANCE = 1e-4
ARRIVED, JOINED, UNDER_WAY, FIRST_PLACE = range(4)
"""Variables of the server: how many requests have arrived and joined, and tokens that are generated.

Each place of the batch has two more: its request, or -1, and the position of the next token.
"""


class Requests(NamedTuple):
    """Arguments of a run: request r arrives `Gap[r]` cycles after the one before.

    It wants `Count[r]` tokens. `num_events` is the number of requests and tokens. `State` has the latest
    token of each request.
    """

    Gap: np.ndarray
    Count: np.ndarray
    num_events: int
    Prompt: np.ndarray
    W: np.ndarray
    State: np.ndarray
    Y: np.ndarray


@kernel
def copy(x: In[Tile[1, DIM, f32]], y: Out[Tile[1, DIM, f32]]) -> None:
    """Copy a token."""
    pto.store(y, x)


@kernel
def generate(w: In[Tile[DIM, DIM, f32]], x: In[Tile[1, DIM, f32]], y: Out[Tile[1, DIM, f32]]) -> None:
    """Compute the next token of a request."""
    pto.store(y, pto.relu(pto.matmul(x, w)))


def build(places: int, replicas: int) -> Workload:
    """Return the network for batches of `places` requests, and `replicas` processes that generate tokens."""
    names = ("arrives", "request", "position")
    events = Channel("events", Tensor[f32, 1, DIM], depth=4, scalars=names, merge="time")
    steps = Channel("steps", Tensor[f32, 1, DIM], depth=places, scalars=("request", "position"))

    @process
    def source(Gap: Tensor[i32, "requests"], Prompt: Tensor[f32, "requests", 1, DIM]) -> None:
        for r in P.range("requests"):
            wait(Gap[r])
            with events.send(arrives=1, request=r, position=0) as token:
                copy[r](x=Prompt[r], y=token)

    @process
    def serve(
        Count: Tensor[i32, "requests"],
        num_events: Scalar[i64],
        State: Tensor[f32, "requests", 1, DIM],
        Y: Tensor[f32, "requests", MOST_TOKENS, 1, DIM],
    ) -> None:
        """Begin a step of the whole batch when the step before is complete."""
        for place in range(places):
            slot_set_i64(FIRST_PLACE + 2 * place, -1)
        for event in events.receive(num_events):
            r = event.scalars.request
            copy[r](x=event, y=State[r])
            with P.when(event.scalars.arrives == 1):
                slot_set_i64(ARRIVED, slot_i64(ARRIVED) + 1)
            with P.otherwise():
                copy[r](x=event, y=Y[r, event.scalars.position])
                slot_set_i64(UNDER_WAY, slot_i64(UNDER_WAY) - 1)
            with P.when(slot_i64(UNDER_WAY) == 0):
                for place in range(places):
                    begin_token(FIRST_PLACE + 2 * place, FIRST_PLACE + 2 * place + 1, Count, State)

    def begin_token(request: int, position: int, Count: Tensor, State: Tensor) -> None:
        """Let a request join at a free place, and begin a token of it; after its last one it leaves."""
        with P.when(slot_i64(request) < 0), P.when(slot_i64(JOINED) < slot_i64(ARRIVED)):
            slot_set_i64(request, slot_i64(JOINED))
            slot_set_i64(position, 0)
            slot_set_i64(JOINED, slot_i64(JOINED) + 1)
        with P.when(slot_i64(request) >= 0):
            with steps.send(request=slot_i64(request), position=slot_i64(position)) as token:
                copy(x=State[slot_i64(request)], y=token)
            slot_set_i64(UNDER_WAY, slot_i64(UNDER_WAY) + 1)
            slot_set_i64(position, slot_i64(position) + 1)
            with P.when(slot_i64(position) == Count[slot_i64(request)]):
                slot_set_i64(request, -1)

    @process
    def work(W: Tensor[f32, DIM, DIM]) -> None:
        for step in steps.receive():
            r, position = step.scalars.request, step.scalars.position
            with events.send(arrives=0, request=r, position=position) as token:
                generate[r, position](w=W, x=step, y=token)

    processes = source, serve, replicate(work, replicas)
    return network(*processes, name="decode_server", nondeterministic=True)


def random_requests(rng: np.random.Generator, count: int) -> Requests:
    """Return random requests."""
    gaps = rng.integers(0, 20_000, count, np.int32)
    counts = rng.integers(1, MOST_TOKENS + 1, count, np.int32)
    w = rng.standard_normal((DIM, DIM), np.float32) * np.float32(np.sqrt(2 / DIM))
    prompts, y = rng.random((count, 1, DIM), np.float32), np.zeros((count, MOST_TOKENS, 1, DIM), np.float32)
    return Requests(gaps, counts, count + int(counts.sum()), prompts, w, np.zeros_like(prompts), y)


def expected(requests: Requests) -> np.ndarray:
    """Return the tokens in f64."""
    found = np.zeros(requests.Y.shape)
    for r, count in enumerate(requests.Count):
        token = requests.Prompt[r].astype(np.float64)
        for position in range(count):
            found[r, position] = token = np.maximum(token @ requests.W, 0)
    return found


def simulate(places: int, replicas: int, requests: Requests) -> SimulationReport:
    """Return what the processes do on a simulated device, without values."""
    program = build(places, replicas).compile(target="sim", device="ascend_910b_seed", values=False)
    program.run(**requests._asdict())
    return report_of(program)


def main() -> None:
    """Serve the same requests in batches of several sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    requests = random_requests(np.random.default_rng(0), options.requests)
    for places in (1, 2, 4, 8):
        requests.Y[:] = 0
        build(places, options.replicas).compile().run(**requests._asdict(), workers=options.workers)
        error = float(np.abs(requests.Y - expected(requests)).max())
        assert error < TOLERANCE, error
        cycles = simulate(places, options.replicas, requests).cycles
        print(f"batches of {places}: {requests.Count.sum()} tokens in {cycles:,.0f} cycles")


if __name__ == "__main__":
    main()
