/* SPDX-License-Identifier: MIT */
/* Directives of tasks decide which ready task starts first, and on which workers. */
#define _DEFAULT_SOURCE /* usleep */
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "pto_runtime.h"

enum { TASKS = 120, CELLS = 40 };

/* --- order and cost --- */

static int32_t cells[CELLS];
static int32_t numbers[TASKS];
static int log_of_tasks[TASKS], num_logged;

/* The last argument names the task. */
static void log_task(void** args, int32_t num_args) {
  log_of_tasks[num_logged++] = *(int32_t*)args[num_args - 1];
}

typedef struct Stated {
  int64_t order, cost;
  int reads, writes; /* cells */
} Stated;

typedef struct Plan {
  Stated tasks[TASKS];
  int has_order, has_cost;
  int num_first; /* tasks that are submitted before the first one states a cost, after orders */
} Plan;

static void build_plan(PTORuntime* rt, void* user_data) {
  const Plan* plan = (const Plan*)user_data;
  for (int i = 0; i < TASKS; ++i) {
    const Stated* stated = &plan->tasks[i];
    const int32_t task = pto_task_alloc(rt, "log", (void*)log_task, 0, 0);
    CHECK_EQ(PTO_OK, pto_task_add_input(rt, task, cells, 0, stated->reads, 1, 1));
    if (plan->has_cost && i >= plan->num_first) CHECK_EQ(PTO_OK, pto_task_set_cost(rt, task, stated->cost));
    CHECK_EQ(PTO_OK, pto_task_add_output(rt, task, cells, 0, stated->writes, 1, 1));
    CHECK_EQ(PTO_OK, pto_task_add_input(rt, task, numbers, 0, i, 1, 1));
    if (plan->has_order) CHECK_EQ(PTO_OK, pto_task_set_order(rt, task, stated->order));
    CHECK_EQ(PTO_OK, pto_task_submit(rt, task));
  }
}

static int conflict(const Stated* a, const Stated* b) {
  return a->writes == b->writes || a->writes == b->reads || a->reads == b->writes;
}

/* Whether a task must start before another one of those that are ready. */
static int starts_before(const Plan* plan, int a, int b) {
  const int64_t order_a = plan->has_order ? plan->tasks[a].order : 0;
  const int64_t order_b = plan->has_order ? plan->tasks[b].order : 0;
  const int64_t cost_a = plan->has_cost && a >= plan->num_first ? plan->tasks[a].cost : 0;
  const int64_t cost_b = plan->has_cost && b >= plan->num_first ? plan->tasks[b].cost : 0;
  if (order_a != order_b) return order_a < order_b;
  return cost_a != cost_b ? cost_a > cost_b : a < b;
}

/* One worker runs, again and again, the first of the ready tasks. */
static void check_log(const Plan* plan) {
  int is_done[TASKS] = {0};
  CHECK_EQ(TASKS, num_logged);
  for (int step = 0; step < TASKS; ++step) {
    int first = -1;
    for (int i = 0; i < TASKS; ++i) {
      int is_ready = !is_done[i];
      for (int j = 0; j < i && is_ready; ++j)
        is_ready = is_done[j] || !conflict(&plan->tasks[i], &plan->tasks[j]);
      if (is_ready && (first < 0 || starts_before(plan, i, first))) first = i;
    }
    CHECK_EQ(first, log_of_tasks[step]);
    is_done[first] = 1;
  }
}

static void test_order_and_cost(void) {
  uint32_t state = 3;
  int num_in_order = 0;
  for (int i = 0; i < TASKS; ++i) numbers[i] = i;
  for (int round = 0; round < 60; ++round) {
    Plan plan;
    plan.has_order = round % 3 != 0;
    plan.has_cost = round % 3 != 1;
    plan.num_first = round % 2 == 0 || !plan.has_order ? 0 : (int)random_below(&state, TASKS / 2);
    const uint32_t num_cells = 1 + random_below(&state, CELLS);
    for (int i = 0; i < TASKS; ++i) {
      plan.tasks[i].order = (int64_t)random_below(&state, 7) - 3;
      plan.tasks[i].cost = random_below(&state, 5);
      plan.tasks[i].reads = (int)random_below(&state, num_cells);
      plan.tasks[i].writes = (int)random_below(&state, num_cells);
    }
    num_logged = 0;
    CHECK_EQ(PTO_OK, runtime_entry_arm64(build_plan, &plan, 1, 0));
    check_log(&plan);
    int is_in_order = 1;
    for (int i = 0; i < TASKS; ++i) is_in_order &= log_of_tasks[i] == i;
    num_in_order += is_in_order;
  }
  CHECK(num_in_order < 10);
}

