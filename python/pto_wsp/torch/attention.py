"""The operator `pto_wsp::masked_attention`: padded batches, computed without their padding."""

# pyright: reportMissingImports=false

from __future__ import annotations

from threading import local
from typing import Any, NoReturn

import numpy as np
import torch

from pto_wsp.errors import BadMask, NoGradient
from pto_wsp.ops.attention import BatchDecode, BatchPrefill
from pto_wsp.support.record import record
from pto_wsp.types import bf16, f16, f32

NAME = "pto_wsp::masked_attention"
DTYPES = {torch.float32: f32, torch.float16: f16, torch.bfloat16: bf16}

CAUSAL, FULL, SLIDING = (0, 1), (0, 0), (1, 1)
"""How the first and the end of a query's keys move from one query to the next."""

_objects = local()
"""Of each thread: its attention objects by their parameters. A plan belongs to one object."""


@record
class Stretches:
    """Queries in a row whose keys move in one way.

    Attributes:
        rows: [n] the first query of each, counted over the batch.
        counts: [n] their queries.
        first: [n] the first key of each, counted over the batch.
        ends: [n] the end of the keys of its last query.
        moves: [n, 2] CAUSAL, FULL or SLIDING.
    """

    rows: np.ndarray
    counts: np.ndarray
    first: np.ndarray
    ends: np.ndarray
    moves: np.ndarray


