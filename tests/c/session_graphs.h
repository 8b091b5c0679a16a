/* SPDX-License-Identifier: MIT */
/* Programs as functions of C, as `Program.export` writes them. Tasks wait for random times. */
#ifndef TESTS_C_SESSION_GRAPHS_H_
#define TESTS_C_SESSION_GRAPHS_H_

#include <stdint.h>

#include "pto_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Elements of each array, of which a task takes one. */
enum { SIZE = 32 };

/** copying: Y[i] = 3 * X[i] + 1. mixing: Y[i] = 5 * Y[i] + X[i]. Modulo 2^32. */
struct pair_arguments {
  const uint32_t* X;
  uint32_t* Y;
  uint32_t workers;
};

const char* copying(const struct pair_arguments* arguments);
const char* copying_launch(PTOSession* session, const struct pair_arguments* arguments, const PTOGraph* graph,
                           PTOLaunch** launch);
const char* copying_graph(PTOSession* session, const char* title, PTOGraph** graph);

const char* mixing(const struct pair_arguments* arguments);
const char* mixing_launch(PTOSession* session, const struct pair_arguments* arguments, const PTOGraph* graph,
                          PTOLaunch** launch);
const char* mixing_graph(PTOSession* session, const char* title, PTOGraph** graph);

/** Row r of an axis is [offsets[r], offsets[r + 1]): Y[i] = 3 * Y[i] + 1 for each i in each row. */
struct rows_arguments {
  int64_t rows;
  const int64_t* offsets;
  uint32_t* Y;
};

const char* rows_launch(PTOSession* session, const struct rows_arguments* arguments, const PTOGraph* graph,
                        PTOLaunch** launch);

/** Tasks that read this number wait as long as `hold(1)` says, and fail if `fail(1)` says. */
enum { HELD = 77 };
void hold(int is_held);
void fail(int fails);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_C_SESSION_GRAPHS_H_ */
