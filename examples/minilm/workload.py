"""The encoder as one workload: tokens of all sentences back to back, nothing padded."""

from __future__ import annotations

from examples.minilm.kernels import (
    BLOCK,
    BLOCKS,
    HEAD,
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    PLACES,
    QKV,
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
    ProjectWeight: Tensor[f32, LAYERS, HIDDEN, HEADS * QKV, MemLayout.panels(QKV)],
    ProjectBias: Tensor[f32, LAYERS, HEADS, 1, QKV],
    OutWeight: Tensor[f32, LAYERS, HIDDEN, HIDDEN],
    UpWeight: Tensor[f32, LAYERS, HIDDEN, INNER, MemLayout.panels(BLOCK)],
    UpBias: Tensor[f32, LAYERS, BLOCKS, 1, BLOCK],
    DownWeight: Tensor[f32, LAYERS, BLOCKS, BLOCK, HIDDEN],
    Rest: Tensor[f32, LAYERS, 6, HIDDEN],
    Hidden: Tensor[f32, "tokens", HIDDEN],
    Qkv: Tensor[f32, HEADS, "tokens", QKV],
    Attended: Tensor[f32, "tokens", HIDDEN],
    Embeddings: Tensor[f32, "batch", 1, HIDDEN],
):
    """Linear layers run on tiles of packed rows, attention on every sentence and head.

    `Hidden`, `Qkv` and `Attended` are intermediate; `Embeddings` is the result.
    """
    for r in P.tiles("tokens", ROWS):
        embed[r](
            ids=Ids[r], places=Positions[r], word_table=Words, place_table=Places, norm=Norm, h=Hidden[r]
        )
    for layer in P.range(LAYERS):
        for r in P.tiles("tokens", ROWS):
            project[layer, r](
                h=Hidden[r], weight=ProjectWeight[layer].panels, bias=ProjectBias[layer], qkv=Qkv[:, r]
            )
        for b, head in P("batch", Dense[HEADS]):
            column = HEAD * head
            attend[layer, b, head](
                qkv=Qkv[head, sentence[b]], out=Attended[sentence[b], column : column + HEAD]
            )
        for r in P.tiles("tokens", ROWS):
            finish[layer, r](
                attended=Attended[r],
                out_weight=OutWeight[layer],
                up_weight=UpWeight[layer].panels,
                up_bias=UpBias[layer],
                down_weight=DownWeight[layer],
                rest=Rest[layer],
                h=Hidden[r],
            )
    for b in P("batch"):
        pool[b](h=Hidden[sentence[b]], out=Embeddings[b])
