"""The formulas in numpy, in f64, stage by stage. Nothing here is shared with the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np

from examples.deepseek_v32.config import BLOCK, E4M3_MAX, EPSILON, LEAST_AMAX, Config, frequencies, hadamard


class Weights(NamedTuple):
    """The parameters as a model's file has them: matrices [out, in], gains and biases [n].

    Attributes:
        wq_a: to the compressed query.
        q_gain: of the norm of the compressed query.
        wq_b: to the heads; each has `nope` elements, then `rope`.
        wkv_a: to the latent vector and the part with position.
        kv_gain: of the norm of the latent vector.
        wkv_b: of each head `nope` rows for keys, then `value` for values.
        wo: of the output.
        index_wq_b: from the compressed query to the indexer's heads; each has `rope` elements first.
        index_wk: to the indexer's key.
        index_gain: of the layer norm of the indexer's key.
        index_bias: of the same.
        index_w: to the weights of the indexer's heads.
    """

    wq_a: np.ndarray
    q_gain: np.ndarray
    wq_b: np.ndarray
    wkv_a: np.ndarray
    kv_gain: np.ndarray
    wkv_b: np.ndarray
    wo: np.ndarray
    index_wq_b: np.ndarray
    index_wk: np.ndarray
    index_gain: np.ndarray
    index_bias: np.ndarray
    index_w: np.ndarray


def random_weights(rng: np.random.Generator, config: Config) -> Weights:
    """Return f32 parameters that keep values of order 1."""

    def matrix(out: int, inner: int) -> np.ndarray:
        return rng.standard_normal((out, inner), np.float32) * np.float32(inner**-0.5)

    def gain(size: int) -> np.ndarray:
        return 1 + rng.standard_normal(size, np.float32) / 8

    c = config
    return Weights(
        wq_a=matrix(c.q_rank, c.hidden),
        q_gain=gain(c.q_rank),
        wq_b=matrix(c.heads * (c.nope + c.rope), c.q_rank),
        wkv_a=matrix(c.key, c.hidden),
        kv_gain=gain(c.kv_rank),
        wkv_b=matrix(c.heads * (c.nope + c.value), c.kv_rank),
        wo=matrix(c.hidden, c.heads * c.value),
        index_wq_b=matrix(c.index_heads * c.index_dim, c.q_rank),
        index_wk=matrix(c.index_dim, c.hidden),
        index_gain=gain(c.index_dim),
        index_bias=rng.standard_normal(c.index_dim, np.float32) / 8,
        index_w=matrix(c.index_heads, c.hidden),
    )


def rms_norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Divide rows by their root mean square."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * gain


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Centre rows and divide them by their standard deviation."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON) * gain + bias


def rope_interleaved(x: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Turn the pairs (2i, 2i + 1) of the last axis by angles [..., pairs]."""
    left, right = x[..., 0::2], x[..., 1::2]
    turned = left * np.cos(turns) - right * np.sin(turns), right * np.cos(turns) + left * np.sin(turns)
    return np.stack(turned, -1).reshape(x.shape)