enum { MANY = 3000, COMPARED = 1024 };

static int32_t many_numbers[MANY];
static int log_of_many[MANY];

static void log_many(void** args, int32_t num_args) {
  (void)num_args;
  log_of_many[num_logged++] = *(int32_t*)args[0];
}

/* Each task is to start before all tasks before it. */
static void build_many(PTORuntime* rt, void* user_data) {
  (void)user_data;
  for (int i = 0; i < MANY; ++i) {
    const int32_t task = pto_task_alloc(rt, "log", (void*)log_many, 0, 0);
    many_numbers[i] = i;
    CHECK_EQ(PTO_OK, pto_task_add_input(rt, task, many_numbers, 0, i, 1, 1));
    CHECK_EQ(PTO_OK, pto_task_set_order(rt, task, -i));
    CHECK_EQ(PTO_OK, pto_task_submit(rt, task));
  }
}

static void test_number_of_compared_tasks(void) {
  num_logged = 0;
  CHECK_EQ(PTO_OK, runtime_entry_arm64(build_many, NULL, 1, 0));
  CHECK_EQ(MANY, num_logged);
  const int num_later = MANY - COMPARED + 1;
  for (int i = 0; i < num_later; ++i) CHECK_EQ(COMPARED - 1 + i, log_of_many[i]);
  for (int i = num_later; i < MANY; ++i) CHECK_EQ(MANY - 1 - i, log_of_many[i]);
}

/* A directive holds for later executions too. */
static void test_several_executions(void) {
  PTORuntime rt;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  CHECK_EQ(PTO_OK, pto_runtime_set_workers(&rt, 1));
  for (int execution = 0; execution < 3; ++execution) {
    num_logged = 0;
    for (int i = 0; i < 10; ++i) {
      const int32_t task = pto_task_alloc(&rt, "log", (void*)log_task, 0, 0);
      CHECK_EQ(PTO_OK, pto_task_add_input(&rt, task, numbers, 0, i, 1, 1));
      if (execution > 0) CHECK_EQ(PTO_OK, pto_task_set_order(&rt, task, -i));
      CHECK_EQ(PTO_OK, pto_task_submit(&rt, task));
    }
    CHECK_EQ(PTO_OK, pto_execute_all(&rt));
    for (int i = 0; i < 10; ++i) CHECK_EQ(execution > 0 ? 9 - i : i, log_of_tasks[i]);
  }
  pto_runtime_shutdown(&rt);
}

/* --- affinity --- */

static int32_t at_work[3], most_at_work[3], num_run[3];

/* Counts the tasks of one key that run at the same time. */
static void count_task(void** args, int32_t num_args) {
  (void)num_args;
  const int32_t key = *(int32_t*)args[0];
  const int32_t now = __atomic_add_fetch(&at_work[key], 1, __ATOMIC_SEQ_CST);
  int32_t most = __atomic_load_n(&most_at_work[key], __ATOMIC_SEQ_CST);
  while (most < now && !__atomic_compare_exchange_n(&most_at_work[key], &most, now, 0, __ATOMIC_SEQ_CST,
                                                    __ATOMIC_SEQ_CST)) {
  }
  usleep(300);
  __atomic_add_fetch(&num_run[key], 1, __ATOMIC_SEQ_CST);
  __atomic_sub_fetch(&at_work[key], 1, __ATOMIC_SEQ_CST);
}

static int group_size;

/* Two keys, of which one group each runs the tasks, and tasks without a key, which any worker runs. */
static void build_groups(PTORuntime* rt, void* user_data) {
  (void)user_data;
  CHECK_EQ(PTO_OK, pto_runtime_set_group(rt, group_size));
  for (int i = 0; i < 90; ++i) {
    const int32_t task = pto_task_alloc(rt, "count", (void*)count_task, 0, 0);
    CHECK_EQ(PTO_OK, pto_task_add_input(rt, task, numbers, 0, i / 30, 1, 1));
    if (i < 60) CHECK_EQ(PTO_OK, pto_task_set_affinity(rt, task, i / 30 - 4));
    CHECK_EQ(PTO_OK, pto_task_submit(rt, task));
  }
}

