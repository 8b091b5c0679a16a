/* SPDX-License-Identifier: MIT */
/* Functions that throw, which those of C++ do: what has run, and what is said of it. C has none of it. */
#include <string.h>

#include "check.h"
#include "pto_runtime.h"

#ifdef __cplusplus
#include <new>
#include <stdexcept>

enum { TASKS = 40, FAILS = 25 };

static void increment(void** args, int32_t) { ++*(int32_t*)args[0]; }
static void throw_error(void**, int32_t) { throw std::runtime_error("why"); }
static void throw_number(void**, int32_t) { throw 5; }
static void throw_memory(void**, int32_t) { throw std::bad_alloc(); }

struct Failure {
  PTOInCoreFunc func;
  int code;
  const char* message;
};
static const Failure FAILURES[] = {
    {throw_error, PTO_ERROR_FUNCTION, "task 25 `task`: why"},
    {throw_number, PTO_ERROR_FUNCTION, "task 25 `task`: it threw an exception"},
    {throw_memory, PTO_ERROR_MEMORY, "task 25 `task`: there is no memory"},
};

/* Tasks one behind the other, of which one fails. */
static void add_tasks(PTORuntime* rt, int32_t* cell, PTOInCoreFunc failing) {
  for (int i = 0; i < TASKS; ++i) {
    const int32_t task = pto_task_alloc(rt, "task", i == FAILS ? failing : increment, 0, 0);
    pto_task_add_inout(rt, task, cell, 0, 0, 1, 1);
    pto_task_submit(rt, task);
  }
}

static void check_failure(PTORuntime* rt, const Failure& failure, int32_t cell) {
  CHECK_EQ(failure.code, pto_runtime_error(rt));
  if (strcmp(failure.message, pto_runtime_error_message(rt)) != 0) {
    fprintf(stderr, "expected: %s\nfound:    %s\n", failure.message, pto_runtime_error_message(rt));
    exit(1);
  }
  CHECK_EQ(FAILS, cell);
  PTORuntimeStats stats;
  CHECK_EQ(PTO_OK, pto_runtime_get_stats(rt, &stats));
  CHECK_EQ(FAILS, stats.tasks_completed);
  CHECK_EQ(failure.code, pto_execute_all(rt));
  CHECK_EQ(FAILS, cell);
}

static void test_what_was_before_is_complete(const Failure& failure, int workers) {
  PTORuntime rt;
  int32_t cell = 0;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  CHECK_EQ(PTO_OK, pto_runtime_set_workers(&rt, workers));
  add_tasks(&rt, &cell, failure.func);
  CHECK_EQ(failure.code, pto_execute_all(&rt));
  check_failure(&rt, failure, cell);
  pto_runtime_shutdown(&rt);
}

static void test_by_hand(const Failure& failure) {
  PTORuntime rt;
  int32_t cell = 0, task = 0;
  CHECK_EQ(PTO_OK, pto_runtime_init(&rt));
  add_tasks(&rt, &cell, failure.func);
  while ((task = pto_get_ready_task(&rt)) != FAILS) {
    CHECK_EQ(PTO_OK, pto_task_run(&rt, task));
    CHECK_EQ(PTO_OK, pto_task_complete(&rt, task));
  }
  CHECK_EQ(failure.code, pto_task_run(&rt, task));
  CHECK_EQ(failure.code, pto_task_complete(&rt, task));
  CHECK_EQ(failure.code, pto_get_ready_task_blocking(&rt));
  check_failure(&rt, failure, cell);
  pto_runtime_shutdown(&rt);
}

struct Orchestration {
  int32_t cell;
  PTOInCoreFunc failing;
};

static void orchestrate(PTORuntime* rt, void* user_data) {
  auto* orchestration = static_cast<Orchestration*>(user_data);
  add_tasks(rt, &orchestration->cell, orchestration->failing);
}

static void give_up(PTORuntime* rt, void* user_data) {
  orchestrate(rt, user_data);
  throw std::runtime_error("no more");
}

static void test_orchestrations(int workers, int threshold) {
  for (const Failure& failure : FAILURES) {
    Orchestration orchestration = {0, failure.func};
    CHECK_EQ(failure.code, runtime_entry_arm64(orchestrate, &orchestration, workers, threshold));
    CHECK_EQ(FAILS, orchestration.cell);
  }
  Orchestration orchestration = {0, increment};
  CHECK_EQ(PTO_ERROR_FUNCTION, runtime_entry_arm64(give_up, &orchestration, workers, threshold));
  CHECK(orchestration.cell <= (threshold == 0 ? 0 : TASKS));
}

int main() {
  for (int workers = 1; workers <= 3; ++workers) {
    for (const Failure& failure : FAILURES) test_what_was_before_is_complete(failure, workers);
    test_orchestrations(workers, 0);
    test_orchestrations(workers, 4);
  }
  for (const Failure& failure : FAILURES) test_by_hand(failure);
  return 0;
}

#else

int main(void) { return 0; }

#endif
