"""A mixture-of-experts layer: each token goes through 2 of 64 experts, which the same run chooses.

python examples/03_moe/moe.py [--tokens N] [--batches N]
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pto_wsp import (
    DYN,
    Constexpr,
    Dense,
    DenseDyn,
    In,
    MemLayout,
    Out,
    P,
    Program,
    Tensor,
    Tile,
    f32,
    group_by,
    i32,
    kernel,
    panel_cols,
    pto,
    workload,
)

ROWS = 64
"""Rows per task."""

FEW = 8
"""Up to this number of rows, an expert's weights are read in place: such products are bound by memory."""

WIDTH = 64
"""Columns of a task."""

COLS = panel_cols()
PANELS = WIDTH // COLS
"""Columns of a panel of weights, and panels of a task."""

SLAB = 4
"""Tasks' columns that all rows of an expert are multiplied with before the next are read from memory."""

TOLERANCE = 1e-5  # relative to the largest result; numpy computes in f32 as well
LAYOUT = MemLayout.panels(COLS)


class Shape(NamedTuple):
    """The sizes of a layer.

    Attributes:
        experts: how many there are.
        hidden: elements of a token, a multiple of `WIDTH`.
        inner: inner elements of an expert, a multiple of `WIDTH`.
        slots: experts per token.
    """

    experts: int = 64
    hidden: int = 2048
    inner: int = 256
    slots: int = 2


