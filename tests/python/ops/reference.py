"""Attention of ragged batches in plain numpy and f64, and random batches in the layouts of a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Batch:
    """One batch.

    Attributes:
        keys, values: per request `[kv_len, kv_heads, dim]`, as the cache holds them.
        queries: `[tokens, q_heads, dim]`.
        qo_indptr: `[batch + 1]`.
        plan: what `plan` takes beside `qo_indptr`.
        cache: what `run` takes.
    """

    keys: list[np.ndarray]
    values: list[np.ndarray]
    queries: np.ndarray
    qo_indptr: np.ndarray
    plan: tuple[np.ndarray, ...]
    cache: Any


def random_batch(
    rng: np.random.Generator,
    kv_lens: Any,
    qo_lens: Any,
    *,
    heads: tuple[int, int],
    dim: int,
    page_size: int | None,
    layout: str = "NHD",
    q_dtype: Any = np.float32,
    kv_dtype: Any = np.float32,
    is_stacked: bool = False,
) -> Batch:
    """Make a batch; what no request owns is NaN in the cache."""
    q_heads, kv_heads = heads
    kv_lens, qo_lens = np.asarray(kv_lens, np.int64), np.asarray(qo_lens, np.int64)
    keys, values = (
        [rng.standard_normal((n, kv_heads, dim), np.float32).astype(kv_dtype) for n in kv_lens]
        for _ in range(2)
    )
    qo_indptr = np.concatenate([[0], np.cumsum(qo_lens)]).astype(np.int32)
    queries = rng.standard_normal((int(qo_indptr[-1]), q_heads, dim), np.float32).astype(q_dtype)
    if page_size is None:
        plan = (np.concatenate([[0], np.cumsum(kv_lens)]).astype(np.int32),)
        tail = np.full((5, kv_heads, dim), np.nan, kv_dtype)
        pools = [np.concatenate([*parts, tail]) for parts in (keys, values)]
        cache: Any = tuple(pools if layout == "NHD" else [pool.swapaxes(0, 1).copy() for pool in pools])
        return Batch(keys, values, queries, qo_indptr, plan, cache)
    counts = -(-kv_lens // page_size)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    total = int(indptr[-1]) + 3
    pages = rng.permutation(total)[: indptr[-1]].astype(np.int32)
    last = np.where(counts > 0, kv_lens - (counts - 1) * page_size, -7).astype(np.int32)
    pool = np.full((total, 2, page_size, kv_heads, dim), np.nan, kv_dtype)
    for b in range(len(kv_lens)):
        for which, parts in enumerate((keys, values)):
            for i, page in enumerate(pages[indptr[b] : indptr[b + 1]]):
                part = parts[b][i * page_size : (i + 1) * page_size]
                pool[page, which, : len(part)] = part
    pool = pool if layout == "NHD" else pool.swapaxes(2, 3).copy()
    cache = pool if is_stacked else (pool[:, 0].copy(), pool[:, 1].copy())
    return Batch(keys, values, queries, qo_indptr, (indptr, pages, last), cache)


def attention(
    batch: Batch, *, scale: float, causal: bool = False, window_left: int = -1, soft_cap: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return output and natural log-sum-exp in f64."""
    out = np.zeros(batch.queries.shape, np.float64)
    lse = np.full(batch.queries.shape[:2], -np.inf)
    for b, (k, v) in enumerate(zip(batch.keys, batch.values, strict=True)):
        rows = slice(batch.qo_indptr[b], batch.qo_indptr[b + 1])
        q = batch.queries[rows].astype(np.float64)
        group = q.shape[1] // k.shape[1]
        k, v = (np.repeat(a.astype(np.float64), group, axis=1) for a in (k, v))
        scores = np.einsum("thd,khd->htk", q, k) * scale
        if soft_cap:
            scores = soft_cap * np.tanh(scores / soft_cap)
        ahead = np.arange(len(k)) - (len(k) - len(q) + np.arange(len(q)))[:, None]
        is_seen = np.ones(ahead.shape, bool)
        if causal:
            is_seen &= ahead <= 0
        if window_left >= 0:
            is_seen &= ahead >= -window_left
        scores = np.where(is_seen, scores, -np.inf)
        top = scores.max(axis=2, initial=-1e300)
        weights = np.exp(scores - top[..., None])
        total = weights.sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            mixed = np.einsum("htk,khd->thd", weights, v) / total.T[..., None]
            lse[rows] = (top + np.log(total)).T
        out[rows] = np.where(total.T[..., None] > 0, mixed, 0.0)
    return out, lse
