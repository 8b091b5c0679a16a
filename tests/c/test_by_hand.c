/* SPDX-License-Identifier: MIT */
/* Tasks that the program's own threads take, while others are built; and what no task and no thread may do
   while tasks run. */
#include <pthread.h>
#include <string.h>

#include "check.h"
#include "pto_runtime.h"

enum { CELLS = 64, TASKS = 600, MAX_THREADS = 4 };

/* args: what is read, ..., what is written */
static void combine(void** args, int32_t num_args) {
  uint32_t* to = (uint32_t*)args[num_args - 1];
  for (int32_t i = 0; i + 1 < num_args; ++i) *to = 3u * *to + *(const uint32_t*)args[i] + 1u;
}

/* Adds the tasks of a seed, or runs them where there is no runtime. */
static void build(PTORuntime* rt, int32_t* cells, uint32_t seed) {
  for (int t = 0; t < TASKS; ++t) {
    const int num_args = 1 + (int)random_below(&seed, 4);
    const int32_t task = rt == NULL ? 0 : pto_task_alloc(rt, "combine", (void*)combine, 0, 0);
    void* args[4];
    for (int i = 0; i < num_args; ++i) {
      const int cell = (int)random_below(&seed, CELLS);
      args[i] = cells + cell;
      if (rt == NULL) continue;
      if (i + 1 < num_args) {
        CHECK_EQ(PTO_OK, pto_task_add_input(rt, task, cells, cell, 0, 1, 1));
      } else {
        CHECK_EQ(PTO_OK, pto_task_add_inout(rt, task, cells, cell, 0, 1, 1));
      }
    }
    if (rt == NULL) {
      combine(args, num_args);
    } else {
      CHECK_EQ(PTO_OK, pto_task_submit(rt, task));
    }
  }
}

typedef struct Shared {
  PTORuntime rt;
  pthread_mutex_t mutex;
  int is_built;
  int num_run;
  int expected; /* of who waits for a task */
} Shared;

static int is_built(Shared* shared) {
  pthread_mutex_lock(&shared->mutex);
  const int is_built = shared->is_built;
  pthread_mutex_unlock(&shared->mutex);
  return is_built;
}

/* Takes, runs and completes tasks until all are built and complete. */
static void* work(void* user_data) {
  Shared* shared = (Shared*)user_data;
  for (;;) {
    const int is_last = is_built(shared);
    const int32_t task = pto_get_ready_task_blocking(&shared->rt);
    if (task == PTO_NO_TASK && is_last) return NULL;
    if (task == PTO_NO_TASK) continue;
    CHECK(task >= 0);
    CHECK_EQ(PTO_OK, pto_task_run(&shared->rt, task));
    pthread_mutex_lock(&shared->mutex);
    ++shared->num_run;
    pthread_mutex_unlock(&shared->mutex);
    CHECK_EQ(PTO_OK, pto_task_complete_threadsafe(&shared->rt, task));
  }
}

static void begin(Shared* shared) {
  memset(shared, 0, sizeof(*shared));
  CHECK_EQ(PTO_OK, pto_runtime_init(&shared->rt));
  CHECK_EQ(0, pthread_mutex_init(&shared->mutex, NULL));
}

static void end(Shared* shared) {
  pto_runtime_shutdown(&shared->rt);
  pthread_mutex_destroy(&shared->mutex);
}

/* Threads begin before there is a task, and take tasks while others are built; a part runs by
 * pto_execute_all. */
static void test_threads_take_what_is_built(uint32_t seed, int num_threads) {
  int32_t expected[CELLS] = {0}, found[CELLS] = {0};
  pthread_t threads[MAX_THREADS];
  Shared shared;
  begin(&shared);
  for (int round = 0; round < 3; ++round) {
    build(NULL, expected, seed);
    shared.is_built = 0;
    for (int i = 0; i < num_threads; ++i) CHECK_EQ(0, pthread_create(&threads[i], NULL, work, &shared));
    build(&shared.rt, found, seed);
    pthread_mutex_lock(&shared.mutex);
    shared.is_built = 1;
    pthread_mutex_unlock(&shared.mutex);
    for (int i = 0; i < num_threads; ++i) CHECK_EQ(0, pthread_join(threads[i], NULL));
    CHECK_EQ((round + 1) * TASKS, shared.num_run);
    CHECK(memcmp(expected, found, sizeof(found)) == 0);
    build(NULL, expected, ++seed);
    build(&shared.rt, found, seed);
    CHECK_EQ(PTO_OK, pto_execute_all(&shared.rt));
    CHECK(memcmp(expected, found, sizeof(found)) == 0);
  }
  end(&shared);
}

static void* wait_for_a_task(void* user_data) {
  Shared* shared = (Shared*)user_data;
  CHECK_EQ(shared->expected, pto_get_ready_task_blocking(&shared->rt));
  return NULL;
}

