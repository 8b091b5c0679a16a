"""The operators of examples/02 to 04 at the sizes that are measured, with what they are compared to."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.dynamic import peers
from benchmarks.harness import THREADS
from pto_wsp import Program, bf16

# The folders of numbered examples have no names that an import statement can say.
paged_decode = importlib.import_module("examples.02_paged_decode.paged_decode")
moe = importlib.import_module("examples.03_moe.moe")
sparse_attention = importlib.import_module("examples.04_sparse_attention.sparse_attention")

Maker = Callable[[], peers.Peer]


@dataclass(frozen=True)
class Operator:
    """An operator on one batch.

    Attributes:
        name: of its row, without the unit.
        program: its compiled workload.
        run: runs it on the batch.
        verify: raises where the result of the last run is wrong.
        rerun: runs it on a batch of other sizes.
        peers: functions that prepare a peer for the batch, or raise ImportError.
    """

    name: str
    program: Program
    run: Callable[[], None]
    verify: Callable[[], None]
    rerun: Sequence[Callable[[], None]]
    peers: Mapping[str, Maker]

    def compiles_on_other_sizes(self) -> int:
        """Run on other batches; return the compilations that they needed."""
        compiles = 0
        for rerun in self.rerun:
            rerun()
            assert self.program.stats is not None
            compiles += self.program.stats.compiles
        return compiles


def require(difference: float, tolerance: float, name: str) -> None:
    """Raise if a result is further from its reference than its example allows."""
    if not difference <= tolerance:
        raise AssertionError(f"{name} differs from numpy by {difference:.1e}")


def decode(quick: bool, seed: int) -> Operator:
    """32 query and 8 KV heads, bf16 cache, 16 sequences of 0 to 16K tokens (quick: 6, to 8K)."""
    random = np.random.default_rng(seed)
    program = paged_decode.paged_decode(bf16).compile(target="cpu")
    lengths = paged_decode.random_lengths(random, 6 if quick else 16, 8192 if quick else 16384)
    lengths[0] = 8192 if quick else 16384
    batch = paged_decode.random_batch(random, lengths, bf16)

    def other(count: int) -> None:
        lengths = paged_decode.random_lengths(random, count, 3000)
        paged_decode.run(program, paged_decode.random_batch(random, lengths, bf16))

    return Operator(
        "paged_decode",
        program,
        lambda: paged_decode.run(program, batch),
        lambda: require(paged_decode.difference(batch), paged_decode.TOLERANCE, "paged_decode"),
        [lambda: other(0), lambda: other(1), lambda: other(33)],
        {
            "numpy": lambda: lambda: paged_decode.reference(batch, np.float32),
            "torch": lambda: peers.decode(batch, paged_decode.PAGE, THREADS),
        },
    )


def experts(quick: bool, seed: int) -> Operator:
    """2048 (quick: 512) tokens through 2 of 64 experts each."""
    random = np.random.default_rng(seed)
    shape = moe.Shape()
    program = moe.moe(shape).compile(target="cpu")
    weights = moe.random_weights(random, shape)
    batch = moe.random_batch(random, 512 if quick else 2048, weights, shape)
    plain = [moe.plain(weights, shape, e) for e in range(shape.experts)]
    stacked = [np.stack(of_all) for of_all in zip(*plain, strict=True)]

    def numpy_layer() -> np.ndarray:
        chosen = moe.routed(batch, weights, shape)
        return moe.reference(batch.X, weights.Router, plain.__getitem__, chosen)

    def other(count: int) -> None:
        moe.run(program, moe.random_batch(random, count, weights, shape), weights)

    return Operator(
        "moe",
        program,
        lambda: moe.run(program, batch, weights),
        lambda: require(moe.difference(batch, weights, shape), moe.TOLERANCE, "moe"),
        [lambda: other(0), lambda: other(1), lambda: other(333)],
        {
            "numpy": lambda: numpy_layer,
            "torch": lambda: peers.moe(batch.X, weights.Router, stacked, shape.slots, THREADS),
        },
    )


def indexer(quick: bool, seed: int) -> Operator:
    """Four sequences, up to 64K tokens: one or more for each tier."""
    random = np.random.default_rng(seed)
    shape = sparse_attention.Shape()
    program = sparse_attention.sparse_attention(shape).compile(target="cpu")
    lengths = np.array([1500, 8000, 20000, 65536 if not quick else 40000])
    batch = sparse_attention.random_batch(random, shape, lengths, int(lengths.max()))

    def other(lengths: Sequence[int]) -> None:
        sizes, longest = np.array(lengths, int), max(lengths, default=1)
        sparse_attention.run(program, sparse_attention.random_batch(random, shape, sizes, longest))

    return Operator(
        "indexer",
        program,
        lambda: sparse_attention.run(program, batch),
        lambda: require(sparse_attention.difference(batch), sparse_attention.TOLERANCE, "indexer"),
        [lambda: other([]), lambda: other([0, 2049]), lambda: other([1, 9000, 8192, 100])],
        {
            "numpy": lambda: lambda: sparse_attention.reference(batch, np.float32),
            "torch": lambda: peers.sparse_attention(batch, sparse_attention.TOP_K, THREADS),
        },
    )


OPERATORS: tuple[Callable[[bool, int], Operator], ...] = (decode, experts, indexer)
