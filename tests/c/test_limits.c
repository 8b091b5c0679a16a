/* SPDX-License-Identifier: MIT */
/* What runtimes of this kind lose: ready tasks beyond a queue, readers of what is written again, tasks that
   become ready twice; and sizes that they cap. */
#include <string.h>

#include "check.h"
#include "llama_layer.h"
#include "pto_runtime.h"

static void increment(void** args, int32_t num_args) {
  (void)num_args;
  ++*(int32_t*)args[0];
}

static void wait_a_little(int rounds) {
  for (volatile int i = 0; i < rounds; ++i) {
  }
}

/* args: from, to */
static void copy_slowly(void** args, int32_t num_args) {
  (void)num_args;
  wait_a_little(2000);
  *(int32_t*)args[1] = *(const int32_t*)args[0];
}

static int32_t add_task(PTORuntime* rt, PTOInCoreFunc func) {
  return pto_task_alloc(rt, "task", (void*)func, 0, 0);
}

typedef struct Counters {
  int32_t* cells;
  int32_t* source;
  int num_tasks;
} Counters;

/* Tasks that are all ready at once. */
static void independent(PTORuntime* rt, void* user_data) {
  const Counters* counters = (const Counters*)user_data;
  for (int i = 0; i < counters->num_tasks; ++i) {
    const int32_t task = add_task(rt, increment);
    pto_task_add_inout(rt, task, counters->cells, i, 0, 1, 1);
    pto_task_submit(rt, task);
  }
}

static void test_every_ready_task_runs_once(int num_tasks, int workers, int threshold) {
  Counters counters = {(int32_t*)calloc((size_t)num_tasks, 4), NULL, num_tasks};
  CHECK_EQ(PTO_OK, runtime_entry_arm64(independent, &counters, workers, threshold));
  for (int i = 0; i < num_tasks; ++i) CHECK_EQ(1, counters.cells[i]);
  free(counters.cells);
}

/* One cell is written again and again, and read between the writes. */
static void rewritten(PTORuntime* rt, void* user_data) {
  const Counters* counters = (const Counters*)user_data;
  for (int i = 0; i < counters->num_tasks; ++i) {
    int32_t task = add_task(rt, increment);
    pto_task_add_inout(rt, task, counters->source, 0, 0, 1, 1);
    pto_task_submit(rt, task);
    for (int reader = 0; reader < 3; ++reader) {
      task = add_task(rt, copy_slowly);
      pto_task_add_input(rt, task, counters->source, 0, 0, 1, 1);
      pto_task_add_output(rt, task, counters->cells, 3 * i + reader, 0, 1, 1);
      pto_task_submit(rt, task);
    }
  }
}

static void test_readers_see_their_version(int workers, int threshold) {
  enum { ROUNDS = 200 };
  static int32_t cells[3 * ROUNDS];
  int32_t source = 0;
  Counters counters = {cells, &source, ROUNDS};
  CHECK_EQ(PTO_OK, runtime_entry_arm64(rewritten, &counters, workers, threshold));
  for (int i = 0; i < 3 * ROUNDS; ++i) CHECK_EQ(i / 3 + 1, cells[i]);
}

/* args: a, b, sum: the producers may end while the arguments are still being added. */
static void add_once(void** args, int32_t num_args) {
  CHECK_EQ(4, num_args);
  *(int32_t*)args[2] = *(const int32_t*)args[0] + *(const int32_t*)args[1];
  ++*(int32_t*)args[3];
}

static void joined(PTORuntime* rt, void* user_data) {
  const Counters* counters = (const Counters*)user_data;
  int32_t* cells = counters->cells;
  for (int i = 0; i < counters->num_tasks; ++i, cells += 4) {
    for (int side = 0; side < 2; ++side) {
      const int32_t task = add_task(rt, increment);
      pto_task_add_inout(rt, task, cells, side, 0, 1, 1);
      pto_task_submit(rt, task);
    }
    const int32_t task = add_task(rt, add_once);
    pto_task_add_input(rt, task, cells, 0, 0, 1, 1);
    wait_a_little(i % 3 * 1000);
    pto_task_add_input(rt, task, cells, 1, 0, 1, 1);
    wait_a_little(i % 2 * 1000);
    pto_task_add_output(rt, task, cells, 2, 0, 1, 1);
    pto_task_add_inout(rt, task, cells, 3, 0, 1, 1);
    pto_task_submit(rt, task);
  }
}

static void test_no_task_runs_twice(int workers) {
  enum { JOINS = 1000 };
  Counters counters = {(int32_t*)calloc(4 * JOINS, 4), NULL, JOINS};
  CHECK_EQ(PTO_OK, runtime_entry_arm64(joined, &counters, workers, 1));
  for (int i = 0; i < JOINS; ++i) {
    CHECK_EQ(2, counters.cells[4 * i + 2]);
    CHECK_EQ(1, counters.cells[4 * i + 3]);
  }
  free(counters.cells);
}