def intervals(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first key and the end of the keys of each query: two arrays [batch, queries].

    Args:
        mask: [batch, queries, keys] bool; True: the query attends to the key.

    Raises:
        BadMask: the keys of a query are not neighbours.
    """
    counts = np.count_nonzero(mask, axis=-1)
    first = np.where(counts, mask.argmax(-1), 0)
    last = np.where(counts, mask.shape[-1] - mask[..., ::-1].argmax(-1), 0)
    wrong = np.argwhere(last - first != counts)
    if wrong.size:
        b, i = map(int, wrong[0])
        found = f"{counts[b, i]} keys between {first[b, i]} and {last[b, i]}"
        raise BadMask(
            reason=f"expected neighbouring keys for each query, found {found} for query {i} of row {b}"
        )
    return first, last


def stretches(first: np.ndarray, ends: np.ndarray, keys: int) -> Stretches:
    """Return the queries that have keys, as stretches; `keys` is the number of keys of a row of the batch."""
    batch, queries = first.shape
    flat = np.arange(batch * queries)
    has_keys = (ends > first).ravel()
    offsets = np.repeat(np.arange(batch) * keys, queries)
    low, high = first.ravel() + offsets, ends.ravel() + offsets
    steps = np.stack([np.diff(low), np.diff(high)], axis=1)
    is_known = np.logical_or.reduce([(steps == move).all(1) for move in (CAUSAL, FULL, SLIDING)])
    joined = is_known & has_keys[1:] & has_keys[:-1] & (flat[1:] % queries != 0)
    joined[1:] &= ~joined[:-1] | (steps[1:] == steps[:-1]).all(1)
    starts = flat[np.concatenate([[True], ~joined]) & has_keys]
    is_last = np.concatenate([~joined, [True]]) & has_keys
    lasts = flat[is_last]
    counts = lasts - starts + 1
    moves = np.where(
        (counts > 1)[:, None], steps[np.minimum(starts, len(steps) - 1)] if len(steps) else 0, FULL
    )
    return Stretches(starts, counts, low[starts], high[lasts], moves)


def _masked_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float, soft_cap: float
) -> torch.Tensor:
    """Attend to the keys that a mask allows; queries and keys that it excludes cost nothing.

    Args:
        q: [batch, heads, queries, dim] of f32, f16 or bf16.
        k: [batch, kv_heads, keys, dim] of the same type; heads are a multiple of kv_heads.
        v: as `k`.
        mask: [batch, 1, queries, keys] bool. The keys of a query are neighbours: causal, windowed, padded,
            packed and bidirectional masks are.
        scale: factor of the scores.
        soft_cap: c of c * tanh(score / c); 0: none.

    Returns:
        [batch, queries, heads, dim] of the type of `q`. A query without keys has 0.

    Raises:
        BadMask: the mask is not such a mask.
        BadPlanConfig: `pto_wsp.ops.attention` refuses sizes or factors.
    """
    if mask.dtype != torch.bool or mask.shape != (q.shape[0], 1, q.shape[2], k.shape[2]):
        expected = f"a bool tensor [{q.shape[0]}, 1, {q.shape[2]}, {k.shape[2]}]"
        raise BadMask(reason=f"expected {expected}, found {mask.dtype} {list(mask.shape)}")
    batch, heads, queries, dim = q.shape
    parts = stretches(*intervals(mask[:, 0].numpy()), k.shape[2])
    flat_q = q.detach().transpose(1, 2).reshape(batch * queries, heads, dim)
    flat_k, flat_v = (x.detach().transpose(1, 2).reshape(batch * x.shape[2], x.shape[1], dim) for x in (k, v))
    out = torch.zeros(flat_q.shape, dtype=q.dtype)
    widths = np.where((parts.moves == SLIDING).all(1), parts.ends - parts.first - parts.counts, -1)
    kinds = np.where((parts.moves == FULL).all(1), -2, widths)
    for kind in np.unique(kinds):
        chosen = kinds == kind
        part = Stretches(*(array[chosen] for array in _arrays(parts)))
        _attend(part, int(kind), (flat_q, flat_k, flat_v), out, scale, soft_cap)
    return out.reshape(batch, queries, heads, dim)


def _arrays(parts: Stretches) -> tuple[np.ndarray, ...]:
    return parts.rows, parts.counts, parts.first, parts.ends, parts.moves


def _attend(
    parts: Stretches,
    kind: int,
    arrays: tuple[torch.Tensor, ...],
    out: torch.Tensor,
    scale: float,
    soft_cap: float,
) -> None:
    """Compute the stretches of one kind: -2 FULL, -1 CAUSAL, else SLIDING with this window to the left."""
    q, k, v = arrays
    q_rows, q_offsets = _rows(parts.rows, parts.counts)
    kv_rows, kv_offsets = _rows(parts.first, parts.ends - parts.first)
    window = max(kind, -1)
    form = (q.shape[1], k.shape[1], q.shape[2], DTYPES.get(q.dtype, f32), scale, soft_cap, window)
    chosen_q = q if len(q_rows) == len(q) else q[torch.from_numpy(q_rows)]
    every_k = len(kv_rows) == len(k) and (kv_rows == np.arange(len(k))).all()
    cache = (k, v) if every_k else tuple(x[torch.from_numpy(kv_rows)] for x in (k, v))
    attention = _object(form, is_causal=kind != -2, is_single=bool((parts.counts == 1).all()))
    if isinstance(attention, BatchDecode):
        attention.plan(kv_offsets)
    else:
        attention.plan(q_offsets, kv_offsets)
    if chosen_q is q:
        attention.run(q, cache, out=out)
    else:
        out[torch.from_numpy(q_rows)] = attention.run(chosen_q, cache)


def _rows(first: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all ranges, one after the other, and where each range begins among them."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return np.repeat(first - offsets[:-1], counts) + np.arange(offsets[-1]), offsets


def _object(form: tuple, is_causal: bool, is_single: bool) -> BatchDecode | BatchPrefill:
    """Return this thread's attention object of a form."""
    key = (*form, is_causal, is_single)
    known = _objects.__dict__
    if key not in known.setdefault("by_form", {}):
        heads, kv_heads, dim, dtype, scale, soft_cap, window = form
        options = {
            "page_size": None,
            "q_dtype": dtype,
            "kv_dtype": dtype,
            "sm_scale": scale,
            "logits_soft_cap": soft_cap,
        }
        if is_single:
            made = BatchDecode(heads, kv_heads, dim, **options)
        else:
            made = BatchPrefill(heads, kv_heads, dim, causal=is_causal, window_left=window, **options)
        known["by_form"][key] = made
    return known["by_form"][key]


def _shape(q: torch.Tensor, *_: object) -> torch.Tensor:
    batch, heads, queries, dim = q.shape
    return q.new_empty(batch, queries, heads, dim)


def _refuse_gradient(*_: object) -> NoReturn:
    raise NoGradient(op=NAME)


masked_attention: Any = torch.library.custom_op(NAME, mutates_args=())(_masked_attention)
masked_attention.register_fake(_shape)
masked_attention.register_autograd(_refuse_gradient)
