/* SPDX-License-Identifier: MIT */
/* Every function: what it does, and what it refuses. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "pto_runtime.h"

enum { ROWS = 8, COLS = 8, TILE = ROWS * COLS };

static void rowmax(void** args, int32_t n) {
  const float* x = (const float*)args[0];
  (void)n;
  for (int i = 0; i < ROWS; ++i) {
    float top = x[i * COLS];
    for (int j = 1; j < COLS; ++j) top = x[i * COLS + j] > top ? x[i * COLS + j] : top;
    ((float*)args[1])[i] = top;
  }
}
static void rowexpandsub(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i)
    ((float*)args[2])[i] = ((const float*)args[0])[i] - ((const float*)args[1])[i / COLS];
}
static void elem_exp(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i) ((float*)args[1])[i] = expf(((const float*)args[0])[i]);
}
static void rowsum(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < ROWS; ++i) {
    float sum = 0;
    for (int j = 0; j < COLS; ++j) sum += ((const float*)args[0])[i * COLS + j];
    ((float*)args[1])[i] = sum;
  }
}
static void rowexpanddiv(void** args, int32_t n) {
  (void)n;
  for (int i = 0; i < TILE; ++i)
    ((float*)args[2])[i] = ((const float*)args[0])[i] / ((const float*)args[1])[i / COLS];
}

typedef struct Softmax {
  float *input, *output, *top, *shifted, *power, *sum;
  int num_tiles;
  int counts_tiles; /* row offsets count tiles, and tiles have buffers of their own */
} Softmax;

static void unary(PTORuntime* rt, const char* name, PTOInCoreFunc func, float* in, int in_cols, float* out,
                  int out_cols, int row) {
  const int32_t t = pto_task_alloc(rt, name, (void*)func, 544, 288);
  pto_task_add_input(rt, t, in, row, 0, ROWS, in_cols);
  pto_task_add_output(rt, t, out, row, 0, ROWS, out_cols);
  pto_task_submit(rt, t);
}
static void binary(PTORuntime* rt, const char* name, PTOInCoreFunc func, float* in, float* column, float* out,
                   int row) {
  const int32_t t = pto_task_alloc(rt, name, (void*)func, 544, 544);
  pto_task_add_input(rt, t, in, row, 0, ROWS, COLS);
  pto_task_add_input(rt, t, column, row, 0, ROWS, 1);
  pto_task_add_output(rt, t, out, row, 0, ROWS, COLS);
  pto_task_submit(rt, t);
}

/* Five tasks per tile. */
static void softmax(PTORuntime* rt, void* user_data) {
  const Softmax* s = (const Softmax*)user_data;
  if (s->counts_tiles) CHECK_EQ(PTO_OK, pto_runtime_set_row_unit(rt, ROWS));
  for (int tile = 0; tile < s->num_tiles; ++tile) {
    const int row = s->counts_tiles ? tile : tile * ROWS;
    unary(rt, "rowmax", rowmax, s->input, COLS, s->top, 1, row);
    binary(rt, "rowexpandsub", rowexpandsub, s->input, s->top, s->shifted, row);
    unary(rt, "elem_exp", elem_exp, s->shifted, COLS, s->power, COLS, row);
    unary(rt, "rowsum", rowsum, s->power, COLS, s->sum, 1, row);
    binary(rt, "rowexpanddiv", rowexpanddiv, s->power, s->sum, s->output, row);
  }
}

static void test_softmax(int num_tiles, int counts_tiles, int workers, int threshold) {
  const size_t size = (size_t)num_tiles * TILE;
  float* memory = (float*)calloc(6 * size, sizeof(float));
  Softmax s = {
      memory,    memory + size, memory + 2 * size, memory + 3 * size, memory + 4 * size, memory + 5 * size,
      num_tiles, counts_tiles};
  uint32_t state = 5;
  for (size_t i = 0; i < size; ++i) s.input[i] = (float)random_below(&state, 1000) / 100.0f;
  CHECK_EQ(PTO_OK, runtime_entry_arm64(softmax, &s, workers, threshold));
  for (size_t row = 0; row < size / COLS; ++row) {
    double total = 0, sum = 0;
    for (int j = 0; j < COLS; ++j) total += exp(s.input[row * COLS + (size_t)j]);
    for (int j = 0; j < COLS; ++j) {
      const double expected = exp(s.input[row * COLS + (size_t)j]) / total;
      CHECK(fabs(expected - s.output[row * COLS + (size_t)j]) < 1e-6);
      sum += s.output[row * COLS + (size_t)j];
    }
    CHECK(fabs(sum - 1) < 1e-5);
  }
  free(memory);
}

