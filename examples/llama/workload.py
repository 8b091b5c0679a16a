"""The layer as one workload: prefill chunks and decode steps of all requests back to back, nothing padded."""

# Annotations depend on the shape of the layer, and are read by the language.
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false

from collections.abc import Iterator
from typing import Any

from examples.llama.kernels import (
    ALL_F32,
    FEW,
    QUERIES,
    ROWS,
    SLAB,
    Linear,
    Shape,
    Types,
    append_kernel,
    attend_kernel,
    linear_kernels,
)
from pto_wsp import Dense, DenseDyn, MemLayout, P, Ragged, Tensor, f32, i32, workload
from pto_wsp.types.dtype import DType


def decoder_layer(shape: Shape, types: Types = ALL_F32) -> Any:
    """Return the workload of a layer.

    Args:
        shape: its sizes.
        types: element types of weights and activations.

    Raises:
        ValueError: a dim that is not a multiple of 4, or an inner size that is not of half of it.
    """
    HEADS, DIM, HIDDEN, INNER = shape.heads, shape.dim, shape.hidden, shape.inner
    if DIM % 4 or INNER % shape.half:
        raise ValueError(f"dim is a multiple of 4, and inner of half of it; found {shape}")
    weights, activations = types
    few, many = (linear_kernels(shape, types, rows) for rows in (FEW, ROWS))
    project_few, project_many = (
        project_inputs(shape, types, few, FEW),
        project_inputs(shape, types, many, ROWS),
    )
    finish_few, finish_many = finish_layer(shape, types, few, FEW), finish_layer(shape, types, many, ROWS)
    attention = attend_cached(shape, activations)
    matrix = Tensor[weights, HIDDEN, HIDDEN, MemLayout.panels(shape.panel)]
    wide = Tensor[weights, HIDDEN, INNER, MemLayout.panels(shape.panel)]

    @workload
    def layer(
        tokens: DenseDyn,
        request: Ragged["batch"],
        Slot: Tensor[i32, "batch"],
        Past: Tensor[i32, "batch"],
        Cos: Tensor[f32, "tokens", DIM // 2],
        Sin: Tensor[f32, "tokens", DIM // 2],
        Query: matrix,
        Key: matrix,
        Value: matrix,
        Output: matrix,
        Gate: wide,
        Up: wide,
        Down: Tensor[weights, INNER, HIDDEN, MemLayout.panels(shape.panel)],
        Hidden: Tensor[f32, "tokens", HIDDEN],
        K: Tensor[f32, "slots", HEADS, "longest", DIM],
        V: Tensor[f32, "slots", HEADS, "longest", DIM],
        Rounded: Tensor[activations, "rounded", HIDDEN],
        Scale: Tensor[f32, "tokens", 1],
        Qkv: Tensor[f32, 3, HEADS, "tokens", DIM],
        Attended: Tensor[activations, "tokens", HIDDEN],
        Inner: Tensor[activations, "tokens", INNER],
    ):
        """`Hidden` is replaced by the output; the parameters after it, except the cache, are intermediate.

        `Rounded` is `Hidden` in the type of the activations, and has no rows where that is f32.

        Request b has the tokens `request[b]`; `Past[b]` tokens before them are in the cache at `Slot[b]`.
        """
        inputs = (tokens, Cos, Sin, Query, Key, Value, Hidden, Rounded, Scale, Qkv)
        outputs = (tokens, Output, Gate, Up, Down, Hidden, Rounded, Scale, Attended, Inner)
        with P.when(Hidden.shape[0] <= FEW):
            project_few(*inputs)
        with P.otherwise():
            project_many(*inputs)
        attention(request, Slot, Past, Qkv, K, V, Attended)
        with P.when(Hidden.shape[0] <= FEW):
            finish_few(*outputs)
        with P.otherwise():
            finish_many(*outputs)

    return layer


def tasks(tokens: Any, rows: int, parts: int, slab: int) -> Iterator[tuple[Any, Any]]:
    """Yield tiles of tokens and numbers of parts of a matrix: all tokens meet a slab, then the next."""
    for some in P.tiles(parts, slab):
        for r in P.tiles(tokens, rows):
            for i in P(some.extent):
                yield r, some.start + i


def part(shape: Shape, weight: Any, number: Any) -> Any:
    """Return the panels of a matrix that are half a head wide together."""
    return weight.panels[shape.panels * number : shape.panels * number + shape.panels]


def measured(linear: Linear, types: Types, r: Any, hidden: Any, rounded: Any, scale: Any) -> None:
    """Make the factor of the norm of some tokens, and what products take of them."""
    if types.activations is f32:
        linear.measure[r](h=hidden[r], scale=scale[r])
    else:
        linear.measure_rounded[r](h=hidden[r], scale=scale[r], out=rounded[r])


def project_inputs(shape: Shape, types: Types, linear: Linear, rows: int) -> Any:
    """Return the workload that makes queries, keys and values, in tasks of at most `rows` tokens."""
    HEADS, DIM, HIDDEN, HALF = shape.heads, shape.dim, shape.hidden, shape.half
    matrix = Tensor[types.weights, HIDDEN, HIDDEN, MemLayout.panels(shape.panel)]

    @workload
    def project(
        tokens: DenseDyn,
        Cos: Tensor[f32, "tokens", DIM // 2],
        Sin: Tensor[f32, "tokens", DIM // 2],
        Query: matrix,
        Key: matrix,
        Value: matrix,
        Hidden: Tensor[f32, "tokens", HIDDEN],
        Rounded: Tensor[types.activations, "rounded", HIDDEN],
        Scale: Tensor[f32, "tokens", 1],
        Qkv: Tensor[f32, 3, HEADS, "tokens", DIM],
    ):
        for r in P.tiles(tokens, rows):
            measured(linear, types, r, Hidden, Rounded, Scale)
        taken = Hidden if types.activations is f32 else Rounded
        for number, weight in enumerate((Query, Key)):
            for r, head in tasks(tokens, rows, HEADS, SLAB // 2):
                linear.project_turned[r, head](
                    h=taken[r], scale=Scale[r], left=part(shape, weight, 2 * head),
                    right=part(shape, weight, 2 * head + 1), cos=Cos[r], sin=Sin[r],
                    turned_left=Qkv[number, head, r, 0:HALF], turned_right=Qkv[number, head, r, HALF:DIM],
                )  # fmt: skip
        for r, c in tasks(tokens, rows, 2 * HEADS, SLAB):
            half = HALF * (c % 2)
            linear.project[r, c](
                h=taken[r],
                scale=Scale[r],
                weight=part(shape, Value, c),
                out=Qkv[2, c // 2, r, half : half + HALF],
            )

    return project


def attend_cached(shape: Shape, activations: DType) -> Any:
    """Return the workload that appends keys and values to the cache and attends to it, head by head."""
    HEADS, DIM = shape.heads, shape.dim
    append = append_kernel(shape)
    attend_one, attend_many = (attend_kernel(shape, activations, rows) for rows in (1, QUERIES))

    @workload
    def attention(
        request: Ragged["batch"],
        Slot: Tensor[i32, "batch"],
        Past: Tensor[i32, "batch"],
        Qkv: Tensor[f32, 3, HEADS, "tokens", DIM],
        K: Tensor[f32, "slots", HEADS, "longest", DIM],
        V: Tensor[f32, "slots", HEADS, "longest", DIM],
        Attended: Tensor[activations, "tokens", shape.hidden],
    ):
        def attend(kernel: Any, rows: int, b: Any, head: Any) -> None:
            for t in P.tiles(request[b], rows):
                chunk, first = request[b][t], Past[b] + t.start
                seen = slice(0, first + t.extent)
                kernel[b, head, t](
                    q=Qkv[0, head, chunk], k=K[Slot[b], head, seen], v=V[Slot[b], head, seen], position=first,
                    out=Attended[chunk, DIM * head : DIM * head + DIM],
                )  # fmt: skip

        for b, head in P("batch", Dense[HEADS]):
            for t in P.tiles(request[b], ROWS):
                chunk, first = request[b][t], Past[b] + t.start
                place = slice(first, first + t.extent)
                append[b, head, t](
                    new_k=Qkv[1, head, chunk], new_v=Qkv[2, head, chunk],
                    k=K[Slot[b], head, place], v=V[Slot[b], head, place],
                )  # fmt: skip
        for b, head in P("batch", Dense[HEADS]):
            with P.when(request[b].extent == 1):
                attend(attend_one, 1, b, head)
            with P.otherwise():
                attend(attend_many, QUERIES, b, head)

    return attention


def finish_layer(shape: Shape, types: Types, linear: Linear, rows: int) -> Any:
    """Return the workload of what follows attention, in tasks of at most `rows` tokens."""
    HIDDEN, INNER, HALF = shape.hidden, shape.inner, shape.half
    weights, activations = types
    wide = Tensor[weights, HIDDEN, INNER, MemLayout.panels(shape.panel)]

    @workload
    def finish(
        tokens: DenseDyn,
        Output: Tensor[weights, HIDDEN, HIDDEN, MemLayout.panels(shape.panel)],
        Gate: wide,
        Up: wide,
        Down: Tensor[weights, INNER, HIDDEN, MemLayout.panels(shape.panel)],
        Hidden: Tensor[f32, "tokens", HIDDEN],
        Rounded: Tensor[activations, "rounded", HIDDEN],
        Scale: Tensor[f32, "tokens", 1],
        Attended: Tensor[activations, "tokens", HIDDEN],
        Inner: Tensor[activations, "tokens", INNER],
    ):
        for r, c in tasks(tokens, rows, HIDDEN // HALF, SLAB):
            linear.add[r, c](
                x=Attended[r], weight=part(shape, Output, c), h=Hidden[r, HALF * c : HALF * c + HALF]
            )
        for r in P.tiles(tokens, rows):
            measured(linear, types, r, Hidden, Rounded, Scale)
        taken = Hidden if activations is f32 else Rounded
        for r, c in tasks(tokens, rows, INNER // HALF, SLAB // 2):
            linear.gate[r, c](
                h=taken[r], scale=Scale[r], gate=part(shape, Gate, c), up=part(shape, Up, c),
                out=Inner[r, HALF * c : HALF * c + HALF],
            )  # fmt: skip
        for r, c in tasks(tokens, rows, HIDDEN // HALF, SLAB):
            linear.add_inner[r, c](
                x=Inner[r], weight=part(shape, Down, c), h=Hidden[r, HALF * c : HALF * c + HALF]
            )

    return finish
