"""The LLaMA layer of `llama.py`, written as `@kernel` functions and a `@workload`: the same program."""

from __future__ import annotations

from math import sqrt
from typing import Any

from examples.pto_programs.llama import DIM, EPS, LARGE_ROWS, MAX_TILES, MIN_TILES, ROWS, tile_rows
from pto_wsp import In, Out, P, Scalar, Tensor, Tile, f32, i64, kernel, pto, workload
from pto_wsp.lang.workload.axes import AxisLoop

Block = Tile[ROWS, DIM, f32]
Column = Tile[ROWS, 1, f32]
Weights = Tile[DIM, DIM, f32]
Scores = Tile[ROWS, ROWS, f32]


@kernel
def tile_add(input_a: In[Block], input_b: In[Block], output: Out[Block]):
    """Sum."""
    pto.store(output, input_a + input_b)


@kernel
def tile_mul(input_a: In[Block], input_b: In[Block], output: Out[Block]):
    """Product."""
    pto.store(output, input_a * input_b)


@kernel
def tile_muls(input: In[Block], output: Out[Block], scale: Scalar[f32]):
    """Product with a number."""
    pto.store(output, input * scale)


@kernel
def tile_exp(input: In[Block], output: Out[Block]):
    """Powers of e."""
    pto.store(output, pto.exp(input))


@kernel
def tile_rsqrt(input: In[Block], output: Out[Block]):
    """Reciprocal square roots."""
    pto.store(output, pto.rsqrt(input))


@kernel
def tile_silu(input: In[Block], output: Out[Block]):
    """Each x times sigmoid(x)."""
    pto.store(output, input * pto.recip(pto.exp(-input) + 1.0))


@kernel
def tile_matmul(input_a: In[Block], input_b: In[Weights], output: Out[Block]):
    """Matrix product."""
    pto.store(output, pto.matmul(input_a, input_b))


@kernel
def tile_rowmax(input: In[Block], output: Out[Column]):
    """Largest element of each row."""
    pto.store(output, pto.rowmax(input))


@kernel
def tile_rowsum(input: In[Block], output: Out[Column]):
    """Sum of each row."""
    pto.store(output, pto.rowsum(input))


@kernel
def tile_rowexpandsub(input_x: In[Block], input_row: In[Column], output: Out[Block]):
    """Difference of each row and its element of a column."""
    pto.store(output, input_x - input_row)


@kernel
def tile_rowexpanddiv(input_x: In[Block], input_row: In[Column], output: Out[Block]):
    """Quotient of each row and its element of a column."""
    pto.store(output, input_x / input_row)


@kernel
def tile_rowexpandmul(input_x: In[Block], input_row: In[Column], output: Out[Block]):
    """Product of each row and its element of a column."""
    pto.store(output, input_x * input_row)


@kernel
def rmsnorm_tile(input: In[Block], weights: In[Block], output: Out[Block]):
    """Rows divided by their root mean square, times weights."""
    mean = pto.rowsum(input * input) * (1 / DIM) + EPS
    pto.store(output, input * pto.rsqrt(mean) * weights)


@kernel
def softmax_tile(input: In[Block], output: Out[Block]):
    """Softmax of each row."""
    power = pto.exp(input - pto.rowmax(input))
    pto.store(output, power / pto.rowsum(power))


@kernel
def swiglu_tile(input_gate: In[Block], input_up: In[Block], output: Out[Block]):
    """Product of silu(gate) and up."""
    sigmoid = pto.recip(pto.exp(-input_gate) + 1.0)
    pto.store(output, input_gate * sigmoid * input_up)


@kernel
def linear_tile(input: In[Block], weight: In[Weights], output: Out[Block]):
    """Matrix product with weights."""
    pto.store(output, pto.matmul(input, weight))


@kernel
def rope_tile(input: In[Block], cos_cache: In[Block], sin_cache: In[Block], output: Out[Block]):
    """Simplified rotation of positions."""
    pto.store(output, input * cos_cache + input * sin_cache)


@kernel
def attention_score_tile(input_q: In[Block], input_kt: In[Weights], output: Out[Block]):
    """Scaled scores of queries and transposed keys."""
    pto.store(output, pto.matmul(input_q, input_kt) * (1 / sqrt(DIM)))


