"""The encoder as one workload: tokens of all sentences back to back, nothing padded."""

# Annotations depend on how weights are kept, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from collections.abc import Callable
from functools import cache
from typing import Any

from examples.minilm import kernels
from examples.minilm.kernels import (
    HEAD,
    HEADS,
    HIDDEN,
    INNER,
    INNER_PANELS,
    LAYERS,
    PANELS,
    PLACES,
    QKV,
    QKV_PANELS,
    ROWS,
    VOCABULARY,
    WEIGHTINGS,
    Weighting,
)
from pto_wsp import Dense, P, Ragged, Tensor, f32, i32, workload

PARTS = 2
"""Tasks per tile of rows and linear layer: short batches, too, have work for two workers."""


def part(cols: int, number: Any) -> slice:
    """Return the elements of a part."""
    return slice(cols // PARTS * number, cols // PARTS * number + cols // PARTS)


def finishing(weighting: Weighting, rest: Tensor) -> Callable[..., None]:
    """Return what traces the part of a layer after attention, for one tile of rows.

    h = layer_norm(h + out(attended)), then h = layer_norm(h + down(gelu(up(h)))).
    """
    cols = weighting.activations.cols
    add_out, add_down = (kernels.add_kernel(weighting, s) for s in (weighting.out, weighting.down))
    up = kernels.up_kernel(weighting)
    up_bias = Tensor(shape=(LAYERS, 1, INNER), dtype=f32, name="UpBias")

    def finish(layer: Any, r: Any, out: Any, up_weight: Any, down: Any, x: Any, inner: Any, h: Any) -> None:
        norms = rest[layer]
        for i in P(Dense[PARTS]):
            columns, panels = part(HIDDEN, i), part(PANELS, i)
            add_out[layer, r, i](x=x, weight=out[panels], bias=norms[0:1, columns], h=h[:, columns])
        kernels.normalise[layer, r, 0](norm=norms[1:3], h=h)
        for i in P(Dense[PARTS]):
            panels, bias = part(INNER_PANELS, i), up_bias[layer, :, part(INNER, i)]
            up[layer, r, i](h=h, weight=up_weight[panels], bias=bias, inner=inner[:, part(cols(INNER), i)])
        for i in P(Dense[PARTS]):
            columns, panels = part(HIDDEN, i), part(PANELS, i)
            add_down[layer, r, i](x=inner, weight=down[panels], bias=norms[3:4, columns], h=h[:, columns])
        kernels.normalise[layer, r, 1](norm=norms[4:6], h=h)

    return finish


@cache
def encoder(weights: str) -> Any:
    """Return the workload for weights of a name of `WEIGHTINGS`.

    Linear layers run on tiles of packed rows, in parts of their columns; attention runs on every sentence and
    head. `Hidden`, `Qkv`, `Attended` and `Inner` are intermediate; `Embeddings` is the result.
    """
    weighting = WEIGHTINGS[weights]
    projected, out, up, down = weighting.projected, weighting.out, weighting.up, weighting.down
    TAKEN, cols = weighting.activations.dtype, weighting.activations.cols
    project, attend = kernels.project_kernel(weighting), kernels.attend_kernel(weighting)
    finish = finishing(weighting, Tensor(shape=(LAYERS, 6, HIDDEN), dtype=f32, name="Rest"))

    @workload
    def encode(
        sentence: Ragged["batch"],
        Ids: Tensor[i32, "tokens"],
        Positions: Tensor[i32, "tokens"],
        Words: Tensor[f32, VOCABULARY, HIDDEN],
        Places: Tensor[f32, PLACES, HIDDEN],
        Norm: Tensor[f32, 2, HIDDEN],
        ProjectWeight: Tensor[
            projected.dtype, LAYERS, HEADS, QKV_PANELS, projected.dims[1], projected.dims[2]
        ],
        ProjectBias: Tensor[f32, LAYERS, HEADS, 1, QKV],
        OutWeight: Tensor[out.dtype, LAYERS, out.dims[0], out.dims[1], out.dims[2]],
        UpWeight: Tensor[up.dtype, LAYERS, up.dims[0], up.dims[1], up.dims[2]],
        DownWeight: Tensor[down.dtype, LAYERS, down.dims[0], down.dims[1], down.dims[2]],
        Hidden: Tensor[f32, "tokens", HIDDEN],
        Qkv: Tensor[f32, HEADS, "tokens", QKV],
        Attended: Tensor[TAKEN, "tokens", cols(HIDDEN)],
        Inner: Tensor[TAKEN, "tokens", cols(INNER)],
        Embeddings: Tensor[f32, "batch", 1, HIDDEN],
    ):
        for r in P.tiles("tokens", ROWS):
            kernels.embed[r](
                ids=Ids[r], places=Positions[r], word_table=Words, place_table=Places, norm=Norm, h=Hidden[r]
            )
        for layer in P.range(LAYERS):
            for r in P.tiles("tokens", ROWS):
                for i in P(Dense[PARTS]):
                    heads = part(HEADS, i)
                    weight, bias = ProjectWeight[layer, heads], ProjectBias[layer, heads]
                    project[layer, r, i](h=Hidden[r], weight=weight, bias=bias, qkv=Qkv[heads, r])
            for b, head in P("batch", Dense[HEADS]):
                first = cols(HEAD) * head
                attend[layer, b, head](
                    qkv=Qkv[head, sentence[b]], out=Attended[sentence[b], first : first + cols(HEAD)]
                )
            for r in P.tiles("tokens", ROWS):
                matrices = OutWeight[layer], UpWeight[layer], DownWeight[layer]
                finish(layer, r, *matrices, Attended[r], Inner[r], Hidden[r])
        for b in P("batch"):
            kernels.pool[b](h=Hidden[sentence[b]], out=Embeddings[b])

    return encode
