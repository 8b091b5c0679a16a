/* SPDX-License-Identifier: MIT */
/* Orchestrations as compilers write them: functions by name alone, row offsets in tiles, no result looked at.
 */
#include <arm_neon.h>
#include <math.h>

#include "check.h"
#include "pto_runtime.c"

enum { NUM_TILES = 40, TILE_ROWS = 8, TILE_COLS = 8, TILE_SIZE = TILE_ROWS * TILE_COLS };

static float temp_max[NUM_TILES * TILE_ROWS], temp_shifted[NUM_TILES * TILE_SIZE];

void dynamic_shift(PTORuntime* rt, float* input, float* output, int num_tiles) {
  for (int tile_idx = 0; tile_idx < num_tiles; tile_idx++) {
    int32_t t0 = pto_task_alloc(rt, "rowmax", NULL, 288, 288);
    pto_task_add_input(rt, t0, input, tile_idx, 0, 8, 8);
    pto_task_add_output(rt, t0, temp_max, tile_idx, 0, 8, 1);
    pto_task_submit(rt, t0);

    int32_t t1 = pto_task_alloc(rt, "rowexpandsub", NULL, 544, 544);
    pto_task_add_input(rt, t1, input, tile_idx, 0, 8, 8);
    pto_task_add_input(rt, t1, temp_max, tile_idx, 0, 8, 1);
    pto_task_add_output(rt, t1, temp_shifted, tile_idx, 0, 8, 8);
    pto_task_submit(rt, t1);

    int32_t t2 = pto_task_alloc(rt, "elem_exp", NULL, 512, 256);
    pto_task_add_input(rt, t2, temp_shifted, tile_idx, 0, 8, 8);
    pto_task_add_output(rt, t2, output, tile_idx, 0, 8, 8);
    pto_task_submit(rt, t2);
  }
}

static void rowmax(void** args, int32_t num_args) {
  (void)num_args;
  for (int row = 0; row < TILE_ROWS; ++row) {
    const float* x = (const float*)args[0] + row * TILE_COLS;
    float top = x[0];
    for (int col = 1; col < TILE_COLS; ++col) top = fmaxf(top, x[col]);
    ((float*)args[1])[row] = top;
  }
}
static void rowexpandsub(void** args, int32_t num_args) {
  (void)num_args;
  for (int i = 0; i < TILE_SIZE; ++i)
    ((float*)args[2])[i] = ((const float*)args[0])[i] - ((const float*)args[1])[i / TILE_COLS];
}
static void elem_exp(void** args, int32_t num_args) {
  (void)num_args;
  for (int i = 0; i < TILE_SIZE; ++i) ((float*)args[1])[i] = expf(((const float*)args[0])[i]);
}

static float input[NUM_TILES * TILE_SIZE], output[NUM_TILES * TILE_SIZE];

static void check_output(void) {
  for (int row = 0; row < NUM_TILES * TILE_ROWS; ++row) {
    float top = -INFINITY;
    for (int col = 0; col < TILE_COLS; ++col) top = fmaxf(top, input[row * TILE_COLS + col]);
    for (int i = row * TILE_COLS; i < (row + 1) * TILE_COLS; ++i) {
      CHECK(output[i] == expf(input[i] - top));
      output[i] = -1;
    }
  }
}

/* The host's part: what runs is registered by name. */
static void test_names(void) {
  PTORuntime* rt = (PTORuntime*)malloc(sizeof(PTORuntime));
  pto_runtime_init(rt);
  pto_runtime_set_row_unit(rt, TILE_ROWS);
  dynamic_shift(rt, input, output, NUM_TILES);
  pto_register_incore_func(rt, "rowmax", rowmax);
  pto_register_incore_func(rt, "rowexpandsub", rowexpandsub);
  pto_register_incore_func(rt, "elem_exp", elem_exp);
  CHECK_EQ(PTO_OK, pto_execute_all(rt));
  pto_runtime_shutdown(rt);
  free(rt);
  check_output();
}

typedef struct UserData {
  float *input, *output;
  int num_tiles;
} UserData;

/* Functions are given as they are, without a cast, and row offsets count rows. */
void my_shift_orchestration(PTORuntime* rt, void* user_data) {
  UserData* data = (UserData*)user_data;
  for (int tile = 0; tile < data->num_tiles; tile++) {
    int32_t t0 = pto_task_alloc(rt, "rowmax", rowmax, 0, 0);
    pto_task_add_input(rt, t0, data->input, tile * TILE_ROWS, 0, TILE_ROWS, TILE_COLS);
    pto_task_add_output(rt, t0, temp_max, tile * TILE_ROWS, 0, TILE_ROWS, 1);
    pto_task_submit(rt, t0);
    int32_t t1 = pto_task_alloc(rt, "rowexpandsub", rowexpandsub, 0, 0);
    pto_task_add_input(rt, t1, data->input, tile * TILE_ROWS, 0, TILE_ROWS, TILE_COLS);
    pto_task_add_input(rt, t1, temp_max, tile * TILE_ROWS, 0, TILE_ROWS, 1);
    pto_task_add_output(rt, t1, temp_shifted, tile * TILE_ROWS, 0, TILE_ROWS, TILE_COLS);
    pto_task_submit(rt, t1);
    int32_t t2 = pto_task_alloc(rt, "elem_exp", elem_exp, 0, 0);
    pto_task_add_input(rt, t2, temp_shifted, tile * TILE_ROWS, 0, TILE_ROWS, TILE_COLS);
    pto_task_add_output(rt, t2, data->output, tile * TILE_ROWS, 0, TILE_ROWS, TILE_COLS);
    pto_task_submit(rt, t2);
  }
}

int main(void) {
  uint32_t state = 9;
  for (int i = 0; i < NUM_TILES * TILE_SIZE; ++i) input[i] = (float)random_below(&state, 1000) / 250.0f;
  test_names();
  UserData data = {input, output, NUM_TILES};
  for (int workers = 1; workers <= 8; workers *= 2) {
    CHECK_EQ(PTO_OK, runtime_entry_arm64(my_shift_orchestration, &data, workers, 0));
    check_output();
    CHECK_EQ(PTO_OK, runtime_entry_arm64(my_shift_orchestration, &data, workers, 20));
    check_output();
  }
  return 0;
}
