/* SPDX-License-Identifier: MIT */
/* Sessions from C: launches run concurrently with the results of one after another. */
#define _DEFAULT_SOURCE /* usleep */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "session_graphs.h"

enum { ARRAYS = 5, LAUNCHES = 24 };

typedef const char* (*Call)(const struct pair_arguments*);
typedef const char* (*LaunchCall)(PTOSession*, const struct pair_arguments*, const PTOGraph*, PTOLaunch**);

#define CHECK_OK(call)                                            \
  do {                                                            \
    const char* error_ = (call);                                  \
    if (error_ != NULL) {                                         \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error_); \
      exit(1);                                                    \
    }                                                             \
  } while (0)

/* An error has a text that contains `part`. */
#define CHECK_ERROR(part, call)                                                       \
  do {                                                                                \
    const char* error_ = (call);                                                      \
    if (error_ == NULL || strstr(error_, part) == NULL) {                             \
      fprintf(stderr, "%s:%d: expected `%s`, found `%s`\n", __FILE__, __LINE__, part, \
              error_ != NULL ? error_ : "no error");                                  \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

static void fill(uint32_t* data, uint32_t first) {
  for (int i = 0; i < SIZE; ++i) data[i] = first;
}

static struct pair_arguments pair(const uint32_t* x, uint32_t* y) {
  struct pair_arguments made;
  made.X = x;
  made.Y = y;
  made.workers = 2;
  return made;
}

static PTOLaunch* copied(PTOSession* session, const uint32_t* x, uint32_t* y) {
  const struct pair_arguments arguments = pair(x, y);
  PTOLaunch* launch = NULL;
  CHECK_OK(copying_launch(session, &arguments, NULL, &launch));
  return launch;
}

/* Random chains over parts of one memory, against the same calls one after another. */
static void test_random_launches(void) {
  enum { ALL = ARRAYS * SIZE };
  static uint32_t found[ALL], expected[ALL];
  uint32_t state = 1;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < ALL; ++i) found[i] = expected[i] = random_below(&state, 70);
    struct pair_arguments calls[LAUNCHES];
    int is_copy[LAUNCHES];
    for (int i = 0; i < LAUNCHES; ++i) {
      const uint32_t x = random_below(&state, ALL - SIZE), y = random_below(&state, ALL - SIZE);
      is_copy[i] = (int)random_below(&state, 2);
      calls[i] = pair(found + x, found + y);
      calls[i].workers = 1 + random_below(&state, 3);
      if (x < y + SIZE && y < x + SIZE) {
        --i; /* arrays of one call are apart */
        continue;
      }
      const struct pair_arguments alone = pair(expected + x, expected + y);
      CHECK_OK((is_copy[i] ? copying : mixing)(&alone));
    }
    PTOSession* session = pto_session_create();
    for (int i = 0; i < LAUNCHES; ++i)
      CHECK_OK((is_copy[i] ? copying_launch : mixing_launch)(session, &calls[i], NULL, NULL));
    CHECK_OK(pto_session_wait(session));
    CHECK(memcmp(found, expected, sizeof found) == 0);
    pto_session_destroy(session);
  }
}

static void test_waits_are_named(void) {
  static uint32_t a[SIZE], b[SIZE], c[SIZE], d[SIZE], e[SIZE];
  fill(a, HELD);
  hold(1);
  PTOSession* session = pto_session_create();
  PTOLaunch* first = copied(session, a, b);
  PTOLaunch* read = copied(session, b, c);
  PTOLaunch* write = copied(session, d, b);
  PTOLaunch* other = copied(session, d, e);
  PTOWait wait;
  CHECK_EQ(0, pto_launch_get_wait(first, 0, &wait));
  CHECK_EQ(1, pto_launch_get_wait(read, 0, &wait));
  CHECK(wait.launch == first && wait.hazard == PTO_READ_AFTER_WRITE && strcmp(wait.tensor, "X") == 0);
  CHECK_EQ(0, pto_launch_get_wait(read, 1, &wait));
  CHECK_EQ(1, pto_launch_get_wait(write, 0, &wait));
  CHECK(wait.launch == first && wait.hazard == PTO_WRITE_AFTER_WRITE && strcmp(wait.tensor, "Y") == 0);
  CHECK_EQ(1, pto_launch_get_wait(write, 1, &wait));
  CHECK(wait.launch == read && wait.hazard == PTO_WRITE_AFTER_READ);
  CHECK_EQ(0, pto_launch_get_wait(other, 0, &wait));
  CHECK(strcmp(pto_launch_name(first), "copying") == 0);
  CHECK_OK(pto_launch_wait(other));
  CHECK_EQ(1, pto_launch_is_done(other));
  CHECK_EQ(0, pto_launch_is_done(first));
  CHECK_EQ(0, pto_launch_is_done(write));
  hold(0);
  CHECK_OK(pto_session_wait(session));
  CHECK_EQ(1, pto_launch_is_done(write));
  CHECK_EQ(3 * (3 * HELD + 1) + 1, c[0]);
  CHECK_EQ(1, b[0]);
  pto_session_destroy(session);
}