@kernel
def attention_output_tile(input_weights: In[Block], input_v: In[Weights], output: Out[Block]):
    """Attention weights times values."""
    pto.store(output, pto.matmul(input_weights, input_v))


@kernel
def residual_add_tile(input: In[Block], input_residual: In[Block], output: Out[Block]):
    """Sum with what went in."""
    pto.store(output, input + input_residual)


@kernel
def flash_attn_score_block(input_q: In[Block], input_k: In[Block], output_s: Out[Scores]):
    """Scaled scores of one tile of queries and one of keys."""
    pto.store(output_s, pto.matmul(input_q, input_k.T) * (1 / sqrt(DIM)))


@kernel
def flash_attn_softmax_update(
    input_s: In[Scores],
    input_m_prev: In[Column],
    input_l_prev: In[Column],
    output_m_new: Out[Column],
    output_l_new: Out[Column],
    output_p: Out[Scores],
    output_scale_old: Out[Column],
):
    """Maxima and sums of rows with one more tile of scores."""
    m_new = pto.maximum(input_m_prev, pto.rowmax(input_s))
    p = pto.exp(input_s - m_new)
    scale = pto.exp(input_m_prev - m_new)
    l_new = scale * input_l_prev + pto.rowsum(p)
    pto.store(output_m_new, m_new)
    pto.store(output_l_new, l_new)
    pto.store(output_p, p)
    pto.store(output_scale_old, scale)


@kernel
def flash_attn_output_update(
    input_o_prev: In[Block],
    input_p: In[Scores],
    input_v: In[Block],
    input_scale: In[Column],
    output_o: Out[Block],
):
    """Outputs with one more tile of values."""
    pto.store(output_o, input_o_prev * input_scale + pto.matmul(input_p, input_v))


@kernel
def flash_attn_normalize(input_o: In[Block], input_l: In[Column], output: Out[Block]):
    """Outputs divided by the sums of their weights."""
    pto.store(output, input_o / input_l)


@kernel
def flash_attn_init_state(
    input_zeros_large: In[Block],
    input_zeros_small: In[Column],
    input_neg_inf: In[Column],
    output_o: Out[Block],
    output_l: Out[Column],
    output_m: Out[Column],
):
    """Outputs, sums and maxima of no keys."""
    pto.store(output_o, input_zeros_large)
    pto.store(output_l, input_zeros_small)
    pto.store(output_m, input_neg_inf)


def tile_of(tensor: Any, i: Scalar) -> Any:
    """Return tile i of a column of tiles."""
    return tensor[i * ROWS : i * ROWS + ROWS]


def scores_of(tensor: Any, q: Scalar) -> Any:
    """Return the scores of one tile of queries and one of keys."""
    return tensor[q * ROWS : q * ROWS + ROWS, 0:ROWS]


def tiles(n: Scalar) -> AxisLoop[Scalar]:
    """Loop over tiles, in blocks of powers of two."""
    return P.range(n, max_range=MAX_TILES, min_range=MIN_TILES, tile_levels=tile_rows(MIN_TILES))