static void increment(void** args, int32_t n) {
  (void)n;
  ++*(int32_t*)args[0];
}

static int32_t cell_task(PTORuntime* rt, const char* name, PTOInCoreFunc func, int32_t* cell) {
  const int32_t task = pto_task_alloc(rt, name, (void*)func, 0, 0);
  CHECK_EQ(PTO_OK, pto_task_add_inout(rt, task, cell, 0, 0, 1, 1));
  CHECK_EQ(PTO_OK, pto_task_submit(rt, task));
  return task;
}

/* Names, registered functions, tasks that are empty, and execution more than once. */
static void test_functions(void) {
  PTORuntime rt;
  int32_t cell = 0;
  char name[16];
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  CHECK_EQ(PTO_OK, pto_execute_all(&rt)); /* nothing */
  for (int i = 0; i < 4; ++i) {           /* one buffer, several names */
    snprintf(name, sizeof(name), "name%d", i % 2);
    CHECK_EQ(i, cell_task(&rt, name, NULL, &cell));
  }
  CHECK_EQ(PTO_OK, pto_register_incore_func(&rt, "name1", increment));
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  CHECK_EQ(2, cell);
  cell_task(&rt, "name0", increment, &cell);
  CHECK_EQ(PTO_OK, pto_runtime_set_workers(&rt, 3));
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  CHECK_EQ(3, cell);
  pto_runtime_shutdown(&rt);
  pto_runtime_shutdown(&rt);
}

/* Tasks may be open at the same time, and are ordered as they are submitted. */
static void test_interleaved(void) {
  PTORuntime rt;
  int32_t cells[40] = {0};
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  const int32_t a = pto_task_alloc(&rt, "a", (void*)increment, 0, 0);
  const int32_t b = pto_task_alloc(&rt, "b", (void*)increment, 0, 0);
  for (int i = 0; i < 40; ++i) {
    CHECK_EQ(PTO_OK, pto_task_add_inout(&rt, a, cells, i, 0, 1, 1));
    CHECK_EQ(PTO_OK, pto_task_add_input(&rt, b, cells, 39 - i, 0, 1, 1));
  }
  CHECK_EQ(PTO_OK, pto_task_submit(&rt, b));
  CHECK_EQ(PTO_OK, pto_task_submit(&rt, a));
  CHECK_EQ(b, pto_get_ready_task(&rt));
  CHECK_EQ(PTO_NO_TASK, pto_get_ready_task(&rt));
  CHECK_EQ(PTO_OK, pto_task_run(&rt, b));
  CHECK_EQ(1, cells[39]);
  CHECK_EQ(PTO_OK, pto_task_complete_threadsafe(&rt, b));
  CHECK_EQ(a, pto_get_ready_task_blocking(&rt));
  CHECK_EQ(PTO_OK, pto_task_run(&rt, a));
  CHECK_EQ(1, cells[0]);
  CHECK_EQ(PTO_OK, pto_task_complete(&rt, a));
  CHECK_EQ(PTO_NO_TASK, pto_get_ready_task_blocking(&rt));
  const int32_t c = cell_task(&rt, "c", increment, cells);
  CHECK_EQ(c, pto_get_ready_task(&rt));
  CHECK_EQ(PTO_OK, pto_task_complete(&rt, c)); /* never run: that is the program's business */
  cell_task(&rt, "d", increment, cells);
  CHECK_EQ(PTO_OK, pto_execute_all(&rt)); /* the rest */
  CHECK_EQ(2, cells[0]);
  pto_runtime_shutdown(&rt);
}

typedef int (*Mistake)(PTORuntime* rt, int32_t* cell);