/* One task that everybody waits for, and one with as many arguments. */
static void test_wide_tasks(void) {
  enum { WIDTH = 5000 };
  int32_t* cells = (int32_t*)calloc(WIDTH + 1, 4);
  PTORuntime rt;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  const int32_t first = add_task(&rt, increment);
  pto_task_add_inout(&rt, first, cells, 0, 0, 1, 1);
  pto_task_submit(&rt, first);
  for (int i = 1; i <= WIDTH; ++i) {
    const int32_t task = add_task(&rt, copy_slowly);
    pto_task_add_input(&rt, task, cells, 0, 0, 1, 1);
    pto_task_add_output(&rt, task, cells, i, 0, 1, 1);
    pto_task_submit(&rt, task);
  }
  const int32_t last = add_task(&rt, increment);
  pto_task_add_inout(&rt, last, cells, 0, 0, 1, 1);
  for (int i = 1; i <= WIDTH; ++i) CHECK_EQ(PTO_OK, pto_task_add_input(&rt, last, cells, i, 0, 1, 1));
  pto_task_submit(&rt, last);
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  CHECK_EQ(2, cells[0]);
  for (int i = 1; i <= WIDTH; ++i) CHECK_EQ(1, cells[i]);
  PTORuntimeStats stats;
  CHECK_EQ(PTO_OK, pto_runtime_get_stats(&rt, &stats));
  CHECK_EQ(2 * WIDTH + 1,
           stats.dependences); /* the last one: on the first through its write, and on each copy */
  pto_runtime_shutdown(&rt);
  free(cells);
}

/* A runtime takes what its tasks need, and no more: it can be made often. */
static void test_runtimes_are_small(void) {
  for (int i = 0; i < 300; ++i) {
    PTORuntime rt;
    PTORuntimeStats stats;
    CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
    CHECK_EQ(PTO_OK, pto_runtime_get_stats(&rt, &stats));
    CHECK(stats.bytes < 2 << 20);
    pto_runtime_shutdown(&rt);
  }
}

/* args: a number, a sum */
static void add_number(void** args, int32_t num_args) {
  (void)num_args;
  *(uint32_t*)args[1] = 3 * *(const uint32_t*)args[1] + *(const uint32_t*)args[0];
}

static void add_to(PTORuntime* rt, int32_t* cells, int from, int to) {
  const int32_t task = add_task(rt, add_number);
  pto_task_add_input(rt, task, cells, from, 0, 1, 1);
  pto_task_add_inout(rt, task, cells, to, 0, 1, 1);
  pto_task_submit(rt, task);
}

/* Rows of three sums, each of which goes on while the next one does: a row never waits for another one. */
static void rows_of_sums(PTORuntime* rt, void* user_data) {
  const Counters* counters = (const Counters*)user_data;
  for (int row = 0; row < counters->num_tasks; ++row) {
    int32_t* cells = counters->cells + 4 * row;
    for (int i = 0; i < 100; ++i)
      for (int sum = 0; sum < 3; ++sum) add_to(rt, cells, sum, sum + 1);
  }
}

static void test_rows(int rows, int workers, int threshold) {
  Counters counters = {(int32_t*)calloc((size_t)rows * 4, 4), NULL, rows};
  uint32_t sums[4] = {0, 0, 0, 0};
  for (int row = 0; row < rows; ++row) counters.cells[4 * row] = row + 1;
  CHECK_EQ(PTO_OK, runtime_entry_arm64(rows_of_sums, &counters, workers, threshold));
  for (int row = 0; row < rows; ++row) {
    sums[0] = (uint32_t)row + 1;
    sums[1] = sums[2] = sums[3] = 0;
    for (int i = 0; i < 100; ++i)
      for (int sum = 0; sum < 3; ++sum) sums[sum + 1] = 3 * sums[sum + 1] + sums[sum];
    for (int sum = 1; sum <= 3; ++sum) CHECK_EQ((int32_t)sums[sum], counters.cells[4 * row + sum]);
  }
  free(counters.cells);
}

/* What the numbers of a region mean changes with the row unit, also for a region that was named before. */
static char* expected_place;

/* The region lies beyond all memory that there is: only its address is looked at. */
static void check_place(void** args, int32_t num_args) {
  CHECK_EQ(1, num_args);
  CHECK_EQ(1, (char*)args[0] == expected_place);
}

