"""Load, normalise and store as a network of processes, with single, double and triple buffering.

The middle stage can be replicated. Every run is compared with numpy in f64. The simulated device shows what
buffers gain: `--picture` draws its processes over time.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from pto_wsp import Channel, In, Out, P, Tensor, Tile, f32, kernel, network, process, pto, replicate
from pto_wsp.lang.workload.workload import Workload
from pto_wsp.runtime.network_report import NetworkReport
from pto_wsp.simulation import report_of

ROWS, COLS = 32, 256


@kernel
def move(x: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]) -> None:
    """Copy a block."""
    pto.store(y, x)


@kernel
def softmax(x: In[Tile[ROWS, COLS, f32]], y: Out[Tile[ROWS, COLS, f32]]) -> None:
    """Compute the softmax of each row."""
    weights = pto.exp(x - pto.rowmax(x))
    pto.store(y, weights / pto.rowsum(weights))


def build(depth: int, replicas: int) -> Workload:
    """Return the network with `depth` buffers per channel and `replicas` copies of the middle stage."""
    loaded = Channel("loaded", Tensor[f32, ROWS, COLS], depth=depth)
    ready = Channel("ready", Tensor[f32, ROWS, COLS], depth=depth)

    @process
    def load(X: Tensor[f32, "n", ROWS, COLS]) -> None:
        for i in P("n"):
            with loaded.send() as token:
                move[i](x=X[i], y=token)

    @process
    def compute() -> None:
        for token in loaded.receive():
            with ready.send() as result:
                softmax(x=token, y=result)

    @process
    def store(Y: Tensor[f32, "n", ROWS, COLS]) -> None:
        for token in ready.receive():
            move(x=token, y=Y[token.index])

    return network(load, replicate(compute, replicas), store, name="pipeline")


def expected(x: np.ndarray) -> np.ndarray:
    """Return the result in f64."""
    weights = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def simulate(depth: int, replicas: int, x: np.ndarray) -> NetworkReport:
    """Return what the processes do on a simulated device, without values."""
    program = build(depth, replicas).compile(target="sim", device="ascend_910b_seed", values=False)
    program(X=x, Y=np.empty_like(x))
    found = report_of(program).network
    assert found is not None
    return found


def main() -> None:
    """Run the network with every depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--picture", metavar="FILE", help="write the simulated network as SVG")
    options = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((options.tokens, ROWS, COLS)).astype(np.float32)
    first: np.ndarray | None = None
    for depth in (1, 2, 3):
        program = build(depth, options.replicas).compile()
        y = np.empty_like(x)
        program(X=x, Y=y, workers=options.workers)
        start = time.perf_counter()
        program(X=x, Y=y, workers=options.workers)
        milliseconds = 1e3 * (time.perf_counter() - start)
        error = float(np.abs(y - expected(x)).max())
        assert error < 1e-6, error
        first = y if first is None else first
        assert np.array_equal(y, first), "the depth changed a result"
        print(f"depth {depth}: {options.tokens} tokens in {milliseconds:.2f} ms, largest error {error:.1e}")
    print("on the simulated device, with one replica:")
    single = simulate(1, 1, x).interval
    for depth in (1, 2, 3):
        found = simulate(depth, 1, x)
        gain = single / found.interval
        print(f"depth {depth}: a token every {found.interval:,.0f} cycles, {gain:.2f} times as fast")
    if options.picture:
        simulate(2, options.replicas, x).save(options.picture)


if __name__ == "__main__":
    main()
