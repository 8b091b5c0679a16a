// SPDX-License-Identifier: MIT
/// \file
/// `CHECK(condition)`: reports where it fails and makes the test program exit with 1.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(...)                                                           \
  do {                                                                       \
    if (!(__VA_ARGS__)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
      std::exit(1);                                                          \
    }                                                                        \
  } while (false)