def rope_halves(x: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Turn the pairs (i, i + pairs) of the last axis by angles [..., pairs]."""
    left, right = np.split(x, 2, axis=-1)
    turned = left * np.cos(turns) - right * np.sin(turns), right * np.cos(turns) + left * np.sin(turns)
    return np.concatenate(turned, -1)


Rope = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Turns the pairs of the last axis by angles."""


def quantise(x: np.ndarray) -> np.ndarray:
    """Round blocks of 128 to 8-bit floats with a scale that is a power of 2, and back."""
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    amax = np.maximum(np.abs(blocks).max(-1, keepdims=True), LEAST_AMAX)
    scale = 2.0 ** np.ceil(np.log2(amax / E4M3_MAX))
    rounded = np.clip(blocks / scale, -E4M3_MAX, E4M3_MAX).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    return (rounded.astype(np.float64) * scale).reshape(x.shape)


class Prolog(NamedTuple):
    """What `mla_prolog` gives for tokens [T].

    Attributes:
        qr: compressed query [T, q_rank].
        q: of each head the query without position, then with it [T, heads, nope + rope].
        c: latent vector before the quantiser [T, kv_rank].
        k_pe: part of the key with position [T, rope].
    """

    qr: np.ndarray
    q: np.ndarray
    c: np.ndarray
    k_pe: np.ndarray


def mla_prolog(
    config: Config, w: Weights, x: np.ndarray, positions: np.ndarray, rope: Rope = rope_interleaved
) -> Prolog:
    """Compute queries and the new rows of the cache from tokens x [T, hidden]."""
    turns = positions[:, None] * frequencies(config)
    qr = rms_norm(x @ w.wq_a.T, w.q_gain)
    q = (qr @ w.wq_b.T).reshape(len(x), config.heads, -1)
    q_pe = rope(q[..., config.nope :], turns[:, None])
    kv = x @ w.wkv_a.T
    c = rms_norm(kv[:, : config.kv_rank], w.kv_gain)
    k_pe = rope(kv[:, config.kv_rank :], turns)
    return Prolog(qr, np.concatenate([q[..., : config.nope], q_pe], -1), c, k_pe)


class IndexProlog(NamedTuple):
    """What `index_prolog` gives for tokens [T], before the quantiser.

    Attributes:
        q: queries of the indexer [T, index_heads, 128].
        k: keys [T, 128].
        weights: of the heads [T, index_heads].
    """

    q: np.ndarray
    k: np.ndarray
    weights: np.ndarray


def index_prolog(
    config: Config, w: Weights, x: np.ndarray, qr: np.ndarray, positions: np.ndarray, rope: Rope = rope_halves
) -> IndexProlog:
    """Compute the indexer's queries, keys and weights from tokens and their compressed queries."""
    turns = positions[:, None] * frequencies(config)
    transform, size = hadamard(config.index_dim), config.rope

    def placed(y: np.ndarray, turns: np.ndarray) -> np.ndarray:
        return np.concatenate([rope(y[..., :size], turns), y[..., size:]], -1) @ transform

    q = placed((qr @ w.index_wq_b.T).reshape(len(x), config.index_heads, -1), turns[:, None])
    k = placed(layer_norm(x @ w.index_wk.T, w.index_gain, w.index_bias), turns)
    return IndexProlog(q, k, x @ w.index_w.T * config.index_scale)


def index_scores(q: np.ndarray, weights: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the scores [keys] of one token: q [index_heads, 128], weights [index_heads], k [keys, 128]."""
    return weights @ np.maximum(q @ k.T, 0)


def attend(config: Config, q: np.ndarray, c: np.ndarray, k_pe: np.ndarray, wkv_b: np.ndarray) -> np.ndarray:
    """Return the heads [heads, value] of one token that attends to keys, by the form of prefill.

    Args:
        config: sizes.
        q: [heads, nope + rope].
        c: latent vectors of the keys [keys, kv_rank].
        k_pe: their parts with position [keys, rope].
        wkv_b: as in `Weights`.
    """
    expanded = (c @ wkv_b.T).reshape(len(c), config.heads, -1)
    k_nope, v = expanded[..., : config.nope], expanded[..., config.nope :]
    scores = np.einsum("hd,shd->hs", q[:, : config.nope], k_nope) + q[:, config.nope :] @ k_pe.T
    weights = np.exp((scores - scores.max(-1, keepdims=True)) * config.softmax_scale)
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hs,shd->hd", weights, v)


def dense_layer(config: Config, w: Weights, x: np.ndarray) -> np.ndarray:
    """Return the output [T, hidden] of one whole request whose tokens attend to all before them."""
    made = mla_prolog(config, w, x, np.arange(len(x)))
    heads = [attend(config, made.q[t], made.c[: t + 1], made.k_pe[: t + 1], w.wkv_b) for t in range(len(x))]
    return np.reshape(heads, (len(x), -1)) @ w.wo.T