static void test_failures(void) {
  static uint32_t a[SIZE], b[SIZE], c[SIZE], d[SIZE], e[SIZE];
  fill(a, 1);
  a[SIZE / 2] = HELD;
  fail(1);
  PTOSession* session = pto_session_create();
  PTOLaunch* failed = copied(session, a, b);
  PTOLaunch* skipped = copied(session, b, c);
  PTOLaunch* other = copied(session, d, e);
  CHECK_ERROR("error[launch-skipped]: `copying` was skipped, since `copying` before it failed",
              pto_launch_wait(skipped));
  CHECK_ERROR("error kernel-failed", pto_launch_wait(skipped));
  CHECK_OK(pto_launch_wait(other));
  CHECK_ERROR("a number is held", pto_launch_wait(failed));
  CHECK_ERROR("error[kernel-failed]", pto_session_wait(session));
  CHECK_EQ(0, c[SIZE / 2]);
  fail(0);
  copied(session, a, b);
  CHECK_OK(pto_launch_wait(copied(session, b, c)));
  CHECK_EQ(3 * (3 * HELD + 1) + 1, c[SIZE / 2]);
  pto_session_destroy(session);
}

static void* release(void* unused) {
  (void)unused;
  usleep(20000);
  hold(0);
  return NULL;
}

static void test_cancel(void) {
  static uint32_t a[SIZE], b[SIZE], c[SIZE], d[SIZE], e[SIZE];
  for (int whole = 0; whole < 3; ++whole) {
    pthread_t thread;
    fill(a, HELD);
    fill(b, 0);
    fill(c, 0);
    hold(1);
    CHECK_EQ(0, pthread_create(&thread, NULL, release, NULL));
    PTOSession* session = pto_session_create();
    PTOLaunch* first = copied(session, a, b);
    PTOLaunch* second = copied(session, b, c);
    PTOLaunch* other = copied(session, d, e);
    CHECK_OK(pto_launch_wait(other));
    if (whole < 2) {
      CHECK_OK(whole ? pto_session_cancel(session) : pto_launch_cancel(first));
      CHECK_ERROR("error[launch-skipped]", pto_launch_wait(second));
      CHECK_ERROR("error[run-cancelled]", pto_launch_wait(first));
      CHECK_ERROR("error[run-cancelled]", pto_session_wait(session));
      CHECK_OK(pto_launch_wait(other));
    }
    pto_session_destroy(session);
    CHECK_EQ(0, c[SIZE - 1]);
    pthread_join(thread, NULL);
  }
}

typedef struct Own {
  PTOSession* session;
  uint32_t* shared;
  uint32_t data[SIZE];
} Own;

static uint32_t ones[SIZE];

static void* launch_often(void* argument) {
  Own* own = (Own*)argument;
  for (int i = 0; i < 10; ++i) {
    struct pair_arguments arguments = pair(ones, own->shared);
    CHECK_OK(mixing_launch(own->session, &arguments, NULL, NULL));
    arguments = pair(ones, own->data);
    PTOLaunch* launch = NULL;
    CHECK_OK(mixing_launch(own->session, &arguments, NULL, &launch));
    if (i % 4 == 0) CHECK_OK(pto_launch_wait(launch));
  }
  return NULL;
}

static void test_threads(void) {
  static Own own[4];
  static uint32_t shared[SIZE];
  pthread_t threads[4];
  uint32_t each = 0, all = 0;
  fill(ones, 1);
  PTOSession* session = pto_session_create();
  for (int i = 0; i < 10; ++i) each = 5 * each + 1;
  for (int i = 0; i < 40; ++i) all = 5 * all + 1;
  for (int i = 0; i < 4; ++i) {
    own[i].session = session;
    own[i].shared = shared;
    CHECK_EQ(0, pthread_create(&threads[i], NULL, launch_often, &own[i]));
  }
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  CHECK_OK(pto_session_wait(session));
  for (int i = 0; i < SIZE; ++i) {
    CHECK_EQ(all, shared[i]);
    for (int t = 0; t < 4; ++t) CHECK_EQ(each, own[t].data[i]);
  }
  pto_session_destroy(session);
}

