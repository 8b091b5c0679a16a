/* SPDX-License-Identifier: MIT */
/* Random programs: any number of workers and any threshold give what running one task after another gives. */
#include <string.h>

#include "check.h"
#include "pto_runtime.h"

enum { CELLS = 300, MAX_ARGS = 20, MAX_TASKS = 400 };

/* Functions for regions of so many elements: each combines all arguments into the last one. */
static void combine(int32_t** args, int32_t num_args, int size) {
  for (int j = 0; j < size; ++j) {
    uint32_t sum = 17u;
    for (int32_t i = 0; i < num_args; ++i) sum = sum * 31u + (uint32_t)args[i][j];
    args[num_args - 1][j] = (int32_t)sum;
  }
}
static void combine_0(void** args, int32_t n) { combine((int32_t**)args, n, 0); }
static void combine_1(void** args, int32_t n) { combine((int32_t**)args, n, 1); }
static void combine_6(void** args, int32_t n) { combine((int32_t**)args, n, 6); }
static void combine_32(void** args, int32_t n) { combine((int32_t**)args, n, 32); }
static void combine_96(void** args, int32_t n) { combine((int32_t**)args, n, 96); }

typedef struct Shape {
  PTOInCoreFunc func;
  int rows, cols;
} Shape;
static const Shape SHAPES[] = {
    {combine_0, 0, 4}, {combine_1, 1, 1}, {combine_6, 2, 3}, {combine_32, 4, 8}, {combine_96, 96, 1}};

typedef struct Program {
  int32_t* memory;
  uint32_t seed;
  int num_tasks;
  int has_directives; /* which change no result */
} Program;

/* States something about a task; about the first one, at least an order. */
static void state_something(PTORuntime* rt, int32_t task, int t, uint32_t* state) {
  if (t == 0 || random_below(state, 2) == 0)
    CHECK_EQ(PTO_OK, pto_task_set_order(rt, task, (int64_t)random_below(state, 9) - 4));
  if (t == 0 || random_below(state, 3) == 0)
    CHECK_EQ(PTO_OK, pto_task_set_cost(rt, task, random_below(state, 9)));
  if (t == 0 || random_below(state, 3) == 0)
    CHECK_EQ(PTO_OK, pto_task_set_affinity(rt, task, (int64_t)random_below(state, 9) - 4));
}

/* Adds or runs the same tasks in the same order for the same seed. */
static void build(PTORuntime* rt, void* user_data) {
  const Program* program = (const Program*)user_data;
  uint32_t state = program->seed, stated = program->seed;
  for (int t = 0; t < program->num_tasks; ++t) {
    const Shape* shape = &SHAPES[random_below(&state, 5)];
    const int size = shape->rows * shape->cols;
    const int num_args = 1 + (int)random_below(&state, random_below(&state, 8) == 0 ? MAX_ARGS : 4);
    const int32_t task = rt == NULL ? 0 : pto_task_alloc(rt, "combine", (void*)shape->func, 0, 0);
    if (rt != NULL && program->has_directives) state_something(rt, task, t, &stated);
    void* args[MAX_ARGS];
    for (int i = 0; i < num_args; ++i) {
      /* A base inside the memory, and an offset in whole rows and in elements: all of it may overlap. */
      const int at = (int)random_below(&state, (uint32_t)(CELLS - size + 1));
      const int cols = shape->cols, row = (int)random_below(&state, (uint32_t)(at / cols + 1));
      const int col = (int)random_below(&state, (uint32_t)(at - row * cols + 1));
      int32_t* base = program->memory + (at - row * cols - col);
      args[i] = program->memory + at;
      if (rt == NULL) continue;
      if (i + 1 < num_args) {
        CHECK_EQ(PTO_OK, pto_task_add_input(rt, task, base, row, col, shape->rows, cols));
      } else if (t % 2 == 0) {
        CHECK_EQ(PTO_OK, pto_task_add_inout(rt, task, base, row, col, shape->rows, cols));
      } else {
        CHECK_EQ(PTO_OK, pto_task_add_output(rt, task, base, row, col, shape->rows, cols));
      }
    }
    if (rt == NULL) {
      shape->func(args, num_args);
    } else {
      CHECK_EQ(PTO_OK, pto_task_submit(rt, task));
    }
  }
}

static void fill(int32_t* memory, uint32_t seed) {
  for (int i = 0; i < CELLS; ++i) memory[i] = (int32_t)random_below(&seed, 1u << 24);
}

/* Runs all tasks by hand, the ready one that `state` picks first. */
static void run_by_hand(PTORuntime* rt, uint32_t* state) {
  int32_t taken[8];
  int num_taken = 0;
  for (;;) {
    while (num_taken < 8) {
      const int32_t task = pto_get_ready_task(rt);
      if (task == PTO_NO_TASK) break;
      CHECK(task >= 0);
      taken[num_taken++] = task;
    }
    if (num_taken == 0) return;
    const uint32_t pick = random_below(state, (uint32_t)num_taken);
    const int32_t task = taken[pick];
    taken[pick] = taken[--num_taken];
    CHECK_EQ(PTO_OK, pto_task_run(rt, task));
    CHECK_EQ(PTO_OK, pto_task_complete(rt, task));
  }
}

int main(void) {
  static int32_t expected[CELLS], found[CELLS];
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    uint32_t state = seed;
    Program program = {expected, seed, (int)random_below(&state, MAX_TASKS), 0};
    fill(expected, seed);
    build(NULL, &program);
    program.memory = found;
    for (int workers = 1; workers <= 4; ++workers) {
      const int thresholds[] = {0, 1, 50, 100000};
      for (int i = 0; i < 8; ++i) {
        program.has_directives = i >= 4;
        fill(found, seed);
        CHECK_EQ(PTO_OK, runtime_entry_arm64(build, &program, workers, thresholds[i % 4]));
        CHECK(memcmp(expected, found, sizeof(found)) == 0);
      }
    }
    program.has_directives = 0;
    PTORuntime rt;
    CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
    fill(found, seed);
    build(&rt, &program);
    run_by_hand(&rt, &state);
    CHECK(memcmp(expected, found, sizeof(found)) == 0);
    PTORuntimeStats stats;
    CHECK_EQ(PTO_OK, pto_runtime_get_stats(&rt, &stats));
    CHECK_EQ(program.num_tasks, stats.tasks_completed);
    pto_runtime_shutdown(&rt);
  }
  return 0;
}