static int null_tensor(PTORuntime* rt, int32_t* cell) {
  (void)cell;
  return pto_task_add_input(rt, pto_task_alloc(rt, "t", NULL, 0, 0), NULL, 0, 0, 1, 1);
}
static int negative_rows(PTORuntime* rt, int32_t* cell) {
  return pto_task_add_output(rt, pto_task_alloc(rt, "t", NULL, 0, 0), cell, 0, 0, -1, 1);
}
static int large_row(PTORuntime* rt, int32_t* cell) {
  CHECK_EQ(PTO_OK, pto_runtime_set_row_unit(rt, 64));
  return pto_task_add_output(rt, pto_task_alloc(rt, "t", NULL, 0, 0), cell, INT64_MAX / 32, 0, 1, 1);
}
static int endless(PTORuntime* rt, int32_t* cell) {
  const int32_t task = pto_task_alloc(rt, "t", NULL, 0, 0);
  return pto_task_add_input(rt, task, cell, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX);
}
static int no_task(PTORuntime* rt, int32_t* cell) { return pto_task_add_input(rt, 7, cell, 0, 0, 1, 1); }
static int late_argument(PTORuntime* rt, int32_t* cell) {
  return pto_task_add_input(rt, cell_task(rt, "t", NULL, cell), cell, 0, 0, 1, 1);
}
static int submitted_twice(PTORuntime* rt, int32_t* cell) {
  return pto_task_submit(rt, cell_task(rt, "t", NULL, cell));
}
static int never_submitted(PTORuntime* rt, int32_t* cell) {
  (void)cell;
  pto_task_alloc(rt, "t", NULL, 0, 0);
  return pto_execute_all(rt);
}
static int completed_twice(PTORuntime* rt, int32_t* cell) {
  cell_task(rt, "t", NULL, cell);
  const int32_t task = pto_get_ready_task(rt);
  CHECK_EQ(PTO_OK, pto_task_complete(rt, task));
  return pto_task_complete(rt, task);
}
static int not_taken(PTORuntime* rt, int32_t* cell) {
  return pto_task_complete(rt, cell_task(rt, "t", NULL, cell));
}
static int taken_and_executed(PTORuntime* rt, int32_t* cell) {
  cell_task(rt, "t", NULL, cell);
  CHECK_EQ(0, pto_get_ready_task(rt));
  return pto_execute_all(rt);
}
static int no_name(PTORuntime* rt, int32_t* cell) {
  (void)cell;
  return pto_task_alloc(rt, NULL, NULL, 0, 0);
}
static int negative_buffer(PTORuntime* rt, int32_t* cell) {
  (void)cell;
  return pto_task_alloc(rt, "t", NULL, -1, 0);
}
static int many_workers(PTORuntime* rt, int32_t* cell) {
  (void)cell;
  return pto_runtime_set_workers(rt, 2000);
}
static int bad_unit(PTORuntime* rt, int32_t* cell) {
  (void)cell;
  return pto_runtime_set_row_unit(rt, 0);
}