static void test_contracts(void) {
  static uint32_t a[SIZE], b[SIZE], c[SIZE];
  const char* copy[] = {"copy"};
  const char* both[] = {"copy", "mix"};
  PTOSession* session = pto_session_create();
  PTOGraph *first, *second;
  CHECK_OK(copying_graph(session, "first", &first));
  CHECK_OK(mixing_graph(session, NULL, &second));
  CHECK_ERROR("`mix` does not write `Y`; expected that `copy`, `mix` alone write it",
              pto_graph_provides(first, "Y", both, 2));
  CHECK_ERROR("error[unknown-parameter]: `first` has no tensor `Z`", pto_graph_provides(first, "Z", copy, 1));
  CHECK_OK(pto_graph_provides(first, "Y", copy, 1));
  CHECK_OK(pto_graph_requires(second, "X", first));

  const struct pair_arguments ab = pair(a, b), bc = pair(b, c), ac = pair(a, c);
  PTOLaunch *write, *read, *nothing = NULL;
  CHECK_ERROR("no earlier launch of `first` provides the array of `X`",
              mixing_launch(session, &bc, second, &nothing));
  CHECK(nothing == NULL);
  CHECK_ERROR("the graph is one of `copying`, found `mixing`", mixing_launch(session, &bc, first, NULL));
  CHECK_OK(copying_launch(session, &ab, first, &write));
  CHECK_ERROR("no earlier launch", mixing_launch(session, &ac, second, NULL));
  CHECK_OK(mixing_launch(session, &bc, second, &read));
  CHECK(strcmp(pto_launch_name(write), "first") == 0 && strcmp(pto_launch_name(read), "mixing") == 0);
  CHECK_OK(pto_session_order_reads(session, b, &read, 1, NULL));
  CHECK_OK(pto_session_order_writes(session, b, &write, 1));
  CHECK_ERROR("expected that `mixing` writes the array, found that it does not",
              pto_session_order_reads(session, b, &read, 1, read));
  PTOLaunch* again = copied(session, a, b);
  PTOLaunch* writes[] = {again, write};
  CHECK_OK(pto_session_order_reads(session, b, &read, 1, again));
  CHECK_ERROR("expected `copying` before `first`, found another order",
              pto_session_order_writes(session, b, writes, 2));
  CHECK_OK(pto_session_wait(session));
  CHECK_EQ(1, c[0]);

  PTOSession* other = pto_session_create();
  CHECK_ERROR("is of another session", pto_session_order_writes(other, b, &write, 1));
  CHECK_ERROR("the graph is one of another session", copying_launch(other, &ab, first, NULL));
  pto_session_destroy(other);
  pto_session_destroy(session);
}

static void test_axes_with_rows(void) {
  static uint32_t held[SIZE], y[SIZE];
  static int64_t offsets[SIZE / 2 + 1] = {0, 3, 4}, apart[] = {0, 2, SIZE};
  fill(held, HELD);
  hold(1);
  PTOSession* session = pto_session_create();
  struct rows_arguments arguments;
  arguments.rows = 2;
  arguments.offsets = offsets;
  arguments.Y = y;
  copied(session, held, (uint32_t*)(void*)(offsets + 1));
  CHECK_ERROR("offsets: the unfinished launch `copying` writes it: wait for that first",
              rows_launch(session, &arguments, NULL, NULL));
  arguments.offsets = apart;
  PTOLaunch* launch = NULL;
  CHECK_OK(rows_launch(session, &arguments, NULL, &launch));
  CHECK_OK(pto_launch_wait(launch));
  for (int i = 0; i < SIZE; ++i) CHECK_EQ(1, y[i]);
  hold(0);
  CHECK_OK(pto_session_wait(session));
  pto_session_destroy(session);
}

static void test_mistakes(void) {
  const struct pair_arguments none = pair(NULL, NULL);
  PTOSession* session = pto_session_create();
  PTOLaunch* launch = NULL;
  PTOGraph* graph = NULL;
  CHECK_ERROR("expected a session, found NULL", copying_launch(NULL, &none, NULL, &launch));
  CHECK_ERROR("expected a session, found NULL", copying_graph(NULL, "first", &graph));
  CHECK_ERROR("expected a place for the graph, found NULL", copying_graph(session, "first", NULL));
  CHECK_ERROR("X: expected an array, found NULL", copying_launch(session, &none, NULL, &launch));
  CHECK_ERROR("expected a session, found NULL", pto_session_wait(NULL));
  CHECK_ERROR("expected a launch, found NULL", pto_launch_wait(launch));
  PTOWait wait;
  CHECK(pto_launch_is_done(NULL) && pto_launch_name(NULL)[0] == 0 && !pto_launch_get_wait(NULL, 0, &wait));
  CHECK_ERROR("expected a graph, found NULL", pto_graph_requires(NULL, "X", NULL));
  CHECK_OK(pto_session_wait(session));
  pto_session_destroy(session);
  pto_session_destroy(NULL);
}

/* A session of another build or of another library is refused before anything of it is used. */
static void test_sessions_of_other_libraries(void) {
  static uint32_t x[SIZE], y[SIZE];
  const struct pair_arguments arguments = pair(x, y);
  PTOSession* session = pto_session_create();
  uint64_t other[3]; /* what calls its functions, the signature, the library */
  memcpy(other, session, sizeof other);
  PTOSession* of_other = (PTOSession*)(void*)other;
  ++other[2];
  CHECK_ERROR("the session is one of another library", pto_session_wait(of_other));
  CHECK_ERROR("the session is one of another library", pto_session_cancel(of_other));
  ++other[1];
  CHECK_ERROR("from another version of PTO-WSP", copying_launch(of_other, &arguments, NULL, NULL));
  CHECK_ERROR("from another version of PTO-WSP", pto_session_wait(of_other));
  pto_session_destroy(session);
}

int main(void) {
  test_random_launches();
  test_waits_are_named();
  test_failures();
  test_cancel();
  test_threads();
  test_contracts();
  test_axes_with_rows();
  test_mistakes();
  test_sessions_of_other_libraries();
  return 0;
}
