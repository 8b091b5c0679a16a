"""Batches of sentences through the compiled workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from examples.minilm.kernels import HEADS, HIDDEN, INNER, QKV, WEIGHTINGS
from examples.minilm.model import Weights
from examples.minilm.workload import encoder
from pto_wsp import Ragged, empty, f32

TOKENS_PER_RUN = 16_384
"""Bounds the memory of a run: 18 KB of intermediate values per token."""


@dataclass
class Totals:
    """What an encoder has done so far.

    Attributes:
        compile_ms: time in the compiler; `compiles` calls of it.
        run_ms: time in the engine.
        padded_tokens: tokens that batches of 32 sentences, in order, padded to their longest, would have.
    """

    sentences: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    runs: int = 0
    tasks: int = 0
    kernels: int = 0
    compiles: int = 0
    compile_ms: float = 0.0
    run_ms: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of engine time."""
        return self.tokens / (self.run_ms / 1e3) if self.run_ms else 0.0

    def to_json(self) -> dict[str, int | float]:
        """Return every figure by name."""
        return asdict(self) | {"tokens_per_s": self.tokens_per_s}


@dataclass
class _Buffers:
    """Intermediate values of a run of at most `capacity` tokens, with weights that are kept as `kept`."""

    capacity: int
    kept: str

    def __post_init__(self) -> None:
        activations = WEIGHTINGS[self.kept].activations
        self.hidden = empty((self.capacity, HIDDEN), f32)
        self.qkv = empty((HEADS, self.capacity, QKV), f32)
        self.attended = empty((self.capacity, activations.cols(HIDDEN)), activations.dtype)
        self.inner = empty((self.capacity, activations.cols(INNER)), activations.dtype)

    def first(self, tokens: int) -> dict[str, Any]:
        """Return the part that a run of `tokens` tokens uses."""
        return {
            "Hidden": self.hidden[:tokens],
            "Qkv": self.qkv[:, :tokens],
            "Attended": self.attended[:tokens],
            "Inner": self.inner[:tokens],
        }


class Encoder:
    """The model, compiled once for every batch.

    Attributes:
        program: the compiled workload.
        totals: figures of all calls together.
    """

    def __init__(self, weights: Weights, target: str = "cpu") -> None:
        self.program = encoder(weights.kept).compile(target=target)
        self.totals = Totals(kernels=len(self.program.module.kernels))
        self._weights: dict[str, Any] = weights.arrays()
        self._buffers = _Buffers(0, weights.kept)

    def __call__(
        self, sentences: Iterable[np.ndarray], progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return the embeddings of sentences given as word pieces.

        Args:
            sentences: i32 ids of each, 1 to 256 of them.
            progress: called with the number of sentences done so far.

        Returns:
            [sentences, 384] f32, each row of length 1.
        """
        parts = [np.empty((0, HIDDEN), np.float32)]
        done = 0
        for batch in batches(sentences):
            parts.append(self.run(batch))
            done += len(batch)
            if progress is not None:
                progress(done)
        return np.concatenate(parts)

    def run(self, batch: Sequence[np.ndarray], **options: Any) -> np.ndarray:
        """Run one batch, with options of the program's run; return its embeddings [len(batch), 384]."""
        lengths = np.array([len(ids) for ids in batch], np.int64)
        tokens = int(lengths.sum())
        if tokens > self._buffers.capacity:
            self._buffers = _Buffers(max(1024, 1 << (tokens - 1).bit_length()), self._buffers.kept)
        embeddings = np.empty((len(batch), 1, HIDDEN), np.float32)
        values: dict[str, Any] = {
            "sentence": Ragged.lengths(lengths),
            "Ids": np.concatenate(batch),
            "Positions": np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
            "Embeddings": embeddings,
        }
        self.program.run(**options, **values, **self._weights, **self._buffers.first(tokens))
        self._count(lengths)
        return embeddings[:, 0]

    def save_timeline(self, path: Path) -> None:
        """Save the last run with `trace=True` as a picture, and as `.json` for Perfetto."""
        assert self.program.trace is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        self.program.trace.save_svg(path)
        self.program.trace.save(path.with_suffix(".json"))

    def _count(self, lengths: np.ndarray) -> None:
        stats, totals = self.program.stats, self.totals
        assert stats is not None
        totals.sentences += len(lengths)
        totals.tokens += int(lengths.sum())
        totals.padded_tokens += padded_tokens(lengths)
        totals.runs += 1
        totals.tasks += stats.tasks
        totals.compiles += stats.compiles
        totals.compile_ms += stats.compile_ms
        totals.run_ms += stats.run_ms


def batches(sentences: Iterable[np.ndarray], limit: int = TOKENS_PER_RUN) -> Iterator[list[np.ndarray]]:
    """Cut sentences into batches of at most `limit` tokens, in order."""
    batch: list[np.ndarray] = []
    tokens = 0
    for ids in sentences:
        if batch and tokens + len(ids) > limit:
            yield batch
            batch, tokens = [], 0
        batch.append(ids)
        tokens += len(ids)
    if batch:
        yield batch


def padded_tokens(lengths: np.ndarray, batch: int = 32) -> int:
    """Return the tokens of batches of `batch` sentences, in order, each padded to its longest."""
    groups = [lengths[i : i + batch] for i in range(0, len(lengths), batch)]
    return sum(int(group.max()) * len(group) for group in groups)
