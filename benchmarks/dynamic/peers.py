"""The operators of examples/02 to 04 in torch, as its users write them: a loop over sequences or experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

Peer = Callable[[], object]


def load_torch(threads: int) -> Any:
    """Return torch, set to a number of threads.

    Raises:
        ImportError: it is not installed.
    """
    torch = import_module("torch")
    torch.set_num_threads(threads)
    return torch


def decode(batch: Any, page: int, threads: int) -> Peer:
    """Paged decode attention over a bf16 cache: gather the pages, then scaled_dot_product_attention.

    The query heads that share a KV head are rows of one query.
    """
    torch = load_torch(threads)
    q = torch.from_numpy(batch.Q).to(torch.bfloat16)
    k, v = (torch.from_numpy(pool.view(np.int16)).view(torch.bfloat16) for pool in (batch.K, batch.V))
    lengths = batch.Lengths.tolist()
    tables = [
        torch.from_numpy(row[: -(-n // page)]) for row, n in zip(batch.BlockTable, lengths, strict=True)
    ]

    def attend() -> list[Any]:
        found = []
        for b, length in enumerate(lengths):
            if length:
                rows = [pool[tables[b]].transpose(0, 1).flatten(1, 2)[None, :, :length] for pool in (k, v)]
                found.append(torch.nn.functional.scaled_dot_product_attention(q[b : b + 1], *rows))
        return found

    return attend


def moe(
    tokens: np.ndarray, scores: np.ndarray, matrices: Sequence[np.ndarray], slots: int, threads: int
) -> Peer:
    """Top-k routing, then each expert on the tokens that chose it."""
    torch = load_torch(threads)
    x, router = torch.from_numpy(tokens), torch.from_numpy(scores)
    w1, w2, w3 = (torch.from_numpy(w) for w in matrices)

    def layer() -> Any:
        top, experts = (x @ router).topk(slots, dim=1)
        gates = top.softmax(dim=1)
        y = torch.zeros_like(x)
        for e in range(len(w1)):
            token, slot = torch.where(experts == e)
            if len(token):
                t = x[token]
                part = (torch.nn.functional.silu(t @ w1[e]) * (t @ w3[e])) @ w2[e]
                y.index_add_(0, token, part * gates[token, slot, None])
        return y

    return layer


def sparse_attention(batch: Any, top_k: int, threads: int) -> Peer:
    """Scores of every token, top-k, gather, scaled_dot_product_attention."""
    torch = load_torch(threads)
    index_q, weight, index_k, q, latent = (
        torch.from_numpy(array)
        for array in (batch.IndexQ, batch.IndexWeight, batch.IndexK, batch.Q, batch.Latent)
    )
    values = latent[:, :, : batch.O.shape[2]]
    lengths = (batch.Cached + batch.Accepted)[:, 0].tolist()

    def attend() -> list[Any]:
        found = []
        for b, length in enumerate(lengths):
            picks = torch.arange(length)
            if length > top_k:
                scores = (weight[b] @ (index_q[b] @ index_k[b, :length].T).relu())[0]
                picks = scores.topk(top_k, sorted=False).indices
            rows = [cache[b][picks][None] for cache in (latent, values)]
            found.append(torch.nn.functional.scaled_dot_product_attention(q[b : b + 1], *rows))
        return found

    return attend