/* Offsets have 64 bits: none is cut. */
static void test_large_offsets(void) {
  float* base = (float*)(uintptr_t)4096;
  const int64_t row = 4294967297;
  PTORuntime rt;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  int32_t task = add_task(&rt, check_place);
  expected_place = (char*)base + 4 * (row * 3 + 2);
  CHECK_EQ(PTO_OK, pto_task_add_input(&rt, task, base, row, 2, 1, 3));
  CHECK_EQ(PTO_OK, pto_task_submit(&rt, task));
  task = pto_task_alloc(&rt, "writer", NULL, 0, 0);
  CHECK_EQ(PTO_OK, pto_task_add_output(&rt, task, base, 1, 2, 1, 3)); /* row 4294967297 is another one */
  CHECK_EQ(PTO_OK, pto_task_submit(&rt, task));
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  PTORuntimeStats stats;
  CHECK_EQ(PTO_OK, pto_runtime_get_stats(&rt, &stats));
  CHECK_EQ(0, stats.dependences);
  pto_runtime_shutdown(&rt);
}

static int add_region(int64_t unit, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  PTORuntime rt;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  CHECK_EQ(PTO_OK, pto_runtime_set_row_unit(&rt, (int32_t)unit));
  const int32_t task = pto_task_alloc(&rt, "task", NULL, 0, 0);
  const int code = pto_task_add_input(&rt, task, (void*)(uintptr_t)4096, row, col, rows, cols);
  pto_runtime_shutdown(&rt);
  return code;
}

static void test_regions_beyond_all_memory(void) {
  const int64_t much = 4294967297;
  CHECK_EQ(PTO_OK, add_region(1, 0, 0, 1, 1));
  CHECK_EQ(PTO_ERROR_ARGUMENT, add_region(1, 0, much, 1, 1));
  CHECK_EQ(PTO_ERROR_ARGUMENT, add_region(1, 0, 0, much, 1));
  CHECK_EQ(PTO_ERROR_ARGUMENT, add_region(1, 0, 0, 1, much));
  CHECK_EQ(PTO_ERROR_ARGUMENT, add_region(1, -much, 0, 1, 1));
  CHECK_EQ(PTO_ERROR_ARGUMENT, add_region(1, INT64_MAX, 0, 1, 1));
  CHECK_EQ(PTO_ERROR_ARGUMENT, add_region(1, INT64_MAX / 2, 0, 1, 1));
  CHECK_EQ(PTO_ERROR_ARGUMENT, add_region(1000, INT64_MAX / 100, 0, 1, 0));
}

static void test_row_units(void) {
  int32_t cells[8] = {0};
  PTORuntime rt;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  for (int unit = 1; unit <= 4; unit *= 2) {
    CHECK_EQ(PTO_OK, pto_runtime_set_row_unit(&rt, unit));
    for (int i = 0; i < 2; ++i) {
      const int32_t task = add_task(&rt, increment);
      pto_task_add_inout(&rt, task, cells, 1, 0, 1, 1);
      pto_task_submit(&rt, task);
    }
  }
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  for (int i = 0; i < 8; ++i) CHECK_EQ(i == 1 || i == 2 || i == 4 ? 2 : 0, cells[i]);
  pto_runtime_shutdown(&rt);
}

/* Tasks without functions: what they wait for is known in closed form. */
static void test_llama_graph(int n) {
  LlamaLayer layer;
  layer.n = n;
  layer.rows = 32;
  for (int i = 0; i < LLAMA_KERNELS; ++i) layer.names[i] = "kernel";
  float** tensors = (float**)&layer.tensors;
  enum { TENSORS = sizeof(LlamaTensors) / sizeof(float*) };
  const size_t stride = (size_t)(n > 4 ? n : 4) * 32 * LLAMA_DIM;
  float* memory = (float*)malloc(TENSORS * stride * sizeof(float));
  for (int i = 0; i < TENSORS; ++i) tensors[i] = memory + (size_t)i * stride;
  PTORuntime rt;
  PTORuntimeStats stats;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  llama_layer(&rt, &layer);
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  CHECK_EQ(PTO_OK, pto_runtime_get_stats(&rt, &stats));
  CHECK_EQ(16 * n + 3 * n * n, stats.tasks_completed);
  CHECK_EQ(53 * n + 15 * n * n, stats.arguments);
  CHECK_EQ(19 * n + 10 * n * n, stats.dependences);
  CHECK(stats.bytes / stats.tasks_completed < 150 || n < 64);
  pto_runtime_shutdown(&rt);
  free(memory);
}

int main(void) {
  test_large_offsets();
  test_regions_beyond_all_memory();
  for (int workers = 1; workers <= 4; ++workers) {
    test_every_ready_task_runs_once(20000, workers, 0);
    test_every_ready_task_runs_once(20000, workers, 20);
    test_readers_see_their_version(workers, 0);
    test_readers_see_their_version(workers, 20);
    test_no_task_runs_twice(workers);
    for (int rows = 1; rows <= 256; rows *= 4) {
      test_rows(rows, workers, 0);
      test_rows(rows, workers, 20);
    }
  }
  test_row_units();
  test_every_ready_task_runs_once(300000, 2, 0);
  test_wide_tasks();
  test_runtimes_are_small();
  for (int n = 1; n <= 64; n *= 2) test_llama_graph(n);
  return 0;
}
