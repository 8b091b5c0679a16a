/* SPDX-License-Identifier: MIT */
/* A child that is forked while workers run the tasks of a runtime gets an error, and does not hang. */
#define _DEFAULT_SOURCE /* usleep */
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "pto_runtime.h"

enum { BEFORE = 200, AFTER = 200 };

static int32_t cells[BEFORE + AFTER];
static pid_t child;

static void work_a_little(void** args, int32_t num_args) {
  (void)num_args;
  usleep(100);
  ++*(int32_t*)args[0];
}

static void add_task(PTORuntime* rt, int i) {
  const int32_t task = pto_task_alloc(rt, "task", (void*)work_a_little, 0, 0);
  pto_task_add_inout(rt, task, &cells[i], 0, 0, 1, 1);
  pto_task_submit(rt, task);
}

static void forked_tasks(PTORuntime* rt, void* user_data) {
  (void)user_data;
  for (int i = 0; i < BEFORE; ++i) add_task(rt, i);
  child = fork();
  for (int i = BEFORE; i < BEFORE + AFTER; ++i) add_task(rt, i);
}

int main(void) {
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < BEFORE + AFTER; ++i) cells[i] = 0;
    const int code = runtime_entry_arm64(forked_tasks, NULL, 3, 4);
    if (child == 0) {
      /* The next runtime of the child is as good as any. */
      const int next = runtime_entry_arm64(forked_tasks, NULL, 2, 4);
      if (child == 0) _exit(0);
      waitpid(child, NULL, 0);
      _exit(code == PTO_ERROR_STATE && next == PTO_OK ? 0 : 1);
    }
    CHECK_EQ(PTO_OK, code);
    for (int i = 0; i < BEFORE + AFTER; ++i) CHECK_EQ(1, cells[i]);
    int status = 1;
    CHECK_EQ(child, waitpid(child, &status, 0));
    CHECK(WIFEXITED(status));
    CHECK_EQ(0, WEXITSTATUS(status));
  }
  return 0;
}