/* Who waits for a task of which nothing comes any more wakes up. */
static void test_a_mistake_wakes_those_who_wait(void) {
  int32_t cells[CELLS] = {0};
  pthread_t threads[MAX_THREADS];
  Shared shared;
  begin(&shared);
  shared.expected = PTO_ERROR_TASK;
  build(&shared.rt, cells, 1);
  while (pto_get_ready_task(&shared.rt) != PTO_NO_TASK) {
  }
  for (int i = 0; i < MAX_THREADS; ++i)
    CHECK_EQ(0, pthread_create(&threads[i], NULL, wait_for_a_task, &shared));
  CHECK_EQ(PTO_ERROR_TASK, pto_task_complete(&shared.rt, TASKS));
  for (int i = 0; i < MAX_THREADS; ++i) CHECK_EQ(0, pthread_join(threads[i], NULL));
  end(&shared);
}

/* args: a cell */
static void increment(void** args, int32_t num_args) {
  (void)num_args;
  ++*(int32_t*)args[0];
}

static int32_t add_task(PTORuntime* rt, PTOInCoreFunc func, int32_t* cell) {
  const int32_t task = pto_task_alloc(rt, "task", (void*)func, 0, 0);
  pto_task_add_inout(rt, task, cell, 0, 0, 1, 1);
  pto_task_submit(rt, task);
  return task;
}

static PTORuntime* running;
static int what_to_do;

/* A task that does something to its own runtime. */
static void meddle(void** args, int32_t num_args) {
  int code = PTO_ERROR_STATE;
  (void)num_args;
  switch (what_to_do) {
    case 0: code = pto_task_alloc(running, "inside", NULL, 0, 0); break;
    case 1: code = pto_task_add_input(running, 0, args[0], 0, 0, 1, 1); break;
    case 2: code = pto_task_submit(running, 0); break;
    case 3: code = pto_get_ready_task(running); break;
    case 4: code = pto_get_ready_task_blocking(running); break;
    case 5: code = pto_task_complete(running, 0); break;
    case 6: code = pto_execute_all(running); break;
    case 7: pto_runtime_shutdown(running); break;
    default: code = pto_register_incore_func(running, "inside", increment); break;
  }
  CHECK_EQ(PTO_ERROR_STATE, code);
  ++*(int32_t*)args[0];
}

static void meddling_tasks(PTORuntime* rt, void* user_data) {
  running = rt;
  add_task(rt, meddle, (int32_t*)user_data);
  for (int i = 0; i < 100; ++i) add_task(rt, increment, (int32_t*)user_data);
}

/* A task that was refused something has run all the same, and its runtime reports it. */
static void test_tasks_leave_their_runtime_alone(int threshold) {
  for (what_to_do = 0; what_to_do < 9; ++what_to_do) {
    int32_t cell = 0;
    CHECK_EQ(PTO_ERROR_STATE, runtime_entry_arm64(meddling_tasks, &cell, 2, threshold));
    CHECK(cell >= 1);
  }
}

/* Once others run tasks, what these need cannot be changed, and no task can be taken. */
static void late_change(PTORuntime* rt, void* user_data) {
  static int32_t cells[8];
  for (int i = 0; i < 8; ++i) add_task(rt, increment, cells + i);
  switch (*(const int*)user_data) {
    case 0: CHECK_EQ(PTO_ERROR_STATE, pto_runtime_set_workers(rt, 2)); break;
    case 1: CHECK_EQ(PTO_ERROR_STATE, pto_register_incore_func(rt, "task", increment)); break;
    case 2: CHECK_EQ(PTO_ERROR_STATE, pto_load_kernels(rt, "kernels.so")); break;
    default: CHECK_EQ(PTO_ERROR_STATE, pto_get_ready_task_blocking(rt)); break;
  }
}

/* The fifth task would make others run the first one, which is taken. */
static void early_take(PTORuntime* rt, void* user_data) {
  int32_t* cells = (int32_t*)user_data;
  const int32_t first = add_task(rt, increment, cells);
  CHECK_EQ(first, pto_get_ready_task(rt));
  for (int i = 1; i < 8; ++i) add_task(rt, increment, cells + i);
}

static void test_others_run_tasks_while_these_are_built(void) {
  int32_t cells[8] = {0};
  for (int what = 0; what < 4; ++what)
    CHECK_EQ(PTO_ERROR_STATE, runtime_entry_arm64(late_change, &what, 2, 4));
  CHECK_EQ(PTO_ERROR_STATE, runtime_entry_arm64(early_take, cells, 2, 4));
  for (int i = 0; i < 8; ++i) CHECK_EQ(0, cells[i]);
}

static void test_a_taken_task_runs_once(void) {
  int32_t cell = 0;
  PTORuntime rt;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  const int32_t task = add_task(&rt, increment, &cell);
  CHECK_EQ(task, pto_get_ready_task(&rt));
  CHECK_EQ(PTO_OK, pto_task_run(&rt, task));
  CHECK_EQ(PTO_ERROR_TASK, pto_task_run(&rt, task));
  CHECK(strcmp("task 0 is not taken and not run", pto_runtime_error_message(&rt)) == 0);
  CHECK_EQ(1, cell);
  pto_runtime_shutdown(&rt);
}

int main(void) {
  for (int threads = 1; threads <= MAX_THREADS; ++threads)
    for (uint32_t seed = 1; seed <= 5; ++seed) test_threads_take_what_is_built(seed, threads);
  test_a_mistake_wakes_those_who_wait();
  test_tasks_leave_their_runtime_alone(0);
  test_tasks_leave_their_runtime_alone(10);
  test_others_run_tasks_while_these_are_built();
  test_a_taken_task_runs_once();
  return 0;
}