@workload
def llama_layer_dynamic(
    input: Tensor[f32, "input_rows", DIM],
    output: Tensor[f32, "output_rows", DIM],
    attn_norm_weights: Tensor[f32, "attn_norm_weights_rows", DIM],
    wq: Tensor[f32, "wq_rows", DIM],
    wk: Tensor[f32, "wk_rows", DIM],
    wv: Tensor[f32, "wv_rows", DIM],
    wo: Tensor[f32, "wo_rows", DIM],
    cos_cache: Tensor[f32, "cos_cache_rows", DIM],
    sin_cache: Tensor[f32, "sin_cache_rows", DIM],
    mlp_norm_weights: Tensor[f32, "mlp_norm_weights_rows", DIM],
    w_gate: Tensor[f32, "w_gate_rows", DIM],
    w_up: Tensor[f32, "w_up_rows", DIM],
    w_down: Tensor[f32, "w_down_rows", DIM],
    all_q_tiles: Tensor[f32, "all_q_tiles_rows", DIM],
    all_k_tiles: Tensor[f32, "all_k_tiles_rows", DIM],
    all_v_tiles: Tensor[f32, "all_v_tiles_rows", DIM],
    all_q_rope: Tensor[f32, "all_q_rope_rows", DIM],
    all_k_rope: Tensor[f32, "all_k_rope_rows", DIM],
    all_attn_out: Tensor[f32, "all_attn_out_rows", DIM],
    all_m_vec: Tensor[f32, "all_m_vec_rows", 1],
    all_l_vec: Tensor[f32, "all_l_vec_rows", 1],
    all_hidden: Tensor[f32, "all_hidden_rows", DIM],
    temp_norm: Tensor[f32, "temp_norm_rows", DIM],
    temp_scores: Tensor[f32, "temp_scores_rows", LARGE_ROWS],
    temp_attn_weights: Tensor[f32, "temp_attn_weights_rows", LARGE_ROWS],
    temp_scale: Tensor[f32, "temp_scale_rows", 1],
    temp_gate: Tensor[f32, "temp_gate_rows", DIM],
    temp_up: Tensor[f32, "temp_up_rows", DIM],
    temp_swiglu: Tensor[f32, "temp_swiglu_rows", DIM],
    temp_mlp_out: Tensor[f32, "temp_mlp_out_rows", DIM],
    const_zeros_large: Tensor[f32, "const_zeros_large_rows", DIM],
    const_zeros_small: Tensor[f32, "const_zeros_small_rows", 1],
    const_neg_inf: Tensor[f32, "const_neg_inf_rows", 1],
    seq_len: Scalar[i64],
    num_tiles: Scalar[i64],
):
    """Run the layer on `num_tiles` tiles of rows."""
    for i in tiles(num_tiles):
        x, norm = tile_of(input, i), tile_of(temp_norm, i)
        rmsnorm_tile[i](x, attn_norm_weights[0:ROWS], norm)
        for weights, projected in ((wq, all_q_tiles), (wk, all_k_tiles), (wv, all_v_tiles)):
            tile_matmul[i](norm, weights[0:DIM], tile_of(projected, i))
        for projected, rotated in ((all_q_tiles, all_q_rope), (all_k_tiles, all_k_rope)):
            rope_tile[i](tile_of(projected, i), cos_cache[0:ROWS], sin_cache[0:ROWS], tile_of(rotated, i))
    for q in tiles(num_tiles):
        o, m, total = tile_of(all_attn_out, q), tile_of(all_m_vec, q), tile_of(all_l_vec, q)
        s, p, scale = scores_of(temp_scores, q), scores_of(temp_attn_weights, q), tile_of(temp_scale, q)
        flash_attn_init_state[q](
            const_zeros_large[0:ROWS], const_zeros_small[0:ROWS], const_neg_inf[0:ROWS], o, total, m
        )
        for k in tiles(num_tiles):
            flash_attn_score_block[q, k](tile_of(all_q_rope, q), tile_of(all_k_rope, k), s)
            flash_attn_softmax_update[q, k](s, m, total, m, total, p, scale)
            flash_attn_output_update[q, k](o, p, tile_of(all_v_tiles, k), scale, o)
        flash_attn_normalize[q](o, total, o)
    for i in tiles(num_tiles):
        norm, hidden = tile_of(temp_norm, i), tile_of(all_hidden, i)
        gate, up = tile_of(temp_gate, i), tile_of(temp_up, i)
        swiglu, mlp = tile_of(temp_swiglu, i), tile_of(temp_mlp_out, i)
        tile_matmul[i](tile_of(all_attn_out, i), wo[0:DIM], norm)
        residual_add_tile[i](norm, tile_of(input, i), hidden)
        rmsnorm_tile[i](hidden, mlp_norm_weights[0:ROWS], norm)
        tile_matmul[i](norm, w_gate[0:DIM], gate)
        tile_matmul[i](norm, w_up[0:DIM], up)
        swiglu_tile[i](gate, up, swiglu)
        tile_matmul[i](swiglu, w_down[0:DIM], mlp)
        residual_add_tile[i](mlp, hidden, tile_of(output, i))
