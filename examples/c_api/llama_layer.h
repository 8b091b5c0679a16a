/* SPDX-License-Identifier: MIT */
/* The tasks of a LLaMA layer with flash attention, as orchestration code. All loops run over `n` iterations.
 */
#ifndef EXAMPLES_C_API_LLAMA_LAYER_H_
#define EXAMPLES_C_API_LLAMA_LAYER_H_

#include <stddef.h>

#include "pto_runtime.h"

enum { LLAMA_DIM = 128, LLAMA_BASE_ROWS = 32 };

/* Pointers in the order of the layer's memrefs. */
typedef struct LlamaTensors {
  float *input, *output, *attn_norm_weights, *wq, *wk, *wv, *wo, *cos_cache, *sin_cache, *mlp_norm_weights,
      *w_gate, *w_up, *w_down, *all_q_tiles, *all_k_tiles, *all_v_tiles, *all_q_rope, *all_k_rope,
      *all_attn_out, *all_m_vec, *all_l_vec, *all_hidden, *temp_norm, *temp_scores, *temp_attn_weights,
      *temp_scale, *temp_gate, *temp_up, *temp_swiglu, *temp_mlp_out, *const_zeros_large, *const_zeros_small,
      *const_neg_inf;
} LlamaTensors;

/* Kernels, in the order of LlamaLayer's names. */
enum { RMSNORM, MATMUL, ROPE, INIT, SCORE, UPDATE, OUTPUT, NORMALIZE, RESIDUAL, SWIGLU, LLAMA_KERNELS };

typedef struct LlamaLayer {
  LlamaTensors tensors;
  const char* names[LLAMA_KERNELS];
  int n;    /* iterations */
  int rows; /* of a tile */
} LlamaLayer;

static inline int32_t llama_task(PTORuntime* rt, const LlamaLayer* layer, int kernel) {
  return pto_task_alloc(rt, layer->names[kernel], NULL, 0, 0);
}

/* Rows of tile i, of `cols` elements each. */
static inline void llama_read(PTORuntime* rt, int32_t task, const LlamaLayer* layer, float* tensor, int i,
                              int cols) {
  pto_task_add_input(rt, task, tensor, i * layer->rows, 0, layer->rows, cols);
}
static inline void llama_write(PTORuntime* rt, int32_t task, const LlamaLayer* layer, float* tensor, int i,
                               int cols) {
  pto_task_add_output(rt, task, tensor, i * layer->rows, 0, layer->rows, cols);
}

/* out[i] = kernel(a[i], weights): the same weights for every tile. */
static inline void llama_weighted(PTORuntime* rt, const LlamaLayer* layer, int kernel, float* a,
                                  float* weights, float* out, int i) {
  const int32_t task = llama_task(rt, layer, kernel);
  llama_read(rt, task, layer, a, i, LLAMA_DIM);
  pto_task_add_input(rt, task, weights, 0, 0, kernel == MATMUL ? LLAMA_DIM : LLAMA_BASE_ROWS, LLAMA_DIM);
  llama_write(rt, task, layer, out, i, LLAMA_DIM);
  pto_task_submit(rt, task);
}

/* out[i] = kernel(a[i], b[i]) */
static inline void llama_paired(PTORuntime* rt, const LlamaLayer* layer, int kernel, float* a, float* b,
                                float* out, int i) {
  const int32_t task = llama_task(rt, layer, kernel);
  llama_read(rt, task, layer, a, i, LLAMA_DIM);
  llama_read(rt, task, layer, b, i, LLAMA_DIM);
  llama_write(rt, task, layer, out, i, LLAMA_DIM);
  pto_task_submit(rt, task);
}

static inline void llama_rope(PTORuntime* rt, const LlamaLayer* layer, float* in, float* out, int i) {
  const int32_t task = llama_task(rt, layer, ROPE);
  llama_read(rt, task, layer, in, i, LLAMA_DIM);
  pto_task_add_input(rt, task, layer->tensors.cos_cache, 0, 0, LLAMA_BASE_ROWS, LLAMA_DIM);
  pto_task_add_input(rt, task, layer->tensors.sin_cache, 0, 0, LLAMA_BASE_ROWS, LLAMA_DIM);
  llama_write(rt, task, layer, out, i, LLAMA_DIM);
  pto_task_submit(rt, task);
}

static inline void llama_before_attention(PTORuntime* rt, const LlamaLayer* layer, int i) {
  const LlamaTensors* t = &layer->tensors;
  llama_weighted(rt, layer, RMSNORM, t->input, t->attn_norm_weights, t->temp_norm, i);
  llama_weighted(rt, layer, MATMUL, t->temp_norm, t->wq, t->all_q_tiles, i);
  llama_weighted(rt, layer, MATMUL, t->temp_norm, t->wk, t->all_k_tiles, i);
  llama_weighted(rt, layer, MATMUL, t->temp_norm, t->wv, t->all_v_tiles, i);
  llama_rope(rt, layer, t->all_q_tiles, t->all_q_rope, i);
  llama_rope(rt, layer, t->all_k_tiles, t->all_k_rope, i);
}

