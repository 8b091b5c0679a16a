// SPDX-License-Identifier: MIT
/// \file
/// Test macros: CHECK says what was expected and where; TEST registers a function; main runs all of them.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "pto/wsp/error.hpp"

namespace check {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Register {
  Register(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text.c_str());
  std::abort();
}

/// The code of the EngineError that `body` throws, or "none".
inline std::string code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const pto::wsp::EngineError& error) {
    return error.code();
  }
  return "none";
}

}  // namespace check

#define CHECK(condition) \
  if (!(condition)) check::fail(__FILE__, __LINE__, #condition)
#define CHECK_EQ(a, b)                                                                       \
  do {                                                                                       \
    const auto check_a = (a);                                                                \
    const auto check_b = (b);                                                                \
    if (!(check_a == check_b)) {                                                             \
      check::fail(__FILE__, __LINE__,                                                        \
                  std::string(#a " == " #b ", found ") + std::to_string(check_a) + " and " + \
                      std::to_string(check_b));                                              \
    }                                                                                        \
  } while (0)
#define CHECK_CODE(expected, ...)                                                                        \
  do {                                                                                                   \
    const std::string found = check::code_of([&] { __VA_ARGS__; });                                      \
    if (found != (expected))                                                                             \
      check::fail(__FILE__, __LINE__, std::string("expected error ") + (expected) + ", found " + found); \
  } while (0)
#define TEST(name)                                           \
  static void name();                                        \
  static const check::Register register_##name(#name, name); \
  static void name()

int main() {
  for (const check::Case& test : check::cases()) {
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    test.body();
  }
  return 0;
}