static void test_affinity(void) {
  for (group_size = 1; group_size < 3; ++group_size) {
    memset(most_at_work, 0, sizeof most_at_work);
    memset(num_run, 0, sizeof num_run);
    CHECK_EQ(PTO_OK, runtime_entry_arm64(build_groups, NULL, 2 * group_size, 0));
    for (int key = 0; key < 3; ++key) CHECK_EQ(30, num_run[key]);
    CHECK(most_at_work[0] <= group_size && most_at_work[1] <= group_size);
    CHECK(most_at_work[0] >= 1 && most_at_work[1] >= 1);
  }
}

/* --- refusals --- */

static int32_t alloc(PTORuntime* rt) {
  const int32_t task = pto_task_alloc(rt, "log", (void*)log_task, 0, 0);
  CHECK_EQ(PTO_OK, pto_task_add_input(rt, task, numbers, 0, 0, 1, 1));
  return task;
}

static void check_refused(PTORuntime* rt, int expected, int found, const char* message) {
  CHECK_EQ(expected, found);
  CHECK(strstr(pto_runtime_error_message(rt), message) != NULL);
  pto_runtime_shutdown(rt);
  CHECK_EQ(PTO_OK, pto_runtime_init(rt));
}

static void state_late(PTORuntime* rt, void* user_data) {
  int* found = (int*)user_data;
  for (int i = 0; i < 20; ++i) {
    const int32_t task = alloc(rt);
    if (i == 19) *found = pto_task_set_cost(rt, task, 1);
    pto_task_set_order(rt, task, i);
    pto_task_submit(rt, task);
  }
}

static void test_refusals(void) {
  PTORuntime rt;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  int32_t task = alloc(&rt);
  pto_task_submit(&rt, task);
  check_refused(&rt, PTO_ERROR_TASK, pto_task_set_order(&rt, task, 1), "task 0 is not allocated");
  task = alloc(&rt);
  check_refused(&rt, PTO_ERROR_ARGUMENT, pto_task_set_cost(&rt, task, -1), "a cost of -1");
  check_refused(&rt, PTO_ERROR_ARGUMENT, pto_runtime_set_group(&rt, 0), "a group of 0 workers");
  task = alloc(&rt);
  CHECK_EQ(PTO_OK, pto_task_set_affinity(&rt, task, 1));
  check_refused(&rt, PTO_ERROR_STATE, pto_runtime_set_workers(&rt, 3), "groups of workers already");
  task = alloc(&rt);
  CHECK_EQ(PTO_OK, pto_task_set_affinity(&rt, task, 1));
  check_refused(&rt, PTO_ERROR_STATE, pto_runtime_set_group(&rt, 2), "groups of workers already");
  task = alloc(&rt);
  CHECK_EQ(PTO_OK, pto_task_set_order(&rt, task, 1));
  pto_task_submit(&rt, task);
  check_refused(&rt, PTO_ERROR_STATE, pto_get_ready_task(&rt), "run the tasks by pto_execute_all");
  CHECK_EQ(PTO_NO_TASK, pto_get_ready_task(&rt));
  task = alloc(&rt);
  check_refused(&rt, PTO_ERROR_STATE, pto_task_set_order(&rt, task, 1), "tasks are taken by hand");
  pto_runtime_shutdown(&rt);
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  pto_task_submit(&rt, alloc(&rt));
  task = alloc(&rt);
  check_refused(&rt, PTO_ERROR_STATE, pto_task_set_order(&rt, task, 1), "the first task has to state one");
  pto_runtime_shutdown(&rt);
  int found = PTO_OK;
  num_logged = 0;
  CHECK_EQ(PTO_ERROR_STATE, runtime_entry_arm64(state_late, &found, 1, 4));
  CHECK_EQ(PTO_ERROR_STATE, found);
  CHECK_EQ(PTO_ERROR_ARGUMENT, pto_task_set_order(NULL, 0, 1));
}

int main(void) {
  test_order_and_cost();
  test_number_of_compared_tasks();
  test_several_executions();
  test_affinity();
  test_refusals();
  return 0;
}
