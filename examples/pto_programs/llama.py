"""A LLaMA layer with flash attention: 25 InCore functions on tiles of 32 rows, and one Orchestration.

It has the tasks of a layer and not all of its mathematics: one head, no causal mask, projections of one tile,
and the rotation of positions is x * cos + x * sin.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from pto_wsp import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule

ROWS, DIM = 32, 128
MAX_TILES = 4096  # 128K positions
MIN_TILES = 256
LARGE_ROWS = 64
EPS = 1e-5

GM, F32, I32 = MemorySpace.GM, ElementType.F32, ElementType.I32

MEMREFS = (
    "input output attn_norm_weights wq wk wv wo cos_cache sin_cache mlp_norm_weights w_gate w_up w_down "
    "all_q_tiles all_k_tiles all_v_tiles all_q_rope all_k_rope all_attn_out all_m_vec all_l_vec all_hidden "
    "temp_norm temp_scores temp_attn_weights temp_scale temp_gate temp_up temp_swiglu temp_mlp_out "
    "const_zeros_large const_zeros_small const_neg_inf"
).split()


def tile_rows(min_range: int) -> dict[int, int]:
    """Return the rows of the tiles of each block of binary expansion; what is left has those of the text."""
    blocks = (1 << bit for bit in reversed(range(MAX_TILES.bit_length())))
    return {block: LARGE_ROWS for block in blocks if block >= min_range} | {0: ROWS}


def llama_module(min_range: int = MIN_TILES) -> PTOModule:
    """Return the layer; its entry is `llama_layer_dynamic`.

    Args:
        min_range: the smallest block of binary expansion, in tiles.
    """
    module = PTOModule("llama7b_flash")
    _elementwise(module)
    _on_rows(module)
    _layer_parts(module)
    _flash(module)
    _layer(module, min_range)
    module.set_entry("llama_layer_dynamic")
    return module


def _in_core(module: PTOModule, name: str, *memrefs: str) -> PTOFunctionBuilder:
    builder = PTOFunctionBuilder(name, module).in_core()
    for memref in memrefs:
        builder.memref(memref, GM, F32)
    return builder


def _loaded(builder: PTOFunctionBuilder, **tiles: tuple[str, int, int]) -> PTOFunctionBuilder:
    """Declare tiles, each with its memref, rows and columns, and load them."""
    for name, (_, rows, cols) in tiles.items():
        builder.tile(name, rows, cols, F32)
    for name, (memref, _, _) in tiles.items():
        builder.load(name, memref)
    return builder


def _unary(module: PTOModule, name: str) -> PTOFunctionBuilder:
    return _loaded(_in_core(module, name, "input", "output"), x=("input", ROWS, DIM))


def _binary(module: PTOModule, name: str, a: str = "input_a", b: str = "input_b") -> PTOFunctionBuilder:
    return _loaded(_in_core(module, name, a, b, "output"), a=(a, ROWS, DIM), b=(b, ROWS, DIM))


def _product(module: PTOModule, name: str, a: str, b: str) -> PTOFunctionBuilder:
    return _loaded(_in_core(module, name, a, b, "output"), a=(a, ROWS, DIM), b=(b, DIM, DIM))


def _silu(builder: PTOFunctionBuilder, x: str) -> PTOFunctionBuilder:
    return (
        builder.neg("negated", x)
        .exp("power", "negated")
        .adds("sum", "power", 1.0)
        .recip("sigmoid", "sum")
        .mul("silu", x, "sigmoid")
    )


def _elementwise(module: PTOModule) -> None:
    _binary(module, "tile_add").add("c", "a", "b").store("c", "output").build()
    _binary(module, "tile_mul").mul("c", "a", "b").store("c", "output").build()
    scaled = _unary(module, "tile_muls").scalar("scale", F32)
    scaled.muls("y", "x", "scale").store("y", "output").build()
    _unary(module, "tile_exp").exp("y", "x").store("y", "output").build()
    _unary(module, "tile_rsqrt").rsqrt("y", "x").store("y", "output").build()
    _silu(_unary(module, "tile_silu"), "x").store("silu", "output").build()
    _product(module, "tile_matmul", "input_a", "input_b").matmul("c", "a", "b").store("c", "output").build()


def _on_rows(module: PTOModule) -> None:
    _unary(module, "tile_rowmax").rowmax("y", "x").store("y", "output").build()
    _unary(module, "tile_rowsum").rowsum("y", "x").store("y", "output").build()
    for op in ("rowexpandsub", "rowexpanddiv", "rowexpandmul"):
        builder = _in_core(module, f"tile_{op}", "input_x", "input_row", "output")
        _loaded(builder, x=("input_x", ROWS, DIM), row=("input_row", ROWS, 1))
        getattr(builder, op)("y", "x", "row").store("y", "output").build()


def _layer_parts(module: PTOModule) -> None:
    norm = _in_core(module, "rmsnorm_tile", "input", "weights", "output")
    _loaded(norm, x=("input", ROWS, DIM), gamma=("weights", ROWS, DIM))
    (
        norm.scalar_li("inv_cols", 1 / DIM)
        .scalar_li("eps", EPS)
        .mul("squares", "x", "x")
        .rowsum("sum", "squares")
        .muls("mean", "sum", "inv_cols")
        .adds("shifted", "mean", "eps")
        .rsqrt("scale", "shifted")
        .rowexpandmul("normed", "x", "scale")
        .mul("y", "normed", "gamma")
        .store("y", "output")
        .build()
    )
    (
        _unary(module, "softmax_tile")
        .rowmax("top", "x")
        .rowexpandsub("shifted", "x", "top")
        .exp("power", "shifted")
        .rowsum("total", "power")
        .rowexpanddiv("y", "power", "total")
        .store("y", "output")
        .build()
    )
    gate = _binary(module, "swiglu_tile", "input_gate", "input_up")
    _silu(gate, "a").mul("y", "silu", "b").store("y", "output").build()
    _product(module, "linear_tile", "input", "weight").matmul("c", "a", "b").store("c", "output").build()
    rope = _in_core(module, "rope_tile", "input", "cos_cache", "sin_cache", "output")
    _loaded(rope, x=("input", ROWS, DIM), cos=("cos_cache", ROWS, DIM), sin=("sin_cache", ROWS, DIM))
    (
        rope.mul("x_cos", "x", "cos")
        .mul("x_sin", "x", "sin")
        .add("y", "x_cos", "x_sin")
        .store("y", "output")
        .build()
    )
    (
        _product(module, "attention_score_tile", "input_q", "input_kt")
        .scalar_li("scale", 1 / sqrt(DIM))
        .matmul("qk", "a", "b")
        .muls("s", "qk", "scale")
        .store("s", "output")
        .build()
    )
    weights = _product(module, "attention_output_tile", "input_weights", "input_v")
    weights.matmul("c", "a", "b").store("c", "output").build()
    _binary(module, "residual_add_tile", "input", "input_residual").add("c", "a", "b").store(
        "c", "output"
    ).build()


def _flash(module: PTOModule) -> None:
    score = _in_core(module, "flash_attn_score_block", "input_q", "input_k", "output_s")
    _loaded(score, q=("input_q", ROWS, DIM), k=("input_k", ROWS, DIM))
    (
        score.scalar_li("scale", 1 / sqrt(DIM))
        .matmul("qk", "q", "k", trans_b=True)
        .muls("s", "qk", "scale")
        .store("s", "output_s")
        .build()
    )
    outputs = ("output_m_new", "output_l_new", "output_p", "output_scale_old")
    update = _in_core(
        module, "flash_attn_softmax_update", "input_s", "input_m_prev", "input_l_prev", *outputs
    )
    _loaded(
        update, s=("input_s", ROWS, ROWS), m_prev=("input_m_prev", ROWS, 1), l_prev=("input_l_prev", ROWS, 1)
    )
    (
        update.rowmax("m_cur", "s")
        .max("m_new", "m_prev", "m_cur")
        .rowexpandsub("below", "s", "m_new")
        .exp("p", "below")
        .sub("change", "m_prev", "m_new")
        .exp("scale", "change")
        .mul("l_old", "scale", "l_prev")
        .rowsum("l_cur", "p")
        .add("l_new", "l_old", "l_cur")
        .store("m_new", "output_m_new")
        .store("l_new", "output_l_new")
        .store("p", "output_p")
        .store("scale", "output_scale_old")
        .build()
    )
    out = _in_core(
        module, "flash_attn_output_update", "input_o_prev", "input_p", "input_v", "input_scale", "output_o"
    )
    _loaded(
        out,
        o=("input_o_prev", ROWS, DIM),
        scale=("input_scale", ROWS, 1),
        p=("input_p", ROWS, ROWS),
        v=("input_v", ROWS, DIM),
    )
    (
        out.rowexpandmul("o_old", "o", "scale")
        .matmul("pv", "p", "v")
        .add("o_new", "o_old", "pv")
        .store("o_new", "output_o")
        .build()
    )
    normalize = _in_core(module, "flash_attn_normalize", "input_o", "input_l", "output")
    _loaded(normalize, o=("input_o", ROWS, DIM), l=("input_l", ROWS, 1))
    normalize.rowexpanddiv("y", "o", "l").store("y", "output").build()
    inputs = ("input_zeros_large", "input_zeros_small", "input_neg_inf")
    state = _in_core(module, "flash_attn_init_state", *inputs, "output_o", "output_l", "output_m")
    _loaded(state, o=(inputs[0], ROWS, DIM), l=(inputs[1], ROWS, 1), m=(inputs[2], ROWS, 1))
    state.store("o", "output_o").store("l", "output_l").store("m", "output_m").build()


BEFORE_ATTENTION = (
    "rmsnorm_tile input[i] attn_norm_weights temp_norm[i]",
    "tile_matmul temp_norm[i] wq all_q_tiles[i]",
    "tile_matmul temp_norm[i] wk all_k_tiles[i]",
    "tile_matmul temp_norm[i] wv all_v_tiles[i]",
    "rope_tile all_q_tiles[i] cos_cache sin_cache all_q_rope[i]",
    "rope_tile all_k_tiles[i] cos_cache sin_cache all_k_rope[i]",
)
INIT = (
    "flash_attn_init_state const_zeros_large const_zeros_small const_neg_inf"
    " all_attn_out[q] all_l_vec[q] all_m_vec[q]",
)
UPDATE = (
    "flash_attn_score_block all_q_rope[q] all_k_rope[k] temp_scores[q]",
    "flash_attn_softmax_update temp_scores[q] all_m_vec[q] all_l_vec[q] all_m_vec[q]"
    " all_l_vec[q] temp_attn_weights[q] temp_scale[q]",
    "flash_attn_output_update all_attn_out[q] temp_attn_weights[q] all_v_tiles[k]"
    " temp_scale[q] all_attn_out[q]",
)
NORMALIZE = ("flash_attn_normalize all_attn_out[q] all_l_vec[q] all_attn_out[q]",)
AFTER_ATTENTION = (
    "tile_matmul all_attn_out[i] wo temp_norm[i]",
    "residual_add_tile temp_norm[i] input[i] all_hidden[i]",
    "rmsnorm_tile all_hidden[i] mlp_norm_weights temp_norm[i]",
    "tile_matmul temp_norm[i] w_gate temp_gate[i]",
    "tile_matmul temp_norm[i] w_up temp_up[i]",
    "swiglu_tile temp_gate[i] temp_up[i] temp_swiglu[i]",
    "tile_matmul temp_swiglu[i] w_down temp_mlp_out[i]",
    "residual_add_tile temp_mlp_out[i] all_hidden[i] output[i]",
)


def _layer(module: PTOModule, min_range: int) -> None:
    builder = PTOFunctionBuilder("llama_layer_dynamic", module).not_in_core()
    for memref in MEMREFS:
        shape = (None, LARGE_ROWS) if memref in ("temp_scores", "temp_attn_weights") else None
        builder.memref(memref, GM, F32, shape)
    for scalar in ("seq_len", "tile_rows", "num_tiles", "zero"):
        builder.scalar(scalar, I32)
    builder.scalar_li("tile_rows", ROWS).scalar_li("zero", 0)

    def loop(var: str) -> None:
        levels = tile_rows(min_range)
        builder.for_loop(
            var, "zero", "num_tiles", 1, max_range=MAX_TILES, min_range=min_range, tile_levels=levels
        )

    def calls(lines: Sequence[str]) -> None:
        """Call functions, one per line, with places in the order of their parameters."""
        for callee, *places in map(str.split, lines):
            params = [p.name for p in module.get_function(callee).params]
            builder.call(callee, dict(zip(params, map(_place, places), strict=True)))

    loop("i")
    calls(BEFORE_ATTENTION)
    builder.end_for()
    loop("q")
    calls(INIT)
    loop("k")
    calls(UPDATE)
    builder.end_for()
    calls(NORMALIZE)
    builder.end_for()
    loop("i")
    calls(AFTER_ATTENTION)
    builder.end_for().ret().build()


def _place(text: str) -> str | tuple[str, str, int]:
    """Return the first tile of `tensor`, or that of a loop in `tensor[i]`."""
    tensor, _, row = text.rstrip("]").partition("[")
    return (tensor, row, 0) if row else tensor