static inline void llama_init(PTORuntime* rt, const LlamaLayer* layer, int q) {
  const LlamaTensors* t = &layer->tensors;
  const int32_t task = llama_task(rt, layer, INIT);
  pto_task_add_input(rt, task, t->const_zeros_large, 0, 0, LLAMA_BASE_ROWS, LLAMA_DIM);
  pto_task_add_input(rt, task, t->const_zeros_small, 0, 0, LLAMA_BASE_ROWS, 1);
  pto_task_add_input(rt, task, t->const_neg_inf, 0, 0, LLAMA_BASE_ROWS, 1);
  llama_write(rt, task, layer, t->all_attn_out, q, LLAMA_DIM);
  llama_write(rt, task, layer, t->all_l_vec, q, 1);
  llama_write(rt, task, layer, t->all_m_vec, q, 1);
  pto_task_submit(rt, task);
}

static inline void llama_score(PTORuntime* rt, const LlamaLayer* layer, int q, int k) {
  const LlamaTensors* t = &layer->tensors;
  const int32_t task = llama_task(rt, layer, SCORE);
  llama_read(rt, task, layer, t->all_q_rope, q, LLAMA_DIM);
  llama_read(rt, task, layer, t->all_k_rope, k, LLAMA_DIM);
  llama_write(rt, task, layer, t->temp_scores, q, layer->rows);
  pto_task_submit(rt, task);
}

static inline void llama_update(PTORuntime* rt, const LlamaLayer* layer, int q) {
  const LlamaTensors* t = &layer->tensors;
  const int32_t task = llama_task(rt, layer, UPDATE);
  llama_read(rt, task, layer, t->temp_scores, q, layer->rows);
  llama_read(rt, task, layer, t->all_m_vec, q, 1);
  llama_read(rt, task, layer, t->all_l_vec, q, 1);
  llama_write(rt, task, layer, t->all_m_vec, q, 1);
  llama_write(rt, task, layer, t->all_l_vec, q, 1);
  llama_write(rt, task, layer, t->temp_attn_weights, q, layer->rows);
  llama_write(rt, task, layer, t->temp_scale, q, 1);
  pto_task_submit(rt, task);
}

static inline void llama_output(PTORuntime* rt, const LlamaLayer* layer, int q, int k) {
  const LlamaTensors* t = &layer->tensors;
  const int32_t task = llama_task(rt, layer, OUTPUT);
  llama_read(rt, task, layer, t->all_attn_out, q, LLAMA_DIM);
  llama_read(rt, task, layer, t->temp_attn_weights, q, layer->rows);
  llama_read(rt, task, layer, t->all_v_tiles, k, LLAMA_DIM);
  llama_read(rt, task, layer, t->temp_scale, q, 1);
  llama_write(rt, task, layer, t->all_attn_out, q, LLAMA_DIM);
  pto_task_submit(rt, task);
}

static inline void llama_normalize(PTORuntime* rt, const LlamaLayer* layer, int q) {
  const LlamaTensors* t = &layer->tensors;
  const int32_t task = llama_task(rt, layer, NORMALIZE);
  llama_read(rt, task, layer, t->all_attn_out, q, LLAMA_DIM);
  llama_read(rt, task, layer, t->all_l_vec, q, 1);
  llama_write(rt, task, layer, t->all_attn_out, q, LLAMA_DIM);
  pto_task_submit(rt, task);
}

static inline void llama_after_attention(PTORuntime* rt, const LlamaLayer* layer, int i) {
  const LlamaTensors* t = &layer->tensors;
  llama_weighted(rt, layer, MATMUL, t->all_attn_out, t->wo, t->temp_norm, i);
  llama_paired(rt, layer, RESIDUAL, t->temp_norm, t->input, t->all_hidden, i);
  llama_weighted(rt, layer, RMSNORM, t->all_hidden, t->mlp_norm_weights, t->temp_norm, i);
  llama_weighted(rt, layer, MATMUL, t->temp_norm, t->w_gate, t->temp_gate, i);
  llama_weighted(rt, layer, MATMUL, t->temp_norm, t->w_up, t->temp_up, i);
  llama_paired(rt, layer, SWIGLU, t->temp_gate, t->temp_up, t->temp_swiglu, i);
  llama_weighted(rt, layer, MATMUL, t->temp_swiglu, t->w_down, t->temp_mlp_out, i);
  llama_paired(rt, layer, RESIDUAL, t->temp_mlp_out, t->all_hidden, t->output, i);
}

/* A PTOOrchFunc: 16 n + 3 n^2 tasks. */
static inline void llama_layer(PTORuntime* rt, void* user_data) {
  const LlamaLayer* layer = (const LlamaLayer*)user_data;
  const int n = layer->n;
  for (int i = 0; i < n; ++i) llama_before_attention(rt, layer, i);
  for (int q = 0; q < n; ++q) {
    llama_init(rt, layer, q);
    for (int k = 0; k < n; ++k) {
      llama_score(rt, layer, q, k);
      llama_update(rt, layer, q);
      llama_output(rt, layer, q, k);
    }
    llama_normalize(rt, layer, q);
  }
  for (int i = 0; i < n; ++i) llama_after_attention(rt, layer, i);
}

#endif /* EXAMPLES_C_API_LLAMA_LAYER_H_ */