def moe(shape: Shape) -> Any:  # noqa: C901  (loops of the workload, one after the other)
    """Return the workload of a layer.

    Raises:
        ValueError: sizes that are not in whole panels, or more experts per token than there are.
    """
    EXPERTS, HIDDEN, INNER, SLOTS = shape
    if HIDDEN % WIDTH or INNER % WIDTH or SLOTS > EXPERTS:
        raise ValueError(f"hidden and inner are multiples of {WIDTH}, slots at most experts; found {shape}")
    route, sort_tokens, combine = token_kernels(shape)
    few, many = expert_kernels(shape, FEW), expert_kernels(shape, ROWS)

    @workload
    def moe(  # noqa: C901
        tokens: DenseDyn,
        X: Tensor[f32, "tokens", HIDDEN],
        Router: Tensor[f32, HIDDEN, EXPERTS],
        W1: Tensor[f32, EXPERTS, HIDDEN, INNER, LAYOUT],
        W2: Tensor[f32, EXPERTS, INNER, HIDDEN, LAYOUT],
        W3: Tensor[f32, EXPERTS, HIDDEN, INNER, LAYOUT],
        Y: Tensor[f32, "tokens", HIDDEN],
        Experts: Tensor[i32, "tokens", SLOTS],
        Gates: Tensor[f32, "tokens", SLOTS],
        Sorted: Tensor[f32, "pairs", HIDDEN],
        Inner: Tensor[f32, "pairs", INNER],
        Part: Tensor[f32, "tokens", SLOTS, HIDDEN],
    ):
        """Route, group, apply, combine; `Y` is the result, what follows it is intermediate."""

        def enter(kernels: Any, rows: int, e: Any) -> None:
            for pick, c in tasks(routing[e], rows, INNER // WIDTH, SLAB // 2):
                places = routing[e][pick]
                kernels[0][e, pick, c](
                    x=Sorted[places], w1=panels(W1[e], c), w3=panels(W3[e], c), inner=Inner[places, part(c)]
                )

        def leave(kernels: Any, rows: int, e: Any) -> None:
            for pick, c in tasks(routing[e], rows, HIDDEN // WIDTH, SLAB):
                # Row sets are disjoint between picks: experts do not wait for each other.
                target = Part[routing.rows(pick)][:, part(c)]
                kernels[1][e, pick, c](inner=Inner[routing[e][pick]], w2=panels(W2[e], c), out=target)

        for t in P.tiles(tokens, ROWS):
            route[t](x=X[t], w=Router, experts=Experts[t], gates=Gates[t])
        routing = group_by(Experts, num_groups=EXPERTS)  # expert -> its (token, slot) pairs, made by this run
        for e in P(Dense[EXPERTS]):
            for pick in P.tiles(routing[e], ROWS):  # an expert without tokens costs nothing
                sort_tokens[e, pick](x=X, pairs=routing.rows(pick), out=Sorted[routing[e][pick]])
        for step in (enter, leave):
            for e in P(Dense[EXPERTS]):
                with P.when(routing[e].extent <= FEW):
                    step(few, FEW, e)
                with P.otherwise():
                    step(many, ROWS, e)
        for t in P.tiles(tokens, ROWS):
            combine[t](parts=Part[t], gates=Gates[t], y=Y[t])  # slots are added in slot order

    return moe


def tasks(rows: Any, most: int, parts: int, slab: int) -> Iterator[tuple[Any, Any]]:
    """Yield tiles of rows and numbers of parts of a matrix: all rows meet a slab of them, then the next."""
    for some in P.tiles(parts, slab):
        for pick in P.tiles(rows, most):
            for i in P(some.extent):
                yield pick, some.start + i


def panels(weight: Any, c: Any) -> Any:
    """Return the panels of a matrix that task c takes."""
    return weight.panels[PANELS * c : PANELS * c + PANELS]


def part(c: Any) -> slice:
    """Return the columns of task c."""
    return slice(WIDTH * c, WIDTH * c + WIDTH)


def token_kernels(shape: Shape) -> tuple[Any, Any, Any]:
    """Return what is done with tokens before and after the experts."""
    EXPERTS, HIDDEN, _, SLOTS = shape

    @kernel
    def route(
        x: In[Tile[ROWS, HIDDEN, f32]],
        w: In[Tile[HIDDEN, EXPERTS, f32]],
        experts: Out[Tile[ROWS, SLOTS, i32]],
        gates: Out[Tile[ROWS, SLOTS, f32]],
    ):
        """The experts with the largest scores, the lower number first among equals, and their softmax."""
        best = pto.sort(pto.matmul(x, w))
        top = pto.extract_topk_values(best, SLOTS)
        e = pto.exp(top - pto.rowmax(top))
        pto.store(experts, pto.extract_topk_indices(best, SLOTS))
        pto.store(gates, e / pto.rowsum(e))

    @kernel
    def sort_tokens(
        x: In[Tensor[f32, DYN, HIDDEN]], pairs: In[Tile[ROWS, 1, i32]], out: Out[Tile[ROWS, HIDDEN, f32]]
    ):
        """The tokens of (token, slot) pairs, side by side."""
        pto.store(out, pto.gather(x, pto.div(pairs, SLOTS)))

    @kernel
    def combine(
        parts: In[Tensor[f32, DYN, SLOTS, HIDDEN]],
        gates: In[Tile[ROWS, SLOTS, f32]],
        y: Out[Tile[ROWS, HIDDEN, f32]],
    ):
        """Add gate * part of all slots, in slot order."""
        for r in pto.tiles(y.rows, 8):
            total = parts[r, 0] * gates[r, 0:1]
            for slot in range(1, SLOTS):
                total = total + parts[r, slot] * gates[r, slot : slot + 1]
            pto.store(y[r], total)

    return route, sort_tokens, combine


def expert_kernels(shape: Shape, rows: int) -> tuple[Any, Any]:
    """Return the two layers of an expert, a task's columns of them, for at most `rows` rows."""
    _, HIDDEN, INNER, _ = shape

    @kernel
    def enter(
        x: In[Tile[rows, HIDDEN, f32]],
        w1: In[Tensor[f32, PANELS, HIDDEN, COLS]],
        w3: In[Tensor[f32, PANELS, HIDDEN, COLS]],
        inner: Out[Tile[rows, WIDTH, f32]],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        """silu(x @ w1) * (x @ w3)."""
        for i in range(PANELS):
            c = i * COLS
            opened = pto.silu(pto.matmul(x, w1[i]))
            pto.store(inner[:, c : c + COLS], pto.matmul(x, w3[i]) * opened)

    @kernel
    def leave(
        inner: In[Tile[rows, INNER, f32]],
        w2: In[Tensor[f32, PANELS, INNER, COLS]],
        out: Out[Tile[rows, WIDTH, f32]],
        MOST_ROWS: Constexpr[int] = rows,
    ):
        for i in range(PANELS):
            c = i * COLS
            pto.store(out[:, c : c + COLS], pto.matmul(inner, w2[i]))

    return enter, leave


class Weights(NamedTuple):
    """What stays from batch to batch; W1, W2 and W3 lie in panels."""

    Router: np.ndarray
    W1: np.ndarray
    W2: np.ndarray
    W3: np.ndarray


class Batch(NamedTuple):
    """The arrays of one call: what comes in, the result, and what the run makes on the way."""

    X: np.ndarray
    Y: np.ndarray
    Experts: np.ndarray
    Gates: np.ndarray
    Sorted: np.ndarray
    Inner: np.ndarray
    Part: np.ndarray


def random_weights(rng: np.random.Generator, shape: Shape) -> Weights:
    """Return weights that keep values of order 1."""
    experts, hidden, inner, _ = shape

    def matrix(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims, np.float32) / np.float32(dims[-2] ** 0.5)

    wide, narrow = (experts, hidden, inner), (experts, inner, hidden)
    return Weights(matrix(hidden, experts), *(LAYOUT.pack(matrix(*dims)) for dims in (wide, narrow, wide)))


def random_batch(rng: np.random.Generator, tokens: int, weights: Weights, shape: Shape) -> Batch:
    """Make tokens that like some experts: the k-th favourite of a random order with weight 1 / k."""
    experts, hidden, inner, slots = shape
    share = 1 / np.arange(1, experts + 1)
    liked = rng.permutation(experts)[rng.choice(experts, (tokens, slots), p=share / share.sum())]
    x = rng.standard_normal((tokens, hidden), np.float32)
    for slot in range(slots):
        x += np.float32(3 + 1 / (1 + slot)) * weights.Router.T[liked[:, slot]]

    def unwritten(*dims: int) -> np.ndarray:
        return np.full(dims, np.nan, np.float32)

    pairs = tokens * slots
    return Batch(
        x, unwritten(tokens, hidden), np.full((tokens, slots), -1, np.int32), unwritten(tokens, slots),
        unwritten(pairs, hidden), unwritten(pairs, inner), unwritten(tokens, slots, hidden),
    )  # fmt: skip


def routed(batch: Batch, weights: Weights, shape: Shape) -> np.ndarray:
    """Return the experts that numpy chooses for each token, [tokens, slots]."""
    return np.argsort(-(batch.X @ weights.Router), axis=1, kind="stable")[:, : shape.slots]


def plain(weights: Weights, shape: Shape, e: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices w1, w2, w3 of an expert in row-major order."""
    widths = (shape.inner, shape.hidden, shape.inner)
    w1, w2, w3 = (LAYOUT.unpack(w[e], n) for w, n in zip(weights[1:], widths, strict=True))
    return w1, w2, w3


def reference(
    x: np.ndarray,
    router: np.ndarray,
    matrices: Callable[[int], tuple[np.ndarray, np.ndarray, np.ndarray]],
    experts: np.ndarray,
) -> np.ndarray:
    """Return Y as numpy computes it for tokens and their experts [tokens, slots], expert after expert.

    `matrices` returns w1, w2 and w3 of an expert.
    """
    scores = np.take_along_axis(x @ router, experts, axis=1)
    gates = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    gates /= gates.sum(axis=1, keepdims=True)
    parts = np.empty((*experts.shape, x.shape[1]), np.float32)
    for e in np.unique(experts):
        at = np.nonzero(experts == e)
        w1, w2, w3 = matrices(int(e))
        t = x[at[0]]
        gate = t @ w1
        parts[at] = (gate / (1 + np.exp(-gate)) * (t @ w3)) @ w2
    return (parts * gates[:, :, None]).sum(axis=1)


def difference(batch: Batch, weights: Weights, shape: Shape) -> float:
    """Return how far Y is from the reference, relative to its largest element; NaN counts as infinite.

    Where the scores of two experts differ by no more than rounding, either choice is right.
    """
    scores = batch.X.astype(np.float64) @ weights.Router.astype(np.float64)
    chosen = np.take_along_axis(scores, batch.Experts.clip(0, shape.experts - 1), axis=1)
    best = -np.sort(-scores, axis=1)[:, : shape.slots]
    are_different = (np.diff(np.sort(batch.Experts, axis=1), axis=1) != 0).all()
    if not ((np.abs(chosen - best) <= 1e-4).all() and are_different):
        return np.inf
    expected = reference(batch.X, weights.Router, partial(plain, weights, shape), batch.Experts)
    off = np.abs(batch.Y - expected).max(initial=0.0) / max(np.abs(expected).max(initial=0.0), 1e-9)
    return float(np.nan_to_num(off, nan=np.inf))


def run(program: Program, batch: Batch, weights: Weights, **options: Any) -> None:
    """Run the program on the arrays of a batch."""
    program.run(tokens=len(batch.X), **batch._asdict(), **weights._asdict(), **options)


def small_graph() -> str:
    """Draw the task graph of four tokens in a small layer."""
    random = np.random.default_rng(0)
    shape = Shape(experts=8, hidden=128, inner=128)
    weights = random_weights(random, shape)
    batch = random_batch(random, 4, weights, shape)
    return moe(shape).compile(target="interp").task_graph(**batch._asdict(), **weights._asdict()).to_svg()


def main() -> None:
    """Compile once, run on random batches, compare each with numpy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2000, help="most tokens of a batch")
    parser.add_argument("--batches", type=int, default=5, help="number of random batches")
    parser.add_argument("--graph", type=Path, metavar="FILE", help="draw the task graph of a small batch")
    options = parser.parse_args()
    if min(options.tokens, options.batches) < 1:
        parser.error("sizes are at least 1")
    if options.graph is not None:
        options.graph.write_text(small_graph())
        return
    shape = Shape()
    program = moe(shape).compile(target="cpu")
    rng = np.random.default_rng(0)
    weights = random_weights(rng, shape)
    print(f"{shape.experts} experts, top {shape.slots}, hidden {shape.hidden}, inner {shape.inner}")
    print(f"\n  {'tokens':>7} {'busy experts':>13} {'tasks':>6} {'ms':>8} {'compiles':>9}   off by")
    for _ in range(options.batches):
        batch = random_batch(rng, int(rng.integers(0, options.tokens + 1)), weights, shape)
        run(program, batch, weights)
        stats, found = program.stats, difference(batch, weights, shape)
        assert stats is not None
        print(
            f"  {len(batch.X):>7,} {len(np.unique(batch.Experts)):>13} {stats.tasks:>6,} "
            f"{stats.run_ms:>8.2f} {stats.compiles:>9}   {found:.1e}"
        )
        if not found <= TOLERANCE:
            raise SystemExit(f"differs from numpy by more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
