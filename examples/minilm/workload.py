"""The encoder as one workload: tokens of all sentences back to back, nothing padded."""

from __future__ import annotations

from examples.minilm.kernels import (
    HEAD,
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    PANEL,
    PLACES,
    QKV,
    QKV_PANEL,
    QKV_PANELS,
    ROWS,
    VOCABULARY,
    attend,
    embed,
    finish,
    pool,
    project,
)
from pto_wsp import Dense, MemLayout, P, Ragged, Tensor, f32, i32, workload


@workload
def encode(
    sentence: Ragged["batch"],
    Ids: Tensor[i32, "tokens"],
    Positions: Tensor[i32, "tokens"],
    Words: Tensor[f32, VOCABULARY, HIDDEN],
    Places: Tensor[f32, PLACES, HIDDEN],
    Norm: Tensor[f32, 2, HIDDEN],
    ProjectWeight: Tensor[f32, LAYERS, HEADS, QKV_PANELS, HIDDEN, QKV_PANEL],
    ProjectBias: Tensor[f32, LAYERS, HEADS, 1, QKV],
    OutWeight: Tensor[f32, LAYERS, HIDDEN, HIDDEN, MemLayout.panels(PANEL)],
    UpWeight: Tensor[f32, LAYERS, HIDDEN, INNER, MemLayout.panels(PANEL)],
    UpBias: Tensor[f32, LAYERS, 1, INNER],
    DownWeight: Tensor[f32, LAYERS, INNER, HIDDEN, MemLayout.panels(PANEL)],
    Rest: Tensor[f32, LAYERS, 6, HIDDEN],
    Hidden: Tensor[f32, "tokens", HIDDEN],
    Qkv: Tensor[f32, HEADS, "tokens", QKV],
    Attended: Tensor[f32, "tokens", HIDDEN],
    Inner: Tensor[f32, "tokens", INNER],
    Embeddings: Tensor[f32, "batch", 1, HIDDEN],
):
    """Linear layers run on tiles of packed rows, attention on every sentence and head.

    `Hidden`, `Qkv`, `Attended` and `Inner` are intermediate; `Embeddings` is the result.
    """
    for r in P.tiles("tokens", ROWS):
        embed[r](
            ids=Ids[r], places=Positions[r], word_table=Words, place_table=Places, norm=Norm, h=Hidden[r]
        )
    for layer in P.range(LAYERS):
        for r in P.tiles("tokens", ROWS):
            project[layer, r](
                h=Hidden[r], weight=ProjectWeight[layer], bias=ProjectBias[layer], qkv=Qkv[:, r]
            )
        for b, head in P("batch", Dense[HEADS]):
            column = HEAD * head
            attend[layer, b, head](
                qkv=Qkv[head, sentence[b]], out=Attended[sentence[b], column : column + HEAD]
            )
        for r in P.tiles("tokens", ROWS):
            finish[layer, r](
                attended=Attended[r],
                out_weight=OutWeight[layer].panels,
                up_weight=UpWeight[layer].panels,
                up_bias=UpBias[layer],
                down_weight=DownWeight[layer].panels,
                rest=Rest[layer],
                inner=Inner[r],
                h=Hidden[r],
            )
    for b in P("batch"):
        pool[b](h=Hidden[sentence[b]], out=Embeddings[b])
