/* SPDX-License-Identifier: MIT */
/* What the C API costs, as numbers: `capi MODE ARGUMENTS` prints one.

   build N        milliseconds to add the tasks of a LLaMA layer over N iterations; the median of several
   cold N         the same, the first of the process
   mb N           what the runtime takes for them, in MB
   run N WORKERS  nanoseconds per task to run them, without functions
   llama TILES WORKERS THRESHOLD    milliseconds of runtime_entry_arm64: norm, product, scale and sum of tiles
   softmax TILES WORKERS THRESHOLD  the same of a softmax in five tasks per tile */
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama_layer.h"

enum { ROUNDS = 9, TILE_ROWS = 32, TILE = TILE_ROWS * LLAMA_DIM, TILE_COLS = LLAMA_DIM };

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof(double), compare);
  return values[count / 2];
}

static void require(int is_right, const char* what) {
  if (is_right) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

/* The layer on tiles of 64 rows, with tensors that nothing touches. */
static LlamaLayer make_layer(int n) {
  static const char* const names[LLAMA_KERNELS] = {
      "rmsnorm_tile_64",   "tile_matmul_64",     "rope_tile_64",       "flash_attn_init_state_64",
      "flash_score_64_64", "flash_update_64_64", "flash_output_64_64", "flash_attn_normalize_64",
      "residual_add_64",   "swiglu_tile_64"};
  LlamaLayer layer;
  float* tensors[sizeof(LlamaTensors) / sizeof(float*)];
  const size_t rows = (size_t)(n < 2 ? 2 : n) * 64;
  for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); ++i)
    tensors[i] = (float*)malloc(rows * LLAMA_DIM * sizeof(float));
  memcpy(&layer.tensors, tensors, sizeof(tensors));
  memcpy(layer.names, names, sizeof(names));
  layer.n = n;
  layer.rows = 64;
  return layer;
}

/* One of the modes, measured once. */
static double layer_once(LlamaLayer* layer, const char* mode, int workers) {
  PTORuntime rt;
  PTORuntimeStats stats;
  double start = now_ms();
  require(pto_runtime_init(&rt) == PTO_OK, "no runtime");
  llama_layer(&rt, layer);
  double value = now_ms() - start;
  if (strcmp(mode, "mb") == 0) {
    pto_runtime_get_stats(&rt, &stats);
    value = (double)stats.bytes / (1 << 20);
  } else if (strcmp(mode, "run") == 0) {
    pto_runtime_set_workers(&rt, workers);
    start = now_ms();
    require(pto_execute_all(&rt) == PTO_OK, pto_runtime_error_message(&rt));
    value = 1e6 * (now_ms() - start) / (16.0 * layer->n + 3.0 * layer->n * layer->n);
  }
  require(pto_runtime_error(&rt) == PTO_OK, pto_runtime_error_message(&rt));
  pto_runtime_shutdown(&rt);
  return value;
}

/* Tiles in a row, and what is made of them. */
typedef struct Tiles {
  float *x, *y, *temp[4], *weights;
  int count;
} Tiles;

static void rmsnorm(void** args, int32_t n) {
  (void)n;
  for (int r = 0; r < TILE_ROWS; ++r) {
    const float* x = (const float*)args[0] + r * TILE_COLS;
    float* y = (float*)args[1] + r * TILE_COLS;
    float sum = 0;
    for (int c = 0; c < TILE_COLS; ++c) sum += x[c] * x[c];
    const float scale = 1 / sqrtf(sum / TILE_COLS + 1e-5f);
    for (int c = 0; c < TILE_COLS; ++c) y[c] = x[c] * scale;
  }
}
static void linear(void** args, int32_t n) {
  (void)n;
  const float *x = (const float*)args[0], *w = (const float*)args[1];
  float* y = (float*)args[2];
  memset(y, 0, TILE * sizeof(float));
  for (int r = 0; r < TILE_ROWS; ++r)
    for (int k = 0; k < TILE_COLS; ++k)
      for (int c = 0; c < TILE_COLS; ++c) y[r * TILE_COLS + c] += x[r * TILE_COLS + k] * w[k * TILE_COLS + c];
}
static void scale_tile(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i) ((float*)args[1])[i] = 0.5f * ((const float*)args[0])[i];
}
static void residual(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i)
    ((float*)args[2])[i] = ((const float*)args[0])[i] + ((const float*)args[1])[i];
}
static void row_max(void** args, int32_t n) {
  (void)n;
  for (int r = 0; r < TILE_ROWS; ++r) {
    const float* x = (const float*)args[0] + r * TILE_COLS;
    float top = x[0];
    for (int c = 1; c < TILE_COLS; ++c) top = x[c] > top ? x[c] : top;
    ((float*)args[1])[r] = top;
  }
}
static void row_sub(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i)
    ((float*)args[2])[i] = ((const float*)args[0])[i] - ((const float*)args[1])[i / TILE_COLS];
}
static void elem_exp(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i) ((float*)args[1])[i] = expf(((const float*)args[0])[i]);
}
static void row_sum(void** args, int32_t n) {
  (void)n;
  for (int r = 0; r < TILE_ROWS; ++r) {
    float sum = 0;
    for (int c = 0; c < TILE_COLS; ++c) sum += ((const float*)args[0])[r * TILE_COLS + c];
    ((float*)args[1])[r] = sum;
  }
}
static void row_div(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i)
    ((float*)args[2])[i] = ((const float*)args[0])[i] / ((const float*)args[1])[i / TILE_COLS];
}

