"""The kernels of the encoder: each works on what one task sees, whatever the sizes of the batch.

Rows are tokens. Every row is computed in the same order wherever it lies in a tile and however many rows are
valid, so that a sentence has the same bits alone and in any batch.
"""

# Annotations depend on how weights are kept, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from math import sqrt
from typing import Any

from examples.llm.kernels import Activations, product_with
from examples.llm.storage import Storage
from pto_wsp import DYN, In, InOut, Out, Tensor, Tile, bf16, f32, i8, i32, kernel, panel_cols, pto

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


class Weighting:
    """How the weights of linear layers are kept, and how products take the rows that meet them.

    Attributes:
        kind: of the storage of weights.
        activations: of rows.
        projected: storage of the queries, keys and values of all heads, a panel or three per head.
        out: storage of the output layer of attention.
        up: storage of the first inner layer.
        down: storage of the second inner layer.
    """

    def __init__(self, kind: str, activations: Activations) -> None:
        self.kind, self.activations = kind, activations
        self.projected = Storage(kind, HIDDEN, HEADS * QKV, QKV_PANEL)
        self.out, self.down = (Storage(kind, k, HIDDEN, PANEL) for k in (HIDDEN, INNER))
        self.up = Storage(kind, HIDDEN, INNER, PANEL)


WEIGHTINGS = {
    "f32": Weighting("f32", Activations(f32)),
    "bf16": Weighting("bf16", Activations(bf16)),
    "i8": Weighting("q8_0", Activations(i8)),
}
"""By the option's name. Rows are of the type of the weights; i8 has a scale per 32 elements of both."""


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


def project_kernel(weighting: Weighting) -> Any:
    """Return the kernel of queries, keys and values of some heads: qkv[i] = h @ weight[i] + bias[i]."""
    product, taken = product_with(weighting.projected), weighting.activations.taken
    _, DEPTH, ROW = weighting.projected.dims

    @kernel
    def project(
        h: In[Tile[ROWS, HIDDEN, f32]],
        weight: In[Tensor[weighting.projected.dtype, DYN, QKV_PANELS, DEPTH, ROW]],
        bias: In[Tensor[f32, DYN, 1, QKV]],
        qkv: Out[Tensor[f32, DYN, DYN, QKV]],
    ):
        x = taken(h)
        for i in range(qkv.shape[0]):
            for part in range(QKV_PANELS):
                c = part * QKV_PANEL
                total = product(pto.zeros((h.rows, QKV_PANEL)), x, weight[i, part])
                pto.store(qkv[i, :, c : c + QKV_PANEL], total + bias[i, :, c : c + QKV_PANEL])

    return project


def attend_kernel(weighting: Weighting) -> Any:
    """Return the kernel of one head of one sentence: out = softmax(q @ k.T / sqrt(HEAD)) @ v."""
    activations, taken = weighting.activations, weighting.activations.taken

    @kernel
    def attend(
        qkv: In[Tile[MAX_TOKENS, QKV, f32]],
        out: Out[Tile[MAX_TOKENS, activations.cols(HEAD), activations.dtype]],
    ):
        k, v = pto.transpose(qkv[:, HEAD : 2 * HEAD]), pto.load(qkv[:, 2 * HEAD : QKV])
        for r in pto.tiles(qkv.rows, QUERIES):
            s = pto.matmul(qkv[r, 0:HEAD], k) * (1 / sqrt(HEAD))
            p = pto.exp(s - pto.rowmax(s))
            pto.store(out[r], taken(pto.matmul(p, v) / pto.rowsum(p)))

    return attend


def add_kernel(weighting: Weighting, storage: Storage) -> Any:
    """Return the kernel that adds some panels of a linear layer: h = h + bias + x @ weight."""
    product, activations = product_with(storage), weighting.activations

    @kernel
    def add(
        x: In[Tile[ROWS, activations.cols(storage.k), activations.dtype]],
        weight: In[storage.view(DYN)],
        bias: In[Tile[1, HIDDEN, f32]],
        h: InOut[Tile[ROWS, HIDDEN, f32]],
    ):
        for i in range(weight.shape[0]):
            c = i * PANEL
            total = h[:, c : c + PANEL] + bias[:, c : c + PANEL]
            pto.store(h[:, c : c + PANEL], product(total, x, weight[i]))

    return add


@kernel
def normalise(norm: In[Tile[2, HIDDEN, f32]], h: InOut[Tile[ROWS, HIDDEN, f32]]):
    """Replace h by layer_norm(h)."""
    x = h - pto.rowsum(h) * (1 / HIDDEN)
    x = x * pto.rsqrt(pto.rowsum(x * x) * (1 / HIDDEN) + EPSILON)
    pto.store(h, x * norm[0:1] + norm[1:2])


def up_kernel(weighting: Weighting) -> Any:
    """Return the kernel of some panels of the first inner layer: inner = gelu(h @ weight + bias)."""
    product, activations = product_with(weighting.up), weighting.activations
    taken, TAKEN_COLS = activations.taken, activations.cols(PANEL)

    @kernel
    def up(
        h: In[Tile[ROWS, HIDDEN, f32]],
        weight: In[weighting.up.view(DYN)],
        bias: In[Tile[1, INNER, f32]],
        inner: Out[Tile[ROWS, activations.cols(INNER), activations.dtype]],
    ):
        x = taken(h)
        for i in range(weight.shape[0]):
            c, t = i * PANEL, i * TAKEN_COLS
            y = product(pto.zeros((h.rows, PANEL)), x, weight[i]) + bias[:, c : c + PANEL]
            gelu = y * 0.5 * (pto.erf(y * sqrt(0.5)) + 1.0)
            pto.store(inner[:, t : t + TAKEN_COLS], taken(gelu))

    return up


@kernel
def pool(h: In[Tile[MAX_TOKENS, HIDDEN, f32]], out: Out[Tile[1, HIDDEN, f32]]):
    """The mean over a sentence's tokens, scaled to length 1."""
    mean = pto.colsum(h) / float(h.rows)
    pto.store(out, mean / pto.maximum(pto.sqrt(pto.rowsum(mean * mean)), 1e-12))
