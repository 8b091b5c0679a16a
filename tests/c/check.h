/* SPDX-License-Identifier: MIT */
/* Checks of the C tests: the first that fails ends the program. */
#ifndef TESTS_C_CHECK_H_
#define TESTS_C_CHECK_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

#define CHECK_EQ(expected, found)                                                                      \
  do {                                                                                                 \
    const long long expected_ = (long long)(expected), found_ = (long long)(found);                    \
    if (expected_ != found_) {                                                                         \
      fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #found, found_, expected_); \
      exit(1);                                                                                         \
    }                                                                                                  \
  } while (0)

/* The next number of a sequence that looks random, below `limit`. */
static inline uint32_t random_below(uint32_t* state, uint32_t limit) {
  *state = *state * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)(*state >> 8) * limit) >> 24);
}

#endif /* TESTS_C_CHECK_H_ */