/* y[tile] = func(a[tile], b): `b` may be null, a column or a matrix of its own. */
static void add_task(PTORuntime* rt, PTOInCoreFunc func, int tile, float* a, float* b, int b_rows, int b_cols,
                     float* y, int y_cols) {
  const int32_t task = pto_task_alloc(rt, "task", (void*)func, 0, 0);
  pto_task_add_input(rt, task, a, tile * TILE_ROWS, 0, TILE_ROWS, TILE_COLS);
  if (b != NULL)
    pto_task_add_input(rt, task, b, b_rows == TILE_ROWS ? tile * TILE_ROWS : 0, 0, b_rows, b_cols);
  pto_task_add_output(rt, task, y, tile * TILE_ROWS, 0, TILE_ROWS, y_cols);
  pto_task_submit(rt, task);
}

static void llama_lite(PTORuntime* rt, void* user_data) {
  const Tiles* t = (const Tiles*)user_data;
  for (int i = 0; i < t->count; ++i) {
    add_task(rt, rmsnorm, i, t->x, NULL, 0, 0, t->temp[0], TILE_COLS);
    add_task(rt, linear, i, t->temp[0], t->weights, TILE_COLS, TILE_COLS, t->temp[1], TILE_COLS);
    add_task(rt, scale_tile, i, t->temp[1], NULL, 0, 0, t->temp[2], TILE_COLS);
    add_task(rt, residual, i, t->temp[2], t->x, TILE_ROWS, TILE_COLS, t->y, TILE_COLS);
  }
}

static void softmax(PTORuntime* rt, void* user_data) {
  const Tiles* t = (const Tiles*)user_data;
  for (int i = 0; i < t->count; ++i) {
    add_task(rt, row_max, i, t->x, NULL, 0, 0, t->temp[0], 1);
    add_task(rt, row_sub, i, t->x, t->temp[0], TILE_ROWS, 1, t->temp[1], TILE_COLS);
    add_task(rt, elem_exp, i, t->temp[1], NULL, 0, 0, t->temp[2], TILE_COLS);
    add_task(rt, row_sum, i, t->temp[2], NULL, 0, 0, t->temp[3], 1);
    add_task(rt, row_div, i, t->temp[2], t->temp[3], TILE_ROWS, 1, t->y, TILE_COLS);
  }
}

/* Runs tiles, and once more on one worker, whose results must be the same. */
static double tiles_ms(PTOOrchFunc orchestrate, int count, int workers, int threshold) {
  const size_t bytes = (size_t)count * TILE * sizeof(float);
  Tiles t;
  double times[ROUNDS];
  t.count = count;
  t.x = (float*)malloc(bytes);
  t.y = (float*)malloc(bytes);
  t.weights = (float*)malloc(TILE_COLS * TILE_COLS * sizeof(float));
  for (int i = 0; i < 4; ++i) t.temp[i] = (float*)malloc(bytes);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) t.x[i] = (float)(i * 2654435761u % 1000) / 500.0f - 1;
  for (int i = 0; i < TILE_COLS * TILE_COLS; ++i) t.weights[i] = (float)(i % 7 - 3) / 16.0f;
  for (int i = 0; i < ROUNDS; ++i) {
    const double start = now_ms();
    require(runtime_entry_arm64(orchestrate, &t, workers, threshold) == PTO_OK, "it failed");
    times[i] = now_ms() - start;
  }
  float* expected = (float*)malloc(bytes);
  memcpy(expected, t.y, bytes);
  memset(t.y, 0, bytes);
  require(runtime_entry_arm64(orchestrate, &t, 1, 0) == PTO_OK, "it failed");
  require(memcmp(expected, t.y, bytes) == 0, "workers change the result");
  return median(times, ROUNDS);
}

int main(int argc, char** argv) {
  double values[ROUNDS];
  require(argc >= 3, "capi MODE SIZE [WORKERS [THRESHOLD]]");
  const char* mode = argv[1];
  const int size = atoi(argv[2]), workers = argc > 3 ? atoi(argv[3]) : 0,
            threshold = argc > 4 ? atoi(argv[4]) : 0;
  if (strcmp(mode, "llama") == 0) {
    printf("%.6g\n", tiles_ms(llama_lite, size, workers, threshold));
  } else if (strcmp(mode, "softmax") == 0) {
    printf("%.6g\n", tiles_ms(softmax, size, workers, threshold));
  } else {
    LlamaLayer layer = make_layer(size);
    const int rounds = strcmp(mode, "cold") == 0 || strcmp(mode, "mb") == 0 ? 1 : ROUNDS;
    for (int i = 0; i < rounds; ++i) values[i] = layer_once(&layer, mode, workers);
    printf("%.6g\n", median(values, rounds));
  }
  return 0;
}