/* Each mistake has a code and a message, and is kept: nothing runs any more. */
static void test_mistakes(void) {
  const struct {
    Mistake make;
    int code;
    const char* message;
  } cases[] = {
      {null_tensor, PTO_ERROR_ARGUMENT, "task 0 `t` gets a null tensor: row 0, col 0, rows 1, cols 1"},
      {negative_rows, PTO_ERROR_ARGUMENT,
       "task 0 `t` gets a region that cannot be: row 0, col 0, rows -1, cols 1"},
      {large_row, PTO_ERROR_ARGUMENT,
       "task 0 `t` gets a region that cannot be: row 9223372036854775807, col 0, rows 1, cols 1"},
      {endless, PTO_ERROR_ARGUMENT,
       "task 0 `t` gets a region that cannot be: row 2147483647, col 2147483647, rows 2147483647, cols "
       "2147483647"},
      {no_task, PTO_ERROR_TASK, "task 7 is not allocated and not submitted"},
      {late_argument, PTO_ERROR_TASK, "task 0 is not allocated and not submitted"},
      {submitted_twice, PTO_ERROR_TASK, "task 0 is not allocated and not submitted"},
      {never_submitted, PTO_ERROR_STATE, "task 0 `t` was allocated and never submitted"},
      {completed_twice, PTO_ERROR_TASK, "task 0 is not taken and not complete"},
      {not_taken, PTO_ERROR_TASK, "task 0 is not taken and not complete"},
      {taken_and_executed, PTO_ERROR_STATE, "tasks that were taken are not complete"},
      {no_name, PTO_ERROR_ARGUMENT, "a task has no name"},
      {negative_buffer, PTO_ERROR_ARGUMENT, "a task `t` has a negative buffer size"},
      {many_workers, PTO_ERROR_ARGUMENT, "2000 workers: expected 0 to 1024"},
      {bad_unit, PTO_ERROR_ARGUMENT, "a row unit of 0"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    PTORuntime rt;
    int32_t cell = 0;
    CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
    CHECK_EQ(cases[i].code, cases[i].make(&rt, &cell));
    CHECK_EQ(cases[i].code, pto_runtime_error(&rt));
    if (strcmp(cases[i].message, pto_runtime_error_message(&rt)) != 0) {
      fprintf(stderr, "expected: %s\nfound:    %s\n", cases[i].message, pto_runtime_error_message(&rt));
      exit(1);
    }
    CHECK_EQ(cases[i].code, pto_task_alloc(&rt, "later", NULL, 0, 0));
    CHECK_EQ(cases[i].code, pto_execute_all(&rt));
    pto_runtime_shutdown(&rt);
    CHECK_EQ(PTO_ERROR_ARGUMENT, pto_execute_all(&rt));
  }
  CHECK_EQ(PTO_ERROR_ARGUMENT, pto_runtime_init(NULL));
  CHECK_EQ(PTO_ERROR_ARGUMENT, runtime_entry_arm64(NULL, NULL, 1, 0));
  CHECK_EQ(PTO_ERROR_ARGUMENT, runtime_entry_arm64(softmax, NULL, 1, -1));
}

static void runs_tasks(void** args, int32_t n) {
  (void)n;
  PTORuntime inner;
  CHECK_EQ(PTO_OK, pto_runtime_init(&inner));
  cell_task(&inner, "inner", increment, (int32_t*)args[0]);
  *(int32_t*)args[0] = pto_execute_all(&inner);
  pto_runtime_shutdown(&inner);
}

static void test_a_task_cannot_run_tasks(void) {
  PTORuntime rt;
  int32_t cell = 0;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  cell_task(&rt, "outer", runs_tasks, &cell);
  CHECK_EQ(PTO_OK, pto_execute_all(&rt));
  CHECK_EQ(PTO_ERROR_STATE, cell);
  pto_runtime_shutdown(&rt);
}

static const char DUMP[] =
    "  Task 0: first          [DONE]  fanin=0 buf=32B fanout=[1,2]\n"
    "  Task 1: second         [READY] fanin=0 buf=0B fanout=[2]\n"
    "  Task 2: third          [WAIT]  fanin=1 buf=0B fanout=[]\n"
    "\n"
    "READY QUEUE\n"
    "  Tasks: [1]\n"
    "\n"
    "TENSOR MAP\n"
    "  [1:4, 0:1] writer=0 readers=[]\n"
    "  [0:1, 1:2] writer=none readers=[1]\n"
    "  [0:1, 0:1] writer=2 readers=[]\n"
    "\n"
    "DEPENDENCY GRAPH\n"
    "  Task 0 -> Task 1\n"
    "  Task 0 -> Task 2\n"
    "  Task 1 -> Task 2\n"
    "\n"
    "END\n";

/* Everything but the verbose lines, and without addresses. */
static void read_short_lines(const char* path, char* text, size_t size) {
  char line[256];
  size_t length = 0;
  int is_in_table = 0;
  FILE* file = fopen(path, "r");
  CHECK(file != NULL);
  while (fgets(line, sizeof(line), file) != NULL) {
    char* address = strncmp(line, "  0x", 4) == 0 ? strchr(line, '[') : NULL;
    if (address != NULL) memmove(line + 2, address, strlen(address) + 1);
    if (is_in_table && strncmp(line, "    ", 4) != 0) {
      CHECK(length + strlen(line) < size);
      memcpy(text + length, line, strlen(line) + 1);
      length += strlen(line);
    }
    is_in_table |= strcmp(line, "TASK TABLE\n") == 0;
  }
  fclose(file);
}

static void test_dump(const char* path) {
  PTORuntime rt;
  int32_t cells[4] = {0};
  static char text[4096];
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  const int32_t first = pto_task_alloc(&rt, "first", (void*)increment, 64, 32);
  pto_task_add_inout(&rt, first, cells, 1, 0, 3, 1);
  pto_task_submit(&rt, first);
  const int32_t second = pto_task_alloc(&rt, "second", NULL, 0, 0);
  pto_task_add_input(&rt, second, cells + 2, 0, 1, 1, 1);
  pto_task_submit(&rt, second);
  cell_task(&rt, "third", NULL, cells + 3);
  CHECK_EQ(first, pto_get_ready_task(&rt));
  CHECK_EQ(PTO_OK, pto_task_complete(&rt, first));
  CHECK_EQ(PTO_OK, pto_runtime_dump(&rt, path));
  CHECK_EQ(PTO_OK, pto_runtime_dump_stdout(&rt));
  CHECK_EQ(PTO_OK, pto_runtime_stats(&rt));
  read_short_lines(path, text, sizeof(text));
  CHECK(strcmp(DUMP, text) == 0);
  CHECK_EQ(PTO_ERROR_FILE, pto_runtime_dump(&rt, "/no/such/folder/tasks.txt"));
  CHECK_EQ(PTO_OK, pto_runtime_error(&rt));
  pto_runtime_shutdown(&rt);
  remove(path);
}

int main(int argc, char** argv) {
  (void)argc;
  static char path[512];
  snprintf(path, sizeof(path), "%s.tasks.txt", argv[0]);
  for (int workers = 1; workers <= 4; ++workers) {
    test_softmax(1, 0, workers, 0);
    test_softmax(64, 0, workers, 0);
    test_softmax(64, 1, workers, 20);
  }
  test_functions();
  test_interleaved();
  test_mistakes();
  test_a_task_cannot_run_tasks();
  test_dump(path);
  return 0;
}
