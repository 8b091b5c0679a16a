/* SPDX-License-Identifier: MIT */
/* A softmax of rows as orchestration code: five tasks per tile, and the last tile may have fewer rows. */
#ifndef EXAMPLES_C_API_SOFTMAX_H_
#define EXAMPLES_C_API_SOFTMAX_H_

#include <stddef.h>

#include "pto_runtime.h"

enum { SOFTMAX_ROWS = 8, SOFTMAX_COLS = 8 };

/* Tensors of `rows` rows of 8 elements; of temp_rowmax and temp_rowsum, of one. */
typedef struct Softmax {
  float *input, *output, *temp_rowmax, *temp_shifted, *temp_exp, *temp_rowsum;
  int rows;
} Softmax;

static inline void softmax_task(PTORuntime* rt, const char* name, float* x, float* column, float* out,
                                int out_cols, int row, int rows) {
  const int32_t task = pto_task_alloc(rt, name, NULL, 0, 0);
  pto_task_add_input(rt, task, x, row, 0, rows, SOFTMAX_COLS);
  if (column != NULL) pto_task_add_input(rt, task, column, row, 0, rows, 1);
  pto_task_add_output(rt, task, out, row, 0, rows, out_cols);
  pto_task_submit(rt, task);
}

/* A PTOOrchFunc. */
static inline void softmax(PTORuntime* rt, void* user_data) {
  const Softmax* s = (const Softmax*)user_data;
  for (int row = 0; row < s->rows; row += SOFTMAX_ROWS) {
    const int rows = s->rows - row < SOFTMAX_ROWS ? s->rows - row : SOFTMAX_ROWS;
    softmax_task(rt, "rowmax", s->input, NULL, s->temp_rowmax, 1, row, rows);
    softmax_task(rt, "rowexpandsub", s->input, s->temp_rowmax, s->temp_shifted, SOFTMAX_COLS, row, rows);
    softmax_task(rt, "elem_exp", s->temp_shifted, NULL, s->temp_exp, SOFTMAX_COLS, row, rows);
    softmax_task(rt, "rowsum", s->temp_exp, NULL, s->temp_rowsum, 1, row, rows);
    softmax_task(rt, "rowexpanddiv", s->temp_exp, s->temp_rowsum, s->output, SOFTMAX_COLS, row, rows);
  }
}

#endif /* EXAMPLES_C_API_SOFTMAX_H_ */
