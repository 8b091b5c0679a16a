"""What decode attention is compared to: torch, padded and request after request, and numpy."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from math import sqrt

import numpy as np

Peer = Callable[[], object]
Pairs = Sequence[tuple[np.ndarray, np.ndarray]]
"""Keys and values of each request, `[kv_heads, length, dim]`."""


def torch_padded(q: np.ndarray, pairs: Pairs, threads: int) -> Peer:
    """Return scaled dot product attention over one padded batch with a mask.

    Raises:
        ImportError: torch is not installed.
    """
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    longest = max(k.shape[1] for k, _ in pairs)
    heads, dim = pairs[0][0].shape[0], q.shape[2]
    padded = torch.zeros((2, len(pairs), heads, longest, dim))
    mask = torch.zeros((len(pairs), 1, 1, longest), dtype=torch.bool)
    for b, pair in enumerate(pairs):
        for which, array in enumerate(pair):
            padded[which, b, :, : array.shape[1]] = torch.from_numpy(array)
        mask[b, ..., : pair[0].shape[1]] = True
    queries = torch.from_numpy(q)[:, :, None]
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(queries, padded[0], padded[1], attn_mask=mask, enable_gqa=True)[:, :, 0].numpy()


def torch_loop(q: np.ndarray, pairs: Pairs, threads: int) -> Peer:
    """Return two batched products and a softmax per request, the fastest loop of torch.

    Raises:
        ImportError: torch is not installed.
    """
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    lent = [(torch.from_numpy(k).mT, torch.from_numpy(v)) for k, v in pairs]
    heads, dim = pairs[0][0].shape[0], q.shape[2]
    queries = torch.from_numpy(q).view(len(q), heads, -1, dim) / sqrt(dim)

    def run() -> np.ndarray:
        rows = [torch.softmax(q @ k, dim=-1) @ v for q, (k, v) in zip(queries, lent, strict=True)]
        return torch.stack(rows).view(q.shape).numpy()

    return run


def numpy_loop(q: np.ndarray, pairs: Pairs, threads: int) -> Peer:
    """Return the same loop in numpy, whose products use the threads that its library chooses."""
    queries = q.reshape(len(q), pairs[0][0].shape[0], -1, q.shape[2]) / np.float32(sqrt(q.shape[2]))

    def run() -> np.ndarray:
        out = np.empty(queries.shape, np.float32)
        for row, (k, v), to in zip(queries, pairs, out, strict=True):
            scores = row @ k.swapaxes(1, 2)
            weights = np.exp(scores - scores.max(axis=2, keepdims=True))
            to[...] = weights @ v / weights.sum(axis=2, keepdims=True)
        return out.reshape(q.shape)

    return run
