/* SPDX-License-Identifier: MIT */
/* A child that is forked while launches are in progress gets errors, and does not hang. */
#define _DEFAULT_SOURCE
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "session_graphs.h"

static uint32_t a[SIZE], b[SIZE], c[SIZE];

/* The session of the parent is of no use, and can be destroyed. The next session is as good as any. */
static int child_is_right(PTOSession* session, PTOLaunch* launch) {
  static uint32_t x[SIZE], y[SIZE];
  const struct pair_arguments arguments = {x, y, 2};
  const char* error = pto_launch_wait(launch);
  if (error == NULL || strstr(error, "run-in-flight-at-fork") == NULL) return 0;
  error = mixing_launch(session, &arguments, NULL, NULL);
  if (error == NULL || strstr(error, "run-in-flight-at-fork") == NULL) return 0;
  if (!pto_launch_is_done(launch)) return 0;
  pto_session_destroy(session);
  session = pto_session_create();
  if (mixing_launch(session, &arguments, NULL, &launch) != NULL || pto_session_wait(session) != NULL)
    return 0;
  pto_session_destroy(session);
  return 1;
}

int main(void) {
  for (int round = 0; round < 5; ++round) {
    const struct pair_arguments ab = {a, b, 2}, bc = {b, c, 2};
    PTOLaunch* launch = NULL;
    for (int i = 0; i < SIZE; ++i) a[i] = HELD;
    hold(1);
    PTOSession* session = pto_session_create();
    CHECK(copying_launch(session, &ab, NULL, NULL) == NULL);
    CHECK(copying_launch(session, &bc, NULL, &launch) == NULL);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      hold(0);
      _exit(child_is_right(session, launch) ? 0 : 1);
    }
    hold(0);
    CHECK(pto_session_wait(session) == NULL);
    CHECK_EQ(3 * (3 * HELD + 1) + 1, c[SIZE - 1]);
    pto_session_destroy(session);
    int status = 1;
    CHECK_EQ(child, waitpid(child, &status, 0));
    CHECK(WIFEXITED(status));
    CHECK_EQ(0, WEXITSTATUS(status));
  }
  return 0;
}
