"""Arrays of a layer: weights packed once, the cache, a batch; and the layer in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from examples.llama.kernels import ALL_F32, EPSILON, Shape, Types
from examples.llama.workload import decoder_layer
from pto_wsp import MemLayout, Ragged, f32
from pto_wsp.types.dtype import DType

MATRICES = ("Query", "Key", "Value", "Output", "Gate", "Up", "Down")
THETA = 10000.0


class Plain(NamedTuple):
    """The parameters as a model's file has them, all f32: matrices [in, out], gains [hidden]."""

    Query: np.ndarray
    Key: np.ndarray
    Value: np.ndarray
    Output: np.ndarray
    Gate: np.ndarray
    Up: np.ndarray
    Down: np.ndarray
    FirstGain: np.ndarray
    SecondGain: np.ndarray


def matrix_shapes(shape: Shape) -> dict[str, tuple[int, int]]:
    """Return [in, out] of every matrix."""
    hidden, inner = shape.hidden, shape.inner
    square = dict.fromkeys(MATRICES[:4], (hidden, hidden))
    return square | {"Gate": (hidden, inner), "Up": (hidden, inner), "Down": (inner, hidden)}


def random_weights(rng: np.random.Generator, shape: Shape) -> Plain:
    """Return parameters that keep values of order 1."""
    matrices = [
        rng.standard_normal(dims, np.float32) * np.float32(dims[0] ** -0.5)
        for dims in matrix_shapes(shape).values()
    ]
    gains = [1 + rng.standard_normal(shape.hidden, np.float32) / 8 for _ in range(2)]
    return Plain(*matrices, *gains)


def pack(plain: Plain, shape: Shape, weights: DType = f32) -> dict[str, np.ndarray]:
    """Return the arrays of the workload's weights: in panels, with the gain of the norm before them."""
    gains = dict.fromkeys(("Query", "Key", "Value"), plain.FirstGain)
    gains |= dict.fromkeys(("Gate", "Up"), plain.SecondGain)
    layout = MemLayout.panels(shape.panel)
    packed = {}
    for name in MATRICES:
        matrix = getattr(plain, name)
        folded = matrix * gains[name][:, None] if name in gains else matrix
        packed[name] = layout.pack(folded.astype(weights.to_numpy()))
    return packed


def angles(positions: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines [tokens, dim / 2] by which the halves of queries and keys are turned."""
    turns = positions[:, None] * THETA ** (-np.arange(dim // 2) / (dim // 2))
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


class Cache(NamedTuple):
    """Keys and values, each [slots, heads, longest, dim]; a slot belongs to one request."""

    K: np.ndarray
    V: np.ndarray

    @classmethod
    def of(cls, shape: Shape, slots: int, longest: int) -> Cache:
        """Return an empty cache; elements that are not written are NaN."""
        return cls(*(np.full((slots, shape.heads, longest, shape.dim), np.nan, np.float32) for _ in range(2)))


class Chunk(NamedTuple):
    """The tokens of one request in a batch: the slot of its cache, and how many tokens are in it already."""

    slot: int
    past: int
    tokens: int


@dataclass
class Layer:
    """A compiled layer with its weights; any batch runs on the same program.

    Attributes:
        shape: its sizes.
        weights: packed, by the names of the workload's parameters.
        types: element types of the weights and of activations.
        target: of the program.
    """

    shape: Shape
    weights: dict[str, np.ndarray]
    types: Types = ALL_F32
    target: str = "cpu"
    _buffers: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.program = decoder_layer(self.shape, self.types).compile(target=self.target)

    def __call__(self, hidden: np.ndarray, chunks: Sequence[Chunk], cache: Cache, **options: Any) -> None:
        """Replace `hidden` [tokens, hidden] by the layer's output, and append to the cache.

        Args:
            hidden: the tokens of all chunks, one chunk after the other.
            chunks: prefill chunks of any length and decode steps of one token, in any order.
            cache: where their keys and values are and go.
            **options: of the program's run.
        """
        self.program.run(**self.arguments(hidden, chunks, cache), **options)

    def arguments(self, hidden: np.ndarray, chunks: Sequence[Chunk], cache: Cache) -> dict[str, Any]:
        """Return what the program is given for a batch."""
        tokens, (heads, dim, inner) = len(hidden), self.shape
        taken = self.types.activations
        positions = [np.arange(past, past + count) for _, past, count in chunks]
        cos, sin = angles(np.concatenate([np.empty(0), *positions]), dim)
        return {
            "tokens": tokens,
            "request": Ragged.lengths([chunk.tokens for chunk in chunks]),
            "Slot": np.array([chunk.slot for chunk in chunks], np.int32),
            "Past": np.array([chunk.past for chunk in chunks], np.int32),
            "Cos": cos,
            "Sin": sin,
            "Hidden": hidden,
            "Rounded": self._buffer("Rounded", (0 if taken is f32 else tokens, self.shape.hidden), taken),
            "Scale": self._buffer("Scale", (tokens, 1)),
            "Qkv": self._buffer("Qkv", (3, heads, tokens, dim)),
            "Attended": self._buffer("Attended", (tokens, self.shape.hidden), taken),
            "Inner": self._buffer("Inner", (tokens, inner), taken),
            **cache._asdict(),
            **self.weights,
        }

    def _buffer(self, name: str, dims: tuple[int, ...], dtype: DType = f32) -> np.ndarray:
        """Return memory for an intermediate tensor; it is kept for later batches."""
        size = int(np.prod(dims))
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers[name] = np.empty(size, dtype.to_numpy())
        return self._buffers[name][:size].reshape(dims)


def reference(plain: Plain, shape: Shape, hidden: np.ndarray, activations: DType = f32) -> np.ndarray:
    """Return the layer's output for one request without a past, in the element type of `hidden`.

    Args:
        plain: parameters; gains are 1 unless activations are f32.
        shape: sizes of the layer.
        hidden: the tokens.
        activations: what products take from the left is rounded to it; f32: not rounded.
    """
    kind, count = hidden.dtype, len(hidden)
    w = Plain(*(a.astype(kind) for a in plain))
    cos, sin = (a.astype(kind)[:, None] for a in angles(np.arange(count), shape.dim))

    def taken(x: np.ndarray) -> np.ndarray:
        return x if activations is f32 else x.astype(activations.to_numpy()).astype(kind)

    def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return taken(x) / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * gain

    def heads(x: np.ndarray) -> np.ndarray:
        return x.reshape(count, shape.heads, shape.dim)

    def turned(x: np.ndarray) -> np.ndarray:
        a, b = np.split(heads(x), 2, axis=2)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)

    x = norm(hidden, w.FirstGain)
    q, k, v = turned(x @ w.Query), turned(x @ w.Key), heads(x @ w.Value)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(shape.dim)
    scores[:, ~np.tri(count, dtype=bool)] = -np.inf
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    attended = np.einsum("hqk,khd->qhd", p / p.sum(axis=2, keepdims=True), v)
    h = hidden + taken(attended.reshape(count, shape.hidden)) @ w.Output
    x = norm(h, w.SecondGain)
    gate = x @ w.Gate
    return h + taken(gate / (1 + np.exp(-gate)) * (x @ w.Up)) @ w.Down
