/* SPDX-License-Identifier: MIT */
/* Batched products of matrices of tiles as orchestration code: added up one after another, or in a tree.

   A is a [batch, m, k] grid of tiles, B one of [batch, k, n] and C one of [batch, m, n], each a column of
   tiles in row-major order. */
#ifndef EXAMPLES_C_API_BGEMM_H_
#define EXAMPLES_C_API_BGEMM_H_

#include <stddef.h>

#include "pto_runtime.h"

enum { BGEMM_BLOCK = 4, BGEMM_TREE_K = 8 };

typedef struct Bgemm {
  float *a, *b, *c;
  float* partial[3];     /* P of bgemm; P0, P1, P2 of the tree */
  int batch, m, n, k;    /* tiles; m and n of bgemm in blocks of 4, k of the tree is 8 */
  int rows, inner, cols; /* of a tile */
} Bgemm;

static inline void bgemm_product(PTORuntime* rt, const Bgemm* g, int a, int b, float* out, int at) {
  const int32_t task = pto_task_alloc(rt, "gemm_tile", NULL, 0, 0);
  pto_task_add_input(rt, task, g->a, a * g->rows, 0, g->rows, g->inner);
  pto_task_add_input(rt, task, g->b, b * g->inner, 0, g->inner, g->cols);
  pto_task_add_output(rt, task, out, at * g->rows, 0, g->rows, g->cols);
  pto_task_submit(rt, task);
}

static inline void bgemm_sum(PTORuntime* rt, const Bgemm* g, float* a, int at_a, float* b, int at_b,
                             float* out, int at) {
  const int32_t task = pto_task_alloc(rt, "tile_add", NULL, 0, 0);
  pto_task_add_input(rt, task, a, at_a * g->rows, 0, g->rows, g->cols);
  pto_task_add_input(rt, task, b, at_b * g->rows, 0, g->rows, g->cols);
  pto_task_add_output(rt, task, out, at * g->rows, 0, g->rows, g->cols);
  pto_task_submit(rt, task);
}

/* A PTOOrchFunc: C += A @ B, 2 * batch * m * n * k tasks. */
static inline void bgemm(PTORuntime* rt, void* user_data) {
  const Bgemm* g = (const Bgemm*)user_data;
  for (int batch = 0; batch < g->batch; ++batch)
    for (int sm = 0; sm < g->m; sm += BGEMM_BLOCK)
      for (int sn = 0; sn < g->n; sn += BGEMM_BLOCK)
        for (int k = 0; k < g->k; ++k)
          for (int row = sm; row < sm + BGEMM_BLOCK; ++row)
            for (int col = sn; col < sn + BGEMM_BLOCK; ++col) {
              const int c = (batch * g->m + row) * g->n + col;
              bgemm_product(rt, g, (batch * g->m + row) * g->k + k, (batch * g->k + k) * g->n + col,
                            g->partial[0], c);
              bgemm_sum(rt, g, g->c, c, g->partial[0], c, g->c, c);
            }
}

/* A PTOOrchFunc: C = A @ B with k = 8, 15 tasks per tile of C, of which at most 4 wait in a row. */
static inline void bgemm_tree(PTORuntime* rt, void* user_data) {
  const Bgemm* g = (const Bgemm*)user_data;
  for (int c = 0; c < g->batch * g->m * g->n; ++c) {
    const int batch = c / (g->m * g->n), col = c % g->n;
    for (int k = 0; k < BGEMM_TREE_K; ++k)
      bgemm_product(rt, g, c / g->n * BGEMM_TREE_K + k, (batch * BGEMM_TREE_K + k) * g->n + col,
                    g->partial[0], BGEMM_TREE_K * c + k);
    for (int level = 1, width = BGEMM_TREE_K / 2; width > 0; ++level, width /= 2)
      for (int k = 0; k < width; ++k) {
        const int part = 2 * (width * c + k);
        float* out = width == 1 ? g->c : g->partial[level];
        bgemm_sum(rt, g, g->partial[level - 1], part, g->partial[level - 1], part + 1, out, width * c + k);
      }
  }
}

#endif /* EXAMPLES_C_API_BGEMM_H_ */
