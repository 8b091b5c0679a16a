"""Load, normalise and store as a network of processes, with single, double and triple buffering.

The middle stage can be replicated. Every run is compared with numpy in f64.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from pto_wsp import Channel, In, Out, P, Program, Tensor, Tile, f32, kernel, network, process, pto, replicate

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


def build(depth: int, replicas: int) -> Program:
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

    return network(load, replicate(compute, replicas), store, name="pipeline").compile()


def expected(x: np.ndarray) -> np.ndarray:
    """Return the result in f64."""
    weights = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def main() -> None:
    """Run the network with every depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((options.tokens, ROWS, COLS)).astype(np.float32)
    first: np.ndarray | None = None
    for depth in (1, 2, 3):
        program = build(depth, options.replicas)
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


if __name__ == "__main__":
    main()
