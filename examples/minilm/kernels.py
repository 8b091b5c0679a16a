"""The kernels of the encoder: each works on what one task sees, whatever the sizes of the batch.

Rows are tokens. Every row is computed in the same order wherever it lies in a tile and however many rows are
valid, so that a sentence has the same bits alone and in any batch.
"""

from __future__ import annotations

from math import sqrt

from pto_wsp import DYN, In, InOut, Out, Tensor, Tile, f32, i32, kernel, panel_cols, pto

HIDDEN = 384
HEADS = 12
HEAD = HIDDEN // HEADS
INNER = 1536
LAYERS = 6
VOCABULARY = 30522
PLACES = 512
MAX_TOKENS = 256
EPSILON = 1e-12

QKV = 3 * HEAD
"""Columns of one head's query, key and value side by side."""

PANEL = panel_cols()
PANELS, INNER_PANELS = HIDDEN // PANEL, INNER // PANEL
"""Columns of a weight that lie together, so that a product reads them where they are, and how many panels
of them there are."""

ROWS = 4096 // PANEL
"""Packed tokens per task of the linear layers. `inner` of 64 of them stays in a second cache of 1 MB with a
panel of 64 columns; narrow panels gain more from more rows that read each."""

QKV_PANEL = HEAD if PANEL == HEAD else QKV
QKV_PANELS = QKV // QKV_PANEL
"""The same of what makes a head's query, key and value."""

QUERIES = 64
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
    weight: In[Tensor[f32, HEADS, QKV_PANELS, HIDDEN, QKV_PANEL]],
    bias: In[Tensor[f32, HEADS, 1, QKV]],
    qkv: Out[Tensor[f32, HEADS, DYN, QKV]],
):
    """Queries, keys and values of all heads: qkv[i] = h @ weight[i] + bias[i], panel by panel."""
    for i in range(HEADS):
        for part in range(QKV_PANELS):
            c = part * QKV_PANEL
            total = pto.matmul(h, weight[i, part]) + bias[i, :, c : c + QKV_PANEL]
            pto.store(qkv[i, :, c : c + QKV_PANEL], total)


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
    out_weight: In[Tensor[f32, PANELS, HIDDEN, PANEL]],
    up_weight: In[Tensor[f32, INNER_PANELS, HIDDEN, PANEL]],
    up_bias: In[Tile[1, INNER, f32]],
    down_weight: In[Tensor[f32, PANELS, INNER, PANEL]],
    rest: In[Tensor[f32, 6, HIDDEN]],
    inner: InOut[Tile[ROWS, INNER, f32]],
    h: InOut[Tile[ROWS, HIDDEN, f32]],
):
    """What follows attention: h = layer_norm(h + out(attended)), then h = layer_norm(h + down(gelu(up(h)))).

    `rest`: bias of `out`, gain and shift of the first norm; bias of `down`, gain and shift of the second.
    `inner` holds gelu(up(h)) meanwhile.
    """
    for i in range(PANELS):
        c = i * PANEL
        total = h[:, c : c + PANEL] + rest[0:1, c : c + PANEL]
        pto.store(h[:, c : c + PANEL], pto.matmul(attended, out_weight[i], acc=total))
    x = h - pto.rowsum(h) * (1 / HIDDEN)
    x = x * pto.rsqrt(pto.rowsum(x * x) * (1 / HIDDEN) + EPSILON)
    pto.store(h, x * rest[1:2] + rest[2:3])
    for i in range(INNER_PANELS):
        c = i * PANEL
        up = pto.matmul(h, up_weight[i]) + up_bias[:, c : c + PANEL]
        pto.store(inner[:, c : c + PANEL], up * 0.5 * (pto.erf(up * sqrt(0.5)) + 1.0))
    for i in range(PANELS):
        c = i * PANEL
        total = h[:, c : c + PANEL] + rest[3:4, c : c + PANEL]
        pto.store(h[:, c : c + PANEL], pto.matmul(inner, down_weight[i], acc=total))
    y = h - pto.rowsum(h) * (1 / HIDDEN)
    y = y * pto.rsqrt(pto.rowsum(y * y) * (1 / HIDDEN) + EPSILON)
    pto.store(h, y * rest[4:5] + rest[5:6])


@kernel
def pool(h: In[Tile[MAX_TOKENS, HIDDEN, f32]], out: Out[Tile[1, HIDDEN, f32]]):
    """The mean over a sentence's tokens, scaled to length 1."""
    mean = pto.colsum(h) / float(h.rows)
    pto.store(out, mean / pto.maximum(pto.sqrt(pto.rowsum(mean * mean)), 1e-12))
