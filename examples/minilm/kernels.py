"""The kernels of the encoder: each works on what one task sees, whatever the sizes of the batch.

Rows are tokens. Every row is computed in the same order wherever it lies in a tile and however many rows are
valid, so that a sentence has the same bits alone and in any batch.
"""

from __future__ import annotations

from math import sqrt

from pto_wsp import DYN, In, InOut, Out, Tensor, Tile, f32, i32, kernel, pto

HIDDEN = 384
HEADS = 12
HEAD = HIDDEN // HEADS
INNER = 1536
LAYERS = 6
VOCABULARY = 30522
PLACES = 512
MAX_TOKENS = 256
EPSILON = 1e-12

ROWS = 128
"""Packed tokens per task of the linear layers."""

QKV = 3 * HEAD
"""Columns of one head's query, key and value side by side."""

BLOCK = 128
BLOCKS = INNER // BLOCK
"""Columns of the inner layer that are made and used up at a time, and how many such blocks there are."""

QUERIES = 32
"""Queries of a sentence whose scores are held at a time."""


@kernel
def embed(
    ids: In[Tensor[i32, DYN]],
    places: In[Tensor[i32, DYN]],
    word_table: In[Tensor[f32, VOCABULARY, HIDDEN]],
    place_table: In[Tensor[f32, PLACES, HIDDEN]],
    norm: In[Tensor[f32, 2, HIDDEN]],
    h: Out[Tensor[f32, DYN, HIDDEN]],
):
    """h[i] = layer_norm(word_table[ids[i]] + place_table[places[i]])."""
    for i in range(h.rows):
        word, place = ids[i], places[i]
        x = word_table[word : word + 1] + place_table[place : place + 1]
        x = x - pto.rowsum(x) * (1 / HIDDEN)
        x = x * pto.rsqrt(pto.rowsum(x * x) * (1 / HIDDEN) + EPSILON)
        pto.store(h[i : i + 1], x * norm[0:1] + norm[1:2])


@kernel
def project(
    h: In[Tile[ROWS, HIDDEN, f32]],
    weight: In[Tensor[f32, HEADS, HIDDEN, QKV]],
    bias: In[Tensor[f32, HEADS, 1, QKV]],
    qkv: Out[Tensor[f32, HEADS, DYN, QKV]],
):
    """Queries, keys and values of all heads: qkv[i] = h @ weight[i] + bias[i]."""
    for i in range(HEADS):
        pto.store(qkv[i], pto.matmul(h, weight[i]) + bias[i])


@kernel
def attend(qkv: In[Tile[MAX_TOKENS, QKV, f32]], out: Out[Tile[MAX_TOKENS, HEAD, f32]]):
    """One head of one sentence: out = softmax(q @ k.T / sqrt(HEAD)) @ v."""
    k, v = pto.transpose(qkv[:, HEAD : 2 * HEAD]), pto.load(qkv[:, 2 * HEAD : QKV])
    for r in pto.tiles(qkv.rows, QUERIES):
        s = pto.matmul(qkv[r, 0:HEAD], k) * (1 / sqrt(HEAD))
        p = pto.exp(s - pto.rowmax(s))
        pto.store(out[r], pto.matmul(p, v) / pto.rowsum(p))


@kernel
def finish(
    attended: In[Tile[ROWS, HIDDEN, f32]],
    out_weight: In[Tile[HIDDEN, HIDDEN, f32]],
    up_weight: In[Tensor[f32, BLOCKS, HIDDEN, BLOCK]],
    up_bias: In[Tensor[f32, BLOCKS, 1, BLOCK]],
    down_weight: In[Tensor[f32, BLOCKS, BLOCK, HIDDEN]],
    rest: In[Tensor[f32, 6, HIDDEN]],
    h: InOut[Tile[ROWS, HIDDEN, f32]],
):
    """What follows attention: h = layer_norm(h + out(attended)), then h = layer_norm(h + down(gelu(up(h)))).

    `rest`: bias of `out`, gain and shift of the first norm; bias of `down`, gain and shift of the second.
    """
    x = pto.matmul(attended, out_weight, acc=h + rest[0:1])
    x = x - pto.rowsum(x) * (1 / HIDDEN)
    x = x * pto.rsqrt(pto.rowsum(x * x) * (1 / HIDDEN) + EPSILON)
    x = x * rest[1:2] + rest[2:3]
    y = x + rest[3:4]
    for i in range(BLOCKS):
        up = pto.matmul(x, up_weight[i]) + up_bias[i]
        y = pto.matmul(up * 0.5 * (pto.erf(up * sqrt(0.5)) + 1.0), down_weight[i], acc=y)
    y = y - pto.rowsum(y) * (1 / HIDDEN)
    y = y * pto.rsqrt(pto.rowsum(y * y) * (1 / HIDDEN) + EPSILON)
    pto.store(h, y * rest[4:5] + rest[5:6])


@kernel
def pool(h: In[Tile[MAX_TOKENS, HIDDEN, f32]], out: Out[Tile[1, HIDDEN, f32]]):
    """The mean over a sentence's tokens, scaled to length 1."""
    mean = pto.colsum(h) / float(h.rows)
    pto.store(out, mean / pto.maximum(pto.sqrt(pto.rowsum(mean * mean)), 1e-12))
